"""Whom do we believe about a card, where do sources differ, and when is what was said too old?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.inventory import STALE_SECONDS, NodeReader, inventory
from plimsoll.api.workload import match_labels
from plimsoll.catalog.profiles import GpuProfile, read_profiles
from plimsoll.facts.gpu import Fp8, GpuProblem, GpuVendor, Inventory, NodeGpus, UnplannableNode
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence, FactSource
from plimsoll.units import GIB, MIB

GPU = "nvidia.com/gpu"
NOW = 1_780_000_000.0
BEAT = "2026-05-28T20:26:40Z"
"""The same moment."""


def node(
    labels: dict[str, str] | None = None,
    *,
    capacity: str | None = None,
    name: str = "node-a",
    **allocatable: str,
) -> dict[str, Any]:
    """A node with an A6000, as labels have it."""
    product = {
        "nvidia.com/gpu.product": "NVIDIA-RTX-A6000",
        "nvidia.com/gpu.memory": "49140",
        "nvidia.com/gpu.count": "1",
    }
    resources = {key.replace("__", "/").replace("_", "."): v for key, v in allocatable.items()}
    status: dict[str, Any] = {"allocatable": resources or {GPU: "1"}}
    if capacity is not None:
        status["capacity"] = {"memory": capacity}
    return {
        "metadata": {"name": name, "labels": product if labels is None else labels},
        "status": status,
    }


def agent(*cards: dict[str, Any], heartbeat: str | None = BEAT, name: str = "node-a") -> Any:
    """A GPUNode."""
    status = {"cards": list(cards)} | ({"heartbeat": heartbeat} if heartbeat else {})
    return {"metadata": {"name": name}, "status": status}


def card(product: str = "NVIDIA-RTX-A6000", mib: int | None = 49140, **more: Any) -> dict[str, Any]:
    """A card as the agent has it."""
    total = {} if mib is None else {"totalBytes": mib * MIB}
    return {"uuid": "GPU-1", "product": product} | total | more


def slices(product: str, memory: str | None, *, devices: int = 1, **attributes: Any) -> Any:
    """A ResourceSlice with cards of one product."""
    capacity = {} if memory is None else {"memory": {"value": memory}}
    return {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-a",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{i}",
                    "attributes": {
                        "type": {"string": "gpu"},
                        "uuid": {"string": f"GPU-{i}"},
                        "productName": {"string": product},
                    }
                    | attributes,
                    "capacity": capacity,
                }
                for i in range(devices)
            ],
        },
    }


def one(found: Inventory) -> NodeGpus:
    """The one kind of card in reach."""
    assert () == found.unplannable
    (seen,) = found.nodes
    return seen


def refused(found: Inventory) -> UnplannableNode:
    """The one kind of card that is not planned for."""
    assert () == found.nodes
    (seen,) = found.unplannable
    return seen


# ---- who is believed -----------------------------------------------------------------------------

VOICES = ("table", "agent", "slices", "labels")
TOTALS_MIB = {"table": 40000, "agent": 44000, "slices": 46068, "labels": 49140}
SOURCES = {
    "table": FactSource.PROFILE,
    "agent": FactSource.AGENT,
    "slices": FactSource.DRA,
    "labels": FactSource.LABELS,
}


def world(*voices: str) -> Inventory:
    """An A6000 of which each voice tells another memory; labels always give its name."""
    labels = node()["metadata"]["labels"]
    if "labels" not in voices:
        labels.pop("nvidia.com/gpu.memory")
    table = [GpuProfile(product="NVIDIA-RTX-A6000", total=TOTALS_MIB["table"] * MIB)]
    return inventory(
        [node(labels)],
        [agent(card(mib=TOTALS_MIB["agent"]))] if "agent" in voices else [],
        {},
        resource_slices=[slices("NVIDIA RTX A6000", f"{TOTALS_MIB['slices']}Mi")]
        if "slices" in voices
        else [],
        profiles=table if "table" in voices else [],
        now_seconds=NOW,
    )


@pytest.mark.parametrize("number", range(1, 16))
def test_the_first_voice_in_the_order_is_believed(number: int) -> None:
    voices = [voice for at, voice in enumerate(VOICES) if number >> at & 1]
    seen = one(world(*voices))
    assert TOTALS_MIB[voices[0]] * MIB == seen.gpu.total_bytes
    assert SOURCES[voices[0]] is seen.gpu.provenance.source
    said = {SOURCES[voice] for voice in voices}
    assert said <= {voice.source for voice in seen.seen}


@pytest.mark.parametrize("number", range(1, 16))
def test_each_voice_that_says_otherwise_is_told(number: int) -> None:
    voices = [voice for at, voice in enumerate(VOICES) if number >> at & 1]
    notes = " ".join(one(world(*voices)).notes)
    for other in voices[1:]:
        assert f"{TOTALS_MIB[other]:,} MiB" in notes


def test_without_any_voice_the_catalogue_is_the_last() -> None:
    seen = one(world())
    assert (49140 * MIB, Confidence.BOUND) == (
        seen.gpu.total_bytes,
        seen.gpu.provenance.confidence,
    )


def test_voices_that_agree_are_not_told() -> None:
    seen = one(
        inventory(
            [node()],
            [agent(card())],
            {},
            resource_slices=[slices("NVIDIA RTX A6000", "49140Mi")],
        )
    )
    assert () == seen.notes


def test_each_fact_has_its_own_first_voice() -> None:
    """The table tells a memory, the agent the driver's part of another, the slice the capability."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-N9", "nvidia.com/gpu.memory": "64000"}
    seen = one(
        inventory(
            [node(labels)],
            [agent(card("NVIDIA-N9", 64100, reservedBytes=700 * MIB, heldByOthersBytes=5))],
            {},
            resource_slices=[slices("NVIDIA N9", None, cudaComputeCapability={"version": "9.0.0"})],
            profiles=[GpuProfile(product="NVIDIA-N9", bf16=False)],
        )
    ).gpu
    assert (64100 * MIB, 700 * MIB, 5, "9.0", Fp8.NATIVE, False) == (
        seen.total_bytes,
        seen.reserved_bytes,
        seen.held_by_others_bytes,
        seen.compute_capability,
        seen.fp8,
        seen.bf16,
    )
    assert FactSource.AGENT is seen.provenance.source


def test_the_drivers_part_goes_with_the_total_at_which_it_was_seen() -> None:
    told = [GpuProfile(product="NVIDIA-RTX-A6000", total=40 * GIB)]
    seen = one(inventory([node()], [agent(card(reservedBytes=464 * MIB))], {}, profiles=told)).gpu
    assert 640 * MIB == seen.reserved_bytes
    assert Confidence.BOUND is seen.provenance.confidence


def test_a_row_that_tells_only_the_drivers_part_goes_with_any_total() -> None:
    told = [GpuProfile(product="NVIDIA-RTX-A6000", reserved=999 * MIB)]
    assert 999 * MIB == one(inventory([node()], [], {}, profiles=told)).gpu.reserved_bytes


def test_a_capability_that_differs_is_told() -> None:
    (note,) = one(inventory([node()], [agent(card(computeCapability="8.9"))], {})).notes
    assert [] == [word for word in ("8.9", "8.6", "the agent counts") if word not in note]


def test_a_memory_that_the_catalogue_never_saw_is_told() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090", "nvidia.com/gpu.memory": "49140"}
    seen = one(inventory([node(labels)], [], {}))
    assert 49140 * MIB == seen.gpu.total_bytes
    assert ["24,564 MiB" in note for note in seen.notes] == [True]


@pytest.mark.parametrize("mib", [49140, 46068, 49300])
def test_totals_that_a_card_is_known_with_are_no_news(mib: int) -> None:
    """ECC on and off, and about one per cent between detectors."""
    labels = node()["metadata"]["labels"] | {"nvidia.com/gpu.memory": str(mib)}
    assert () == one(inventory([node(labels)], [], {})).notes


@given(
    st.lists(st.integers(30_000, 60_000), min_size=2, max_size=2),
    st.permutations(["agent", "slices"]),
)
def test_the_order_of_lists_is_no_order_of_trust(totals: list[int], order: list[str]) -> None:
    by_agent, by_slices = totals
    found = inventory(
        [node()],
        [agent(card(mib=by_agent))],
        {},
        resource_slices=[slices("NVIDIA RTX A6000", f"{by_slices}Mi")],
    )
    assert by_agent * MIB == one(found).gpu.total_bytes


# ---- which cards there are -----------------------------------------------------------------------


def test_a_name_that_changed_with_the_driver_is_the_same_card_under_the_nodes_label() -> None:
    labels = {"nvidia.com/gpu.product": "A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"}
    seen = one(inventory([node(labels)], [agent(card("NVIDIA-A100-SXM4-40GB", 40960))], {}))
    assert ("A100-SXM4-40GB", ()) == (seen.gpu.product, seen.notes)


def test_another_name_behind_the_label_is_told() -> None:
    seen = one(inventory([node()], [agent(card("NVIDIA-L40S", 46068))], {}))
    assert "NVIDIA-RTX-A6000" == seen.gpu.product
    assert any("NVIDIA-L40S" in note for note in seen.notes)


def test_two_products_are_refused_by_name_where_somebody_counts_them() -> None:
    both = slices("NVIDIA RTX A6000", "49140Mi"), slices("NVIDIA GeForce RTX 4090", "24564Mi")
    both[0]["spec"]["devices"] += [
        device | {"name": "gpu-9"} for device in both[1]["spec"]["devices"]
    ]
    by_slices = refused(inventory([node()], [], {}, resource_slices=[both[0]]))
    by_agent = refused(
        inventory([node()], [agent(card(), card("NVIDIA-GeForce-RTX-4090", 24564))], {})
    )
    for found in (by_slices, by_agent):
        assert GpuProblem.AMBIGUOUS is found.problem
        assert "NVIDIA-GeForce-RTX-4090 and NVIDIA-RTX-A6000" in found.message


def test_devices_that_only_claims_get_are_not_ours_to_plan_with() -> None:
    found = refused(
        inventory([node({}, cpu="8")], [], {}, resource_slices=[slices("NVIDIA H200", "143771Mi")])
    )
    assert GpuProblem.NOT_OFFERED is found.problem
    assert [] == [w for w in ("NVIDIA-H200", GPU, "device plugin") if w not in found.message]


def test_devices_and_the_plugins_resource_are_not_added_up() -> None:
    seen = one(
        inventory(
            [node(nvidia_com__gpu="1")],
            [],
            {},
            resource_slices=[slices("NVIDIA RTX A6000", "49140Mi", devices=1)],
        )
    )
    assert (1, 1) == (seen.count, seen.free)


def test_cards_that_nobody_labels_are_named_by_those_who_count_them() -> None:
    for seen in (
        one(inventory([node({})], [agent(card())], {})),
        one(inventory([node({})], [], {}, resource_slices=[slices("NVIDIA RTX A6000", "49140Mi")])),
    ):
        assert ("NVIDIA-RTX-A6000", 1) == (seen.gpu.product, seen.count)
        assert any("nvidia.com/gpu.product=NVIDIA-RTX-A6000" in note for note in seen.notes)


def test_a_slice_of_the_single_strategy_is_asked_for_as_a_whole_card() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H200-MIG-1g.18gb",
        "nvidia.com/gpu.memory": "16384",
        "nvidia.com/gpu.count": "7",
    }
    profile = {"profile": "1g.18gb", "totalBytes": 16384 * MIB, "count": 7}
    sliced = card("NVIDIA-H200", 143771, migEnabled=True) | {
        "migProfiles": [profile | {"resource": "nvidia.com/mig-1g.18gb"}]
    }
    seen = one(inventory([node(labels, nvidia_com__gpu="7")], [agent(sliced)], {}))
    assert ("NVIDIA-H200-MIG-1g.18gb", GPU, 7, 16384 * MIB) == (
        seen.gpu.product,
        seen.gpu.resource,
        seen.count,
        seen.gpu.total_bytes,
    )


def test_slices_that_only_old_labels_tell_of_are_gone_and_said_to_be() -> None:
    labels = node()["metadata"]["labels"] | {
        "nvidia.com/mig-1g.5gb.count": "1",
        "nvidia.com/mig-1g.5gb.memory": "4864",
    }
    seen = one(inventory([node(labels)], [agent(card())], {}))
    assert "NVIDIA-RTX-A6000" == seen.gpu.product
    assert any("does not see" in note for note in seen.notes)


def test_labels_of_a_node_decide_sharing_whoever_else_saw_the_card() -> None:
    """A time-sliced card looks whole to NVML and to a ResourceSlice."""
    labels = node()["metadata"]["labels"] | {"nvidia.com/gpu.replicas": "2"}
    told = [GpuProfile(product="NVIDIA-RTX-A6000", total=GIB)]
    found = refused(
        inventory(
            [node(labels, nvidia_com__gpu="2")],
            [agent(card())],
            {},
            resource_slices=[slices("NVIDIA RTX A6000", "49140Mi")],
            profiles=told,
        )
    )
    assert GpuProblem.TIME_SLICED is found.problem


def test_more_offered_than_anybody_counts_is_sharing_in_silence() -> None:
    found = refused(inventory([node(nvidia_com__gpu="4")], [agent(card())], {}))
    assert GpuProblem.TIME_SLICED is found.problem


def test_a_card_that_fell_off_makes_no_sharing_of_what_is_left() -> None:
    labels = node()["metadata"]["labels"] | {"nvidia.com/gpu.count": "2"}
    cards = card(), card() | {"uuid": "GPU-2", "lost": True}
    seen = one(inventory([node(labels, nvidia_com__gpu="2")], [agent(*cards)], {}))
    assert 1 == seen.count


# ---- the user's own table ------------------------------------------------------------------------


def test_the_table_names_what_labels_cannot() -> None:
    told = read_profiles(
        [{"product": "Orin-64GB", "nodeSelector": {"board": "agx"}, "total": "60Gi"}]
    )
    unnamed = {"board": "agx"}
    seen = one(inventory([node(unnamed)], [], {}, profiles=told))
    assert ("Orin-64GB", GPU, 60 * GIB) == (
        seen.gpu.product,
        seen.gpu.resource,
        seen.gpu.total_bytes,
    )
    assert GpuProblem.TYPE_UNKNOWN is refused(inventory([node(unnamed)], [], {})).problem


def test_the_table_gives_intel_its_memory() -> None:
    labels = {"gpu.intel.com/product": "Max_1100", "gpu.intel.com/device.count": "1"}
    allocatable = {"gpu_intel_com__i915": "1"}
    told = [GpuProfile(product="Max_1100", total=48 * GIB)]
    seen = one(inventory([node(labels, **allocatable)], [], {}, profiles=told))
    assert (GpuVendor.INTEL, "gpu.intel.com/i915", 48 * GIB) == (
        seen.gpu.vendor,
        seen.gpu.resource,
        seen.gpu.total_bytes,
    )
    assert (
        GpuProblem.MEMORY_UNKNOWN
        is refused(inventory([node(labels, **allocatable)], [], {})).problem
    )


def test_workers_find_intels_nodes_by_intels_label() -> None:
    labels, told = (
        {"gpu.intel.com/product": "Max_1100"},
        GpuProfile(product="Max_1100", total=GIB * 48),
    )
    seen = one(inventory([node(labels, gpu_intel_com__xe="1")], [], {}, profiles=[told]))
    assert (Named(name="gpu.intel.com/product", value="Max_1100"),) == match_labels(seen.gpu)
    assert Confidence.BOUND is seen.gpu.provenance.confidence


def test_a_row_for_one_rack_leaves_the_others_alone() -> None:
    told = [GpuProfile(product="NVIDIA-RTX-A6000", total=GIB * 40, node_selector={"rack": "7"})]
    labels = node()["metadata"]["labels"]
    here = node(labels | {"rack": "7"}, name="here")
    found = inventory([here, node(labels, name="there")], [], {}, profiles=told)
    assert {"here": 40 * GIB, "there": 49140 * MIB} == {
        each.node: each.gpu.total_bytes for each in found.nodes
    }


def test_a_type_of_the_table_is_known_where_no_node_has_it() -> None:
    told = [GpuProfile(product="NVIDIA-N9", total=64 * GIB, compute_capability="9.0")]
    (gpu,) = inventory([], [], {}, profiles=told).told
    assert ("NVIDIA-N9", 64 * GIB, FactSource.PROFILE, Fp8.NATIVE) == (
        gpu.product,
        gpu.total_bytes,
        gpu.provenance.source,
        gpu.fp8,
    )


# ---- memory that card and host share -------------------------------------------------------------

GB10 = {
    "nvidia.com/gpu.product": "NVIDIA-GB10",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.compute.major": "12",
    "nvidia.com/gpu.compute.minor": "1",
}


def shared(labels: dict[str, str], capacity: str = "125489508Ki") -> dict[str, Any]:
    """A node whose card has no memory of its own."""
    made = node(labels, capacity=capacity)
    made["status"]["allocatable"]["memory"] = "118Gi"
    return made


def test_a_shared_memory_is_the_nodes_less_what_the_system_keeps() -> None:
    seen = one(inventory([shared(GB10)], [], {})).gpu
    assert (128_501_256_192, 118 * GIB, True) == (
        seen.total_bytes,
        seen.usable_bytes,
        seen.unified_memory,
    )
    assert (FactSource.NODE, Confidence.BOUND) == (
        seen.provenance.source,
        seen.provenance.confidence,
    )


def test_the_agent_and_the_table_go_before_the_nodes_memory() -> None:
    by_agent = agent(card("NVIDIA-GB10", 122_000, unifiedMemory=True))
    assert 122_000 * MIB == one(inventory([shared(GB10)], [by_agent], {})).gpu.total_bytes
    told = [GpuProfile(product="NVIDIA-GB10", total=100 * GIB)]
    seen = one(inventory([shared(GB10)], [by_agent], {}, profiles=told)).gpu
    assert 100 * GIB == seen.total_bytes


@pytest.mark.parametrize(("mib", "is_believed"), [(8128, False), (122_000, True), (500_000, False)])
def test_a_carve_out_is_not_taken_for_the_memory(mib: int, is_believed: bool) -> None:
    labels = GB10 | {"nvidia.com/gpu.product": "NVIDIA-N1X", "nvidia.com/gpu.memory": str(mib)}
    seen = one(inventory([shared(labels)], [], {}))
    assert (mib * MIB if is_believed else 128_501_256_192) == seen.gpu.total_bytes
    assert is_believed is not any("cannot be" in note for note in seen.notes)


def test_a_grace_hopper_has_memory_of_its_own() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-GH200-480GB", "nvidia.com/gpu.memory": "97871"}
    seen = one(inventory([shared(labels, "600Gi")], [], {})).gpu
    assert (97871 * MIB, False) == (seen.total_bytes, seen.unified_memory)


# ---- age -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "is_old"), [(0, False), (900, False), (901, True), (-5000, False)])
def test_what_an_agent_said_is_old_after_a_while(age: float, is_old: bool) -> None:
    seen = one(inventory([node()], [agent(card())], {}, now_seconds=NOW + age))
    assert is_old is (seen.stale is not None)
    assert (0 if is_old else 1, 1) == (seen.free, seen.count)
    assert is_old is any("last heard of" in note for note in seen.notes)


def test_a_dump_and_a_gpunode_written_by_hand_do_not_age() -> None:
    assert one(inventory([node()], [agent(card())], {})).stale is None
    by_hand = agent(card(), heartbeat=None)
    assert one(inventory([node()], [by_hand], {}, now_seconds=NOW * 2)).stale is None


def test_what_the_table_says_does_not_age_with_the_agent() -> None:
    told = [GpuProfile(product="NVIDIA-RTX-A6000", total=40 * GIB)]
    old = NOW + 5000
    seen = one(inventory([node()], [agent(card())], {}, profiles=told, now_seconds=old))
    assert (None, 1) == (seen.stale, seen.free)


def test_a_type_is_old_when_all_its_nodes_are() -> None:
    nodes = [node(name="a"), node(name="b")]
    agents = [agent(card(), name="a"), agent(card(), name="b", heartbeat="2026-05-28T20:56:40Z")]
    half = inventory(nodes, agents, {}, now_seconds=NOW + 1800)
    assert half.stale("NVIDIA-RTX-A6000") is None
    whole = inventory(nodes, agents, {}, now_seconds=NOW + 9000)
    assert whole.stale("NVIDIA-RTX-A6000") is not None
    assert whole.stale("NVIDIA-L40S") is None


def test_notes_say_of_which_node_they_are() -> None:
    found = world("agent", "labels")
    assert all(note.startswith("node node-a: ") for note in found.notes())
    assert found.notes({"NVIDIA-RTX-A6000"}) == found.notes()
    assert () == found.notes({"NVIDIA-L40S"})


# ---- a thousand nodes ------------------------------------------------------------------------------


def reader() -> NodeReader:
    return NodeReader((), stale_seconds=STALE_SECONDS)


def test_a_node_that_says_the_same_is_not_thought_about_again() -> None:
    known, card = reader(), {"product": "NVIDIA-RTX-A6000", "uuid": "u", "totalBytes": 48 * GIB}
    first = known.cards(node(), agent(card)["status"], (), NOW)
    assert known.cards(node(), agent(card)["status"], (), NOW + 30) is first


def test_another_label_is_thought_about() -> None:
    known = reader()
    (before,) = known.cards(node(), None, (), NOW)
    labels = dict(node()["metadata"]["labels"]) | {"nvidia.com/gpu.memory": "46068"}
    (after,) = known.cards(node(labels), None, (), NOW)
    assert isinstance(before, NodeGpus)
    assert isinstance(after, NodeGpus)
    assert 46068 * MIB == after.gpu.total_bytes != before.gpu.total_bytes


def test_a_word_grows_old_although_nothing_was_said() -> None:
    known, card = reader(), {"product": "NVIDIA-RTX-A6000", "uuid": "u", "totalBytes": 48 * GIB}
    (fresh,) = known.cards(node(), agent(card)["status"], (), NOW)
    (old,) = known.cards(node(), agent(card)["status"], (), NOW + STALE_SECONDS + 1)
    assert isinstance(fresh, NodeGpus)
    assert isinstance(old, NodeGpus)
    assert fresh.stale is None
    assert old.stale is not None


def test_a_node_that_went_is_forgotten() -> None:
    known = reader()
    first = known.cards(node(), None, (), NOW)
    known.keep_only(())
    assert known.cards(node(), None, (), NOW) is not first


def test_what_is_remembered_gives_the_same_inventory() -> None:
    nodes = [node(name=f"node-{n}") for n in range(8)]
    gpu_nodes = [
        agent({"product": "NVIDIA-RTX-A6000", "uuid": f"u-{n}"}, name=f"node-{n}") for n in (1, 3)
    ]
    known, used = reader(), {("node-2", GPU): 1}
    for requested in ({}, used):
        fresh = inventory(nodes, gpu_nodes, requested, now_seconds=NOW)
        assert fresh == inventory(nodes, gpu_nodes, requested, now_seconds=NOW, known=known)


def test_a_types_nodes_are_those_that_have_it() -> None:
    labels = dict(node()["metadata"]["labels"]) | {"nvidia.com/gpu.product": "NVIDIA-A40"}
    seen = inventory([node(name="a"), node(labels, name="b"), node(name="c")], [], {})
    assert ["a", "c"] == [each.node for each in seen.of_type("NVIDIA-RTX-A6000")]
    assert () == seen.of_type("NVIDIA-L4")
    fewer = seen.model_copy(update={"nodes": seen.nodes[1:]})
    assert ["c"] == [each.node for each in fewer.of_type("NVIDIA-RTX-A6000")]
    assert seen == inventory([node(name="a"), node(labels, name="b"), node(name="c")], [], {})
