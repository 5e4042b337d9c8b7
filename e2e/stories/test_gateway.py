"""What do clients meet at the gate? A real HAProxy with the product's own text, before stand-in engines."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from controlplane.haproxy import CURRENT_SUITE, OLDEST_SUITE, SUITES, gate_possible
from gate_box import GateBox, free_port, until
from gate_client import Answer, ask, chat
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from stand_ins.batching import Engine, Pinned

pytestmark = pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible()))
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
