"""What is each gate told, so that it knows its workers and no slot is promised twice?

Everything at once, as annotations of its pod: what is promised, for which workers, and which of several gates
it is. A place is given once and held until the pod is gone; a gate without one promises nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts
from plimsoll.gate.records import GateRooms
from plimsoll.render.gateway_objects import (
    ROOMS_ANNOTATION,
    STANDING_ANNOTATION,
    WORKERS_ANNOTATION,
)

LOST_SECONDS: Final = 30.0
"""So long after the time by which a pod had to end, one on a node that says nothing counts as gone."""


class GateSeen(Record):
    """One gate's pod."""

    name: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    is_ready: bool = False
    """Whether the pod is Ready."""
    ends_seconds: float | None = None
    """By when it must have ended, epoch seconds; None while nobody ends it."""
    question: str = ""
    """Which question it was made for."""
    rooms: str = ""
    """What it was told is promised."""
    workers: str = ""
    """Which workers it was told."""
    standing: str = ""
    """Which of several gates it was told to be."""

    @property
    def place(self) -> tuple[int, int] | None:
        """Gates and its place among them; None before it was told."""
        try:
            said = json.loads(self.standing)
            return int(said["gates"]), int(said["place"])
        except (ValueError, KeyError, TypeError):
            return None


class GateWord(Record):
    """What is told to one gate."""

    pod: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    annotations: dict[str, str]
    """All three: rooms, workers, standing."""


class Message(NamedTuple):
    """The same for all gates of one deployment."""

    rooms: GateRooms
    """What is promised."""
    workers: Sequence[WorkerFacts]
    """For whom."""
    question: str
    """Only gates that were made for it are told."""
    gates: int
    """How many share."""


def workers_text(workers: Iterable[WorkerFacts]) -> str:
    """The workers as the keeper reads them: those that have an address."""
    return json.dumps(
        [
            {
                "name": each.name,
                "address": each.address,
                "pool": each.pool,
                "isReady": each.is_ready,
                "isLeaving": each.is_terminating or not each.is_in_service,
            }
            for each in sorted(workers, key=lambda each: each.name)
            if each.address is not None
        ],
        separators=(",", ":"),
    )


def words_for(
    gates: Sequence[GateSeen], message: Message, *, now_seconds: float
) -> Iterator[GateWord]:
    """What is told to whom; those who know it already are left out.

    Two gates never have the same place, and none is told its place while one that shares otherwise may still
    have requests. One that goes is told no more.
    """
    count = message.gates
    holders = [each for each in gates if not _is_lost(each, now_seconds)]
    taken = {each.place for each in holders if each.place is not None}
    shares_otherwise = any(place is not None and place[0] != count for place in taken)
    free = [place for place in range(count) if (count, place) not in taken]
    said_workers, said_rooms = (
        workers_text(message.workers),
        message.rooms.model_dump_json(by_alias=True),
    )
    for each in sorted(holders, key=lambda each: each.name):
        if each.ends_seconds is not None or each.question != message.question:
            continue
        place = each.place
        if place is None and free and not shares_otherwise:
            place = (count, free.pop(0))
        if place is None:
            continue
        standing = each.standing if each.place else _standing(*place)
        if (each.rooms, each.workers, each.standing) != (said_rooms, said_workers, standing):
            yield GateWord(
                pod=each.name,
                uid=each.uid,
                annotations={
                    ROOMS_ANNOTATION: said_rooms,
                    WORKERS_ANNOTATION: said_workers,
                    STANDING_ANNOTATION: standing,
                },
            )


def _standing(gates: int, place: int) -> str:
    return json.dumps({"gates": gates, "place": place}, separators=(",", ":"))


def _is_lost(gate: GateSeen, now_seconds: float) -> bool:
    return gate.ends_seconds is not None and now_seconds > gate.ends_seconds + LOST_SECONDS


def knows(gate: GateSeen) -> bool:
    """Whether it may be sent requests: ready, and told its workers."""
    return gate.is_ready and gate.ends_seconds is None and gate.place is not None
