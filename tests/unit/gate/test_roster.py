"""Does every ready worker stand in one server, and nobody who is gone?"""

from __future__ import annotations

from plimsoll.gate.records import GateRooms
from plimsoll.gate.roster import Drain, PodSeen, Reopen, Seat, ServerSeen, Shut, roster

NOBODY = "127.0.0.1:9"


def pod(
    number: int, *, is_ready: bool = True, is_leaving: bool = False, pool: str = "large"
) -> PodSeen:
    return PodSeen(
        name=f"pod-{number}",
        address=f"10.0.0.{number}:8000",
        pool=pool,
        is_ready=is_ready,
        is_leaving=is_leaving,
    )


def server(
    name: str, number: int | None = None, *, is_open: bool = True, in_flight: int = 0
) -> ServerSeen:
    address = NOBODY if number is None else f"10.0.0.{number}:8000"
    return ServerSeen(name=name, address=address, is_open=is_open, in_flight=in_flight)


def test_a_ready_worker_takes_a_free_server(rooms: GateRooms) -> None:
    found = roster([pod(1)], [server("s1", is_open=False)], rooms)
    assert (Seat(server="s1", address="10.0.0.1:8000", pod="pod-1", pool="large"),) == found.moves


def test_a_worker_that_is_not_ready_or_leaves_or_is_unknown_takes_none(rooms: GateRooms) -> None:
    pods = [pod(1, is_ready=False), pod(2, is_leaving=True), pod(3, pool="other")]
    assert () == roster(pods, [server("s1", is_open=False)], rooms).moves


def test_who_stands_already_stays_and_needs_nothing(rooms: GateRooms) -> None:
    found = roster([pod(1)], [server("s1", 1), server("s2", is_open=False)], rooms)
    assert () == found.moves
    assert {"s1": pod(1)} == found.seated


def test_a_worker_that_leaves_is_drained_and_told_when_it_is_empty(rooms: GateRooms) -> None:
    leaving = pod(1, is_leaving=True)
    assert (Drain(server="s1", pod="pod-1"),) == roster(
        [leaving], [server("s1", 1, in_flight=3)], rooms
    ).moves
    busy = roster([leaving], [server("s1", 1, is_open=False, in_flight=3)], rooms)
    assert ((), ()) == (busy.moves, busy.drained)
    assert ("pod-1",) == roster([leaving], [server("s1", 1, is_open=False)], rooms).drained


def test_an_open_server_without_requests_is_not_called_drained(rooms: GateRooms) -> None:
    assert () == roster([pod(1, is_leaving=True)], [server("s1", 1)], rooms).drained


def test_a_leaving_worker_that_never_stood_anywhere_is_drained(rooms: GateRooms) -> None:
    nowhere = PodSeen(name="p", address=None, pool="large", is_ready=False, is_leaving=True)
    assert ("p",) == roster([nowhere], [], rooms).drained


def test_a_worker_that_stays_after_all_is_opened_again(rooms: GateRooms) -> None:
    assert (Reopen(server="s1", pod="pod-1"),) == roster(
        [pod(1)], [server("s1", 1, is_open=False)], rooms
    ).moves


def test_a_server_of_a_worker_that_is_gone_is_shut_before_it_is_used(rooms: GateRooms) -> None:
    assert (Shut(server="s1"),) == roster([pod(2)], [server("s1", 1)], rooms).moves
    busy = roster([pod(2)], [server("s1", 1, is_open=False, in_flight=1)], rooms)
    assert ((), ("pod-2",)) == (busy.moves, busy.unseated)
    assert isinstance(roster([pod(2)], [server("s1", 1, is_open=False)], rooms).moves[0], Seat)


def test_workers_without_a_server_are_named(rooms: GateRooms) -> None:
    found = roster([pod(1), pod(2)], [server("s1", is_open=False)], rooms)
    assert ("pod-2",) == found.unseated


def test_the_order_of_pods_does_not_matter(rooms: GateRooms) -> None:
    servers = [server("s1", is_open=False), server("s2", is_open=False)]
    assert roster([pod(1), pod(2)], servers, rooms) == roster([pod(2), pod(1)], servers, rooms)
