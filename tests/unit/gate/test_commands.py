"""Is each change told in HAProxy's words, and is a limit never 0?"""

from __future__ import annotations

import pytest

from plimsoll.gate.commands import limit_commands, move_commands
from plimsoll.gate.roster import Drain, Reopen, Seat, Shut
from plimsoll.gate.step import Change


def told(limit: int, was: int) -> list[str]:
    return list(limit_commands(Change(server="s1", lane=0, limit=limit, was=was), "chat"))


def test_a_limit_is_set() -> None:
    assert ["set maxconn server chat/s1 7"] == told(7, 3)


def test_a_lane_is_closed_by_drain_and_never_by_zero() -> None:
    assert ["set server chat/s1 state drain"] == told(0, 3)


def test_a_closed_lane_is_opened_after_its_limit_is_set() -> None:
    assert [
        "set server chat/s1 state drain",
        "set maxconn server chat/s1 7",
        "set server chat/s1 state ready",
    ] == told(7, 0)


def test_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 is no limit"):
        told(-1, 3)


def test_a_worker_is_opened_when_all_is_set() -> None:
    seat = Seat(server="s1", address="[fd00::7]:8000", pod="p", pool="large")
    assert [
        "set server pool/s1 state drain",
        "set server chat/s1 addr fd00::7 port 8000",
        "set server batch/s1 addr fd00::7 port 8000",
        "set server pool/s1 addr fd00::7 port 8000",
        "set server chat/s1 weight 128",
        "set server chat/s1 state drain",
        "set maxconn server chat/s1 4",
        "set server chat/s1 state ready",
        "set server batch/s1 weight 128",
        "set server batch/s1 state drain",
        "set server pool/s1 state ready",
    ] == list(move_commands(seat, ["chat", "batch"], limits=(4, 0), weight=128))


@pytest.mark.parametrize(
    ("move", "states"),
    [
        (Drain(server="s1", pod="p"), ("drain",)),
        (Reopen(server="s1", pod="p"), ("drain", "ready")),
        (Shut(server="s1"), ("maint",)),
    ],
)
def test_one_command_in_the_pool_is_enough_for_all_lanes(
    move: Drain | Reopen | Shut, states: tuple[str, ...]
) -> None:
    assert [f"set server pool/s1 state {state}" for state in states] == list(
        move_commands(move, ["chat", "batch"])
    )


def test_nothing_goes_out_of_maintenance_straight_into_service() -> None:
    """HAProxy 2.6 would run twice the limit."""
    seat = Seat(server="s1", address="10.0.0.1:8000", pod="p", pool="large")
    for commands in (
        told(7, 0),
        list(move_commands(Reopen(server="s1", pod="p"), ["chat"])),
        list(move_commands(seat, ["chat"], limits=(4,))),
    ):
        states = [
            command.split(" ", 2)[2].split(" state ")
            for command in commands
            if " state " in command
        ]
        for place, (server, state) in enumerate(states):
            if state == "ready":
                assert [server, "drain"] in states[:place]
