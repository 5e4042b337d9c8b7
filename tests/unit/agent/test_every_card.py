"""Every card of the table, answered by NVML's stand-in: is its usable memory what was published?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nvml_box import MIB, Box, in_reach, message, reason
from plimsoll.agent.reading import HostMemory
from plimsoll.facts.gpu import Fp8, GpuFacts
from plimsoll.facts.source import Confidence, FactSource

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "nvml_cards.json").read_text(encoding="utf-8")
)["gpus"]
READINGS = [(row, reading) for row in ROWS for reading in row["nvml"]]
EXACT = [(row, reading) for row, reading in READINGS if "reservedMib" in reading]
BY_CUDA = [
    (row, reading, cuda)
    for row, reading in READINGS
    for cuda in row["cudaLinuxMib"]
    if 0 < reading["mib"] - cuda < 1000
]
UNIFIED = [(row, mib * MIB) for row in ROWS if row["unified"] for mib in row["cudaLinuxMib"]]
UNIFIED += [(row, size) for row in ROWS for size in row["hostBytes"]]


def name_of(value: Any) -> str | None:
    return value["key"] if isinstance(value, dict) and "key" in value else None


def answers(row: dict[str, Any], total_mib: int, reserved_mib: int | None) -> dict[str, Any]:
    """A whole card, idle."""
    told = {
        "name": row["name"],
        "uuid": "GPU-1",
        "memory": total_mib * MIB,
        "capability": row["capability"],
        "addressing": 1,
        "used": 0,
    }
    return told | ({} if reserved_mib is None else {"reserved": reserved_mib * MIB})


def planned_with(box: Box, *cards: dict[str, Any], host: HostMemory | None = None) -> GpuFacts:
    """The facts that a plan would be made with."""
    (node,) = in_reach(box.status(*cards, host=host)).nodes
    return node.gpu


def test_the_table_has_every_family() -> None:
    assert len(ROWS) == 52
    assert len(EXACT) == 7
    assert len(BY_CUDA) >= 20
    assert {"6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"} <= {
        row["capability"] for row in ROWS
    }


@pytest.mark.parametrize(("row", "reading"), EXACT, ids=name_of)
def test_what_the_driver_tells_is_what_is_used(
    box: Box, row: dict[str, Any], reading: dict[str, Any]
) -> None:
    facts = planned_with(box, answers(row, reading["mib"], reading["reservedMib"]))
    assert (reading["mib"] - reading["reservedMib"]) * MIB == facts.usable_bytes
    assert (FactSource.AGENT, Confidence.EXACT) == (
        facts.provenance.source,
        facts.provenance.confidence,
    )


@pytest.mark.parametrize(("row", "reading", "cuda"), BY_CUDA, ids=name_of)
def test_usable_is_what_cuda_calls_total(
    box: Box, row: dict[str, Any], reading: dict[str, Any], cuda: int
) -> None:
    card = box.card(answers(row, reading["mib"], reading["mib"] - cuda))
    assert (reading["mib"] * MIB, cuda * MIB) == (card.total_bytes, card.usable_bytes)


@pytest.mark.parametrize(("row", "reading", "cuda"), BY_CUDA, ids=name_of)
def test_an_old_driver_that_hides_its_part_never_makes_usable_too_large(
    old_box: Box, row: dict[str, Any], reading: dict[str, Any], cuda: int
) -> None:
    status = old_box.status(answers(row, reading["mib"], reading["mib"] - cuda))
    assert (None, None) == (status.cards[0].reserved_bytes, status.cards[0].usable_bytes)
    assert ("True", "DriversPartNotTold") == reason(status, "MemoryKnown")
    (node,) = in_reach(status).nodes
    assert cuda * MIB - 640 * MIB <= node.gpu.usable_bytes <= cuda * MIB + 31 * MIB


@pytest.mark.parametrize(("row", "reading"), READINGS, ids=name_of)
def test_total_and_abilities_are_the_tables(
    box: Box, row: dict[str, Any], reading: dict[str, Any]
) -> None:
    told = answers(row, reading["mib"], None) | ({"ecc": 1} if reading.get("ecc") == "on" else {})
    card = box.card(told)
    assert row["product"] == card.product
    assert reading["mib"] * MIB == card.total_bytes
    assert (row["capability"], row["bf16"], Fp8(row["fp8"])) == (
        card.compute_capability,
        card.bf16,
        card.fp8,
    )
    assert (True if reading.get("ecc") == "on" else None) == card.ecc
    assert not card.unified_memory
    assert card.reserved_bytes is None
    (node,) = in_reach(box.status(told)).nodes
    assert 0 < node.gpu.usable_bytes < reading["mib"] * MIB


@pytest.mark.parametrize(("row", "size"), UNIFIED, ids=name_of)
def test_one_memory_is_the_hosts(box: Box, row: dict[str, Any], size: int) -> None:
    """CUDA's total on these is the kernel's MemTotal, and NVML has none."""
    host = HostMemory(total_bytes=size, available_bytes=size - 4096 * MIB)
    told = {
        "name": row["name"] or "Orin (nvgpu)",
        "uuid": "GPU-1",
        "capability": row["capability"],
        "memory.error": 3,
    }
    status = box.status(told, host=host)
    card = status.cards[0]
    assert (size, 0, size) == (card.total_bytes, card.reserved_bytes, card.usable_bytes)
    assert card.unified_memory
    assert 4096 * MIB == card.used_bytes
    assert card.held_by_others_bytes is None
    assert ("True", "HostMemory") == reason(status, "MemoryKnown")
    assert planned_with(box, told, host=host).usable_bytes == size


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not row["nvml"] and not row["unified"]], ids=name_of
)
def test_memory_that_is_not_told_is_unknown(box: Box, row: dict[str, Any]) -> None:
    told = answers(row, 0, None) | {"memory.error": 3}
    host = HostMemory(total_bytes=1 << 39, available_bytes=1 << 38)
    status = box.status(told, host=host)
    assert (None, None) == (status.cards[0].total_bytes, status.cards[0].usable_bytes)
    assert ("False", "MemoryNotTold") == reason(status, "MemoryKnown")
    assert "Not Supported" in message(status, "MemoryKnown")


SLICED = [row for row in ROWS if row["mig"]]


@pytest.mark.parametrize("row", SLICED, ids=name_of)
@pytest.mark.parametrize("named", [True, False], ids=["by name", "by attributes"])
def test_slices_are_types_of_their_own(box: Box, row: dict[str, Any], named: bool) -> None:
    """Drivers before R470 give a slice no name; the attributes tell its size then."""
    profiles = row["mig"]
    slices = [
        {
            "uuid": f"MIG-{number}",
            "memory": profile["mib"] * MIB,
            "memory_mib": profile["mib"],
            "slices": profile["profile"].partition("g")[0],
        }
        | ({"name": f"{row['name']} MIG {profile['profile']}"} if named else {})
        for number, profile in enumerate(profiles)
    ]
    reading = row["nvml"][0]
    told = answers(row, reading["mib"], None) | {"mig": 1, "slices": slices}
    card = box.card(told)
    assert card.mig_enabled
    seen = {p.profile: (p.total_bytes, p.reserved_bytes, p.count) for p in card.mig_profiles}
    assert {p["profile"]: (p["mib"] * MIB, None, 1) for p in profiles} == seen
    offered = {f"nvidia.com__mig-{p['profile']}": "1" for p in profiles}
    found = in_reach(box.status(told), **offered).nodes
    assert {f"{row['product']}-MIG-{p['profile']}" for p in profiles} == {
        node.gpu.product for node in found
    }
    assert all(
        node.gpu.usable_bytes == node.gpu.total_bytes - 384 * MIB
        and node.gpu.provenance.confidence is Confidence.BOUND
        for node in found
    )
