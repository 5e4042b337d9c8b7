"""How do we speak to HAProxy while it runs?

Through its admin socket, one short connection per question, each with a time limit: a process that is
being replaced may accept and stay silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from plimsoll.gate.commands import LOOK
from plimsoll.gate.reading import GateSeen, read

TIMEOUT_SECONDS: Final = 2.0
MOST_BYTES: Final = 4 << 20
"""A line of `show stat` has 500 bytes; 8 lanes of 256 servers are 1 MB."""
COMMANDS_AT_ONCE: Final = 32
"""HAProxy reads a line into one buffer of 16 kB (HAProxy 2.6, configuration manual, tune.bufsize)."""
SAYS_WHEN_DONE: Final = ("IP changed", "no need to change", "port changed", "nothing changed")
"""`set server ... addr` confirms what it did; other commands say nothing when they succeed."""


class SilentError(OSError):
    """HAProxy does not answer: it is not there, restarts, or is busy beyond reason."""


class Runtime:
    """One HAProxy's admin socket."""

    def __init__(self, socket: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds

    async def look(self, lanes: Sequence[str]) -> GateSeen:
        """HAProxy as it is now. Raises SilentError, or UnreadableError for an answer that is none."""
        stat, state = [await self.ask(command) for command in LOOK]
        return read(stat, state, lanes)

    async def tell(self, commands: Sequence[str]) -> tuple[str, ...]:
        """Carry out commands in order; gives what HAProxy said to those that failed."""
        said: list[str] = []
        for begin in range(0, len(commands), COMMANDS_AT_ONCE):
            answer = await self.ask("; ".join(commands[begin : begin + COMMANDS_AT_ONCE]))
            said.extend(_failures(answer))
        return tuple(said)

    async def ask(self, line: str) -> str:
        """One line, and everything that comes back. Raises SilentError."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                reader, writer = await asyncio.open_unix_connection(self._socket, limit=MOST_BYTES)
                try:
                    writer.write(line.encode() + b"\n")
                    writer.write_eof()
                    return (await reader.read(-1)).decode("utf-8", "replace")
                finally:
                    writer.close()
        except TimeoutError as error:
            raise SilentError(
                f"{self._socket}: no answer in {self._timeout_seconds:g} s"
            ) from error
        except OSError as error:
            raise SilentError(f"{self._socket}: {error.strerror or error}") from error


def _failures(answer: str) -> Iterator[str]:
    for line in answer.splitlines():
        if line.strip() and not line.startswith(SAYS_WHEN_DONE):
            yield line.strip()
