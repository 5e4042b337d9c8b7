"""Is one gate replaced by the next while clients ask, without a failed request and without a slot promised twice?

Real HAProxy and real keepers, the operator's own words; see gate_pods for what is stood in for. 17 s each
on two idle cores, most of it waiting for processes to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from controlplane.haproxy import OLDEST_SUITE, SUITES, gate_possible
from gate_box import free_port, until
from gate_client import Answer, chat
from gate_pods import QUESTION, GatePod, Gates
from plimsoll.gate.records import GateRooms, LaneRoom
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from stories.test_gateway_keeper import KV_TOKENS, ROOMS, Fleet

pytestmark = pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible()))
OLD: Final = "old"
OTHER_LANES: Final = GateRooms(
    lanes=(
        LaneRoom(name="chat", tokens=8192, share_percent=75),
        LaneRoom(name="night", tokens=32_768, share_percent=25, priority=10),
    ),
    pools=ROOMS.pools,
)
CLIENTS: Final = {"chat": 40, "batch": 4}
"""More than a half of the slots, and less than all: the elder has requests when it is to give up slots."""


def a_pod(
    folder: Path, name: str, question: str = QUESTION, *, suite: str, rooms: GateRooms = ROOMS
) -> GatePod:
    lanes = tuple(
        GateLane(lane.name, lane.tokens, 64, queue_length=400, queue_seconds=30)
        for lane in rooms.lanes
    )
    text = GateText(
        lanes=lanes,
        servers=tuple(GateServer(name=f"s{place}") for place in range(4)),
        port=free_port(),
        metrics_port=free_port(),
    )
    return GatePod(folder, name, text, question, suite=suite)


class Crowd:
    """Clients that ask one thing after the other."""

    def __init__(self, gates: Gates) -> None:
        self.answers: list[Answer] = []
        self._gates = gates
        self._done = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def asking(self, clients: dict[str, int] = CLIENTS) -> AsyncIterator[None]:
        self._tasks = [
            asyncio.create_task(self._one(lane))
            for lane, count in clients.items()
            for _ in range(count)
        ]
        try:
            yield
        finally:
            self._done.set()
            await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Until so many more answers have come."""
        wanted = len(self.answers) + count
        await until(lambda: len(self.answers) >= wanted, f"{count} more answers", within=60)

    async def _one(self, lane: str) -> None:
        while not self._done.is_set():
            self.answers.append(await self._gates.asks(chat(100, 60), lane))

    def outcomes(self) -> Counter[tuple[int, str, str]]:
        return Counter((each.status, each.problem, each.reason) for each in self.answers)


def run(story: Callable[[Gates, Fleet], Awaitable[None]]) -> None:
    async def whole() -> None:
        fleet = Fleet()
        try:
            await fleet.comes("a")
            await fleet.comes("b", "small")
            async with Gates(ROOMS, lambda: tuple(fleet.pods.values())) as gates:
                await story(gates, fleet)
            fleet.kept_to_the_plan()
        finally:
            for engine in fleet.engines.values():
                await engine.stop()

    asyncio.run(whole())


async def ready(pod: GatePod, *, within: float = 40) -> None:
    await until(lambda: pod.is_ready, f"{pod.name} is ready", within=within)


async def has_it_all(gates: Gates, pod: GatePod) -> None:
    """The only gate, with every slot that is planned."""

    async def is_so() -> bool:
        seen = await pod.haproxy.runtime.look([lane.name for lane in ROOMS.lanes])
        limits = sorted(
            tuple(lane.limit for lane in seen.lanes[server.name])
            for server in seen.servers
            if server.is_open
        )
        return gates.pods == [pod] and limits == [(9, 0), (32, 4)]

    await until(is_so, f"{pod.name} has all slots", within=40)


@pytest.mark.parametrize("suite", SUITES)
def test_the_next_gate_takes_over_slot_by_slot(tmp_path: Path, suite: str) -> None:
    async def story(gates: Gates, fleet: Fleet) -> None:
        gates.question = OLD
        old = await gates.comes(a_pod(tmp_path, "gate-a", OLD, suite=suite))
        await ready(old)
        crowd = Crowd(gates)
        async with crowd.asking():
            await crowd.more(60)
            gates.question = QUESTION
            new = await gates.comes(a_pod(tmp_path, "gate-b", suite=suite))
            assert not new.is_ready
            await ready(new)
            await crowd.more(60)
            old.deleted()
            await until(lambda: gates.pods == [new], "the elder has ended", within=40)
            await crowd.more(60)
        assert {(200, "", "")} == set(crowd.outcomes())
        await has_it_all(gates, new)

    run(story)


def test_an_elder_whose_keeper_is_dead_still_holds(tmp_path: Path) -> None:
    """With other lanes in the next gate: what it holds counts in tokens, and until its pod is gone."""

    async def story(gates: Gates, fleet: Fleet) -> None:
        gates.question = OLD
        old = await gates.comes(a_pod(tmp_path, "gate-a", OLD, suite=OLDEST_SUITE))
        await ready(old)
        crowd = Crowd(gates)
        async with crowd.asking({"chat": 40}):
            await crowd.more(40)
            gates.rooms, gates.question = OTHER_LANES, QUESTION
            new = await gates.comes(
                a_pod(tmp_path, "gate-b", suite=OLDEST_SUITE, rooms=OTHER_LANES)
            )
            await ready(new)
            await old.keeper_dies()
            old.deleted()
            kept = await tokens_of(old)
            assert kept > 0
            await crowd.more(60)
            assert old in gates.pods
            assert kept + await tokens_of(new) <= sum(KV_TOKENS.values())
            await until(lambda: gates.pods == [new], "the elder has ended", within=40)

            async def has_more() -> bool:
                return kept + await tokens_of(new) > sum(KV_TOKENS.values())

            await until(has_more, "its slots are the next one's", within=40)
            await crowd.more(40)
        assert {(200, "", "")} == set(crowd.outcomes())

    run(story)


async def tokens_of(pod: GatePod) -> int:
    """What the limits of a gate promise, over all workers."""
    rooms = OTHER_LANES if pod.question == QUESTION else ROOMS
    seen = await pod.haproxy.runtime.look([lane.name for lane in rooms.lanes])
    return sum(
        slots.limit * lane.tokens
        for server in seen.servers
        if server.is_open
        for slots, lane in zip(seen.lanes[server.name], rooms.lanes, strict=True)
    )


STREAMS: Final = 20


@pytest.mark.parametrize("suite", SUITES)
def test_a_gate_that_is_stopped_finishes_all_streams(tmp_path: Path, suite: str) -> None:
    """As the pod stops it: preStop in HAProxy's container and SIGTERM for the keeper, at once."""

    async def story(gates: Gates, fleet: Fleet) -> None:
        pod = await gates.comes(a_pod(tmp_path, "gate-a", suite=suite))
        await ready(pod)
        streams = await begun(gates, fleet)
        reader, writer = await asyncio.open_connection(pod.address, pod.haproxy.text.port)
        assert "connection: close" not in await models(reader, writer)
        pod.deleted()

        async def sent_away() -> bool:
            nonlocal reader, writer
            if reader.at_eof():
                reader, writer = await asyncio.open_connection(pod.address, pod.haproxy.text.port)
            return "connection: close" in await models(reader, writer)

        await until(sent_away, "who keeps a connection is sent away")
        writer.close()
        assert not any(each.done() for each in streams)
        assert {(200, "")} == {(each.status, each.problem) for each in await finished(streams)}
        await until(lambda: not gates.pods, "its processes have ended")
        assert pod.haproxy.process is not None
        assert 0 == pod.haproxy.process.returncode

    run(story)


def test_nor_does_one_whose_keeper_is_dead_cut_any(tmp_path: Path) -> None:
    async def story(gates: Gates, fleet: Fleet) -> None:
        pod = await gates.comes(a_pod(tmp_path, "gate-a", suite=OLDEST_SUITE))
        await ready(pod)
        await pod.keeper_dies()
        streams = await begun(gates, fleet)
        pod.deleted()
        assert {(200, "")} == {(each.status, each.problem) for each in await finished(streams)}
        await until(lambda: not gates.pods, "its processes have ended")

    run(story)


def test_sigterm_would_cut_them(tmp_path: Path) -> None:
    """Why the image's own stop signal is not trusted: the same streams, ended by it."""

    async def story(gates: Gates, fleet: Fleet) -> None:
        pod = await gates.comes(a_pod(tmp_path, "gate-a", suite=OLDEST_SUITE))
        await ready(pod)
        streams = await begun(gates, fleet)
        await pod.haproxy.stop(signal.SIGTERM)
        assert not any(each.is_whole for each in await finished(streams))

    run(story)


async def begun(gates: Gates, fleet: Fleet) -> list[asyncio.Task[Answer]]:
    """Streams of some seconds, all of them running."""
    streams = [asyncio.create_task(gates.asks(chat(100, 900), "chat")) for _ in range(STREAMS)]
    await until(
        lambda: sum(engine.in_flight for engine in fleet.engines.values()) == STREAMS, "all run"
    )
    return streams


async def finished(streams: list[asyncio.Task[Answer]]) -> list[Answer]:
    return list(await asyncio.gather(*streams))


async def models(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """The headers of an answer on a connection that is kept."""
    writer.write(b"GET /v1/models HTTP/1.1\r\nHost: gate\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    size = next(line for line in head.split("\r\n") if line.startswith("content-length"))
    await reader.readexactly(int(size.partition(":")[2]))
    return head
