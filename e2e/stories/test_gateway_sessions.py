"""Does a session stay with its worker while there is room, and leave it when there is none?

Real HAProxy: bookworm's 2.6 bounds the load of a worker and lets a hot session wait at it beyond that; 3.2 knows
`hash-preserve-affinity` and goes to the next worker as soon as the own one is full. 2 s each.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from controlplane.haproxy import CURRENT_SUITE, OLDEST_SUITE, SUITES, gate_possible
from gate_box import GateBox, free_port
from gate_client import Answer, ask, chat
from plimsoll.render.gateway_records import Affinity, GateLane, GateServer, GateText
from stand_ins.batching import Card, Engine, Pinned

pytestmark = pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible()))
SLOTS: Final = 4
WORKERS: Final = 3
CARD: Final = Card(prefill_tokens_per_second=400_000.0, step_seconds=0.002)
HOT: Final = 2 * SLOTS


def run(
    folder: Path, affinity: Affinity, suite: str, story: Callable[[GateBox], Awaitable[None]]
) -> None:
    engines = [
        Engine(f"w{place}", Pinned(65_536, SLOTS * 4), CARD, lane_tokens={"chat": 4096})
        for place in range(WORKERS)
    ]
    text = GateText(
        lanes=(GateLane("chat", 4096, 64, queue_length=100, queue_seconds=20),),
        servers=tuple(
            GateServer(f"s{place}", f"127.0.0.1:{free_port()}", (SLOTS,))
            for place in range(WORKERS)
        ),
        port=free_port(),
        metrics_port=free_port(),
        affinity=affinity,
    )

    async def whole() -> None:
        async with GateBox(folder, text, engines, suite=suite) as box:
            await story(box)
        for engine in engines:
            assert engine.peaks.in_flight <= SLOTS

    asyncio.run(whole())


async def asks(box: GateBox, session: str, answer_tokens: int = 4) -> Answer:
    return await ask(box.port, chat(20, answer_tokens), headers={"X-Session-Id": session})


def worker(answer: Answer) -> str:
    assert answer.is_whole, answer
    return answer.headers["x-worker"]


@pytest.mark.parametrize("suite", SUITES)
def test_a_session_stays_with_its_worker_and_sessions_are_spread(
    tmp_path: Path, suite: str
) -> None:
    async def story(box: GateBox) -> None:
        homes = Counter[str]()
        for session in range(24):
            one = {worker(await asks(box, f"session-{session}")) for _ in range(3)}
            assert 1 == len(one), session
            homes.update(one)
        assert WORKERS == len(homes), homes

    run(tmp_path, Affinity.SESSION, suite, story)


@pytest.mark.parametrize("suite", SUITES)
def test_a_hot_session_spills_over_is_never_over_plan_and_comes_home(
    tmp_path: Path, suite: str
) -> None:
    async def story(box: GateBox) -> None:
        home = worker(await asks(box, "hot"))
        hot = await asyncio.gather(*(asks(box, "hot", 100) for _ in range(HOT)))
        used = Counter(map(worker, hot))
        assert used[home] >= 1
        assert len(used) > 1
        assert {home} == {worker(await asks(box, "hot")) for _ in range(4)}

    run(tmp_path, Affinity.SESSION, suite, story)


def test_on_the_current_release_it_leaves_only_when_its_worker_is_full(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        home = worker(await asks(box, "hot"))
        within = await asyncio.gather(*(asks(box, "hot", 100) for _ in range(SLOTS)))
        assert {home} == set(map(worker, within))
        beyond = await asyncio.gather(*(asks(box, "hot", 100) for _ in range(HOT)))
        used = Counter(map(worker, beyond))
        assert SLOTS == used[home]
        assert len(used) > 1

    run(tmp_path, Affinity.SESSION, CURRENT_SUITE, story)


def test_a_conversation_is_known_by_its_first_messages(tmp_path: Path) -> None:
    def turn(first: str, turns: int) -> bytes:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": first}]
        messages += [{"role": "user", "content": f"And {each}?"} for each in range(turns)]
        return json.dumps({"messages": messages, "max_tokens": 4, "stream": True}).encode()

    async def story(box: GateBox) -> None:
        homes = Counter[str]()
        for number in range(24):
            answers = [await ask(box.port, turn(f"Topic {number}", turns)) for turns in range(3)]
            one = set(map(worker, answers))
            assert 1 == len(one), number
            homes.update(one)
        assert WORKERS == len(homes), homes

    run(tmp_path, Affinity.CONVERSATION, OLDEST_SUITE, story)


def test_nobody_who_did_not_ask_for_it_has_a_home(tmp_path: Path) -> None:
    async def story(box: GateBox) -> None:
        asked = await asyncio.gather(*(asks(box, "same", 60) for _ in range(WORKERS)))
        assert WORKERS == len(set(map(worker, asked)))

    run(tmp_path, Affinity.NONE, OLDEST_SUITE, story)


@pytest.mark.parametrize("suite", SUITES)
def test_it_is_switched_off_while_it_runs_and_on_again(tmp_path: Path, suite: str) -> None:
    """Where the prefix cache finds nothing: by one line of the keeper's map."""

    async def story(box: GateBox) -> None:
        path = f"{box.haproxy.folder}/gate.map"
        home = worker(await asks(box, "same"))
        await box.runtime.tell([f"add map {path} sessions spread"])
        spread = [worker(await asks(box, "same")) for _ in range(2 * WORKERS)]
        assert WORKERS == len(set(spread))
        await box.runtime.tell([f"del map {path} sessions"])
        assert {home} == {worker(await asks(box, "same")) for _ in range(4)}

    run(tmp_path, Affinity.SESSION, suite, story)
