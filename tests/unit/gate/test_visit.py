"""Does one visit seat who comes, and limit who stands already?"""

from __future__ import annotations

from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.visit import Standing, visit

POD = PodSeen("pod-a", "10.0.0.1:8000", "large", is_ready=True, is_leaving=False)


def seen(
    *lanes: tuple[int, int], address: str = POD.address or "", is_open: bool = True
) -> GateSeen:
    return GateSeen(
        servers=(
            ServerSeen("s0", address, is_open=is_open, in_flight=sum(lane[1] for lane in lanes)),
        ),
        lanes={"s0": tuple(LaneSeen(*lane) for lane in lanes)},
        queued=(0, 0),
    )


def test_who_comes_is_seated_closed_and_limited_at_the_next_look(rooms: GateRooms) -> None:
    first = visit(seen((1, 0), (0, 0), address="127.0.0.1:9", is_open=False), [POD], rooms)
    assert () == first.changes
    assert "set server chat/s0 state drain" in first.commands
    assert "set server chat/s0 weight 256" in first.commands
    assert "set server pool/s0 state ready" == first.commands[-1]
    second = visit(seen((0, 0), (0, 0)), [POD], rooms)
    assert (
        "set server chat/s0 state drain",
        "set maxconn server chat/s0 32",
        "set server chat/s0 state ready",
        "set server batch/s0 state drain",
        "set maxconn server batch/s0 4",
        "set server batch/s0 state ready",
    ) == second.commands
    assert visit(seen((32, 0), (4, 0)), [POD], rooms).is_done


def test_a_pool_without_a_plan_is_left_as_it_is(rooms: GateRooms) -> None:
    assert visit(seen((9, 9), (9, 9)), [POD._replace(pool="other")], rooms).is_done


def test_one_of_two_gates_gives_its_part(rooms: GateRooms) -> None:
    found = visit(seen((0, 0), (0, 0)), [POD], rooms, standing=Standing(gates=2, place=1))
    assert [16, 2] == [change.limit for change in found.changes]


def test_a_gate_that_is_replaced_only_lowers(rooms: GateRooms) -> None:
    found = visit(seen((32, 3), (0, 0)), [POD], rooms, standing=Standing(is_retiring=True))
    assert [3] == [change.limit for change in found.changes]


def test_what_another_gate_holds_is_counted_by_address(rooms: GateRooms) -> None:
    found = visit(seen((0, 0), (0, 0)), [POD], rooms, elsewhere={"10.0.0.1:8000": (30, 4)})
    assert "set maxconn server chat/s0 2" in found.commands
    assert not any("batch" in command for command in found.commands)
