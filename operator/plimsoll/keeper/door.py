"""When does the gate's door open, and when is nobody left behind it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plimsoll.gate.doorplate import GATE, OPEN, doorplate, is_empty, may_open
from plimsoll.gate.records import GateRooms
from plimsoll.keeper.loop import Told
from plimsoll.keeper.maps import Map
from plimsoll.keeper.marks import Marks

OPEN_ANYWAY_SECONDS: Final = 60.0
"""So long a gate waits for its first slots; then it opens without, so that one that is silent holds up no
rollout: its pod is ended then, and its slots are free when it is gone."""


class Door:
    """What HAProxy is told of it, and what its container is."""

    def __init__(
        self,
        plate: Map,
        marks: Marks,
        rooms: Callable[[], GateRooms],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._plate = plate
        self._marks = marks
        self._rooms = rooms
        self._clock = clock
        self._began_seconds: float | None = None
        self._is_open: bool | None = None

    async def after(self, told: Told) -> None:
        """A visit is over. Raises SilentError."""
        found, seen, standing, rooms = told.visit, told.seen, told.standing, self._rooms()
        if found is None or seen is None or standing is None:
            return
        if self._is_open is None:  # a keeper that starts anew leaves an open door open
            self._is_open = (await self._plate.read()).get(GATE) == OPEN
        if self._began_seconds is None:
            self._began_seconds = self._clock()
        waited = self._clock() - self._began_seconds
        self._is_open = self._is_open or may_open(found, rooms) or waited >= OPEN_ANYWAY_SECONDS
        await self._plate.say(doorplate(found, rooms, standing, is_open=self._is_open))
        if standing.is_retiring and self._marks.has_left:
            self._marks.retired(is_empty=is_empty(found, seen.queued))
