"""Who sends too much, nonsense, too slowly, reads nothing or hangs up: does it cost anybody else a slot?

A real HAProxy, the oldest and the current release, before stand-in engines that count.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Final

import pytest

from controlplane.haproxy import SUITES, gate_possible
from gate_box import GateBox, until
from gate_client import ask, chat, send
from stories.test_gateway import a_gate, counted, run

pytestmark = [
    pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible())),
    pytest.mark.parametrize("suite", SUITES),
]
POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\n"
CLOSED: Final = 0
"""The connection was ended without an answer."""

# ---- what is refused by its content --------------------------------------------------------------

REFUSED: Final[tuple[tuple[str, bytes, dict[str, str], int, str], ...]] = (
    ("/v1/models", b"{}", {}, 405, "method_not_allowed"),
    ("/v1/chat/completions", chat(10, n=2), {}, 400, "several_sequences"),
    ("/v1/completions", b'{"prompt":"a","best_of":3}', {}, 400, "several_sequences"),
    ("/v1/completions", b'{"prompt":["a","b"]}', {}, 400, "several_sequences"),
    ("/v1/completions", b'{"prompt":[[1,2],[3]]}', {}, 400, "several_sequences"),
    ("/v1/chat/completions", chat(10, 40_000), {}, 400, "too_many_tokens"),
    ("/v1/chat/completions", chat(70_000), {}, 413, "body_too_large"),
    ("/v1/chat/completions", chat(10), {"X-Big": "a" * 20_000}, 431, "headers_too_large"),
)


def test_what_is_refused_is_told_as_openai_tells_it(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        for path, body, headers, status, code in REFUSED:
            answer = await ask(box.port, body, path=path, headers=headers)
            assert (path, status, code) == (path, answer.status, answer.error()["code"])
            assert "invalid_request_error" == answer.error()["type"]
        needs = await ask(box.port, chat(10, 40_000))
        assert "40,0" not in needs.error()["message"]
        assert "32768 are served here" in needs.error()["message"]
        assert [0, 0, 0] == [engine.peaks.in_flight for engine in box.engines]

    run(a_gate(tmp_path, suite=suite), story)


BAD_JSON: Final = (
    b"",
    b"{not json",
    b'{"messages": [',
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe{}",
    b"\x00" * 100,
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b'{"messages": 1, "max_tokens": {}}',
    b'{"messages": {"a": ["b", "c"]}, "n": "many"}',
    b'{"max_tokens": "9' + b"9" * 5000 + b'"}',
)


def test_bad_json_is_the_engines_to_refuse_and_keeps_no_slot(tmp_path: Path, suite: str) -> None:
    """The gate looks for numbers in it and finds none; it neither breaks nor holds anything for it."""

    async def story(box: GateBox) -> None:
        (engine,) = box.engines
        for body in BAD_JSON * 3:  # more than the worker has slots for
            answer = await ask(box.port, body)
            assert (400, "") == (answer.status, answer.problem), body[:40]
        assert 0 == engine.in_flight
        assert engine.peaks.in_flight == 1
        assert 200 == (await ask(box.port, chat(10))).status

    run(a_gate(tmp_path, suite=suite, workers=1), story)


# ---- clients that are slow, stop, or go ----------------------------------------------------------


async def drip(port: int, request: bytes, seconds: float) -> int:
    """One byte more each time that no answer has come for so long; the status of the answer, or 0."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for place in range(len(request)):
            writer.write(request[place : place + 1])
            try:
                async with asyncio.timeout(seconds):
                    return int((await reader.readline()).split(b" ")[1])
            except TimeoutError:
                continue
        return int((await reader.readline()).split(b" ")[1])
    except (OSError, IndexError):
        return CLOSED
    finally:
        writer.close()


def test_slow_clients_hold_no_slot_and_are_told(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        body = chat(300, 4, stream=False)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\n"
        length = f"Content-Length: {len(body)}\r\n\r\n".encode()
        whole = head + length
        slow = [head] * 100 + [whole + body[:-1]] * 100
        waiting = [asyncio.create_task(send(box.port, request)) for request in slow]
        dripping = [asyncio.create_task(drip(box.port, whole, 0.1)) for _ in range(20)]
        honest = [await ask(box.port, chat(50, 4)) for _ in range(20)]
        assert {(200, "", "")} == set(counted(honest))
        answers = await asyncio.gather(*waiting)
        assert [408] * 200 == [answer.status for answer in answers]
        assert [408] * 20 == await asyncio.gather(*dripping)
        assert 20 == sum(engine.answered for engine in box.engines)
        assert 1 == max(engine.peaks.in_flight for engine in box.engines)

    run(a_gate(tmp_path, suite=suite, request_seconds=1), story)


def test_a_reader_that_stops_gives_its_slot_back(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        engine = box.engines[0]
        readers = []
        for _ in range(32):
            with_little_room = socket.socket()
            with_little_room.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            with_little_room.connect(("127.0.0.1", box.port))
            body = chat(50, 3000)
            length = f"Content-Length: {len(body)}\r\n\r\n".encode()
            with_little_room.sendall(POST + length + body)
            readers.append(with_little_room)
        await until(lambda: engine.in_flight == 32, "all slots are taken")
        await until(lambda: engine.in_flight == 0, "all slots are free")
        assert 0 == engine.answered
        assert 200 == (await ask(box.port, chat(50, 4))).status
        for reader in readers:
            reader.close()

    box = a_gate(tmp_path, suite=suite, workers=1, idle_seconds=1)
    box.engines[0].pinned = box.engines[0].pinned._replace(chunk_bytes=1 << 17)
    run(box, story)


def test_who_hangs_up_frees_the_slot_and_the_queue(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        engine = box.engines[0]
        running = [asyncio.create_task(ask(box.port, chat(50, 3000))) for _ in range(32)]
        await until(lambda: engine.in_flight == 32, "all slots are taken")
        waiting = [asyncio.create_task(ask(box.port, chat(50, 3000))) for _ in range(8)]

        async def queued(wanted: int) -> bool:
            return (await box.runtime.look(["chat", "batch"])).queued == (wanted, 0)

        await until(lambda: queued(8), "8 wait")
        for each in waiting:
            each.cancel()
        await until(lambda: queued(0), "the queue is free", within=2)
        assert 32 == engine.in_flight == engine.peaks.in_flight
        for each in running:
            each.cancel()

        async def free() -> bool:
            seen = await box.runtime.look(["chat", "batch"])
            return not any(server.in_flight for server in seen.servers)

        await until(free, "the slots are free", within=2)
        await until(lambda: engine.in_flight == 0, "the engine stopped too", within=2)
        assert 32 == engine.aborted

    run(a_gate(tmp_path, suite=suite, workers=1), story)
