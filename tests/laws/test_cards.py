"""Whatever a node's labels, an agent or a ResourceSlice say: it is read, nothing is guessed, nobody gains by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.inventory import inventory
from plimsoll.catalog.gpus import gpu_types
from plimsoll.catalog.profiles import GpuProfile, read_profiles
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.source import FactSource
from plimsoll.units import GIB, MIB

PRODUCTS = [each.product for each in gpu_types() if each.product] + [
    "NVIDIA-N9",
    "NVIDIA-A30-MIG-1g.6gb",
    "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
    "Tesla-T4-SHARED",
    "",
]
WORDS = st.sampled_from(
    ["", "0", "1", "2", "4", "8", "-1", "80Gi", "49140", "81559", "none", "mps", "x"]
)
KEYS = (
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.compute.minor",
    "nvidia.com/gpu.present",
    "nvidia.com/mig.config.state",
    "nvidia.com/mig-1g.6gb.count",
    "nvidia.com/mig-1g.6gb.memory",
    "amd.com/gpu.vram",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.vram.64G",
    "gpu.intel.com/product",
)
RESOURCES = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.6gb",
    "amd.com/gpu",
    "gpu.intel.com/xe",
)
LABELS = st.dictionaries(st.sampled_from(KEYS), WORDS, max_size=8)
OFFERED = st.dictionaries(
    st.sampled_from(RESOURCES), st.sampled_from(["0", "1", "2", "8"]), max_size=4
)
MEMORY = st.none() | st.sampled_from(["16Gi", "125489508Ki"])


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(LABELS)
    if draw(st.booleans()):
        labels["nvidia.com/gpu.product"] = draw(st.sampled_from(PRODUCTS))
    status: dict[str, Any] = {"allocatable": draw(OFFERED), "capacity": {}}
    if (memory := draw(MEMORY)) is not None:
        status["allocatable"]["memory"] = status["capacity"]["memory"] = memory
    return {"metadata": {"name": "node-a", "labels": labels}, "status": status}


CARDS = st.fixed_dictionaries(
    {"uuid": st.just("GPU-1"), "product": st.sampled_from(PRODUCTS)},
    optional={
        "totalBytes": st.integers(0, 300 * GIB),
        "reservedBytes": st.integers(0, GIB),
        "lost": st.booleans(),
        "migEnabled": st.booleans(),
        "unifiedMemory": st.booleans(),
        "computeCapability": st.sampled_from(["8.0", "12.1"]),
    },
)
AGENTS = st.lists(CARDS, max_size=3).map(
    lambda cards: [{"metadata": {"name": "node-a"}, "status": {"cards": cards}}]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
DEVICES = st.fixed_dictionaries(
    {"name": st.sampled_from(["gpu-0", "gpu-1"])},
    optional={
        "attributes": st.fixed_dictionaries(
            {
                "type": st.just({"string": "gpu"}) | st.just({"string": "mig"}) | ANYTHING,
                "productName": st.sampled_from(PRODUCTS).map(lambda name: {"string": name})
                | ANYTHING,
                "profile": st.just({"string": "1g.6gb"}) | ANYTHING,
                "uuid": st.just({"string": "GPU-1"}) | ANYTHING,
            }
        )
        | ANYTHING,
        "capacity": st.just({"memory": {"value": "46068Mi"}}) | ANYTHING,
    },
)


def slices(devices: list[Any]) -> list[dict[str, Any]]:
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": pool, "devices": devices}
    return [{"metadata": {"name": "s"}, "spec": spec}]


def check(found: Inventory, node: dict[str, Any]) -> None:
    """What holds of any reading."""
    for each in found.nodes:
        assert 0 < each.gpu.usable_bytes <= each.gpu.total_bytes
        assert 0 <= each.free <= each.count
        allocatable = node["status"]["allocatable"]
        assert each.count <= int(allocatable.get(each.gpu.resource, "0"))
        assert each.gpu.product
        assert each.gpu.provenance.detail
    for refused in found.unplannable:
        assert refused.message.endswith(".")
        assert refused.product


@given(nodes(), AGENTS, st.lists(DEVICES, max_size=3))
@settings(max_examples=400, deadline=None)
def test_anything_is_read_and_counts_are_never_above_what_is_offered(
    node: dict[str, Any], agents: list[dict[str, Any]], devices: list[Any]
) -> None:
    check(inventory([node], agents, {}, resource_slices=slices(devices)), node)


@given(nodes(), AGENTS, st.lists(DEVICES, max_size=3))
@settings(max_examples=200, deadline=None)
def test_reading_twice_in_any_order_is_the_same(
    node: dict[str, Any], agents: list[dict[str, Any]], devices: list[Any]
) -> None:
    once = inventory([node], agents, {}, resource_slices=slices(devices))
    labels = dict(reversed(node["metadata"]["labels"].items()))
    turned = {"metadata": node["metadata"] | {"labels": labels}, "status": node["status"]}
    assert once == inventory([turned], agents, {}, resource_slices=slices(devices))


@given(nodes(), AGENTS, st.lists(DEVICES, max_size=3), st.integers(2 * GIB, 300 * GIB))
@settings(max_examples=200, deadline=None)
def test_a_row_of_the_users_table_decides_whatever_the_others_say(
    node: dict[str, Any], agents: list[dict[str, Any]], devices: list[Any], total: int
) -> None:
    before = inventory([node], agents, {}, resource_slices=slices(devices))
    rows = [GpuProfile(product=each.gpu.product, total=total) for each in before.nodes]
    after = inventory([node], agents, {}, resource_slices=slices(devices), profiles=rows)
    assert {each.gpu.product for each in before.nodes} <= {each.gpu.product for each in after.nodes}
    for each in after.nodes:
        if each.gpu.product in {row.product for row in rows}:
            assert (total, FactSource.PROFILE) == (
                each.gpu.total_bytes,
                each.gpu.provenance.source,
            )


@given(st.sampled_from(PRODUCTS), st.integers(4096, 300_000))
def test_an_agent_never_makes_a_shared_card_whole(product: str, mib: int) -> None:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.replicas": "2"}
    node = {
        "metadata": {"name": "node-a", "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "2"}},
    }
    card = {"uuid": "GPU-1", "product": product, "totalBytes": mib * MIB}
    agents = [{"metadata": {"name": "node-a"}, "status": {"cards": [card]}}]
    assert () == inventory([node], agents, {}).nodes


@given(ANYTHING)
def test_a_table_that_is_none_is_refused_in_words(raw: Any) -> None:
    if isinstance(raw, dict) and "gpuTypes" in raw:
        return
    if raw:
        with pytest.raises(ValueError, match="gpuTypes"):
            read_profiles(raw)
    else:
        assert () == read_profiles(raw)
