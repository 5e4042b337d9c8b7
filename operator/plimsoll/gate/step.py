"""Which limits change at the gate, now that it looks like this?

The promise, on every worker: whatever arrives and leaves, what runs never exceeds the worker's KV tokens
or its sequences. A limit bounds what HAProxy may hand out between two looks, so a lane counts as holding
the larger of its limit and what it has in flight.

- A lane that leaves part of its slots idle lends it: it keeps what it has in flight and a little more,
  never less than its floor, so that its first request is served at once.
- A lane that may borrow gets what is idle as far as it has use for it.
- A limit is lowered at any time. It is raised only into what nobody holds, where a lane that was lowered
  in the same look still counts with its old limit. So each change keeps the promise by itself: applied
  in any order, in part, late, or by a keeper that dies half way.

Nothing is remembered. What runs is read from HAProxy at each look, so that a keeper that starts anew
goes on where another one stopped.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.gate.records import LaneRoom, Part, Promise, Slots, promise
from plimsoll.units import ceil_div

FLOOR_PERCENT: Final = 25
"""Part of a lane's own slots that is never lent, at least one: with a quarter the owner's first seven
requests ran after 1.1 s, its whole share after one response of the borrower (measured: docs/measured/gateway.md)."""
SPARE_PERCENT: Final = 25
"""Part of a lane's own slots that it keeps open beyond what it has in flight."""


class LaneSeen(NamedTuple):
    """One lane on one worker, as HAProxy has it."""

    limit: int
    """Requests that may be in flight; 0 where the lane is closed on this worker."""
    in_flight: int
    """Requests that are."""

    @property
    def held(self) -> int:
        """What may run at any moment until the next look."""
        return max(self.limit, self.in_flight)


class WorkerSeen(NamedTuple):
    """One worker, as HAProxy has it."""

    name: str
    """Name of its server."""
    part: Part
    """What may be promised on it."""
    lanes: tuple[LaneSeen, ...]
    """In the order of the lanes."""
    elsewhere: Slots = ()
    """What other gates hold of it, by lane; empty where there are none."""
    beyond: Promise = Promise(0, 0)
    """What they may take of it beyond that."""
    knows_others: bool = True
    """Whether all of them have said what they hold; else nothing is raised here, nor given up."""
    whole: Part | None = None
    """What all gates together may promise on it; None where this one has it all."""
    is_leaving: bool = False
    """Whether it takes no new requests: nothing is raised on it."""
    is_down: bool = False
    """Whether HAProxy finds it unwell: its lanes are closed, and opened again when it is well. HAProxy 2.6
    would else hand it waiting requests without counting them (measured: docs/measured/gateway.md)."""


class Change(NamedTuple):
    """A limit that is to be set."""

    server: str
    """Name of the worker's server."""
    lane: int
    """Place of the lane."""
    limit: int
    """Requests that may be in flight; 0 closes the lane on this worker."""
    was: int
    """The limit before; 0 where the lane was closed."""

    @property
    def is_lower(self) -> bool:
        """Whether it takes something away."""
        return self.limit < self.was


def step(
    workers: Sequence[WorkerSeen],
    lanes: Sequence[LaneRoom],
    queued: Sequence[int] = (),
    *,
    lend: bool = True,
) -> tuple[Change, ...]:
    """The changes for now, those that lower first. After a change that lowers, look again at once.

    `queued` is how many requests wait, by lane. Without `lend` every lane gets what is planned for it.
    """
    waiting = queued or (0,) * len(lanes)
    staying = [
        worker
        for worker in workers
        if worker.knows_others and not worker.is_leaving and not worker.is_down
    ]
    whole = [sum(worker.part.planned[place] for worker in staying) for place in range(len(lanes))]
    changes = [
        change
        for worker in staying
        for change in _of_worker(worker, lanes, _backlog(worker, waiting, whole), lend)
    ]
    closed = [
        Change(server=worker.name, lane=place, limit=0, was=seen.limit)
        for worker in workers
        if worker.is_down and not worker.is_leaving
        for place, seen in enumerate(worker.lanes)
        if seen.limit
    ]
    return tuple(sorted((*closed, *changes), key=lambda change: not change.is_lower))


def retire(workers: Sequence[WorkerSeen], queued: Sequence[int] = ()) -> tuple[Change, ...]:
    """The changes for a gate that is to be replaced: nothing is raised any more, and each lane is left with
    what is in flight, once nobody waits for it here. Another gate may take what is given up."""
    return tuple(
        Change(server=worker.name, lane=place, limit=seen.in_flight, was=seen.limit)
        for worker in workers
        for place, seen in enumerate(worker.lanes)
        if seen.in_flight < seen.limit and not (queued and queued[place])
    )


def held(worker: WorkerSeen) -> Slots:
    """What may run on the worker at any moment until the next look, other gates' requests included."""
    elsewhere = worker.elsewhere or (0,) * len(worker.lanes)
    return tuple(lane.held + other for lane, other in zip(worker.lanes, elsewhere, strict=True))


def _backlog(worker: WorkerSeen, waiting: Sequence[int], whole: Sequence[int]) -> Slots:
    """The worker's part of each lane's queue, by slots; rounded up, so that one waiting request is seen."""
    return tuple(
        ceil_div(queue * planned, total) if total else queue
        for queue, planned, total in zip(waiting, worker.part.planned, whole, strict=True)
    )


def _of_worker(
    worker: WorkerSeen, lanes: Sequence[LaneRoom], backlog: Slots, lend: bool
) -> Iterator[Change]:
    goals = _goals(worker, lanes, backlog) if lend else _own(worker)
    counted = [lane.held for lane in worker.lanes]
    for place, (seen, goal) in enumerate(zip(worker.lanes, goals, strict=True)):
        if goal < seen.limit:  # it still counts with its old limit: it may be applied last
            yield Change(server=worker.name, lane=place, limit=goal, was=seen.limit)
    order = sorted(
        range(len(lanes)),
        key=lambda place: (goals[place] > worker.part.planned[place], lanes[place].priority),
    )
    for place in order:
        seen, goal = worker.lanes[place], goals[place]
        if goal <= seen.limit:
            continue
        raised = min(goal, _room_for(worker, counted, place))
        if raised > seen.limit:
            counted[place] += max(raised, seen.in_flight) - seen.held
            yield Change(server=worker.name, lane=place, limit=raised, was=seen.limit)


def _room_for(worker: WorkerSeen, counted: Sequence[int], place: int) -> int:
    """The largest limit of this lane with which all that is held still fits: ours in our part, and with
    what other gates hold in the whole."""
    others = [0 if other == place else count for other, count in enumerate(counted)]
    room = _Room.beside(worker, others)
    return room.up_to(room.sequences, worker.part.tokens[place])


def _goals(worker: WorkerSeen, lanes: Sequence[LaneRoom], backlog: Slots) -> Slots:
    """Where the limits would stand if nobody held more than that."""
    part, planned = worker.part, _own(worker)
    demand = [
        seen.in_flight + waiting + ceil_div(own * SPARE_PERCENT, 100)
        for seen, waiting, own in zip(worker.lanes, backlog, part.planned, strict=True)
    ]
    order = sorted(range(len(lanes)), key=lambda place: lanes[place].priority)
    borrowers = [
        place
        for place in order
        if lanes[place].borrow
        and part.most[place] > planned[place]
        and (backlog[place] > 0 or worker.lanes[place].in_flight > planned[place])
    ]
    goals = [
        min(own, max(ceil_div(own * FLOOR_PERCENT, 100), wanted))
        for own, wanted in zip(planned, demand, strict=True)
    ]
    room = _Room.beside(worker, goals)
    for place in borrowers:
        wanted = min(demand[place], part.most[place])
        goals[place] += (extra := room.up_to(wanted - goals[place], part.tokens[place]))
        room = room.without(extra, part.tokens[place])
    for place in order:  # what no borrower has use for stays with its owner
        goals[place] += (extra := room.up_to(planned[place] - goals[place], part.tokens[place]))
        room = room.without(extra, part.tokens[place])
    return tuple(goals)


def _own(worker: WorkerSeen) -> Slots:
    """What is planned for this gate, as far as another one does not hold it still."""
    whole = (worker.whole or worker.part).planned
    elsewhere = worker.elsewhere or (0,) * len(whole)
    return tuple(
        min(own, max(0, all_ - other))
        for own, all_, other in zip(worker.part.planned, whole, elsewhere, strict=True)
    )


class _Room(NamedTuple):
    """What is left of a worker."""

    tokens: int
    sequences: int

    @classmethod
    def beside(cls, worker: WorkerSeen, requests: Sequence[int]) -> "_Room":
        """Beside so many requests of ours, and what other gates hold."""
        part, whole = worker.part, worker.whole or worker.part
        together = [
            own + other
            for own, other in zip(
                requests, worker.elsewhere or (0,) * len(part.tokens), strict=True
            )
        ]
        ours, all_ = promise(part, tuple(requests)), promise(whole, tuple(together))
        beyond = worker.beyond
        return cls(
            tokens=min(part.kv_tokens - ours.tokens, whole.kv_tokens - all_.tokens - beyond.tokens),
            sequences=min(
                part.sequences - ours.sequences,
                whole.sequences - all_.sequences - beyond.sequences,
            ),
        )

    def up_to(self, wanted: int, tokens: int) -> int:
        """Of so many requests, those that fit; none when less than none are wanted."""
        return max(0, min(wanted, self.tokens // tokens, self.sequences))

    def without(self, requests: int, tokens: int) -> "_Room":
        return _Room(self.tokens - requests * tokens, self.sequences - requests)
