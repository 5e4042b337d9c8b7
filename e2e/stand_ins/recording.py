"""A worker that writes down, byte for byte, what the gate sends it, and says `{}` to everything.

It stands in for an engine where the question is what reaches one. HTTP is read here in the plainest way, so that
a second request that hides in a first one would be seen as what it is: more bytes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

END: Final = b"\r\n\r\n"
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(frozen=True)
class Request:
    """One connection's bytes."""

    head: str
    body: bytes

    @property
    def line(self) -> str:
        """Method, target and version."""
        return self.head.partition("\r\n")[0]

    def all_of(self, name: str) -> list[str]:
        """Every value of a header."""
        pairs = (line.partition(":") for line in self.head.split("\r\n")[1:])
        return [value.strip() for found, _, value in pairs if found.lower() == name.lower()]


@dataclass
class Recording:
    """What came, health checks left out."""

    heard: list[Request] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def serve(self, port: int) -> None:
        """Listen until `stop`."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def take(self) -> list[Request]:
        """What came since the last time."""
        found, self.heard = self.heard, []
        return found

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One answer as soon as the body that was announced is there; everything until the end is kept."""
        seen = b""
        has_answered = False
        try:
            while piece := await reader.read(1 << 16):
                seen += piece
                head, end, body = seen.partition(END)
                request = Request(head.decode("latin1"), body)
                sizes = request.all_of("content-length")
                if end and not has_answered and len(body) >= int(sizes[0] if sizes else 0):
                    has_answered = True
                    writer.write(ANSWER)
        except OSError:
            pass
        finally:
            writer.close()
        head, _, body = seen.partition(END)
        if seen and not head.startswith(b"GET /health"):
            self.heard.append(Request(head.decode("latin1"), body))
