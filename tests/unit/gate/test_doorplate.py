"""Does a gate open with its first slots, and say whether a lane is full or has no worker?"""

from __future__ import annotations

from plimsoll.gate.doorplate import doorplate, is_empty, may_open
from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, Others
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.visit import ALONE, Elder, Standing, Visit, visit

POD = PodSeen("pod-a", "10.0.0.1:8000", "large", is_ready=True, is_leaving=False)
SHARES = Standing(2, 1, elders=(Elder("gate-a", "10.0.0.9:8406"),))


def found(
    rooms: GateRooms,
    *lanes: tuple[int, int],
    standing: Standing = ALONE,
    is_seated: bool = True,
    is_down: bool = False,
) -> Visit:
    server = ServerSeen(
        "s0",
        POD.address or "" if is_seated else "127.0.0.1:9",
        is_open=is_seated,
        in_flight=0,
        is_down=is_down,
    )
    seen = GateSeen((server,), {"s0": tuple(LaneSeen(*lane) for lane in lanes)}, (0, 0))
    others = {POD.address or "": Others(is_known=False)} if standing.elders else {}
    return visit(seen, [POD], rooms, standing=standing, elsewhere=others)


def test_it_opens_with_a_slot_in_each_lane(rooms: GateRooms) -> None:
    assert not may_open(found(rooms, (0, 0), (0, 0), is_seated=False), rooms)
    assert not may_open(found(rooms, (1, 0), (0, 0)), rooms)
    assert may_open(found(rooms, (1, 0), (1, 0)), rooms)


def test_without_any_worker_there_is_nothing_to_wait_for(rooms: GateRooms) -> None:
    assert may_open(found(rooms, (0, 0), (0, 0), is_down=True), rooms)
    assert may_open(visit(GateSeen((), {}, (0, 0)), [], rooms), rooms)


def test_a_lane_whose_slots_another_gate_holds_is_full(rooms: GateRooms) -> None:
    waits = found(rooms, (3, 0), (0, 0), standing=SHARES)
    assert {"lane.batch": "waits", "gate": "open"} == doorplate(waits, rooms, SHARES, is_open=True)
    assert {"lane.batch": "waits"} == doorplate(waits, rooms, SHARES, is_open=False)


def test_a_lane_without_a_worker_is_not(rooms: GateRooms) -> None:
    down = found(rooms, (0, 0), (0, 0), standing=SHARES, is_down=True)
    assert {} == doorplate(down, rooms, SHARES, is_open=False)
    alone = found(rooms, (3, 0), (0, 0))
    assert {"gate": "open"} == doorplate(alone, rooms, ALONE, is_open=True)


def test_one_that_leaves_sends_clients_away(rooms: GateRooms) -> None:
    leaving = Standing(is_leaving=True)
    assert {"gate": "leaves"} == doorplate(
        found(rooms, (3, 0), (1, 0)), rooms, leaving, is_open=True
    )


def test_it_is_empty_when_nobody_is_served_and_nobody_waits(rooms: GateRooms) -> None:
    assert is_empty(found(rooms, (3, 0), (1, 0)), (0, 0))
    assert not is_empty(found(rooms, (3, 0), (1, 0)), (0, 1))
    assert not is_empty(found(rooms, (3, 1), (1, 0)), (0, 0))


def test_sessions_are_spread_where_their_prefixes_are_not_found(rooms: GateRooms) -> None:
    spread = rooms.model_copy(update={"spreads_sessions": True})
    assert {"gate": "open", "sessions": "spread"} == doorplate(
        found(spread, (3, 0), (1, 0)), spread, ALONE, is_open=True
    )
