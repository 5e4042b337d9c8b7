"""How does the keeper go round: look, think, do, several times a second?

It stands beside the data path. When it dies, limits stay as they are and keep the promise; when it starts
anew, it reads what runs and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll.gate.reading import GateSeen, UnreadableError
from plimsoll.gate.records import GateRooms, Others, Slots
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.visit import ALONE, Standing, Visit, visit
from plimsoll.keeper.runtime import Runtime, SilentError

PERIOD_SECONDS: Final = 0.1
"""Between visits with nothing to do. A visit costs about 2 ms (measured: docs/measured/gateway.md)."""
SILENT_PERIOD_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2
"""Before the first look: what a keeper that died has sent last may be carried out a moment after its death."""
LOWERED_SECONDS: Final = 0.02
"""After a limit was lowered, before the next look: HAProxy counts a request some rounds of its own loop after
it has handed it out, and such a one must be seen before anything is raised (measured: docs/measured/gateway.md)."""
MOST_LOOKS: Final = 8
"""Looks in a row while changes follow from changes; afterwards the next visit goes on."""

log = logging.getLogger(__name__)

Elsewhere = Callable[[], dict[str, Slots]]
OfOthers = Callable[[Standing, GateRooms, Sequence[PodSeen]], dict[str, Others]]


@dataclass
class World:
    """What the keeper asks for at each look; who fills it is none of its business."""

    rooms: Callable[[], GateRooms]
    """What is planned."""
    pods: Callable[[], Sequence[PodSeen]]
    """The workers' pods."""
    elsewhere: Elsewhere = dict
    """By worker's address: what other gates hold."""
    others: OfOthers | None = None
    """The same as others say it themselves, given how this gate stands; it goes before `elsewhere`."""
    standing: Callable[[], Standing] = lambda: ALONE
    """Which of several gates this is."""
    after: Callable[[Told], Awaitable[None]] | None = None
    """What is to be done when a visit is over."""


@dataclass
class Told:
    """What the last visit found, for metrics and whoever asks."""

    seen: GateSeen | None = None
    visit: Visit | None = None
    changes: int = 0
    """Limits set since the start."""
    failures: int = 0
    """Commands that HAProxy refused since the start."""
    problem: str = ""
    """Why the last visit found nothing; empty when it did."""
    drained: frozenset[str] = field(default_factory=frozenset)
    """Pods that leave and have nothing in flight."""
    standing: Standing | None = None
    """Which of several gates this was in the last whole visit: what others may count on. A visit that is
    under way may still raise what an earlier standing allowed."""
    acting: Standing = ALONE
    """Which of several gates this was when HAProxy was last looked at."""
    bytes_per_token: dict[str, int] = field(default_factory=dict)
    """By lane: bytes of body per token, times 100, as HAProxy counts."""


class Keeper:
    """One HAProxy's keeper."""

    def __init__(self, runtime: Runtime, world: World, *, lend: bool = True) -> None:
        self._runtime = runtime
        self._world = world
        self._lend = lend
        self.told = Told()

    async def run(self, *, period_seconds: float = PERIOD_SECONDS) -> None:
        """Visit until cancelled. Nothing that HAProxy says or fails to say ends it."""
        await asyncio.sleep(SETTLE_SECONDS)
        while True:
            try:
                await self.visit()
                pause = period_seconds
            except (SilentError, UnreadableError) as error:
                if not self.told.problem:
                    log.warning("HAProxy does not answer", extra={"why": str(error)})
                self.told.problem = str(error)
                pause = SILENT_PERIOD_SECONDS
            await asyncio.sleep(pause)

    async def visit(self) -> Visit:
        """Look, think and do, until nothing follows any more.

        After a limit was lowered HAProxy is looked at again before another one is raised into it.
        Raises SilentError or UnreadableError; then nothing was done, or part of it, which is as safe.
        """
        standing = self._world.standing()
        for _ in range(MOST_LOOKS):
            rooms = self._world.rooms()
            seen = await self._runtime.look([lane.name for lane in rooms.lanes])
            pods = self._world.pods()
            others = self._world.others
            found = visit(
                seen,
                pods,
                rooms,
                elsewhere=self._world.elsewhere()
                if others is None
                else others(standing, rooms, pods),
                standing=standing,
                lend=self._lend,
            )
            self._remember(seen, found, standing)
            if found.is_done:
                break
            refused = await self._runtime.tell(found.commands)
            self.told.changes += len(found.changes)
            self.told.failures += len(refused)
            for said in refused:
                log.warning("HAProxy refused a command", extra={"said": said})
            if any(change.is_lower for change in found.changes):
                await asyncio.sleep(LOWERED_SECONDS)
        self.told.standing = standing
        if self._world.after is not None:
            await self._world.after(self.told)
        return found

    def _remember(self, seen: GateSeen, found: Visit, standing: Standing) -> None:
        if self.told.problem:
            log.info("HAProxy answers again")
        for pod in found.roster.unseated:
            if self.told.visit is None or pod not in self.told.visit.roster.unseated:
                log.warning("no server is free for a worker", extra={"pod": pod})
        self.told.seen, self.told.visit, self.told.problem = seen, found, ""
        self.told.acting = standing
        self.told.drained = frozenset(found.roster.drained)
