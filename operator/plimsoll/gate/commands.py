"""How is a change told to HAProxy on its runtime socket?

Never a limit of 0: HAProxy reads it as no limit. A lane is closed by drain, in which requests that run go
on (HAProxy 2.6 and 3.2, management guide, `set server`, `set maxconn server`).

Never out of maintenance straight into service: HAProxy 2.6 then takes as many waiting requests as the limit
allows and does not count them, so that twice the limit runs (measured: docs/measured/gateway.md; 3.2 counts
them). Out of drain it takes none.
"""

from collections.abc import Iterator, Sequence

from plimsoll.gate.reading import POOL
from plimsoll.gate.records import Slots
from plimsoll.gate.roster import Drain, Move, Reopen, Seat, Shut
from plimsoll.gate.step import Change

LOOK = ("show stat -1 6 -1", "show servers state")
"""Backends and servers of all proxies; addresses and who closed what."""


def limit_commands(change: Change, lane: str) -> Iterator[str]:
    """A limit that is to be set, closing or opening the lane on that worker where it must."""
    server = f"{lane}/{change.server}"
    if change.limit < 0:
        raise ValueError(f"{server}: {change.limit} is no limit")
    if change.limit == 0:
        yield f"set server {server} state drain"
        return
    if change.was == 0:  # it may be closed by the configuration, which is maintenance
        yield f"set server {server} state drain"
    yield f"set maxconn server {server} {change.limit}"
    if change.was == 0:
        yield f"set server {server} state ready"


def move_commands(
    move: Move, lanes: Sequence[str], *, limits: Slots = (), weight: int = 1
) -> Iterator[str]:
    """A worker comes, leaves, stays after all, or is gone.

    `limits` (by lane) and `weight` are for one that comes: everything is set before it is opened.
    """
    match move:
        case Seat(server=server, address=address):
            yield from _seat(server, address, lanes, limits, weight)
        case Drain(server=server):
            yield f"set server {POOL}/{server} state drain"
        case Reopen(server=server):
            yield f"set server {POOL}/{server} state drain"
            yield f"set server {POOL}/{server} state ready"
        case Shut(server=server):
            yield f"set server {POOL}/{server} state maint"


def _seat(
    server: str, address: str, lanes: Sequence[str], limits: Slots, weight: int
) -> Iterator[str]:
    host, _, port = address.rpartition(":")
    yield f"set server {POOL}/{server} state drain"
    for backend in (*lanes, POOL):
        yield f"set server {backend}/{server} addr {host.strip('[]')} port {port}"
    for lane, limit in zip(lanes, limits, strict=True):
        yield f"set server {lane}/{server} weight {weight}"
        yield from limit_commands(Change(server=server, lane=0, limit=limit, was=0), lane)
    yield f"set server {POOL}/{server} state ready"
