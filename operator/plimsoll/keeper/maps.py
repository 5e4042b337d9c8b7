"""How does one of HAProxy's maps come to say what it should?

By the admin socket, so that it counts at once. HAProxy may have been started anew and forgotten it, so it is
compared now and then also where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from plimsoll.gate.keys import key_commands, read_map
from plimsoll.keeper.runtime import Runtime

COMPARED_SECONDS: Final = 2.0


class Map:
    """One map of one HAProxy."""

    def __init__(self, runtime: Runtime, path: str, *, clock: Callable[[], float]) -> None:
        self._runtime = runtime
        self._path = path
        self._clock = clock
        self._told: Mapping[str, str] | None = None
        self._compared_seconds = 0.0

    async def read(self) -> dict[str, str]:
        """What it says now. Raises SilentError."""
        return read_map(await self._runtime.ask(f"show map {self._path}"))

    async def say(self, wanted: Mapping[str, str]) -> None:
        """Make it say that. Raises SilentError."""
        now = self._clock()
        if wanted == self._told and now - self._compared_seconds < COMPARED_SECONDS:
            return
        if commands := list(key_commands(self._path, wanted, await self.read())):
            await self._runtime.tell(commands)
        self._told, self._compared_seconds = dict(wanted), now
