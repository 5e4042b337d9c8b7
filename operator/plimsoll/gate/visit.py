"""The whole thought of one visit: what HAProxy and the cluster show, and what follows from it.

Nothing is kept between visits. A keeper that was killed and one that starts anew think the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from plimsoll.gate.allocate import part_of, weights_of
from plimsoll.gate.commands import limit_commands, move_commands
from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, Others, Slots
from plimsoll.gate.roster import PodSeen, Roster, Seat, roster
from plimsoll.gate.step import Change, WorkerSeen, retire, step


class Elder(NamedTuple):
    """A gate that stood there before: what it holds, and may still raise, is not promised again."""

    name: str
    """Name of its pod."""
    page: str
    """Host and port of its keeper's page; empty where it has none yet."""
    since: int = 0
    """Which of its standings it must have acted on before its word counts."""


class Standing(NamedTuple):
    """Which of several gates this one is."""

    gates: int = 1
    """Gates that share the plan."""
    place: int = 0
    """Its place among them, from 0."""
    is_retiring: bool = False
    """Whether another one takes over: nothing is raised here any more."""
    is_leaving: bool = False
    """Whether this gate ends: its standing changes no more, only towards retiring."""
    since: int = 0
    """When it was told, epoch seconds; no two standings of one gate have the same."""
    elders: tuple[Elder, ...] = ()
    """Gates that it yields to."""


ALONE = Standing()


class Visit(NamedTuple):
    """What is to be done, and what is to be told."""

    roster: Roster
    """Who stands where, comes and leaves."""
    changes: tuple[Change, ...]
    """Limits to set, those that lower first."""
    workers: tuple[WorkerSeen, ...]
    """The workers as they were seen: for figures."""
    commands: tuple[str, ...]
    """All of it in HAProxy's words, in order."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do now: else look again at once."""
        return not self.commands


def visit(
    seen: GateSeen,
    pods: Sequence[PodSeen],
    rooms: GateRooms,
    *,
    elsewhere: Mapping[str, Slots | Others] | None = None,
    standing: Standing = ALONE,
    lend: bool = True,
) -> Visit:
    """What to do now. `elsewhere` says by address what other gates hold of a worker."""
    places = roster(pods, seen.servers, rooms)
    workers = tuple(_workers(seen, places, rooms, elsewhere or {}, standing))
    if standing.is_retiring:
        changes = retire(workers, seen.queued)
    else:
        changes = step(workers, rooms.lanes, seen.queued, lend=lend)
    names = [lane.name for lane in rooms.lanes]
    weights = dict(
        zip((pool.pool for pool in rooms.pools), weights_of(rooms.pools, rooms.lanes), strict=True)
    )
    closed = (0,) * len(names)
    commands = [
        command
        for move in places.moves
        for command in move_commands(
            move, names, limits=closed, weight=weights[move.pool] if isinstance(move, Seat) else 1
        )
    ]
    commands.extend(
        command for change in changes for command in limit_commands(change, names[change.lane])
    )
    return Visit(roster=places, changes=changes, workers=workers, commands=tuple(commands))


def _workers(
    seen: GateSeen,
    places: Roster,
    rooms: GateRooms,
    elsewhere: Mapping[str, Slots | Others],
    standing: Standing,
) -> Iterator[WorkerSeen]:
    """Those that stand somewhere already; one that just comes is seen at the next look, all lanes closed."""
    for server in seen.servers:
        pod = places.seated.get(server.name)
        room = None if pod is None else rooms.of_pool(pod.pool)
        if pod is None or room is None:
            continue
        said = elsewhere.get(server.address, ())
        others = said if isinstance(said, Others) else Others(lanes=said)
        yield WorkerSeen(
            name=server.name,
            part=part_of(room, rooms.lanes, gates=standing.gates, index=standing.place),
            lanes=seen.lanes[server.name],
            elsewhere=others.lanes,
            beyond=others.more,
            knows_others=others.is_known,
            whole=None if standing.gates == 1 else part_of(room, rooms.lanes),
            is_leaving=pod.is_leaving,
            is_down=server.is_down,
        )
