"""Which worker stands in which server of HAProxy, who leaves, and who has left?

HAProxy has a fixed number of servers; a worker is put into a free one while it runs, and nothing is ever
reloaded: a reload would let the old process keep its requests while the new one promises them again. A
worker is known by its address. A server is free once nobody that exists has its address and nothing is
in flight on it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from plimsoll.gate.records import GateRooms, WorkerRoom


class PodSeen(NamedTuple):
    """One worker's pod."""

    name: str
    """Name of the pod."""
    address: str | None
    """Host and port of its engine, e.g. 10.0.0.7:8000; None until it has one."""
    pool: str
    """Name of its pool."""
    is_ready: bool
    """Whether the pod is Ready."""
    is_leaving: bool
    """Whether it is being deleted, or somebody asked for it to be drained."""


class ServerSeen(NamedTuple):
    """One server, as HAProxy has it."""

    name: str
    """Its name: the same in every lane."""
    address: str
    """Host and port."""
    is_open: bool
    """Whether it takes new requests as far as we have a say; its health is HAProxy's matter."""
    in_flight: int
    """Requests on it over all lanes."""
    is_down: bool = False
    """Whether HAProxy finds it unwell."""


class Seat(NamedTuple):
    """A worker is put into a server: address, limits and weight are set, then it is opened."""

    server: str
    address: str
    pod: str
    pool: str


class Drain(NamedTuple):
    """A server takes no new requests; those in flight go on."""

    server: str
    pod: str


class Reopen(NamedTuple):
    """A worker that was to leave stays after all."""

    server: str
    pod: str


class Shut(NamedTuple):
    """A server whose worker is gone is closed, so that it is free when nothing is in flight any more."""

    server: str


Move = Seat | Drain | Reopen | Shut


class Roster(NamedTuple):
    """Who stands where, and what has to be done about it."""

    moves: tuple[Move, ...]
    """In the order in which they are to be done: room is made before it is used."""
    seated: dict[str, PodSeen]
    """By server: the pod that stands there already, leaving or not."""
    drained: tuple[str, ...]
    """Pods that leave and have no request in flight: they may go."""
    unseated: tuple[str, ...]
    """Ready pods for which there is no free server."""


def roster(pods: Sequence[PodSeen], servers: Sequence[ServerSeen], rooms: GateRooms) -> Roster:
    """What to do so that every ready worker stands in one server, and nobody else does."""
    by_address = {pod.address: pod for pod in pods if pod.address is not None}
    seated: dict[str, PodSeen] = {}
    taken: dict[str, ServerSeen] = {}
    for server in servers:
        pod = by_address.get(server.address)
        if pod is not None and server.address not in taken:
            seated[server.name] = pod
            taken[server.address] = server
    free = [
        server
        for server in servers
        if server.name not in seated and not server.is_open and server.in_flight == 0
    ]
    new = [
        pod
        for pod in sorted(pods)
        if pod.is_ready
        and not pod.is_leaving
        and pod.address is not None
        and pod.address not in taken
        and rooms.of_pool(pod.pool) is not None
    ]
    seats = tuple(
        Seat(server=server.name, address=pod.address or "", pod=pod.name, pool=pod.pool)
        for server, pod in zip(free, new, strict=False)
    )
    return Roster(
        moves=(*_moves(servers, seated), *seats),
        seated=seated,
        drained=tuple(_drained(pods, taken)),
        unseated=tuple(pod.name for pod in new[len(free) :]),
    )


def room_of(pod: PodSeen, rooms: GateRooms) -> WorkerRoom | None:
    """What that worker holds; None when its pool is not planned for any more."""
    return rooms.of_pool(pod.pool)


def _moves(servers: Sequence[ServerSeen], seated: dict[str, PodSeen]) -> Iterator[Move]:
    for server in servers:
        pod = seated.get(server.name)
        if pod is None:
            if server.is_open:
                yield Shut(server=server.name)
        elif pod.is_leaving and server.is_open:
            yield Drain(server=server.name, pod=pod.name)
        elif not pod.is_leaving and not server.is_open and pod.is_ready:
            yield Reopen(server=server.name, pod=pod.name)


def _drained(pods: Sequence[PodSeen], taken: dict[str, ServerSeen]) -> Iterator[str]:
    """A worker that never stood anywhere has nothing in flight either."""
    for pod in sorted(pods):
        if not pod.is_leaving:
            continue
        server = taken.get(pod.address or "")
        if server is None or (not server.is_open and server.in_flight == 0):
            yield pod.name
