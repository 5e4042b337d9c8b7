"""Is what elders hold, or may come to hold, left to them, and everything where one of them is silent?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.gate.allocate import part_of
from plimsoll.gate.elders import Word, beside, counts, may_hold, read_word
from plimsoll.gate.records import GateRooms, Others, Promise
from plimsoll.gate.step import LaneSeen, WorkerSeen
from plimsoll.gate.visit import Elder, Standing

ADDRESS = "10.0.0.1:8000"
WORKERS = [(ADDRESS, "large")]
ELDER = Elder("gate-a", "10.0.0.9:8406", since=7)
CHAT, BATCH = 4096, 32_768


def word(**more: Any) -> Word:
    said = Word(
        name="gate-a",
        since=7,
        is_leaving=False,
        is_retiring=False,
        lanes=("chat", "batch"),
        held={ADDRESS: (10, 1)},
        may={ADDRESS: Promise(10 * CHAT + 1 * BATCH, 11)},
    )
    return said._replace(**more)


def found(rooms: GateRooms, *said: Word) -> Others:
    elders = [ELDER._replace(name=each.name) for each in said]
    words = {each.name: each for each in said}
    return beside(elders, words, rooms, WORKERS)[ADDRESS]


def test_what_is_held_is_known_by_lane(rooms: GateRooms) -> None:
    assert Others((10, 1), Promise(0, 0)) == found(rooms, word())


def test_what_may_still_be_raised_is_left_to_it(rooms: GateRooms) -> None:
    half = word(may={ADDRESS: Promise(16 * CHAT + 2 * BATCH, 18)})
    assert Others((10, 1), Promise(6 * CHAT + 1 * BATCH, 7)) == found(rooms, half)


def test_a_lane_that_is_not_ours_counts_in_tokens_and_requests(rooms: GateRooms) -> None:
    other = word(lanes=("all", "batch"), may={ADDRESS: Promise(90_000, 11)})
    assert Others((0, 1), Promise(90_000 - BATCH, 10)) == found(rooms, other)


def test_two_elders_add_up(rooms: GateRooms) -> None:
    assert Others((20, 2), Promise(0, 0)) == found(rooms, word(), word(name="gate-b"))


def test_one_that_is_silent_may_hold_everything(rooms: GateRooms) -> None:
    elders = [ELDER, ELDER._replace(name="gate-b")]
    assert not beside(elders, {"gate-a": word()}, rooms, WORKERS)[ADDRESS].is_known


def test_a_worker_that_it_has_not_seated_may_be_its_own_any_moment(rooms: GateRooms) -> None:
    assert not found(rooms, word(held={}, may={})).is_known
    assert Others((0, 0)) == found(rooms, word(held={}, may={}, is_retiring=True))


@pytest.mark.parametrize(
    ("said", "is_so"),
    [
        ({}, True),
        ({"since": 8}, True),
        ({"since": 6}, False),
        ({"since": 6, "is_leaving": True}, True),
        ({"name": "gate-b"}, False),
    ],
)
def test_a_word_counts_from_the_standing_that_it_was_told_last(
    said: dict[str, Any], is_so: bool
) -> None:
    assert is_so == counts(word(**said), ELDER)
    assert not counts(None, ELDER)


def test_a_long_name_is_cut_as_the_kubelet_cuts_host_names() -> None:
    long = "g" * 62 + "-abcde"
    assert counts(word(name="g" * 62), ELDER._replace(name=long))


def test_what_a_gate_may_hold_follows_from_its_standing(rooms: GateRooms) -> None:
    room = rooms.of_pool("large")
    assert room is not None
    half = part_of(room, rooms.lanes, gates=2)
    over = WorkerSeen("s0", half, (LaneSeen(32, 30), LaneSeen(1, 1)))
    assert Promise(32 * CHAT + BATCH, 33) == may_hold(over, Standing(2, 0))
    under = over._replace(lanes=(LaneSeen(3, 1), LaneSeen(0, 0)))
    assert Promise(16 * CHAT + 2 * BATCH, 18) == may_hold(under, Standing(2, 0))
    assert Promise(3 * CHAT, 3) == may_hold(under, Standing(is_retiring=True))


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"name": "a", "lanes": 3})])
def test_what_is_no_page_is_no_word(text: str) -> None:
    with pytest.raises(ValueError, match="no page of a keeper"):
        read_word(text)
