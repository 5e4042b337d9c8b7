"""Rounds: who is asked, what is kept, and what a failure changes (nothing)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import CONFIG_MAP, NODE
from plimsoll.controller.kept import unpack
from plimsoll.controller.settings import Settings
from plimsoll.controller.watching import Watcher
from plimsoll.decide import Key, Observed
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.series import EngineSample, FloorBin
from plimsoll.facts.watched import (
    EngineReading,
    MemorySample,
    PastLife,
    WatchedWorker,
    WorkerNow,
)
from plimsoll.facts.worker import WorkerFacts
from plimsoll.telemetry.source import Seen

KEY = Key(namespace="team", name="chat")
T0 = 1_796_040_000.0
MIB = 1 << 20
FLOORS = "chat-memory-floors"


def observed(*workers: WorkerFacts, uid: str = "d-1") -> Observed:
    metadata = {"name": "chat", "namespace": "team", "uid": uid}
    return Observed(
        deployment={"metadata": metadata}, inventory=Inventory(), children=(), workers=workers
    )


def facts(**change: Any) -> WorkerFacts:
    plain = WorkerFacts(
        name="chat-1", uid="uid-1", pool="h100", node="n", phase="Running",
        container="engine", engine="vllm", address="10.1.0.1:8000", memory_limit_bytes=64 << 30,
    )  # fmt: skip
    return plain.model_copy(update=change)


class House:
    """A watcher whose source says what the test says."""

    def __init__(self, client: Any, box: StandIn, fleet: Fleet, **settings: Any) -> None:
        self.box, self.fleet = box, fleet
        self.now = 0.0
        self.mib: int | None = 100
        self.past: tuple[PastLife, ...] = ()
        self.asked: list[tuple[WatchedWorker, ...]] = []
        self.told: list[tuple[WorkerNow, ...]] = []
        self.watcher = Watcher(
            Settings(identity="me", **settings),
            client=client,
            fleet=fleet,
            source=self,
            show=self,
            clock=lambda: self.now,
            wall_clock=lambda: T0 + self.now,
            chance=lambda: 0.0,
        )

    async def read(self, workers: Sequence[WatchedWorker]) -> Seen:
        """One sample of each."""
        self.asked.append(tuple(workers))
        at = T0 + self.now
        if self.mib is None:
            return Seen()
        return Seen(
            tuple(MemorySample(w.pod_uid, w.container, T0, at, self.mib * MIB) for w in workers),
            tuple(EngineReading(w.pod_uid, EngineSample(at, running=2.0)) for w in workers),
        )

    async def history(
        self, workers: Sequence[WatchedWorker], *, since_seconds: float, until_seconds: float
    ) -> tuple[PastLife, ...]:
        """What the test says."""
        assert workers
        assert since_seconds < until_seconds <= T0 + self.now
        return self.past

    def watched(self, now: Sequence[WorkerNow], round_seconds: float) -> None:
        """A round is over."""
        assert round_seconds >= 0
        self.told.append(tuple(now))

    async def rounds(self, until: float) -> None:
        """A round every 30 s until then."""
        while self.now < until:
            self.now += 30
            await self.watcher.round()

    def writes(self) -> list[tuple[str, str]]:
        return [each for each in self.box.requests if each[0] != "GET"]

    def kept(self) -> tuple[PastLife, ...]:
        found = self.box.get(CONFIG_MAP, "team", FLOORS)
        return unpack(base64.b64decode(found["binaryData"]["floors"]))


def in_house(work: Any, **settings: Any) -> Any:
    async def run() -> Any:
        box = StandIn()
        address = {"type": "InternalIP", "address": "10.0.0.7"}
        status = {"addresses": [address], "allocatable": {"memory": "512Gi"}}
        box.put(NODE, {"metadata": {"name": "n"}, "status": status})
        async with connected(box) as client:
            fleet = Fleet(client, clock=lambda: 0.0)
            await fleet.inventory()
            box.requests.clear()
            return await work(House(client, box, fleet, **settings))

    return asyncio.run(run())


def test_a_worker_is_asked_about_where_its_pod_and_its_node_say() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts()))
        await house.watcher.round()
        ((worker,),) = house.asked
        assert ("10.0.0.7:10250", "10.1.0.1:8000") == (worker.kubelet, worker.address)
        assert (64 << 30, False) == (worker.limit_bytes, worker.limit_is_node)
        assert 100 * MIB == house.told[-1][0].resident_bytes

    in_house(work)


def test_without_a_limit_the_nodes_memory_is_the_limit() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts(memory_limit_bytes=None)))
        await house.watcher.round()
        assert (512 << 30, True) == (
            house.asked[0][0].limit_bytes, house.asked[0][0].limit_is_node,
        )  # fmt: skip

    in_house(work)


def test_pods_that_do_not_run_or_are_not_ours_are_not_asked_about() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts(phase="Pending"), facts(uid="u", container="")))
        await house.watcher.round()
        assert [()] == house.asked

    in_house(work)


def test_floors_are_written_now_and_then_and_only_when_they_changed() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts()))
        await house.rounds(until=1790)
        assert [] == [w for w in house.writes() if house.now < 900]
        first = house.writes()
        assert 1 == len(first)
        house.mib = None  # no more bins
        await house.rounds(until=8000)
        after = house.writes()[1:]
        assert len(after) <= 1, "the last whole bin, and then nothing"
        assert 100 * MIB == house.kept()[0].bins[0].floor_bytes

    in_house(work)


def test_an_operator_that_starts_anew_goes_on_with_what_was_kept() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts()))
        await house.rounds(until=3000)
        before = house.kept()
        again = House(house.watcher._client, house.box, house.fleet)
        again.now = 3000.0
        again.watcher.seen(KEY, observed(facts()))
        await again.rounds(until=3700)
        (history,) = again.watcher.histories_of(KEY)
        kept = [each.at_seconds for each in before[0].bins]
        assert kept == [each.at_seconds for each in history.bins][: len(kept)]
        assert len(history.bins) > len(kept)

    in_house(work)


@pytest.mark.parametrize(
    "data",
    [{"floors": base64.b64encode(b"rubbish").decode()}, {"floors": "no base64!"}, {}, None],
)
def test_a_spoilt_config_map_is_left_out_with_a_warning(data: Any) -> None:
    async def work(house: House) -> None:
        owner = [{"uid": "d-1"}]
        metadata = {"name": FLOORS, "namespace": "team", "ownerReferences": owner}
        house.box.put(CONFIG_MAP, {"metadata": metadata, "binaryData": data})
        house.watcher.seen(KEY, observed(facts()))
        await house.rounds(until=3000)
        assert 100 * MIB == house.kept()[0].bins[0].floor_bytes

    in_house(work)


def test_somebody_elses_config_map_is_neither_read_nor_written() -> None:
    async def work(house: House) -> None:
        metadata = {"name": FLOORS, "namespace": "team", "labels": {"of": "others"}}
        house.box.put(CONFIG_MAP, {"metadata": metadata, "binaryData": {"floors": "bm8="}})
        house.watcher.seen(KEY, observed(facts()))
        await house.rounds(until=3000)
        assert [] == house.writes()

    in_house(work)


def test_a_namesake_of_what_was_deleted_begins_with_nothing() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts()))
        await house.rounds(until=700)
        house.watcher.seen(KEY, observed(facts(), uid="d-2"))
        assert () == house.watcher.histories_of(KEY)[0].bins
        house.watcher.forget(KEY)
        assert () == house.watcher.histories_of(KEY)

    in_house(work)


def test_what_prometheus_has_of_the_days_before_comes_first() -> None:
    async def work(house: House) -> None:
        house.past = (PastLife("uid-1", "engine", T0, (FloorBin(T0 + 600, 77, 1.0, 9.0),)),)
        house.now = 1200.0
        house.watcher.seen(KEY, observed(facts()))
        await house.rounds(until=1900)
        bins = house.watcher.histories_of(KEY)[0].bins
        assert [(T0 + 600, 9.0), (T0 + 1800, 9.0)] == [(b.at_seconds, b.peak_load) for b in bins]

    in_house(work)


def test_a_round_that_fails_is_followed_by_another() -> None:
    async def work(house: House) -> None:
        house.watcher.seen(KEY, observed(facts()))
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise asyncio.CancelledError

        async def broken(_: Sequence[WatchedWorker]) -> Seen:
            raise ArithmeticError("ours")

        house.watcher._pause = pause
        house.read = broken  # type: ignore[method-assign, assignment]
        with pytest.raises(asyncio.CancelledError):
            await house.watcher.watch_forever()
        assert [30.0, 30.0, 30.0] == pauses

    in_house(work)
