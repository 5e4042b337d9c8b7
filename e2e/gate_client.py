"""Clients of the gate: one that asks properly and measures, and one that sends whatever it is told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

CHARACTERS_PER_TOKEN = 4


class Answer(NamedTuple):
    """What came back, and when."""

    status: int
    """HTTP status; 0 when the connection ended before a whole answer."""
    headers: dict[str, str]
    body: bytes
    began: float
    """When the request was sent, in seconds of the loop's clock."""
    first: float | None
    """When the first chunk of the answer's body came."""
    ended: float
    chunks: tuple[float, ...] = ()
    """When each chunk came."""
    problem: str = ""
    """Why there is no whole answer."""
    parts: tuple[bytes, ...] = ()
    """The body as it came, chunk by chunk."""

    @property
    def ttft_seconds(self) -> float:
        return (self.ended if self.first is None else self.first) - self.began

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def is_whole(self) -> bool:
        """A 200 of which nothing is missing."""
        return self.status == 200 and not self.problem

    @property
    def reason(self) -> str:
        return self.headers.get("x-plimsoll-reason", "")

    def error(self) -> dict[str, Any]:
        """The error in the body, as OpenAI's clients read it."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


def chat(
    prompt_tokens: int, answer_tokens: int | None = 16, *, stream: bool = True, **more: Any
) -> bytes:
    """A body whose prompt has so many tokens for the stand-in engine."""
    asked: dict[str, Any] = {
        "model": "stand-in",
        "messages": [{"role": "user", "content": "abc " * prompt_tokens}],
        "stream": stream,
    }
    if answer_tokens is not None:
        asked["max_tokens"] = answer_tokens
    return json.dumps(asked | more).encode()


async def ask(
    port: int,
    body: bytes = b"",
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    within: float = 120.0,
    host: str = "127.0.0.1",
) -> Answer:
    """One request on a connection of its own."""
    lines = [f"{method} {path} HTTP/1.1", "Host: gate", "Connection: close"]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return await send(
        port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body, within=within, host=host
    )


async def send(
    port: int, request: bytes, *, within: float = 120.0, host: str = "127.0.0.1"
) -> Answer:
    """These bytes, and what comes back."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request)
                return await _read(reader, began)
            finally:
                writer.close()
    except TimeoutError:
        return Answer(0, {}, b"", began, None, time.monotonic(), problem="hung")
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        return Answer(0, {}, b"", began, None, time.monotonic(), problem=type(error).__name__)


async def _read(reader: asyncio.StreamReader, began: float) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
    status = int(head[0].split(" ")[1])
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") != "chunked":
        size = int(headers.get("content-length", 0))
        body = await reader.readexactly(size)
        now = time.monotonic()
        return Answer(status, headers, body, began, now, now)
    parts: list[bytes] = []
    times: list[float] = []
    problem = ""
    try:
        while size := int((await reader.readline()).strip() or b"-1", 16):
            if size < 0:
                problem = "cut"
                break
            parts.append(await reader.readexactly(size))
            times.append(time.monotonic())
            await reader.readline()
    except (asyncio.IncompleteReadError, OSError):
        problem = "cut"
    return Answer(
        status,
        headers,
        b"".join(parts),
        began,
        times[0] if times else None,
        time.monotonic(),
        tuple(times),
        problem,
        tuple(parts),
    )
