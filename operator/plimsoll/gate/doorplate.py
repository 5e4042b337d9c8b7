"""What stands at the gate's door: may clients come, do they have to leave, and which lanes wait for their slots?

A map in HAProxy that the keeper fills. Until a gate may serve, its pod is not ready and the Service leads past
it. One that leaves says `Connection: close` with each answer. A lane whose slots another gate still holds is
full, and told as such: its workers are there.
"""

from typing import Final

from plimsoll.gate.records import GateRooms, Slots
from plimsoll.gate.roster import Seat
from plimsoll.gate.step import WorkerSeen
from plimsoll.gate.visit import Standing, Visit

GATE: Final = "gate"
OPEN: Final = "open"
LEAVES: Final = "leaves"
WAITS: Final = "waits"
SESSIONS: Final = "sessions"
SPREAD: Final = "spread"
LANE: Final = "lane."
"""Before a lane's name."""


def doorplate(
    found: Visit, rooms: GateRooms, standing: Standing, *, is_open: bool
) -> dict[str, str]:
    """Key and value of each line of the map."""
    plate = {LANE + name: WAITS for name in _waiting(found, rooms, standing)}
    if rooms.spreads_sessions:
        plate[SESSIONS] = SPREAD
    if standing.is_leaving:
        plate[GATE] = LEAVES
    elif is_open:
        plate[GATE] = OPEN
    return plate


def may_open(found: Visit, rooms: GateRooms) -> bool:
    """Whether every lane that this gate has slots for has one; one without any worker has nothing to wait for."""
    if any(isinstance(move, Seat) for move in found.roster.moves):
        return False
    planned, limits = _sums(found, rooms)
    return all(limit > 0 or not own for own, limit in zip(planned, limits, strict=True))


def is_empty(found: Visit, queued: Slots) -> bool:
    """Whether nobody is served and nobody waits."""
    return not any(queued) and not any(
        lane.in_flight for worker in found.workers for lane in worker.lanes
    )


def _waiting(found: Visit, rooms: GateRooms, standing: Standing) -> list[str]:
    """Names of the lanes that have no slot here, but will when another gate gives them up."""
    if not standing.elders and standing.gates == 1:
        return []
    _, limits = _sums(found, rooms)
    whole = [
        sum((worker.whole or worker.part).planned[place] for worker in _well(found))
        for place in range(len(rooms.lanes))
    ]
    return [
        lane.name
        for lane, limit, all_ in zip(rooms.lanes, limits, whole, strict=True)
        if all_ and not limit
    ]


def _sums(found: Visit, rooms: GateRooms) -> tuple[Slots, Slots]:
    """Planned for this gate and allowed now, by lane, over workers that serve."""
    places = range(len(rooms.lanes))
    well = _well(found)
    return (
        tuple(sum(worker.part.planned[place] for worker in well) for place in places),
        tuple(sum(worker.lanes[place].limit for worker in well) for place in places),
    )


def _well(found: Visit) -> list[WorkerSeen]:
    return [worker for worker in found.workers if not worker.is_down and not worker.is_leaving]
