"""Who is asked what it holds, how often, and what becomes of the answer?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from api_box import StandIn, connected
from plimsoll.cluster.kinds import CONFIG_MAP
from plimsoll.controller.settings import Settings
from plimsoll.controller.verifying import CALIBRATION_SECONDS, MOST_WAIT_SECONDS, Verifier
from plimsoll.decide import Key, Observed
from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.calibration import CalibrationKey, Measurement
from plimsoll.plan.calibration_text import text_of
from plimsoll.plan.reported import EngineReport
from plimsoll.render.calibration import CALIBRATION_NAME, calibration_manifest
from plimsoll.telemetry.source import Reason, ScrapeError

GIB = 1 << 30
KEY = Key(namespace="team", name="chat")
REPORT = EngineReport(EngineName.VLLM, blocks=3000)
ONE = Measurement(
    CalibrationKey("vllm", "0.22.1", "NVIDIA-L40S", "LlamaForCausalLM", "1x1/1/1", 1, "kv=auto"),
    GIB, GIB, 1, "2026-11-30", "2026-11-30",
)  # fmt: skip


def facts(**changes: Any) -> WorkerFacts:
    plain = WorkerFacts(
        name="chat-1", uid="uid-1", pool="h100", is_ready=True, engine="vllm",
        address="10.1.0.1:8000", started_seconds=100.0,
    )  # fmt: skip
    return plain.model_copy(update=changes)


def observed(*workers: WorkerFacts) -> Observed:
    return Observed(deployment={}, inventory=Inventory(), workers=workers)


class House:
    """A verifier whose engines say what the test says."""

    def __init__(self, client: Any, box: StandIn) -> None:
        self.box = box
        self.now = 0.0
        self.answer: EngineReport | None = REPORT
        self.asked: list[str] = []
        self.woken: list[Key] = []
        self.paused: list[float] = []
        self.verifier = Verifier(
            Settings(identity="me", verify_seconds=5),
            client=client,
            reader=self,
            wake=self.woken.append,
            clock=lambda: self.now,
            pause=self.pause,
        )

    async def read(self, worker: WorkerFacts) -> EngineReport:
        """What the test says."""
        self.asked.append(worker.uid)
        if self.answer is None:
            raise ScrapeError(Reason.TIMEOUT, "no answer in 5 s")
        return self.answer

    async def pause(self, seconds: float) -> None:
        """Time passes at once."""
        self.paused.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def in_house(work: Callable[[House], Awaitable[None]]) -> None:
    async def run() -> None:
        box = StandIn()
        async with connected(box) as client:
            await work(House(client, box))

    asyncio.run(run())


def test_a_worker_that_serves_is_asked_once_and_its_deployment_is_visited() -> None:
    async def work(house: House) -> None:
        seen = observed(facts(), facts(name="chat-2", uid="uid-2", is_ready=False))
        assert [r.report for r in house.verifier.reported(KEY, seen).reports] == [None]
        for _ in range(3):
            await house.verifier.round()
        assert (house.asked, house.woken) == (["uid-1"], [KEY])
        (report,) = house.verifier.reported(KEY, seen).reports
        assert (report.uid, report.report) == ("uid-1", REPORT)

    in_house(work)


def test_who_does_not_answer_is_asked_again_ever_later() -> None:
    async def work(house: House) -> None:
        house.answer = None
        house.verifier.reported(KEY, observed(facts()))
        times = []
        while house.now < 1000:
            before = len(house.asked)
            await house.verifier.round()
            if len(house.asked) > before:
                times.append(house.now)
            house.now += 5
        waits = [after - before for before, after in pairwise(times)]
        assert waits[:4] == [5, 10, 20, 40]
        assert max(waits) == MOST_WAIT_SECONDS
        (report,) = house.verifier.reported(KEY, observed(facts())).reports
        assert report.problem == "timeout: no answer in 5 s"
        assert house.woken == []

    in_house(work)


def test_a_container_that_began_anew_is_asked_anew() -> None:
    async def work(house: House) -> None:
        house.verifier.reported(KEY, observed(facts()))
        await house.verifier.round()
        again = observed(facts(started_seconds=900.0))
        assert house.verifier.reported(KEY, again).reports[0].report is None
        await house.verifier.round()
        assert house.asked == ["uid-1", "uid-1"]

    in_house(work)


def test_workers_that_are_gone_are_forgotten() -> None:
    async def work(house: House) -> None:
        house.answer = None
        house.verifier.reported(KEY, observed(facts()))
        await house.verifier.round()
        assert house.verifier.reported(KEY, observed()).reports == ()
        house.now += 1000
        await house.verifier.round()
        assert house.asked == ["uid-1"]
        house.verifier.reported(KEY, observed(facts()))
        house.verifier.forget(KEY)
        await house.verifier.round()
        assert house.asked == ["uid-1"]

    in_house(work)


def test_it_goes_on_by_itself_and_over_mistakes() -> None:
    async def work(house: House) -> None:
        house.answer = None
        house.verifier.reported(KEY, observed(facts()))
        running = asyncio.create_task(house.verifier.read_forever())
        while len(house.asked) < 3:
            await asyncio.sleep(0)
        house.answer = REPORT
        while not house.woken:
            await asyncio.sleep(0)
        running.cancel()
        assert max(house.paused) <= MOST_WAIT_SECONDS

    in_house(work)


def test_what_was_learnt_is_written_and_counts_at_once() -> None:
    async def work(house: House) -> None:
        assert await house.verifier.calibration("team") == ()
        await house.verifier.learn(KEY, (ONE,))
        assert await house.verifier.calibration("team") == (ONE,)
        writes = len(house.box.writes)
        await house.verifier.learn(KEY, ())
        assert len(house.box.writes) == writes

    in_house(work)


def test_what_a_person_put_there_is_read_within_a_minute() -> None:
    async def work(house: House) -> None:
        assert await house.verifier.calibration("team") == ()
        house.box.put(CONFIG_MAP, calibration_manifest("team", text_of((ONE,))))
        assert await house.verifier.calibration("team") == ()
        house.now += CALIBRATION_SECONDS
        assert await house.verifier.calibration("team") == (ONE,)

    in_house(work)


def test_what_cannot_be_written_is_written_with_the_next_visit() -> None:
    async def work(house: House) -> None:
        house.box.answers.append((409, {}, {"reason": "Conflict", "message": "modified"}))
        await house.verifier.learn(KEY, (ONE,))
        assert await house.verifier.calibration("team") == ()
        await house.verifier.learn(KEY, ())
        assert await house.verifier.calibration("team") == (ONE,)

    in_house(work)


def test_somebody_elses_config_map_stops_no_visit() -> None:
    async def work(house: House) -> None:
        theirs = {"metadata": {"name": CALIBRATION_NAME, "namespace": "team"}, "data": {}}
        house.box.put(CONFIG_MAP, theirs)
        await house.verifier.learn(KEY, (ONE,))
        assert house.box.get(CONFIG_MAP, "team", CALIBRATION_NAME)["data"] == {}

    in_house(work)
