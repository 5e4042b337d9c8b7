"""What do requests notice when the gate refuses, drains, changes limits or takes back what it lent?"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.gateway.dilemma import quantile
from benchmarks.gateway.fleet import (
    BATCH_TOKENS,
    CHAT_TOKENS,
    WORKERS,
    engine,
    front,
    lanes,
    planned,
    rooms_of,
)

from gate_box import GateBox, until
from gate_client import Answer, ask, chat
from plimsoll.gate.roster import PodSeen
from plimsoll.keeper.loop import Keeper, World
from plimsoll.render.gateway_records import GateLane
from stand_ins.batching import Engine, Pinned

REFUSALS_PER_SECOND: Final = 100
FLOOD: Final = 2000
LAPSE: Final = 4.0
"""Engines are that many times as fast."""
SLOWED: Final = 0.1
"""Or as slow, so that streams outlast what is done to others meanwhile."""


class Refused(NamedTuple):
    """A lane that is full."""

    asked: int
    refused_with_retry_after: int
    p50_seconds: float
    p99_seconds: float
    flooded: Counter[tuple[int, str]]
    """Outcomes of a flood, by status and problem."""
    running_harmed: int
    """Streams that should have run meanwhile and did not."""


class Moved(NamedTuple):
    """Workers drained and limits changed while clients ask."""

    drains: int
    limits_changed: int
    requests: int
    failed: int
    """Neither 200 nor, when a lane is full, 429."""


class Killed(NamedTuple):
    """One worker of three dies while all of them answer."""

    running: int
    """Requests that ran on it."""
    cut: int
    """Requests of it that did not end whole."""
    others_cut: int
    """Requests of other workers that did not end whole."""
    told_later: int
    """New requests that were told 503 with Retry-After until the gate had seen it: no other slot was free."""
    requests: int


class Returned(NamedTuple):
    """How soon an owner has its slots back from a borrower."""

    first_seconds: float
    """Until its first request runs."""
    whole_seconds: float
    """Until it has all that is planned for it."""
    response_seconds: float
    """The longest answer of the borrower that ran meanwhile."""


def a_box(
    folder: Path, *, queue: int, borrow: bool = False, lapse: float = LAPSE
) -> tuple[GateBox, list[Engine]]:
    """A gate before the three workers."""
    rooms = rooms_of(lanes(borrow=borrow))
    slots, weights = planned(rooms)
    engines = [
        engine(worker, Pinned(worker.kv_tokens, 256, step_tokens=8192), lapse=lapse)
        for worker in WORKERS
    ]
    gate_lanes = (
        GateLane("chat", CHAT_TOKENS, 256, queue, 60, (1, 3), 0),
        GateLane("batch", BATCH_TOKENS, 512, 64, 60, (5, 15), 10),
    )
    return front(folder, engines, slots, gate_lanes, weights=weights), engines


async def refusing(folder: Path, *, seconds: float) -> Refused:
    """Every slot is taken, nobody may wait, and more come."""
    box, engines = a_box(folder, queue=0, lapse=SLOWED)
    most = sum(server.slots[0] for server in box.haproxy.text.servers)
    async with box:
        running = [asyncio.create_task(ask(box.port, chat(100, 3000))) for _ in range(most)]
        await until(lambda: sum(each.in_flight for each in engines) == most, "all slots are taken")
        asked: list[asyncio.Task[Answer]] = []
        began = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            if len(asked) < (now - began) * REFUSALS_PER_SECOND:
                asked.append(asyncio.create_task(ask(box.port, chat(100, 10))))
            await asyncio.sleep(1 / REFUSALS_PER_SECOND / 2)
        answers = await asyncio.gather(*asked)
        flood = await asyncio.gather(*(ask(box.port, chat(100, 10)) for _ in range(FLOOD)))
        harmed = sum(each.done() for each in running)
        for each in running:
            each.cancel()
    return Refused(
        asked=len(answers),
        refused_with_retry_after=sum(
            each.status == 429 and "retry-after" in each.headers for each in answers
        ),
        p50_seconds=quantile([each.seconds for each in answers], 0.5),
        p99_seconds=quantile([each.seconds for each in answers], 0.99),
        flooded=Counter((each.status, each.problem) for each in flood),
        running_harmed=harmed,
    )


async def moving(folder: Path, *, drains: int, changes: int) -> Moved:
    """Workers are drained one after the other and come back, and limits are changed, under load."""
    box, engines = a_box(folder, queue=4000)
    answers: list[Answer] = []
    done = asyncio.Event()

    async def client() -> None:
        while not done.is_set():
            answers.append(await ask(box.port, chat(50, 12)))

    async with box:
        clients = [asyncio.create_task(client()) for _ in range(20)]
        names = [each.name for each in engines]
        for turn in range(drains):
            name = names[turn % len(names)]
            await box.runtime.tell([f"set server pool/{name} state drain"])
            worker = engines[turn % len(names)]
            await until(lambda: worker.in_flight == 0, f"{name} is drained", within=60)  # noqa: B023
            await box.runtime.tell([f"set server pool/{name} state ready"])
        for turn in range(changes):
            name, asked = names[turn % len(names)], len(answers)
            await box.runtime.tell([f"set maxconn server chat/{name} {1 + turn % 7}"])
            await until(lambda: len(answers) > asked, "an answer", within=60)  # noqa: B023
        done.set()
        await asyncio.gather(*clients)
    return Moved(
        drains=drains,
        limits_changed=changes,
        requests=len(answers),
        failed=sum(not each.is_whole for each in answers),
    )


async def killing(folder: Path) -> Killed:
    """The worker that answers most is killed; clients go on asking for a while."""
    box, engines = a_box(folder, queue=4000)
    answers: list[Answer] = []
    done = asyncio.Event()

    async def client() -> None:
        while not done.is_set():
            answer = await ask(box.port, chat(50, 120))
            answers.append(answer)
            if answer.status == 503:
                await asyncio.sleep(float(answer.headers["retry-after"]))

    async with box:
        clients = [asyncio.create_task(client()) for _ in range(40)]
        await until(lambda: sum(each.in_flight for each in engines) == 40, "all clients are served")
        victim = max(engines, key=lambda each: each.in_flight)
        running = victim.in_flight
        await victim.stop()
        asked = len(answers)
        await until(lambda: len(answers) > asked + 200, "others answer", within=60)
        done.set()
        await asyncio.gather(*clients)
    cut = [each for each in answers if not each.is_whole and each.status != 503]
    others = {each.name for each in engines if each is not victim}
    harmed = sum(each.headers.get("x-worker") in others for each in cut)
    later = sum(each.status == 503 for each in answers)
    return Killed(running, len(cut) - harmed, harmed, later, len(answers))


async def returning(folder: Path) -> Returned:
    """Chat has borrowed what the batch left idle; then the batch comes."""
    rooms = rooms_of(lanes(borrow=True))
    box, engines = a_box(folder, queue=4000, borrow=True)
    addresses = {server.name: server.address for server in box.haproxy.text.servers}
    pods = tuple(
        PodSeen(name, address, name, is_ready=True, is_leaving=False)
        for name, address in addresses.items()
    )
    planned_batch = sum(server.slots[1] for server in box.haproxy.text.servers)
    planned_chat = sum(server.slots[0] for server in box.haproxy.text.servers)
    async with box:
        keeper = Keeper(box.runtime, World(rooms=lambda: rooms, pods=lambda: pods))
        keeping = asyncio.create_task(keeper.run())
        chats = [asyncio.create_task(ask(box.port, chat(100, 400))) for _ in range(260)]
        await until(
            lambda: sum(each.lanes["chat"] for each in engines) > planned_chat + 8,
            "chat has borrowed",
            within=30,
        )
        began = time.monotonic()
        batch = [
            asyncio.create_task(ask(box.port, chat(100, 4000), headers={"X-Lane": "batch"}))
            for _ in range(planned_batch + 4)
        ]

        def has(least: int) -> bool:
            return sum(each.lanes["batch"] for each in engines) >= least

        await until(lambda: has(1), "one of the batch runs", within=30)
        first = time.monotonic() - began
        await until(lambda: has(planned_batch), "the batch has its share", within=60)
        whole = time.monotonic() - began
        ended = [
            each.result().ended - (each.result().first or 0.0) for each in chats if each.done()
        ]
        keeping.cancel()
        for each in (*chats, *batch):
            each.cancel()
    return Returned(
        first_seconds=first, whole_seconds=whole, response_seconds=max(ended, default=0.0)
    )
