"""As much HTTP/2 as it takes to ask a gate: prior knowledge, clear text, headers as literals.

    answers = await ask_h2(port, [H2Request(...), ...])      all on one connection, all at once

Frames are RFC 9113's, header blocks RFC 7541's; of an answer only its status and body are read. HAProxy writes a
status as an entry of the static table, or as a literal without Huffman's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
WINDOW_BYTES: Final = 1 << 30
STATIC_STATUS: Final = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}


class H2Request(NamedTuple):
    """One stream."""

    path: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = {}
    """After the pseudo headers; `content-length` is not added."""
    protocol: str = ""
    """`:protocol` of an extended CONNECT (RFC 8441)."""


class H2Answer(NamedTuple):
    """Its answer; status 0 where the stream or the connection was ended without one."""

    status: int
    body: bytes = b""


async def ask_h2(
    port: int, requests: Sequence[H2Request], *, within: float = 30.0
) -> list[H2Answer]:
    """Everything at once on one connection. Raises TimeoutError when an answer stays out."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(PREFACE + _frame(SETTINGS, b"\0\4" + (WINDOW_BYTES).to_bytes(4, "big")))
        writer.write(_frame(WINDOW, WINDOW_BYTES.to_bytes(4, "big")))
        for number, request in enumerate(requests):
            _write(writer, 2 * number + 1, request)
        async with asyncio.timeout(within):
            found = await _read(reader, writer, len(requests))
    finally:
        writer.close()
    return [found.get(2 * number + 1, H2Answer(0)) for number in range(len(requests))]


def _write(writer: asyncio.StreamWriter, stream: int, request: H2Request) -> None:
    pseudo = {":method": request.method, ":scheme": "http", ":path": request.path}
    pseudo |= {":authority": "gate"} | ({":protocol": p} if (p := request.protocol) else {})
    block = b"".join(_literal(*pair) for pair in (*pseudo.items(), *request.headers.items()))
    ends = 0 if request.body or request.protocol else END_STREAM
    writer.write(_frame(HEADERS, block, stream, END_HEADERS | ends))
    if request.body:
        writer.write(_frame(DATA, request.body, stream, END_STREAM))


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wanted: int
) -> dict[int, H2Answer]:
    found: dict[int, H2Answer] = {}
    over: set[int] = set()
    while len(over) < wanted:
        try:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, OSError):
            break
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        if kind == SETTINGS and not flags & ACK:
            writer.write(_frame(SETTINGS, b"", 0, ACK))
        elif kind == PING and not flags & ACK:
            writer.write(_frame(PING, payload, 0, ACK))
        elif kind == HEADERS:
            found.setdefault(stream, H2Answer(_status(payload)))
        elif kind == DATA:
            was = found[stream]
            found[stream] = was._replace(body=was.body + payload)
        if kind == RESET or (kind in (HEADERS, DATA) and flags & END_STREAM):
            over.add(stream)
    return found


def _frame(kind: int, payload: bytes, stream: int = 0, flags: int = 0) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def _literal(name: str, value: str) -> bytes:
    """Without indexing, with a new name."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode("latin1")
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, more = len(data) - 127, b""
    while rest >= 128:
        more += bytes((rest % 128 + 128,))
        rest //= 128
    return b"\x7f" + more + bytes((rest,)) + data


def _status(block: bytes) -> int:
    """Of an answer's first header, which is `:status`."""
    if block[0] & 0x80:
        return STATIC_STATUS[block[0] & 0x7F]
    return int(block[2 : 2 + block[1]])
