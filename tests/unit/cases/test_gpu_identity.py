"""Public reports of cards that were taken for something else: what Plimsoll makes of each.

The ids are those of the table of reports; what each asks for stands in the docstring.
"""

from __future__ import annotations

from typing import Any

import pytest

import worlds
from plimsoll.api.asks import PoolAsk
from plimsoll.api.inventory import inventory
from plimsoll.api.manifest import read
from plimsoll.api.requests import pool_asks
from plimsoll.api.settle import settle
from plimsoll.catalog.gpus import find_type
from plimsoll.catalog.profiles import GpuProfile
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.facts.gpu import GpuFacts, GpuProblem, Inventory
from plimsoll.facts.source import Confidence, FactSource
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Overrides, Plan, PlanRequest, Reason, Refusal
from plimsoll.plan.reported import EngineReport
from plimsoll.plan.verify import Short, Verified, geometry_of, verify
from plimsoll.units import GIB, MIB

GPU = "nvidia.com/gpu"


def world(
    labels: dict[str, str], allocatable: dict[str, str], capacity: dict[str, str] | None = None
) -> Inventory:
    """One node, with nothing but what its object says."""
    status = {"allocatable": allocatable, "capacity": capacity or {}}
    return inventory([{"metadata": {"name": "node-a", "labels": labels}, "status": status}], [], {})


def problem(found: Inventory) -> tuple[GpuProblem, str]:
    """Why nothing is planned there."""
    assert () == found.nodes
    (refused,) = found.unplannable
    return refused.problem, refused.message


def fits(request: PlanRequest) -> Plan:
    found = plan(request)
    assert isinstance(found, Plan), found
    return found


def refused(request: PlanRequest) -> Refusal:
    found = plan(request)
    assert isinstance(found, Refusal), found
    return found


def flag(found: Plan, name: str) -> str | None:
    return next((each.value for each in found.flags if each.name == name), None)


def card(product: str = "card", **fields: Any) -> GpuFacts:
    """A card by hand, on an RTX A6000's abilities."""
    return worlds.card("rtx-a6000").model_copy(update={"product": product, **fields})


# ---- sharing and slices --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sign",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {"nvidia.com/gpu.sharing-strategy": "time-slicing"},
        {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "4"},
    ],
    ids=str,
)
def test_u004_sharing_is_seen_by_replicas_and_strategy_not_by_a_suffix(
    sign: dict[str, str],
) -> None:
    """renameByDefault: the resource is nvidia.com/gpu.shared and the product has no suffix."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-RTX-A6000", "nvidia.com/gpu.memory": "49140"}
    renamed = world(labels | sign, {"nvidia.com/gpu.shared": "16", GPU: "0"})
    assert GpuProblem.TIME_SLICED is problem(renamed)[0]
    assert GpuProblem.TIME_SLICED is problem(world(labels | sign, {GPU: "16"}))[0]


def test_u007_mixed_slices_are_read_by_profile_and_asked_for_by_their_own_resource() -> None:
    """gpu.count stays the number of physical cards, and is no capacity."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.replicas": "0",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig-3g.40gb.count": "2",
        "nvidia.com/mig-3g.40gb.memory": "40192",
        "nvidia.com/mig-3g.40gb.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
    }
    (found,) = world(labels, {GPU: "0", "nvidia.com/mig-3g.40gb": "2"}).nodes
    assert ("nvidia.com/mig-3g.40gb", 2, 40192 * MIB) == (
        found.gpu.resource,
        found.count,
        found.gpu.total_bytes,
    )


def test_u019_slices_that_are_shared_in_time_are_refused() -> None:
    """Eight cards of four slices, four replicas each: 128 of nvidia.com/gpu.shared."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.10gb",
        "nvidia.com/gpu.memory": "9856",
        "nvidia.com/gpu.count": "32",
        "nvidia.com/gpu.replicas": "4",
    }
    reason, message = problem(world(labels, {GPU: "0", "nvidia.com/gpu.shared": "128"}))
    assert GpuProblem.TIME_SLICED is reason
    assert "nvidia.com/gpu.shared" in message


# ---- memory that nobody tells --------------------------------------------------------------------


def test_u008_a_missing_label_is_a_state_of_its_own() -> None:
    """The table of types, else the user's word, else a reason; never zero."""
    known = {"nvidia.com/gpu.product": "NVIDIA-L40S", "nvidia.com/gpu.count": "4"}
    (found,) = world(known, {GPU: "4"}).nodes
    assert (46068 * MIB, Confidence.BOUND) == (
        found.gpu.total_bytes,
        found.gpu.provenance.confidence,
    )
    unknown = {"nvidia.com/gpu.product": "NVIDIA-N9", "nvidia.com/gpu.count": "4"}
    reason, message = problem(world(unknown, {GPU: "4"}))
    assert (GpuProblem.MEMORY_UNKNOWN, True) == (reason, "unknown is not zero" in message)
    node = {"metadata": {"name": "a", "labels": unknown}, "status": {"allocatable": {GPU: "4"}}}
    told = [GpuProfile(product="NVIDIA-N9", total=64 * GIB)]
    (named,) = inventory([node], [], {}, profiles=told).nodes
    assert (64 * GIB, FactSource.PROFILE) == (named.gpu.total_bytes, named.gpu.provenance.source)


SPARK = {
    "nvidia.com/gpu.product": "NVIDIA-GB10",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.family": "blackwell",
}
SPARK_MEMORY = {"memory": f"{128_501_256_192 // 1024}Ki"}


def spark() -> GpuFacts:
    """A DGX Spark as device plugin and kubelet show it."""
    (found,) = world(SPARK, {GPU: "1", **SPARK_MEMORY}, {GPU: "1", **SPARK_MEMORY}).nodes
    return found.gpu


def test_u009_a_resource_without_memory_is_planned_from_the_systems() -> None:
    gpu = spark()
    assert (True, FactSource.NODE) == (gpu.unified_memory, gpu.provenance.source)
    assert fits(worlds.eight_b_on_a_4090(gpu=gpu)).kv.pool_tokens > 100_000


def test_u010_the_total_is_119_7_gib_and_free_memory_is_not_asked() -> None:
    """7.4 GiB were free then, for the rest was cache that can be had back."""
    gpu = spark()
    assert "119.7" == f"{gpu.total_bytes / GIB:.1f}"
    assert 0 == gpu.held_by_others_bytes


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (SPARK, "missing"),
        (
            {
                "nvidia.com/gpu.product": "NVIDIA-N1X",
                "nvidia.com/gpu.memory": "8128",
                "nvidia.com/gpu.compute.major": "12",
                "nvidia.com/gpu.compute.minor": "1",
            },
            "implausible",
        ),
    ],
)
def test_u011_missing_is_made_up_for_and_implausible_is_put_aside(
    labels: dict[str, str], says: str
) -> None:
    (found,) = world(labels, {GPU: "1", **SPARK_MEMORY}, SPARK_MEMORY).nodes
    assert 128_501_256_192 == found.gpu.total_bytes
    assert (says == "implausible") is any("8,128 MiB" in note for note in found.notes)


def test_u013_the_kv_cache_is_pinned_in_bytes_where_host_and_card_share() -> None:
    """A compiler's 30 GB of heap then takes nothing from it: 40 GiB stay 40 GiB."""
    found = fits(worlds.eight_b_on_a_4090(gpu=spark(), release="0.22.1"))
    assert str(found.kv.pool_bytes_per_card) == flag(found, "--kv-cache-memory-bytes")
    assert found.kv.pool_bytes_per_card == found.line(ByteOwner.KV_CACHE) > 40 * GIB


def test_u013_a_reading_far_below_the_plan_is_a_finding() -> None:
    """9.5 GiB were left of 40: a quarter of the blocks."""
    request = worlds.eight_b_on_a_4090(gpu=spark(), release="0.33.0")
    planned = fits(request)
    geometry = geometry_of(request, planned)
    assert geometry is not None
    blocks = planned.kv.pool_bytes_per_card // geometry.block_bytes

    def outcome(seen: int) -> object:
        report = EngineReport(engine=EngineName.VLLM, blocks=seen, block_tokens=16)
        return type(verify(planned, report, geometry))

    assert (Verified, Short) == (outcome(blocks), outcome(blocks * 95 // 400))


def test_u015_a_shared_memory_has_a_lower_ceiling() -> None:
    shared, own = (
        fits(worlds.eight_b_on_a_4090(gpu=gpu)) for gpu in (spark(), worlds.card("h100-sxm"))
    )
    assert shared.gpu_memory_utilization is not None
    assert shared.gpu_memory_utilization <= 0.85 < (own.gpu_memory_utilization or 0)


@pytest.mark.parametrize("release", ["0.7.0", "0.8.5", "0.10.1", "0.10.2", "0.33.0"])
def test_u016_a_fraction_is_no_control_there_so_bytes_or_blocks_are_pinned(release: str) -> None:
    """AGX Orin 64 GB: 0.2 ended at 46 GB used and 0.8 at 38 GB."""
    orin = card("Orin", total_bytes=60 * GIB, unified_memory=True, compute_capability="8.7")
    found = fits(worlds.eight_b_on_a_4090(gpu=orin, release=release))
    by_bytes = release in ("0.10.2", "0.33.0")
    assert by_bytes is (flag(found, "--kv-cache-memory-bytes") is not None)
    assert by_bytes is (flag(found, "--num-gpu-blocks-override") is None)


def test_u016_a_card_of_its_own_memory_keeps_its_share() -> None:
    found = fits(worlds.eight_b_on_a_4090())
    assert (
        flag(found, "--kv-cache-memory-bytes") is flag(found, "--num-gpu-blocks-override") is None
    )


# ---- names and totals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "total_mib"),
    [
        ({"amd.com/gpu.vram": "64G", "amd.com/gpu.product-name": "Instinct_MI210"}, 65520),
        ({"amd.com/gpu.vram": "192G", "amd.com/gpu.product-name": "Instinct_MI300X"}, 196592),
        (
            {
                "beta.amd.com/gpu.vram.192G": "8",
                "beta.amd.com/gpu.product-name.Instinct_MI300X": "8",
            },
            196592,
        ),
        (
            {"amd.com/gpu.vram.64G": "1", "amd.com/gpu.product-name.Instinct_MI210": "1"},
            65520,
        ),
    ],
    ids=["MI210", "MI300X", "beta", "value in the key"],
)
def test_u017_amds_g_is_gib_in_both_styles_and_rounded(
    labels: dict[str, str], total_mib: int
) -> None:
    """191.98 GiB becomes 192G."""
    (found,) = world(labels, {"amd.com/gpu": "8"}).nodes
    assert total_mib * MIB == found.gpu.total_bytes
    assert "amd.com/gpu" == found.gpu.resource
    assert Confidence.BOUND is found.gpu.provenance.confidence


def test_u017_a_card_that_we_do_not_know_has_the_least_that_its_label_can_mean() -> None:
    labels = {"amd.com/gpu.vram": "48G", "amd.com/gpu.product-name": "Radeon_Pro_W9999"}
    (found,) = world(labels, {"amd.com/gpu": "1"}).nodes
    assert 47 * GIB == found.gpu.total_bytes <= 47.5 * GIB


@pytest.mark.parametrize(
    ("product", "mib", "key"),
    [
        ("NVIDIA-RTX-4090", 24576, "rtx-4090"),
        ("NVIDIA-GeForce-RTX-4090", 24564, "rtx-4090"),
        ("NVIDIA-GeForce-RTX-4090-D", 24564, "rtx-4090"),
        ("NVIDIA-Device-2685-VGA-compatible", 24810, None),
        ("NVIDIA-H200", 144492, "h200"),
    ],
)
def test_u018_totals_are_not_canonical_within_about_one_per_cent(
    product: str, mib: int, key: str | None
) -> None:
    (found,) = world(
        {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(mib)}, {GPU: "1"}
    ).nodes
    known = find_type(product)
    assert key == (known.key if known else None)
    assert () == found.notes
    assert found.gpu.usable_bytes <= mib * MIB


# ---- less than the card --------------------------------------------------------------------------


def asked(spec: dict[str, Any], cards: Inventory) -> PoolAsk:
    """The one question of an object on these cards."""
    raw = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "chat", "namespace": "a"},
        "spec": spec,
    }
    (ask,) = pool_asks(read(raw), cards)
    return ask


def test_u020_what_a_shim_leaves_of_a_card_has_a_field_in_the_spec() -> None:
    """HAMi shows a container 23.56 GiB of a 3090; captured graphs are inside that."""
    gpu: dict[str, Any] = {"product": "NVIDIA-GeForce-RTX-3090"}
    spec = {
        "model": {"name": "m", "id": worlds.EIGHT_B, "uri": "pvc://models/m"},
        "engines": {"vllm": {"image": "vllm/vllm-openai:v0.19.1"}},
        "replicas": 1,
        "pools": [{"name": "p", "engine": "vllm", "gpu": gpu}],
        "limits": {"maxModelLen": 8192},
    }
    labels = {"nvidia.com/gpu.product": gpu["product"], "nvidia.com/gpu.memory": "24576"}
    cards = world(labels, {GPU: "1"})
    for visible, total in (("20Gi", 20 * GIB), ("48Gi", None)):
        gpu["visibleMemory"] = visible
        ask = asked(spec, cards)
        assert ask.request is not None
        seen = ask.request.gpu
        assert (total or 24576 * MIB) == seen.total_bytes
        found = settle(ask, None).plan
        assert found is not None
        assert sum(line.bytes for line in found.ledger) == seen.total_bytes
        assert found.line(ByteOwner.GRAPHS) > 0


def test_u026_a_share_that_cannot_pass_is_answered_with_the_largest_that_does() -> None:
    """0.95 over two cards, of which somebody holds a part."""
    held = 3 * GIB
    gpu = worlds.card("rtx-4090").model_copy(update={"held_by_others_bytes": held})
    request = worlds.eight_b_on_a_4090(
        gpu=gpu, cards=2, overrides=Overrides(gpu_memory_utilization=0.95)
    )
    message = refused(request).message
    assert "at most 0." in message
    largest = float(message.split("at most ")[1].split(" ")[0])
    passes = request._replace(overrides=Overrides(gpu_memory_utilization=largest))
    assert held == fits(passes).line(ByteOwner.OTHERS)
    above = request._replace(overrides=Overrides(gpu_memory_utilization=largest + 0.01))
    assert Reason.OVERRIDE_CANNOT_WORK is refused(above).reason


def test_u028_with_another_model_on_the_card_the_length_is_lowered_or_it_waits() -> None:
    """An 8.2 GB laptop card of which a desktop and another model hold a part: the plan is refused with a
    shorter length before the engine is started in vain, seventeen times."""
    small = worlds.model(worlds.EIGHT_B).model_copy(
        update={
            "weights": worlds.model(worlds.EIGHT_B).weights.model_copy(
                update={"total_bytes": int(4.5 * GIB)}
            )
        }
    )
    laptop = card("laptop", total_bytes=8188 * MIB, reserved_bytes=300 * MIB)
    free = worlds.eight_b_on_a_4090(gpu=laptop, model=small, max_model_len=8192)
    assert fits(free).max_model_len == 8192
    taken = laptop.model_copy(update={"held_by_others_bytes": int(0.7 * GIB)})
    answer = refused(free._replace(gpu=taken))
    assert Reason.KV_BUDGET_EXCEEDED is answer.reason
    (shorter,) = [offer for offer in answer.offers if offer.change == "limits.maxModelLen"]
    assert 0 < int(shorter.value) < 8192
    assert (
        int(shorter.value)
        == fits(free._replace(gpu=taken, max_model_len=int(shorter.value))).max_model_len
    )


def test_u029_of_a_card_half_taken_at_most_0_54_is_proposed() -> None:
    """25.67 of 47.4 GiB are free; 0.9 asks for 42.66."""
    half = card(
        total_bytes=int(47.4 * GIB),
        reserved_bytes=0,
        held_by_others_bytes=int((47.4 - 25.67) * GIB),
    )
    by_itself = fits(worlds.eight_b_on_a_4090(gpu=half)).gpu_memory_utilization
    assert by_itself is not None
    assert 0.5 < by_itself <= 0.5416
    asked_for = worlds.eight_b_on_a_4090(gpu=half, overrides=Overrides(gpu_memory_utilization=0.9))
    message = refused(asked_for).message
    assert 0.5 < float(message.split("at most ")[1].split(" ")[0]) <= 0.5416
    too_big = asked_for._replace(model=worlds.model(worlds.SEVENTY_B), overrides=Overrides())
    assert Reason.WEIGHTS_DO_NOT_FIT is refused(too_big).reason
