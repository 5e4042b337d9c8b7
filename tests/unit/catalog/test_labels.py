"""Is every form of node label read for what it says, and refused where it says too little?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.catalog.labels import node_gpus
from plimsoll.facts.gpu import Fp8, GpuFacts, GpuVendor, NodeGpus, UnplannableNode
from plimsoll.facts.source import FactSource
from plimsoll.units import MIB

NODES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "data" / "node_labels.yaml").read_text(encoding="utf-8")
)
WITH_CARDS = [node for node in NODES if "cards" in node]
REFUSED = [node for node in NODES if "refused" in node]
WITHOUT = [node for node in NODES if "cards" not in node and "refused" not in node]


def by_name(node: dict[str, Any]) -> str:
    return str(node["name"]).replace(" ", "-")


def cards_of(node: dict[str, Any]) -> list[NodeGpus]:
    """What can be planned for of the node's kinds of card."""
    seen = node_gpus("node-a", node["labels"], node["allocatable"], node.get("capacity"))
    if "refused" not in node:
        assert [] == [each.message for each in seen if isinstance(each, UnplannableNode)]
    return [each for each in seen if isinstance(each, NodeGpus)]


def one(labels: dict[str, str], allocatable: dict[str, str]) -> GpuFacts:
    """The one kind of card that labels describe."""
    (found,) = node_gpus("node-a", labels, allocatable)
    assert isinstance(found, NodeGpus), found
    return found.gpu


def test_the_table_is_broad() -> None:
    assert len(NODES) >= 50
    assert len(NODES) == len({node["name"] for node in NODES})


@pytest.mark.parametrize("node", WITH_CARDS, ids=by_name)
def test_cards_are_read_as_labelled(node: dict[str, Any]) -> None:
    found = cards_of(node)
    assert node["cards"] == [
        {
            "product": each.gpu.product,
            "mib": each.gpu.total_bytes // MIB,
            "resource": each.gpu.resource,
            "count": each.count,
            "pick": ",".join(f"{label.name}={label.value}" for label in each.match_labels),
            "confidence": each.gpu.provenance.confidence.value,
        }
        for each in found
    ]
    assert {"node-a"} == {each.node for each in found}
    assert all(FactSource.LABELS is each.gpu.provenance.source for each in found)
    assert all(each.gpu.provenance.detail for each in found)
    assert all(0 <= each.gpu.reserved_bytes < each.gpu.total_bytes for each in found)
    assert all(each.count == each.free for each in found)
    assert [node.get("unified", False)] * len(found) == [each.gpu.unified_memory for each in found]


@pytest.mark.parametrize("node", WITH_CARDS, ids=by_name)
def test_the_label_that_picks_a_node_is_on_the_node(node: dict[str, Any]) -> None:
    for each in cards_of(node):
        assert each.match_labels
        assert all(node["labels"][label.name] == label.value for label in each.match_labels)


@pytest.mark.parametrize("node", REFUSED, ids=by_name)
def test_what_labels_cannot_tell_is_refused_with_what_was_seen(node: dict[str, Any]) -> None:
    seen = node_gpus("node-a", node["labels"], node["allocatable"], node.get("capacity"))
    (found,) = [each for each in seen if isinstance(each, UnplannableNode)]
    assert (node["refused"]["problem"], "node-a") == (found.problem.value, found.node)
    assert found.product
    assert [] == [word for word in node["refused"]["words"] if word not in found.message]


@pytest.mark.parametrize("node", WITHOUT, ids=by_name)
def test_a_node_without_cards_is_none(node: dict[str, Any]) -> None:
    assert () == node_gpus("node-a", node["labels"], node["allocatable"], node.get("capacity"))


def test_an_unknown_product_gets_its_abilities_from_the_compute_capability() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-Something-New",
        "nvidia.com/gpu.memory": "24000",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "6",
    }
    gpu = one(labels, {"nvidia.com/gpu": "1"})
    assert ("8.6", Fp8.WEIGHT_ONLY, True) == (
        gpu.compute_capability,
        gpu.fp8,
        gpu.bf16,
    )


def test_without_a_compute_capability_nothing_is_said_about_abilities() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-Something-New", "nvidia.com/gpu.memory": "24000"}
    gpu = one(labels, {"nvidia.com/gpu": "1"})
    assert (None, Fp8.UNKNOWN, None) == (
        gpu.compute_capability,
        gpu.fp8,
        gpu.bf16,
    )


def test_an_amd_card_is_known_as_one() -> None:
    labels = {"amd.com/gpu.product-name": "Instinct_MI300X", "amd.com/gpu.vram": "192G"}
    gpu = one(labels, {"amd.com/gpu": "8"})
    assert (GpuVendor.AMD, Fp8.NATIVE) == (gpu.vendor, gpu.fp8)
