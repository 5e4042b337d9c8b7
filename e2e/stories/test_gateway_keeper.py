"""Does the keeper move limits and workers while requests run, and does nobody notice?"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from controlplane.haproxy import OLDEST_SUITE, SUITES, gate_possible
from gate_box import GateBox, Haproxy, free_port, until
from gate_client import Answer, ask, chat
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom, promise
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.step import held
from plimsoll.gate.tally import Tally
from plimsoll.gate.visit import Standing
from plimsoll.keeper.lines import log_read
from plimsoll.keeper.loop import Keeper, World
from plimsoll.keeper.maps import Map
from plimsoll.keeper.ratio import Ratio
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from stand_ins.batching import Card, Engine, Pinned

pytestmark = pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible()))
ROOMS: Final = GateRooms(
    lanes=(
        LaneRoom(name="chat", tokens=4096, share_percent=50, borrow=True),
        LaneRoom(name="batch", tokens=32_768, share_percent=50, priority=10),
    ),
    pools=(
        WorkerRoom(pool="small", kv_tokens=40_000, max_num_seqs=64, block_tokens=16, speed=0.5),
        WorkerRoom(pool="large", kv_tokens=262_144, max_num_seqs=64, block_tokens=16, speed=1.0),
    ),
)
LANES: Final = tuple(
    GateLane(
        name=lane.name,
        most_tokens=lane.tokens,
        answer_tokens=512,
        queue_length=400,
        queue_seconds=30,
    )
    for lane in ROOMS.lanes
)
KV_TOKENS: Final = {pool.pool: pool.kv_tokens for pool in ROOMS.pools}


CARD: Final = Card(prefill_tokens_per_second=40_000.0, step_seconds=0.005)


class Fleet:
    """Workers that come and go, and the pods that the keeper sees of them."""

    def __init__(self) -> None:
        self.engines: dict[str, Engine] = {}
        self.pods: dict[str, PodSeen] = {}

    async def comes(self, name: str, pool: str = "large") -> Engine:
        port = free_port()
        engine = Engine(
            name,
            Pinned(kv_tokens=KV_TOKENS[pool], max_num_seqs=64, step_tokens=8192),
            CARD,
            lane_tokens={lane.name: lane.tokens for lane in ROOMS.lanes},
        )
        await engine.serve(port)
        self.engines[name] = engine
        self.pods[name] = PodSeen(
            name=name, address=f"127.0.0.1:{port}", pool=pool, is_ready=True, is_leaving=False
        )
        return engine

    def leaves(self, name: str) -> None:
        self.pods[name] = self.pods[name]._replace(is_leaving=True)

    async def goes(self, name: str) -> None:
        del self.pods[name]
        await self.engines.pop(name).stop()

    def kept_to_the_plan(self) -> None:
        for engine in self.engines.values():
            assert engine.peaks.promised_tokens <= engine.pinned.kv_tokens


@contextlib.asynccontextmanager
async def running(keeper: Keeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run(period_seconds=0.02))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_box(
    folder: Path, *, suite: str = OLDEST_SUITE, servers: int = 4, has_keys: bool = False
) -> GateBox:
    """HAProxy as it begins: places, and nobody in them."""
    text = GateText(
        lanes=LANES,
        servers=tuple(GateServer(name=f"s{place}") for place in range(servers)),
        port=free_port(),
        metrics_port=free_port(),
    )
    return GateBox(folder, text._replace(has_keys=has_keys), (), suite=suite)


def a_keeper(
    box: GateBox, fleet: Fleet, standing: Standing | None = None, *, lend: bool = True
) -> Keeper:
    world = World(rooms=lambda: ROOMS, pods=lambda: tuple(fleet.pods.values()))
    if standing is not None:
        world.standing = lambda: standing
    return Keeper(box.runtime, world, lend=lend)


def run(box: GateBox, story: Callable[[GateBox, Fleet], Awaitable[None]]) -> None:
    async def whole() -> None:
        fleet = Fleet()
        async with box:
            try:
                await story(box, fleet)
                fleet.kept_to_the_plan()
            finally:
                for engine in fleet.engines.values():
                    await engine.stop()

    asyncio.run(whole())


def outcomes(answers: list[Answer]) -> Counter[tuple[int, str]]:
    return Counter((answer.status, answer.problem) for answer in answers)


async def flow(
    box: GateBox, until_done: asyncio.Event, answers: list[Answer], *, clients: int = 12
) -> None:
    """Clients that ask one thing after the other until told to stop."""

    async def one() -> None:
        while not until_done.is_set():
            answers.append(await ask(box.port, chat(100, 40)))

    await asyncio.gather(*(one() for _ in range(clients)))


async def limits(box: GateBox) -> dict[str, tuple[int, ...]]:
    seen = await box.runtime.look([lane.name for lane in LANES])
    return {
        server.name: tuple(lane.limit for lane in seen.lanes[server.name])
        for server in seen.servers
        if server.is_open
    }


@pytest.mark.parametrize("suite", SUITES)
def test_workers_come_and_are_given_what_they_hold(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        await fleet.comes("a", "small")
        await fleet.comes("b")
        keeper = a_keeper(box, fleet)
        await keeper.visit()
        assert {"s0": (9, 0), "s1": (32, 4)} == await limits(box)
        assert (await keeper.visit()).is_done
        assert 0 == keeper.told.failures
        assert 200 == (await ask(box.port, chat(10))).status

    run(a_box(tmp_path, suite=suite), story)


@pytest.mark.parametrize("suite", SUITES)
def test_a_drained_worker_is_replaced_and_no_request_fails(tmp_path: Path, suite: str) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        await fleet.comes("a")
        await fleet.comes("b")
        keeper = a_keeper(box, fleet)
        await keeper.visit()
        stop, answers = asyncio.Event(), list[Answer]()
        async with running(keeper):
            clients = asyncio.create_task(flow(box, stop, answers))
            for round_ in range(4):
                old, new = min(fleet.pods), f"w{round_}"
                await until(lambda: len(answers) >= 12 * (round_ + 1), "answers")  # noqa: B023
                await fleet.comes(new)
                fleet.leaves(old)
                await until(lambda: old in keeper.told.drained, f"{old} is drained")  # noqa: B023
                assert 0 == fleet.engines[old].in_flight
                await fleet.goes(old)
            stop.set()
            await clients
        assert {(200, "")} == set(outcomes(answers))

    run(a_box(tmp_path, suite=suite), story)


def test_a_killed_worker_cuts_its_own_requests_and_no_others(tmp_path: Path) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        await fleet.comes("a")
        await fleet.comes("b")
        keeper = a_keeper(box, fleet)
        await keeper.visit()
        async with running(keeper):
            running_ = [asyncio.create_task(ask(box.port, chat(100, 300))) for _ in range(20)]
            await until(
                lambda: sum(engine.in_flight for engine in fleet.engines.values()) == 20, "20 run"
            )
            cut = fleet.engines["a"].in_flight
            await fleet.goes("a")
            answers = await asyncio.gather(*running_)
            assert 20 - cut == sum(answer.is_whole for answer in answers)
            assert (
                0 < cut == sum(answer.problem != "" or answer.status == 502 for answer in answers)
            )
            later = await asyncio.gather(*(ask(box.port, chat(10)) for _ in range(20)))
            assert {(200, "")} == set(outcomes(later))

    run(a_box(tmp_path), story)


def test_what_is_idle_is_lent_and_comes_back(tmp_path: Path) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        engine = await fleet.comes("b")
        keeper = a_keeper(box, fleet)
        await keeper.visit()
        async with running(keeper):
            chats = [asyncio.create_task(ask(box.port, chat(100, 200))) for _ in range(120)]
            await until(lambda: engine.lanes["chat"] == 56, "chat has borrowed 24 slots of batch")
            batch = [
                asyncio.create_task(ask(box.port, chat(100, 150), headers={"X-Lane": "batch"}))
                for _ in range(8)
            ]
            await until(lambda: engine.lanes["batch"] >= 1, "batch finds its floor", within=1)
            assert engine.lanes["chat"] > 32
            await until(lambda: engine.lanes["batch"] == 4, "batch has its whole share")
            answers = await asyncio.gather(*chats, *batch)
        assert {(200, "")} == set(outcomes(answers))
        await keeper.visit()
        assert {"s0": (32, 4)} == await limits(box)

    run(a_box(tmp_path), story)


def test_a_keeper_that_dies_leaves_the_limits_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        engine = await fleet.comes("b")
        first = a_keeper(box, fleet)
        await first.visit()
        chats = [asyncio.create_task(ask(box.port, chat(100, 200))) for _ in range(120)]
        async with running(first):
            await until(lambda: engine.lanes["chat"] == 56, "chat has borrowed")
        kept = await limits(box)
        assert {"s0": (56, 1)} == kept
        batch = asyncio.create_task(ask(box.port, chat(100, 150), headers={"X-Lane": "batch"}))
        await until(lambda: engine.lanes["batch"] == 1, "the floor serves without a keeper")
        assert kept == await limits(box)
        second = a_keeper(box, fleet)
        async with running(second):
            answers = await asyncio.gather(*chats, batch)
        assert {(200, "")} == set(outcomes(answers))
        await second.visit()
        assert {"s0": (32, 4)} == await limits(box)

    run(a_box(tmp_path), story)


@pytest.mark.parametrize("suite", SUITES)
def test_a_gate_hands_over_to_the_next_one_and_the_promise_is_kept(
    tmp_path: Path, suite: str
) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        engine = await fleet.comes("b")
        old = a_keeper(box, fleet)
        await old.visit()
        running_ = [asyncio.create_task(ask(box.port, chat(100, 60 + 20 * n))) for n in range(20)]
        await until(lambda: engine.in_flight == 20, "20 run in the old gate")

        text = box.haproxy.text._replace(port=free_port(), metrics_port=free_port())
        next_ = Haproxy(tmp_path / "next", text, suite=suite)
        await next_.start()
        retiring = a_keeper(box, fleet, Standing(is_retiring=True))
        new = Keeper(
            next_.runtime,
            World(
                rooms=lambda: ROOMS,
                pods=lambda: tuple(fleet.pods.values()),
                elsewhere=lambda: {
                    fleet.pods["b"].address or "": held(retiring.told.visit.workers[0])  # type: ignore[union-attr]
                },
            ),
        )
        try:
            await retiring.visit()
            await new.visit()
            async with running(retiring), running(new):
                answers = list(
                    await asyncio.gather(*(ask(text.port, chat(100, 60)) for _ in range(40)))
                )
                answers += await asyncio.gather(*running_)
                assert {(200, "")} == set(outcomes(answers))
                await until(
                    lambda: (
                        new.told.visit is not None
                        and [(32, 4)]
                        == [
                            tuple(lane.limit for lane in worker.lanes)
                            for worker in new.told.visit.workers
                        ]
                    ),
                    "the new gate has it all",
                )
            assert new.told.visit is not None
            worker = new.told.visit.workers[0]
            assert promise(worker.part, held(worker)).is_within(worker.part)
            assert engine.peaks.lanes["chat"] <= 56
        finally:
            await next_.stop()

    run(a_box(tmp_path, suite=suite), story)


def test_a_silent_haproxy_is_waited_for(tmp_path: Path) -> None:
    async def story(box: GateBox, fleet: Fleet) -> None:
        await fleet.comes("b")
        keeper = a_keeper(box, fleet)
        async with running(keeper):
            await until(lambda: keeper.told.visit is not None, "the first visit")
            await box.haproxy.stop()
            await until(lambda: keeper.told.problem != "", "silence is noticed")
            await box.haproxy.start()
            await until(lambda: keeper.told.problem == "", "and its end")

            async def as_before() -> bool:
                return await limits(box) == {"s0": (32, 4)}

            await until(as_before, "limits as planned")

    run(a_box(tmp_path), story)


def test_the_keeper_as_a_process_with_files_and_keys(tmp_path: Path) -> None:
    """`plimsoll keeper`: prepared, started, told by files, killed, started anew."""
    run_folder, keys = tmp_path / "run", tmp_path / "keys"
    keys.mkdir()
    (keys / "nightly").write_text("a-key-that-is-long-enough")
    rooms, workers = tmp_path / "rooms.json", tmp_path / "workers.json"
    rooms.write_text(json.dumps(ROOMS.to_json()))
    port = free_port()
    command: list[str | Path] = [
        *(
            sys.executable,
            "-m",
            "plimsoll.cli.main",
            "keeper",
            "--folder",
            run_folder,
            "--rooms",
            rooms,
        ),
        *("--workers", workers, "--keys", keys, "--host", "127.0.0.1", "--port", str(port)),
    ]
    assert 0 == subprocess.run([*command, "--prepare"], check=False, capture_output=True).returncode
    bearer = {"Authorization": "Bearer a-key-that-is-long-enough"}

    async def story(box: GateBox, fleet: Fleet) -> None:
        await fleet.comes("a")
        shown = [
            {"name": pod.name, "address": pod.address, "pool": pod.pool}
            for pod in fleet.pods.values()
        ]
        workers.write_text(json.dumps(shown))

        async def served() -> bool:
            return (await ask(box.port, chat(10), headers=bearer)).status == 200

        async def said(path: str) -> str:
            return (await ask(port, method="GET", path=path)).body.decode()

        first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            await until(served, "the worker is seated and serves")
            assert 401 == (await ask(box.port, chat(10))).status

            async def counted() -> bool:
                return 'lane="chat",status="200"' in await said("/metrics")

            await until(counted, "the log is read")
            assert {"0": [32, 4]} == {
                "0": next(iter(json.loads(await said("/state"))["held"].values()))
            }
            second = await asyncio.to_thread(
                lambda: subprocess.run(command, check=False, capture_output=True, text=True)
            )
            assert 1 == second.returncode
            assert "another keeper runs here" in second.stderr
        finally:
            first.kill()
            await asyncio.to_thread(first.wait)
        assert await served()
        again = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            (keys / "nightly").unlink()

            async def is_revoked() -> bool:
                return not await served()

            await until(is_revoked, "the key is gone")
            again.terminate()
            assert 0 == await asyncio.to_thread(again.wait, 10)
        finally:
            again.kill()
            await asyncio.to_thread(again.wait)

    box = a_box(run_folder, has_keys=True)
    box.haproxy.keeps_maps = True
    run(box, story)


@pytest.mark.parametrize("suite", SUITES)
def test_a_worker_that_comes_back_does_not_take_more_than_its_limit(
    tmp_path: Path, suite: str
) -> None:
    """Found well again, with a queue before it: HAProxy 2.6 alone would hand it twice its limit."""

    async def story(box: GateBox, fleet: Fleet) -> None:
        well, engine = await fleet.comes("a"), await fleet.comes("b")
        keeper = a_keeper(box, fleet, lend=False)
        await keeper.visit()
        done = asyncio.Event()
        answers: list[Answer] = []

        def is_down(wanted: bool) -> bool:
            seen = keeper.told.seen
            return seen is not None and wanted == any(server.is_down for server in seen.servers)

        async with running(keeper):
            clients = asyncio.create_task(flow(box, done, answers, clients=140))
            for _ in range(2):
                engine.is_well = False
                await until(lambda: is_down(True), "it is found unwell")
                await until(lambda: well.lanes["chat"] == 32, "the other one is full")
                engine.is_well = True
                await until(lambda: is_down(False), "it is found well")
                await until(lambda: engine.lanes["chat"] >= 28, "it takes what waits")
            done.set()
            await clients
        assert {(200, "")} == set(outcomes(answers))
        assert engine.peaks.lanes["chat"] <= 32
        assert well.peaks.lanes["chat"] <= 32

    run(a_box(tmp_path, suite=suite), story)


@pytest.mark.parametrize("suite", SUITES)
def test_bytes_per_token_are_learnt_and_choose_the_lane(tmp_path: Path, suite: str) -> None:
    """The stand-in's tokens have four bytes. A body of 12.8 kB is 4,300 tokens at 3 bytes each, too long for chat; at
    3.4, which is four with some caution, it is chat's. What the user says of batch is not touched."""
    lanes = (
        ROOMS.lanes[0],
        ROOMS.lanes[1].model_copy(update={"bytes_per_token_hundredths": 180}),
    )
    rooms = ROOMS.model_copy(update={"lanes": lanes})

    async def story(box: GateBox, fleet: Fleet) -> None:
        engine = await fleet.comes("b")
        engine.card = CARD._replace(prefill_tokens_per_second=4e6)
        keeper, tally = a_keeper(box, fleet), Tally()
        await keeper.visit()
        path = str(box.haproxy.folder / "bytes-per-token.map")
        told_map = Map(box.runtime, path, clock=asyncio.get_running_loop().time)
        ratio = Ratio(
            told_map,
            tally,
            keeper.told,
            rooms=lambda: rooms,
            workers=lambda: tuple(fleet.pods.values()),
        )

        async def lane_of(body: bytes) -> str:
            engine.forget_peaks()
            assert 200 == (await ask(box.port, body)).status
            return next(lane for lane, count in engine.peaks.lanes.items() if count)

        async def learns() -> bool:
            await ask(box.port, chat(7000, 4))
            return keeper.told.bytes_per_token["chat"] > 300

        between = chat(3200, 16)
        async with log_read(box.haproxy.folder / "log.sock", tally):
            follows = asyncio.create_task(ratio.follow(period_seconds=0.05))
            try:
                await until(lambda: keeper.told.bytes_per_token != {}, "it has told HAProxy")
                assert {"chat": "300", "batch": "180"} == await told_map.read()
                assert "batch" == await lane_of(between)
                await until(learns, "enough was seen")
            finally:
                follows.cancel()
                await asyncio.gather(follows, return_exceptions=True)
        said = await told_map.read()
        assert 320 <= int(said["chat"]) <= 345  # a request that runs is counted by its tokens first
        assert "180" == said["batch"]
        assert "chat" == await lane_of(between)

    run(a_box(tmp_path, suite=suite), story)
