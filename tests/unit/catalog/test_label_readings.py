"""Does a card's label alone give the bytes that processes were seen to get on it, or "unknown"?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.inventory import inventory
from plimsoll.catalog.gpus import (
    RESERVED_BOUNDS_MIB,
    SLICE_RESERVED_BOUND_MIB,
    find_profile,
    find_type,
)
from plimsoll.facts.gpu import GpuProblem, Inventory, NodeGpus
from plimsoll.facts.source import Confidence
from plimsoll.units import MIB

CARDS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "gpu_readings.json").read_text(encoding="utf-8")
)["cards"]
PRINTED_MIB = 6
"""Half a hundredth of a GiB: what a reading of two decimals may be off by."""
MEMORY = "nvidia.com/gpu.memory"

WITH_TOTAL = [
    pytest.param(each, mib, id=f"{each['key']}-{mib}")
    for each in CARDS
    for mib in each.get("totalMib", ())
    if each["vendor"] == "nvidia"
]
SLICES = [
    pytest.param(each, *part, id=f"{each['key']}-{part[0]}")
    for each in CARDS
    for part in each.get("slices", ())
]


def seen(labels: dict[str, str], resource: str = "nvidia.com/gpu") -> Inventory:
    """What a node with these labels and two of a resource is."""
    metadata = {"name": "node-a", "labels": labels}
    return inventory([{"metadata": metadata, "status": {"allocatable": {resource: "2"}}}], [], {})


def one(labels: dict[str, str], resource: str = "nvidia.com/gpu") -> NodeGpus:
    """Its one kind of card."""
    found = seen(labels, resource)
    assert () == found.unplannable
    return found.nodes[0]


def readings_mib(card: dict[str, Any], total_mib: int) -> list[float]:
    """What was left of this total, by nvidia-smi and by processes."""
    by_driver = [total - part for total, part in card.get("reservedMib", ()) if total == total_mib]
    by_process = [mib for mib in card.get("cudaMib", ()) if -1 <= total_mib - mib <= 1000]
    return [*by_driver, *by_process]


def test_the_table_holds_every_card() -> None:
    assert 57 == len(CARDS)
    assert len(WITH_TOTAL) > 50


@pytest.mark.parametrize(("card", "mib"), WITH_TOTAL)
def test_usable_bytes_are_those_of_a_reading_or_a_bound_below_all(
    card: dict[str, Any], mib: int
) -> None:
    gpu = one({"nvidia.com/gpu.product": card["product"], MEMORY: str(mib)}).gpu
    usable_mib = gpu.usable_bytes // MIB
    readings = readings_mib(card, mib)
    if gpu.provenance.confidence is Confidence.TABLE:
        assert any(abs(usable_mib - reading) <= PRINTED_MIB for reading in readings)
        assert usable_mib <= max(readings)
        return
    bound = next(bound for up_to, bound in RESERVED_BOUNDS_MIB if up_to is None or mib <= up_to)
    assert usable_mib <= min([mib, *readings])
    total_mib = gpu.total_bytes // MIB
    assert total_mib in card["totalMib"]
    assert total_mib - usable_mib <= bound


@pytest.mark.parametrize(("card", "mib"), WITH_TOTAL)
def test_where_driver_and_process_were_read_at_a_total_nothing_is_bounded(
    card: dict[str, Any], mib: int
) -> None:
    if not any(total == mib for total, _ in card.get("reservedMib", ())):
        return
    gpu = one({"nvidia.com/gpu.product": card["product"], MEMORY: str(mib)}).gpu
    assert Confidence.TABLE is gpu.provenance.confidence


@pytest.mark.parametrize(("card", "mib"), WITH_TOTAL)
def test_every_name_of_a_card_gives_the_same_bytes(card: dict[str, Any], mib: int) -> None:
    names = [name for name in card["names"] if "only in mocks" not in name]
    found = {
        one({"nvidia.com/gpu.product": name.replace(" ", "-"), MEMORY: str(mib)}).gpu.usable_bytes
        for name in (card["product"], card["names"][0])
    }
    assert names
    assert 1 == len(found)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: str(card["key"]))
def test_without_a_memory_label_it_is_the_table_or_unknown_and_never_zero(
    card: dict[str, Any],
) -> None:
    if card["vendor"] != "nvidia":
        return
    found = seen({"nvidia.com/gpu.product": card.get("product", card["key"])})
    for node in found.nodes:
        assert node.gpu.total_bytes // MIB in (
            *card.get("totalMib", ()),
            *map(int, card.get("cudaMib", ())),
        )
        assert Confidence.BOUND is node.gpu.provenance.confidence
    for refused in found.unplannable:
        assert GpuProblem.MEMORY_UNKNOWN is refused.problem
    assert 1 == len(found.nodes) + len(found.unplannable)


@pytest.mark.parametrize(("card", "profile", "label_mib", "smi_gib"), SLICES)
def test_a_slice_is_a_type_of_its_own_with_its_own_bytes(
    card: dict[str, Any], profile: str, label_mib: int | None, smi_gib: float | None
) -> None:
    """By its label in both strategies; without it, what the catalogue has of it."""
    name = profile.replace("+", ".")
    mib = label_mib or int((smi_gib or 0) * 1024)
    product = f"{card['product']}-MIG-{name}"
    mixed = {
        "nvidia.com/gpu.product": card["product"],
        f"nvidia.com/mig-{name}.count": "2",
        f"nvidia.com/mig-{name}.memory": str(mib),
        f"nvidia.com/mig-{name}.product": product,
    }
    single = {"nvidia.com/gpu.product": product, MEMORY: str(mib), "nvidia.com/gpu.count": "2"}
    expected = product, (mib - SLICE_RESERVED_BOUND_MIB) * MIB
    by_single = one(single).gpu
    assert (*expected, "nvidia.com/gpu") == (
        by_single.product,
        by_single.usable_bytes,
        by_single.resource,
    )
    by_mixed = one(mixed, f"nvidia.com/mig-{name}").gpu
    assert (*expected, f"nvidia.com/mig-{name}") == (
        by_mixed.product,
        by_mixed.usable_bytes,
        by_mixed.resource,
    )
    known = find_type(card["product"])
    assert known is not None
    listed = find_profile(known, profile)
    assert listed is not None
    assert listed.memory_mib is not None
    assert abs(listed.memory_mib - mib) <= PRINTED_MIB
    assert mib < int(profile.split(".")[1].split("gb", maxsplit=1)[0]) * 1024


@pytest.mark.parametrize("card", CARDS, ids=lambda card: str(card["key"]))
def test_amd_cards_have_what_hip_calls_total(card: dict[str, Any]) -> None:
    if card["vendor"] != "amd" or "cudaMib" not in card:
        return
    for total_mib in card["cudaMib"]:
        vram = f"{round(total_mib / 1024)}G"
        labels = {"amd.com/gpu.product-name": f"Instinct_{card['key'].upper()}"}
        gpu = one(labels | {"amd.com/gpu.vram": vram}, "amd.com/gpu").gpu
        assert (total_mib * MIB, Confidence.BOUND) == (
            gpu.usable_bytes,
            gpu.provenance.confidence,
        )


@pytest.mark.parametrize("card", CARDS, ids=lambda card: str(card["key"]))
def test_a_card_that_shares_memory_is_unknown_by_labels_and_the_hosts_by_its_node(
    card: dict[str, Any],
) -> None:
    if not card.get("unified"):
        return
    labels = {"nvidia.com/gpu.product": card.get("product", card["key"])}
    assert GpuProblem.MEMORY_UNKNOWN is seen(labels).unplannable[0].problem
    for total_mib in card.get("cudaMib", ()):
        memory = {"memory": f"{int(total_mib)}Mi"}
        node = {
            "metadata": {"name": "node-a", "labels": labels},
            "status": {"allocatable": memory | {"nvidia.com/gpu": "1"}, "capacity": memory},
        }
        assert int(total_mib) * MIB == inventory([node], [], {}).nodes[0].gpu.usable_bytes
