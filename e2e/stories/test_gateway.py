"""What do clients meet at the gate? A real HAProxy with the product's own text, before stand-in engines."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from controlplane.haproxy import CURRENT_SUITE, OLDEST_SUITE, SUITES
from gate_box import GateBox, free_port, until
from gate_client import Answer, ask, chat, send
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from stand_ins.batching import Engine, Pinned

CHAT: Final = GateLane(
    name="chat", most_tokens=4096, answer_tokens=1024, queue_length=8, queue_seconds=1,
    retry_after_seconds=(1, 3), priority=0,
)  # fmt: skip
BATCH: Final = GateLane(
    name="batch", most_tokens=32_768, answer_tokens=1200, queue_length=16, queue_seconds=30,
    retry_after_seconds=(5, 15), priority=10, keys=("nightly",),
)  # fmt: skip
SLOTS: Final = ((9, 0), (16, 2), (32, 4))
KV_TOKENS: Final = (40_000, 131_072, 262_144)
LANE_TOKENS: Final = {"chat": 4096, "batch": 32_768}


def a_gate(folder: Path, *, suite: str = OLDEST_SUITE, workers: int = 3, **more: Any) -> GateBox:
    servers = [
        GateServer(name=f"s{place}", address=f"127.0.0.1:{free_port()}", slots=SLOTS[place])
        for place in range(3)
    ][3 - workers :]
    text = GateText(
        lanes=(CHAT, BATCH),
        servers=(*servers, GateServer(name="spare")),
        port=free_port(),
        metrics_port=free_port(),
    )
    engines = [
        Engine(
            f"w{place}",
            Pinned(kv_tokens=KV_TOKENS[place], max_num_seqs=64),
            lane_tokens=LANE_TOKENS,
        )
        for place in range(3)
    ][3 - workers :]
    return GateBox(folder, text._replace(**more), engines, suite=suite)


def run(box: GateBox, story: Callable[[GateBox], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with box:
            await story(box)

    asyncio.run(whole())


def counted(answers: list[Answer]) -> Counter[tuple[int, str, str]]:
    return Counter((answer.status, answer.reason, answer.problem) for answer in answers)


@pytest.mark.parametrize("suite", SUITES)
def test_never_more_than_planned_and_everybody_is_answered(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        answers = await asyncio.gather(*(ask(box.port, chat(400, 150)) for _ in range(200)))
        told = counted(answers)
        assert {200, 429} == {status for status, _, _ in told}
        assert {""} == {problem for _, _, problem in told}
        for engine, (slots, _), pool in zip(box.engines, SLOTS, KV_TOKENS, strict=True):
            assert 0 < engine.peaks.in_flight <= slots
            assert engine.peaks.promised_tokens <= pool
        refused = [answer for answer in answers if answer.status == 429]
        assert {"queue_full", "queue_wait"} >= {answer.reason for answer in refused}
        assert {"1", "2", "3"} >= {answer.headers["retry-after"] for answer in refused}
        assert len({answer.headers["retry-after"] for answer in refused}) > 1
        for answer in refused:
            error = answer.error()
            assert ("rate_limit_error", "chat", answer.reason) == (
                error["type"],
                error["lane"],
                error["code"],
            )

    run(a_gate(tmp_path, suite=suite), story)


@pytest.mark.parametrize("suite", SUITES)
def test_a_wait_that_was_too_long_is_a_429(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        long = [asyncio.create_task(ask(box.port, chat(400, 1000))) for _ in range(9)]
        await until(lambda: box.engines[0].in_flight == 9, "9 run")
        waited = await asyncio.gather(*(ask(box.port, chat(10)) for _ in range(4)))
        assert {(429, "queue_wait", "")} == set(counted(waited))
        assert {"queue_wait"} == {answer.error()["code"] for answer in waited}
        assert all(1.0 <= answer.seconds < 1.5 for answer in waited)
        for each in long:
            each.cancel()

    box = a_gate(tmp_path, suite=suite, workers=1)
    small = box.haproxy.text.servers[0]._replace(slots=(9, 1))
    box.haproxy.text = box.haproxy.text._replace(servers=(small,))
    run(box, story)


@pytest.mark.parametrize("suite", SUITES)
def test_no_live_worker_is_a_503_and_never_a_429(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        for engine in box.engines:
            engine.is_well = False

        async def nobody() -> bool:
            return (await ask(box.port, method="GET", path="/health")).status == 503

        await until(nobody, "no worker is well")
        answers = await asyncio.gather(*(ask(box.port, chat(10)) for _ in range(50)))
        assert {(503, "no_worker", "")} == set(counted(answers))
        assert all("retry-after" in answer.headers for answer in answers)
        assert "no worker is ready" in answers[0].error()["message"]

    run(a_gate(tmp_path, suite=suite), story)


REFUSED: Final[tuple[tuple[str, bytes, dict[str, str], int, str], ...]] = (
    ("/metrics", b"{}", {}, 404, "not_found"),
    ("/v1/load_lora_adapter", b"{}", {}, 404, "not_found"),
    ("/sleep?level=2", b"{}", {}, 404, "not_found"),
    ("/reset_prefix_cache", b"{}", {}, 404, "not_found"),
    ("//v1/chat/completions", b"{}", {}, 404, "not_found"),
    ("/v1/%63hat/completions", b"{}", {}, 404, "not_found"),
    ("/v1/chat/completions/../../../metrics", b"{}", {}, 404, "not_found"),
    ("/v1/models", b"{}", {}, 405, "method_not_allowed"),
    ("/v1/chat/completions", chat(10, n=2), {}, 400, "several_sequences"),
    ("/v1/completions", b'{"prompt":"a","best_of":3}', {}, 400, "several_sequences"),
    ("/v1/completions", b'{"prompt":["a","b"]}', {}, 400, "several_sequences"),
    ("/v1/completions", b'{"prompt":[[1,2],[3]]}', {}, 400, "several_sequences"),
    ("/v1/chat/completions", chat(10, 40_000), {}, 400, "too_many_tokens"),
    ("/v1/chat/completions", chat(70_000), {}, 413, "body_too_large"),
    ("/v1/chat/completions", chat(10), {"X-Big": "a" * 20_000}, 431, "headers_too_large"),
)


def test_what_is_refused_never_reaches_a_worker(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        for path, body, headers, status, code in REFUSED:
            answer = await ask(box.port, body, path=path, headers=headers)
            assert (path, status, code) == (path, answer.status, answer.error()["code"])
            assert "invalid_request_error" == answer.error()["type"]
        needs = await ask(box.port, chat(10, 40_000))
        assert "40,0" not in needs.error()["message"]
        assert "32768 are served here" in needs.error()["message"]
        assert [0, 0, 0] == [engine.peaks.in_flight for engine in box.engines]

    run(a_gate(tmp_path), story)


RAW: Final = (
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}12",
    b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: 2, 3\r\n\r\n{}",
    b"Content-Length: 2\r\nTransfer-Encoding: xchunked\r\n\r\n{}",
    b"".join(b"X-%d: a\r\n" % number for number in range(200)) + b"Content-Length: 2\r\n\r\n{}",
    b"X-Long: " + b"a" * 400_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    b"Bad Header: a\r\nContent-Length: 2\r\n\r\n{}",
)
"""Two lengths, chunks, none, and floods of headers: each is a way to smuggle a second request."""


@pytest.mark.parametrize("suite", SUITES)
def test_malformed_requests_never_reach_a_worker(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        for rest in RAW:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n"
            answer = await send(box.port, head + rest)
            # a connection with unread bytes may be reset before its answer is read
            assert answer.status in (400, 411, 431) or answer.problem != "hung", rest[:60]
        assert 400 == (await ask(box.port, b"{not json")).status
        assert [0, 0, 1] == sorted(engine.peaks.in_flight for engine in box.engines)

    run(a_gate(tmp_path, suite=suite), story)


def test_slow_clients_hold_no_slot_and_are_told(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        body = chat(300, 4, stream=False)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\n"
        length = f"Content-Length: {len(body)}\r\n\r\n".encode()
        slow = [head] * 100 + [head + length + body[:-1]] * 100
        waiting = [asyncio.create_task(send(box.port, request)) for request in slow]
        honest = [await ask(box.port, chat(50, 4)) for _ in range(20)]
        assert {(200, "", "")} == set(counted(honest))
        assert all(answer.ttft_seconds < 0.5 for answer in honest)
        answers = await asyncio.gather(*waiting)
        assert [408] * 200 == [answer.status for answer in answers]
        assert 20 == sum(engine.answered for engine in box.engines)

    run(a_gate(tmp_path, request_seconds=1), story)


def test_a_reader_that_stops_gives_its_slot_back(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        engine = box.engines[0]
        readers = []
        for _ in range(32):
            with_little_room = socket.socket()
            with_little_room.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            with_little_room.connect(("127.0.0.1", box.port))
            body = chat(50, 3000)
            with_little_room.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            readers.append(with_little_room)
        await until(lambda: engine.in_flight == 32, "all slots are taken")
        await until(lambda: engine.in_flight == 0, "all slots are free")
        assert 0 == engine.answered
        assert 200 == (await ask(box.port, chat(50, 4))).status
        for reader in readers:
            reader.close()

    box = a_gate(tmp_path, workers=1, idle_seconds=1)
    box.engines[0].pinned = box.engines[0].pinned._replace(chunk_bytes=1 << 17)
    run(box, story)


def test_who_hangs_up_frees_the_slot_and_the_queue(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        engine = box.engines[0]
        running = [asyncio.create_task(ask(box.port, chat(50, 3000))) for _ in range(32)]
        await until(lambda: engine.in_flight == 32, "all slots are taken")
        waiting = [asyncio.create_task(ask(box.port, chat(50, 3000))) for _ in range(8)]

        async def wait() -> bool:
            return (await box.runtime.look(["chat", "batch"])).queued == (8, 0)

        await until(wait, "8 wait")
        for each in (*waiting, *running):
            each.cancel()

        async def free() -> bool:
            seen = await box.runtime.look(["chat", "batch"])
            return seen.queued == (0, 0) and not any(server.in_flight for server in seen.servers)

        await until(free, "queue and slots are free", within=2)
        await until(lambda: engine.in_flight == 0, "the engine stopped too", within=2)

    run(a_gate(tmp_path, workers=1), story)


def test_what_the_gate_says_to_engines_cannot_be_forged(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        forged = {
            "X-Plimsoll-Lane": "vip",
            "X-Vllm-Priority": "-9",
            "x-plimsoll-priority": "-9",
            "Upgrade": "websocket",
        }
        assert 200 == (await ask(box.port, chat(10), headers=forged)).status
        assert 200 == (await ask(box.port, chat(5000), headers={"X-Lane": "chat"})).status
        assert 200 == (await ask(box.port, chat(10), headers={"X-Lane": "vip"})).status
        lanes: Counter[str] = Counter()
        priorities: Counter[int] = Counter()
        for engine in box.engines:
            lanes.update({lane for lane, peak in engine.peaks.lanes.items() if peak})
            priorities.update(engine.priorities)
        assert {"chat", "batch"} == set(lanes)
        assert {0: 2, 10: 1} == priorities

    run(a_gate(tmp_path), story)


@pytest.mark.parametrize("suite", SUITES)
def test_keys_choose_the_lane_come_and_go_and_are_in_no_log(tmp_path: Path, suite: str) -> None:
    box = a_gate(tmp_path, suite=suite, has_keys=True)
    secret = "sk-of-the-nightly-batch"

    async def story(box: GateBox) -> None:
        bearer = {"Authorization": f"Bearer {secret}"}
        hashed = hashlib.sha256(secret.encode()).hexdigest()
        keys = tmp_path / "keys.map"

        async def status(**headers: str) -> int:
            body = json.dumps({"prompt": "the prompt nobody may see", "max_tokens": 2}).encode()
            return (await ask(box.port, body, path="/v1/completions", headers=headers)).status

        assert 401 == await status()
        assert 401 == await status(**bearer)
        assert 401 == (await ask(box.port, method="GET", path="/v1/models")).status
        assert () == await box.runtime.tell([f"add map {keys} {hashed} nightly"])
        assert 200 == await status(**bearer)
        assert {10: 1} == sum((engine.priorities for engine in box.engines), Counter())
        assert () == await box.runtime.tell([f"del map {keys} {hashed}"])
        assert 401 == await status(**bearer)

    run(box, story)
    logged = box.haproxy.logged()
    assert '"key":"nightly"' in logged
    assert secret not in logged
    assert "nobody may see" not in logged


@pytest.mark.parametrize("suite", SUITES)
def test_chunks_are_passed_on_as_they_come(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox) -> None:
        answer = await ask(box.port, chat(10, 160))
        assert answer.is_whole
        assert answer.ttft_seconds < 0.15
        assert len(answer.chunks) >= 20
        gaps = [
            later - sooner for sooner, later in zip(answer.chunks, answer.chunks[1:], strict=False)
        ]
        assert sorted(gaps)[len(gaps) // 2] < 0.15

    run(a_gate(tmp_path, suite=suite), story)


def test_both_releases_are_what_they_are_called() -> None:
    assert ("bookworm", "sid") == (OLDEST_SUITE, CURRENT_SUITE)
