"""Is never more promised than planned, while everything moves at once?

Three workers of different size, chat that borrows, a batch; workers come, are drained and go, keepers die
and start anew, and one gate hands over to the next, all while clients ask. The engines count what is in
flight by lane when a request arrives, so every moment is a sample.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.gateway.fleet import (
    BATCH_TOKENS,
    CHAT_TOKENS,
    MOST_SEQUENCES,
    WORKERS,
    lanes,
    rooms_of,
)

from gate_box import Haproxy, free_port, until
from gate_client import ask, chat
from plimsoll.gate.records import Slots
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.step import held
from plimsoll.gate.visit import ALONE, Standing
from plimsoll.keeper.loop import Keeper, World
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from stand_ins.batching import Card, Engine, Pinned

CARD: Final = Card(400_000.0, 0.004, 0.00002, 0.01e-6)
"""So fast that thousands of requests pass in a minute."""
ROOMS: Final = rooms_of(lanes(borrow=True), by_speed=False)
CHAT_CLIENTS: Final = 110
BATCH_CLIENTS: Final = 14
BURST_SECONDS: Final = 3.0
"""Between changes of what clients want."""


class Kept(NamedTuple):
    """What was seen."""

    requests: int
    outcomes: Counter[tuple[int, str]]
    """By status and problem."""
    violations: tuple[str, ...]
    """Engines that held more requests or tokens than planned."""
    limits_set: int
    lent: int
    """Engines that ever held more of chat than planned for it."""
    drains: int
    crashes: int
    hand_overs: int


class Fleet:
    """The workers, their pods and the gates before them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: dict[str, Engine] = {}
        self.pods: dict[str, PodSeen] = {}
        self.pools: dict[str, str] = {}
        self.numbers = itertools.count()
        self.gates: list[tuple[Haproxy, Keeper, asyncio.Task[None], list[Standing]]] = []
        self.violations: list[str] = []
        self.lent = self.limits_set = 0

    async def comes(self, pool: str) -> str:
        worker = next(each for each in WORKERS if each.name == pool)
        name, port = f"w{next(self.numbers)}", free_port()
        engine = Engine(
            name,
            Pinned(worker.kv_tokens, MOST_SEQUENCES, step_tokens=8192, max_model_len=BATCH_TOKENS),
            CARD,
            lane_tokens={"chat": CHAT_TOKENS, "batch": BATCH_TOKENS},
        )
        await engine.serve(port)
        self.engines[name], self.pools[name] = engine, pool
        self.pods[name] = PodSeen(name, f"127.0.0.1:{port}", pool, is_ready=True, is_leaving=False)
        return name

    async def goes(self, name: str) -> None:
        self.judge(name)
        del self.pods[name]
        await self.engines.pop(name).stop()

    def judge(self, name: str) -> None:
        """What one engine saw, against its plan."""
        engine, room = self.engines[name], ROOMS.of_pool(self.pools[name])
        assert room is not None
        peaks = engine.peaks
        if peaks.promised_tokens > room.kv_tokens or peaks.in_flight > room.max_num_seqs:
            self.violations.append(f"{name} ({room.pool}): {peaks}, planned {room}")
        self.lent += peaks.lanes.get("chat", 0) * CHAT_TOKENS * 2 > room.kv_tokens

    async def opens(self, standing: Standing = ALONE) -> int:
        """A gate, beside those that are there; it begins closed and takes what nobody holds."""
        text = GateText(
            lanes=(
                GateLane("chat", CHAT_TOKENS, 64, 4000, 60, (1, 3), 0),
                GateLane("batch", BATCH_TOKENS, 64, 4000, 60, (1, 3), 10),
            ),
            servers=tuple(GateServer(name=f"s{place}") for place in range(10)),
            port=free_port(),
            metrics_port=free_port(),
            begins_closed=True,
        )
        gate = Haproxy(self.folder / f"gate{len(list(self.folder.glob('gate*')))}", text)
        await gate.start()
        stands = [standing]
        keeper = Keeper(
            gate.runtime, World(rooms=lambda: ROOMS, pods=lambda: tuple(self.pods.values()))
        )
        self.gates.append((gate, keeper, asyncio.create_task(asyncio.sleep(0)), stands))
        await self.keeper_starts(len(self.gates) - 1)
        return text.port

    async def keeper_starts(self, place: int) -> None:
        """A keeper without a memory, for the gate in that place."""
        gate, before, task, stands = self.gates[place]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.limits_set += before.told.changes
        keeper = Keeper(
            gate.runtime,
            World(
                rooms=lambda: ROOMS,
                pods=lambda: tuple(self.pods.values()),
                elsewhere=lambda: self.held_by_others(gate),
                standing=lambda: stands[0],
            ),
        )
        task = asyncio.create_task(keeper.run(period_seconds=0.03))
        self.gates[place] = (gate, keeper, task, stands)
        await until(lambda: keeper.told.standing is not None, "the first visit", within=30)

    def held_by_others(self, gate: Haproxy) -> dict[str, Slots]:
        found: dict[str, Slots] = {}
        for other, keeper, _, _ in self.gates:
            if other is gate or keeper.told.visit is None or keeper.told.seen is None:
                continue
            address = {server.name: server.address for server in keeper.told.seen.servers}
            found |= {
                address[worker.name]: held(worker._replace(elsewhere=()))
                for worker in keeper.told.visit.workers
            }
        return found

    async def closes(self, place: int) -> None:
        gate, keeper, task, _ = self.gates.pop(place)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.limits_set += keeper.told.changes
        await gate.stop()


async def measure(folder: Path, requests: int, *, seed: int = 1) -> Kept:
    """That many requests, while everything moves."""
    fleet, dice = Fleet(folder), random.Random(seed)
    for worker in WORKERS:
        await fleet.comes(worker.name)
    port = [await fleet.opens()]
    outcomes: Counter[tuple[int, str]] = Counter()
    wants = {"chat": 1.0, "batch": 1.0}
    done = asyncio.Event()

    async def client(number: int, lane: str) -> None:
        own = random.Random(f"{seed}/{number}")
        while not done.is_set():
            if own.random() > wants[lane]:
                await asyncio.sleep(0.05)
                continue
            body = chat(own.randint(10, 200), own.randint(1, 24))
            answer = await ask(port[0], body, headers={"X-Lane": lane})
            outcomes[answer.status, answer.problem] += 1
            if outcomes.total() >= requests:
                done.set()

    crowd = ["chat"] * CHAT_CLIENTS + ["batch"] * BATCH_CLIENTS
    clients = [asyncio.create_task(client(number, lane)) for number, lane in enumerate(crowd)]
    drains = crashes = hand_overs = 0
    try:
        for turn in itertools.count():
            if done.is_set():
                break
            wants["chat"], wants["batch"] = dice.choice([(1, 0.02), (0.1, 1), (1, 1)])
            match turn % 3:
                case 0:
                    await _replaced(fleet, dice)
                    drains += 1
                case 1:
                    await fleet.keeper_starts(0)
                    crashes += 1
                case _:
                    await _handed_over(fleet, port)
                    hand_overs += 1
            with_patience = asyncio.wait_for(done.wait(), BURST_SECONDS * dice.random())
            await asyncio.gather(with_patience, return_exceptions=True)
        await asyncio.gather(*clients)
    finally:
        for each in clients:
            each.cancel()
        for name in list(fleet.engines):
            await fleet.goes(name)
        while fleet.gates:
            await fleet.closes(0)
    return Kept(
        requests=outcomes.total(),
        outcomes=outcomes,
        violations=tuple(fleet.violations),
        limits_set=fleet.limits_set,
        lent=fleet.lent,
        drains=drains,
        crashes=crashes,
        hand_overs=hand_overs,
    )


async def _replaced(fleet: Fleet, dice: random.Random) -> None:
    """One worker comes, another of its kind is drained and goes."""
    old = dice.choice(sorted(fleet.pods))
    await fleet.comes(fleet.pools[old])
    fleet.pods[old] = fleet.pods[old]._replace(is_leaving=True)
    keepers: Sequence[Keeper] = [keeper for _, keeper, _, _ in fleet.gates]
    await until(
        lambda: all(old in keeper.told.drained for keeper in keepers),
        f"{old} is drained",
        within=60,
    )
    await fleet.goes(old)


async def _stands(fleet: Fleet, place: int, standing: Standing) -> None:
    """That gate is told how it stands, and has acted on it: only then another one may count on it."""
    _, keeper, _, stands = fleet.gates[place]
    stands[0] = standing
    await until(lambda: keeper.told.standing == standing, f"{standing} is acted on", within=30)


async def _handed_over(fleet: Fleet, port: list[int]) -> None:
    """Two gates share, clients change over, the old one retires, the new one has it all."""
    await _stands(fleet, 0, Standing(gates=2, place=0))
    new_port = await fleet.opens(Standing(gates=2, place=1))
    new, old = fleet.gates[1][1], fleet.gates[0][1]

    def is_open() -> bool:
        found = new.told.visit
        return found is not None and all(
            any(worker.lanes[lane].limit for worker in found.workers) for lane in range(2)
        )

    await until(is_open, "both lanes are open in the new gate", within=60)
    port[0] = new_port

    def is_empty() -> bool:
        seen = old.told.seen
        return (
            seen is not None
            and not any(seen.queued)
            and not any(server.in_flight for server in seen.servers)
        )

    await until(is_empty, "the old gate is empty", within=60)
    await _stands(fleet, 0, Standing(is_retiring=True))
    await _stands(fleet, 1, ALONE)
    await until(is_empty, "the old gate is still empty", within=60)
    await fleet.closes(0)
