"""What is each gate told, so that it knows its workers and no slot is promised twice?

Everything at once, as annotations of its pod: what is promised, for which workers, and which of several gates
it is. A gate without a place promises nothing.

Where one gate replaces another, both share for a while, each with a half: the elder is told to, and the younger
which elders it yields to; what those hold, it hears from their keepers. When the elder ends, the younger has the
whole, as far as the elder gives it up. So one gate at most is told to take more, and only while all others end:
a gate that ends is told nothing any more, since the kubelet would not show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts
from plimsoll.gate.records import GateRooms
from plimsoll.render.gateway_objects import (
    PAGE_PORT,
    ROOMS_ANNOTATION,
    STANDING_ANNOTATION,
    WORKERS_ANNOTATION,
)

SHARED: Final = 2
"""Gates that share while one replaces the other."""
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
    address: str | None = None
    """Address of the pod; None until it has one."""

    @property
    def place(self) -> tuple[int, int] | None:
        """Gates and its place among them; None before it was told."""
        said = self._said()
        return None if said is None else (said["gates"], said["place"])

    @property
    def since(self) -> int:
        """When it was told; 0 where that is not known."""
        said = self._said()
        return 0 if said is None else said["since"]

    @property
    def page(self) -> str:
        """Host and port of its keeper's page; empty until it has an address."""
        if self.address is None:
            return ""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{PAGE_PORT}"

    def _said(self) -> dict[str, int] | None:
        try:
            said = json.loads(self.standing)
            numbers = {name: int(said[name]) for name in ("gates", "place")}
            return numbers | {"since": int(said.get("since", 0))}
        except (ValueError, KeyError, TypeError, AttributeError):
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
    """What is told to whom; those who know it already are left out. One that ends is told no more."""
    holders = sorted(
        (each for each in gates if not _is_lost(each, now_seconds)), key=lambda each: each.name
    )
    staying = [each for each in holders if each.ends_seconds is None]
    fresh = [each for each in staying if each.question == message.question]
    placed_before = [
        each for each in staying if each.question != message.question and each.place is not None
    ]
    ending = [each for each in holders if each.ends_seconds is not None and each.place is not None]
    elders = list(ending)
    for each in placed_before:
        standing = each.standing
        if fresh and each.place == (1, 0):
            standing = _standing(each, (SHARED, 0), ending, now_seconds)
        elders.append(each.model_copy(update={"standing": standing}))
        yield from _told(each, each.rooms, workers_text(message.workers), standing)
    count = SHARED if placed_before else message.gates
    rooms = message.rooms.model_dump_json(by_alias=True, exclude_defaults=True)
    kept = {each.name: each.place for each in fresh if each.place and each.place[0] == count}
    if (
        message.gates == 1 and len(kept) > 1
    ):  # only one of them can have it all, the others end soon
        kept = dict(list(kept.items())[:1])
    free = _free(count, kept.values(), placed_before)
    for each in sorted(fresh, key=lambda each: (each.name not in kept, each.place is None)):
        place = kept.get(each.name)
        if place is None and free and (message.gates > 1 or not kept):
            place = kept[each.name] = free.pop(0)
        if place is not None:
            standing = _standing(each, place, elders, now_seconds)
            yield from _told(each, rooms, workers_text(message.workers), standing)


def _free(
    count: int, kept: Iterable[tuple[int, int]], placed_before: Sequence[GateSeen]
) -> list[tuple[int, int]]:
    """Places that no gate has; first those that no elder has either."""
    taken = set(kept)
    elders = {each.place for each in placed_before if each.place is not None}
    if elders == {(1, 0)}:
        elders = {(SHARED, 0)}
    places = [(count, place) for place in range(count) if (count, place) not in taken]
    return sorted(places, key=lambda place: place in elders)


def _told(gate: GateSeen, rooms: str, workers: str, standing: str) -> Iterator[GateWord]:
    if (gate.rooms, gate.workers, gate.standing) == (rooms, workers, standing):
        return
    yield GateWord(
        pod=gate.name,
        uid=gate.uid,
        annotations={
            ROOMS_ANNOTATION: rooms,
            WORKERS_ANNOTATION: workers,
            STANDING_ANNOTATION: standing,
        },
    )


def _standing(
    gate: GateSeen, place: tuple[int, int], elders: Sequence[GateSeen], now_seconds: float
) -> str:
    """How it stands, as its keeper reads it: word for word what it was told, where nothing is different."""
    said: dict[str, Any] = {"gates": place[0], "place": place[1]}
    if yields_to := [
        {"name": each.name, "page": each.page, "since": each.since}
        for each in elders
        if each.name != gate.name
    ]:
        said["elders"] = yields_to
    try:
        before = json.loads(gate.standing)
        if {name: value for name, value in before.items() if name != "since"} == said:
            return gate.standing
    except (ValueError, AttributeError):
        pass
    said["since"] = max(int(now_seconds), gate.since + 1)
    return json.dumps(said, separators=(",", ":"))


def _is_lost(gate: GateSeen, now_seconds: float) -> bool:
    return gate.ends_seconds is not None and now_seconds > gate.ends_seconds + LOST_SECONDS


def knows(gate: GateSeen) -> bool:
    """Whether it may be sent requests: ready, and told its workers."""
    return gate.is_ready and gate.ends_seconds is None and gate.place is not None
