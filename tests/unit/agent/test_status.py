"""What becomes of a driver that does not answer, a card that falls off, and bytes of somebody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nvml_box import A6000, LATER, MIB, NOW, Box, in_reach, message, reason
from plimsoll.agent import nvml
from plimsoll.agent.reading import (
    HostMemory,
    Memory,
    Process,
    Refused,
    Trouble,
    read_meminfo,
    refusal,
)
from plimsoll.agent.status import WAYS_OUT, status_of
from plimsoll.api.gpunode import AddressingMode, GPUNodeStatus
from plimsoll.facts.gpu import GpuProblem

OTHER = {**A6000, "uuid": "GPU-b"}
GB10 = {"name": "NVIDIA GB10", "uuid": "GPU-g", "capability": "12.1", "addressing": 2}
CONDITIONS = ("DriverAnswers", "CardsRead", "MemoryKnown", "OthersKnown")

INIT_FAILURES = {
    9: Trouble.DRIVER_NOT_LOADED,
    4: Trouble.NO_PERMISSION,
    18: Trouble.VERSION_MISMATCH,
    12: Trouble.LIBRARY_NOT_FOUND,
    999: Trouble.OTHER,
}


@pytest.mark.parametrize(("code", "trouble"), INIT_FAILURES.items())
def test_a_driver_that_does_not_start_leaves_known_facts_and_says_the_way_out(
    box: Box, code: int, trouble: Trouble
) -> None:
    before = box.status(A6000)
    after = box.status(before=before, now=LATER, said={"init.error": code})
    assert before.cards == after.cards
    assert (NOW, NOW, before.driver) == (after.heartbeat, after.observed_at, after.driver)
    assert ("False", trouble.value) == reason(after, "DriverAnswers")
    assert ("Unknown", trouble.value) == reason(after, "CardsRead")
    assert WAYS_OUT.get(trouble, "") in message(after, "DriverAnswers")


def test_a_driver_that_never_answered_is_no_card_and_no_zero(box: Box) -> None:
    status = box.status(said={"init.error": 9})
    assert () == status.cards
    assert None is status.heartbeat
    assert () == in_reach(status, nvidia__none="0").nodes


def test_without_a_library_the_agent_says_so_and_ends_well() -> None:
    """The loader finds none: the way every machine without a driver answers."""
    ran = subprocess.run(
        [Path(sys.executable).with_name("plimsoll"), "agent", "--show"],
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": "/nowhere", "PATH": ""},
    )
    conditions = {each["type"]: each for each in json.loads(ran.stdout)["conditions"]}
    assert "LibraryNotFound" == conditions["DriverAnswers"]["reason"]


def test_the_loaders_path_finds_the_library(box: Box) -> None:
    box.say(A6000)
    ran = subprocess.run(
        [Path(sys.executable).with_name("plimsoll"), "agent", "--show"],
        capture_output=True,
        text=True,
        check=True,
        env={
            "LD_LIBRARY_PATH": str(box.library.parent),
            "PLIMSOLL_NVML_ANSWERS": str(box.answers),
            "PATH": "",
        },
    )
    (card,) = json.loads(ran.stdout)["cards"]
    assert 48676 * MIB == card["usableBytes"]


# ---- a card that is there no more -----------------------------------------------------------------


def lost_when_asked(code: int) -> dict[str, object]:
    return {**OTHER, **{f"{key}.error": code for key in ("name", "uuid", "memory", "capability")}}


@pytest.mark.parametrize(
    "gone",
    [
        {"handle.error": 15},
        lost_when_asked(15),
        {"handle.error": 999},
        {**OTHER, "memory.error": 15},
        {**OTHER, "memory.error": 16},
    ],
    ids=["no handle", "all calls lost", "unknown error", "memory lost", "wants a reset"],
)
def test_a_card_that_falls_off_keeps_its_facts_and_is_planned_with_no_more(
    box: Box, gone: dict[str, object]
) -> None:
    before = box.status(A6000, OTHER)
    after = box.status(A6000, gone, before=before, now=LATER)
    here, lost = after.cards
    assert before.cards[0] == here
    known = {"lost": True, "used_bytes": lost.used_bytes}
    assert before.cards[1].model_copy(update=known) == lost
    assert ("False", "CardLost") == reason(after, "CardsRead")
    assert "GPU-b lost" in message(after, "CardsRead")
    (node,) = in_reach(after, nvidia__none="0", **{"nvidia.com__gpu": "2"}).nodes
    assert 1 == node.count


def test_a_card_that_comes_back_is_as_before(box: Box) -> None:
    before = box.status(A6000, OTHER)
    lost = box.status(A6000, {"handle.error": 15}, before=before)
    again = box.status(A6000, OTHER, before=lost, now=LATER)
    assert before.cards == again.cards
    assert ("True", "AllCardsRead") == reason(again, "CardsRead")


def test_a_card_that_was_taken_out_is_gone(box: Box) -> None:
    before = box.status(A6000, OTHER)
    assert ["GPU-a"] == [card.uuid for card in box.status(A6000, before=before).cards]


def test_a_silent_card_that_was_never_seen_is_told_of_and_not_made_up(box: Box) -> None:
    status = box.status(A6000, {"handle.error": 15})
    assert 1 == len(status.cards)
    assert ("False", "CardSilent") == reason(status, "CardsRead")
    assert "Xid 79" in message(status, "CardsRead")


def test_no_cards_at_all_is_said_too(box: Box) -> None:
    assert ("False", "NoCards") == reason(box.status(), "CardsRead")


@pytest.mark.parametrize("call", ["name", "memory", "capability", "ecc", "mig", "graphics"])
@pytest.mark.parametrize("code", [4, 10, 999])
def test_one_call_that_fails_for_now_blanks_nothing(box: Box, call: str, code: int) -> None:
    whole = {**A6000, "ecc": 1, "mig": 0, "graphics": "7:0"}
    before = box.status(whole)
    after = box.status({**whole, f"{call}.error": code}, before=before, now=LATER)
    assert [c.model_copy(update={"used_bytes": None}) for c in before.cards] == [
        c.model_copy(update={"used_bytes": None}) for c in after.cards
    ]


@pytest.mark.parametrize("call", ["memory", "capability", "ecc", "mig", "graphics", "compute"])
@pytest.mark.parametrize("code", [1, 2, 3, 4, 9, 10, 13, 15, 16, 17, 25, 999])
def test_no_error_of_any_call_ends_the_agent(box: Box, call: str, code: int) -> None:
    status = box.status({**A6000, f"{call}.error": code})
    assert set(CONDITIONS) == {each.type for each in status.conditions}


# ---- older drivers ----------------------------------------------------------------------------------


def test_missing_symbols_leave_facts_unknown_and_the_rest_known(old_box: Box) -> None:
    reading = old_box.first(A6000)
    assert Memory(total=49140 * MIB) == reading.memory
    assert Trouble.FUNCTION_NOT_FOUND is refusal(reading.addressing_mode)
    card = old_box.card(A6000)
    assert (49140 * MIB, None, None) == (card.total_bytes, card.reserved_bytes, card.used_bytes)
    assert (None, None) == (card.addressing_mode, card.held_by_others_bytes)
    assert "8.6" == card.compute_capability


def test_processes_are_heard_of_in_the_older_form(old_box: Box) -> None:
    told = (Process(pid=7, used_bytes=MIB), Process(pid=8, used_bytes=None))
    assert told == old_box.first({**A6000, "graphics": f"7:{MIB},8"}).graphics


def test_a_part_of_nothing_is_one_that_was_not_told(box: Box) -> None:
    card = box.card({**A6000, "reserved": 0})
    assert (None, None) == (card.reserved_bytes, card.usable_bytes)


# ---- whose bytes ---------------------------------------------------------------------------------------


def test_a_workers_bytes_are_never_booked_as_others(box: Box) -> None:
    """Whatever lists of processes say: a worker may be missing from them."""
    for compute in ({}, {"compute": f"4242:{40000 * MIB}"}, {"compute": "4242"}):
        card = box.card({**A6000, "used": 40000 * MIB, **compute})
        assert (40000 * MIB, None) == (card.used_bytes, card.held_by_others_bytes)


def test_unknown_is_said_to_be_unknown(box: Box) -> None:
    status = box.status({**A6000, "used": 21504 * MIB})
    assert ("Unknown", "WhoseIsNotKnown") == reason(status, "OthersKnown")
    assert "GPU-a holds 21.0 GiB" in message(status, "OthersKnown")


def test_on_an_idle_card_all_that_is_held_is_others(box: Box) -> None:
    assert 0 == box.card({**A6000, "used": 0}).held_by_others_bytes
    assert 16 * MIB == box.card({**A6000, "used": 3 * MIB}).held_by_others_bytes


def test_what_was_known_of_an_idle_card_stays_while_a_worker_runs(box: Box) -> None:
    before = box.status({**A6000, "used": 18 * MIB})
    after = box.status({**A6000, "used": 45000 * MIB}, before=before, now=LATER)
    assert 32 * MIB == after.cards[0].held_by_others_bytes
    assert NOW == after.observed_at


def test_who_draws_and_does_not_compute_is_no_worker(box: Box) -> None:
    """A desktop of 1.2 GiB beside a worker; a process that does both may be the worker."""
    drawn = {"graphics": f"900:{1200 * MIB},901:{64 * MIB}", "compute": f"901:{9000 * MIB}"}
    status = box.status({**A6000, "used": 10300 * MIB, **drawn})
    assert 1200 * MIB == status.cards[0].held_by_others_bytes
    (entry,) = in_reach(status).nodes
    assert 1200 * MIB == entry.gpu.held_by_others_bytes


def test_what_trembles_makes_no_new_fact(box: Box) -> None:
    before = box.status({**A6000, "used": 1 * MIB})
    after = box.status({**A6000, "used": 17 * MIB}, before=before, now=LATER)
    assert before.cards[0].held_by_others_bytes == after.cards[0].held_by_others_bytes
    assert (NOW, LATER) == (after.observed_at, after.heartbeat)


# ---- one memory for card and host --------------------------------------------------------------------


def test_not_supported_with_the_hosts_tables_means_the_hosts_memory(box: Box) -> None:
    """A chip that nobody has listed: no memory of its own to tell of, and the host's page tables."""
    host = HostMemory(total_bytes=200 << 30, available_bytes=150 << 30)
    card = box.card({"name": "NVIDIA N9", "uuid": "GPU-n", "addressing": 2}, host=host)
    assert (200 << 30, True) == (card.total_bytes, card.unified_memory)


@pytest.mark.parametrize(
    "name", ["Orin (nvgpu)", "NVIDIA Thor", "NVIDIA GB10", "Xavier", "NVIDIA Tegra X1"]
)
def test_a_chip_without_memory_of_its_own_is_known_by_its_name(box: Box, name: str) -> None:
    """Libraries of such chips tell little: neither capability nor addressing mode."""
    host = HostMemory(total_bytes=32_109_494_272, available_bytes=20 << 30)
    told = {"name": name, "uuid": "GPU-o", "memory.error": 3}
    assert (32_109_494_272, True) == (
        (card := box.card(told, host=host)).total_bytes,
        card.unified_memory,
    )


@pytest.mark.parametrize("name", ["NVIDIA GB200", "NVIDIA GH200 480GB", "NVIDIA H100 NVL"])
def test_a_name_that_only_looks_like_one_is_not(box: Box, name: str) -> None:
    assert not box.card({**A6000, "name": name}).unified_memory


def test_tables_of_the_host_beside_memory_of_its_own_are_not_unified(box: Box) -> None:
    """GH200 and GB200 address the host's memory by ATS, and have their own."""
    told = {**A6000, "name": "NVIDIA GB200", "memory": 189471 * MIB, "reserved": 742 * MIB}
    host = HostMemory(total_bytes=900 << 30, available_bytes=800 << 30)
    card = box.card({**told, "capability": "10.0", "addressing": 2}, host=host)
    assert (188729 * MIB, False) == (card.usable_bytes, card.unified_memory)
    assert AddressingMode.ATS is card.addressing_mode


def test_an_implausible_answer_of_one_memory_is_put_right(box: Box) -> None:
    """N1X answers 8128 MiB of a pool that is the host's (unslothai/unsloth#10283)."""
    host = HostMemory(total_bytes=128_501_256_192, available_bytes=100 << 30)
    told = {**GB10, "name": "NVIDIA N1X", "memory": 8128 * MIB, "used": 199 * MIB}
    assert 128_501_256_192 == box.card(told, host=host).total_bytes


def test_without_the_hosts_word_one_memory_is_unknown(box: Box) -> None:
    status = box.status(GB10)
    assert None is status.cards[0].total_bytes
    assert ("False", "MemoryNotTold") == reason(status, "MemoryKnown")
    (passed_over,) = in_reach(status).unplannable
    assert GpuProblem.MEMORY_UNKNOWN is passed_over.problem


MEMINFO = """\
MemTotal:       125489508 kB
MemFree:         7759462 kB
MemAvailable:   104857600 kB
SwapTotal:       16777212 kB
SwapFree:        16777212 kB
HugePages_Total:    1024
HugePages_Free:     1024
Hugepagesize:       2048 kB
"""


def test_free_is_available_without_swap_and_without_reserved_huge_pages() -> None:
    """leptonai/gpud#1170: MemFree was 7.4 GiB of 119.7 where most was reclaimable cache."""
    host = read_meminfo(MEMINFO)
    expected = HostMemory(
        total_bytes=128_501_256_192, available_bytes=100 << 30, huge_bytes=2 << 30
    )
    assert expected == host


def test_huge_pages_of_a_shared_memory_are_no_workers(box: Box) -> None:
    host = read_meminfo(MEMINFO)
    assert 2 << 30 == box.card({**GB10, "memory.error": 3}, host=host).held_by_others_bytes
    assert 0 == box.card(A6000, host=host).held_by_others_bytes


@pytest.mark.parametrize("text", ["", "MemTotal: many kB", "MemTotal: 0 kB\nMemAvailable: 0 kB"])
def test_a_host_that_does_not_say_is_unknown(text: str) -> None:
    assert None is read_meminfo(text)


# ---- slices ------------------------------------------------------------------------------------------------


def test_slices_of_one_size_count_and_the_smallest_decides(box: Box) -> None:
    def cut(number: int, memory_mib: int) -> dict[str, object]:
        return {
            "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me",
            "uuid": f"MIG-{number}",
            "memory": memory_mib * MIB,
            "reserved": 15 * MIB,
        }

    told = {**A6000, "mig": 1, "slices": [cut(1, 9984), cut(2, 9856)], "slots": 7}
    (profile,) = box.card(told).mig_profiles
    assert ("1g.10gb.me", 2, 9856 * MIB, 15 * MIB) == (
        profile.profile,
        profile.count,
        profile.total_bytes,
        profile.reserved_bytes,
    )
    assert "nvidia.com/mig-1g.10gb.me" == profile.resource


def test_a_slice_without_memory_is_unknown_and_not_planned(box: Box) -> None:
    cut = {"name": "NVIDIA A30 MIG 1g.6gb", "uuid": "MIG-1", "memory.error": 4}
    status = box.status({**A6000, "mig": 1, "slices": [cut]})
    (profile,) = status.cards[0].mig_profiles
    assert None is profile.total_bytes
    (passed_over,) = in_reach(status, **{"nvidia.com__mig-1g.6gb": "1"}).unplannable
    assert GpuProblem.MEMORY_UNKNOWN is passed_over.problem


def test_a_card_cut_into_no_slice_offers_nothing(box: Box) -> None:
    status = box.status({**A6000, "mig": 1, "slices": [], "slots": 7})
    assert status.cards[0].mig_enabled
    assert () == in_reach(status).nodes


# ---- and over time ----------------------------------------------------------------------------------------


def test_a_steady_node_moves_nothing_but_its_heartbeat(box: Box) -> None:
    before = box.status(A6000, OTHER)
    after = box.status(A6000, OTHER, before=before, now=LATER)
    assert before.model_copy(update={"heartbeat": LATER}) == after


def test_a_changed_fact_is_dated(box: Box) -> None:
    before = box.status(A6000)
    after = box.status({**A6000, "memory": 46068 * MIB, "ecc": 1}, before=before, now=LATER)
    assert (LATER, True) == (after.observed_at, after.cards[0].ecc)


def test_a_look_that_hangs_is_no_answer(box: Box) -> None:
    hung = Refused(trouble=Trouble.NO_ANSWER, says="NVML did not answer in time")
    before = box.status(A6000)
    reading = nvml.read().model_copy(update={"driver": hung, "cards": hung})
    after = status_of(reading, None, before, LATER)
    assert (before.cards, NOW) == (after.cards, after.heartbeat)
    assert ("False", "NoAnswer") == reason(after, "DriverAnswers")


def test_what_is_published_is_read_again_as_it_was(box: Box) -> None:
    status = box.status(A6000, {**GB10, "memory.error": 3})
    assert status == GPUNodeStatus.model_validate(status.to_json())


def test_a_node_full_of_silent_cards_has_a_short_message(box: Box) -> None:
    cards = [{**A6000, "uuid": f"GPU-{n:0>36}", "used": 9000 * MIB} for n in range(64)]
    status = box.status(*cards)
    assert 64 == len(status.cards)
    assert max(len(each.message) for each in status.conditions) < 1000
    assert "and 56 more" in message(status, "OthersKnown")
