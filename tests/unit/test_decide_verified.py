"""What follows from what the engines say: who starts, what is lowered, what is told, what is learnt?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scenes
from plimsoll.api.verified import MOST_LOWERED, Reported, WorkerReport
from plimsoll.decide import Desired, Manifest
from plimsoll.engines.base import EngineName
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.records import Plan, PlanRequest
from plimsoll.plan.reported import EngineReport
from plimsoll.plan.verify import Geometry, geometry_of
from plimsoll.render.labels import PLAN_ANNOTATION

POOL = "h100"
FLEET = scenes.fleet(("h100-0", "h100-sxm", 8))
READY = scenes.NOON - 10
GRACE = 120.0
NOBODY = Reported(grace_seconds=GRACE)


def small(workers: int = 3, **limits: Any) -> Manifest:
    """An 8B model on single H100 cards."""
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "small", "namespace": "team", "uid": "0f5c", "generation": 1},
        "spec": {
            "replicas": workers,
            "model": {
                "name": "llama-3-8b",
                "id": "meta-llama/Meta-Llama-3-8B-Instruct",
                "uri": "pvc://models/llama",
            },
            "pools": [
                {"name": POOL, "engine": "vllm", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
            ],
            "engines": {"vllm": {"image": "vllm/vllm-openai:v0.22.1"}},
            "limits": {"maxModelLen": 8192, **limits},
        },
    }


class World:
    """The cluster between decisions."""

    def __init__(self, raw: Manifest, *, reported: Reported | None = NOBODY) -> None:
        self.raw = raw
        self.children: tuple[Manifest, ...] = ()
        self.workers: tuple[WorkerFacts, ...] = ()
        self.events: list[str] = []
        self.measured: list[Measurement] = []
        self.reported = reported
        self.calibration: tuple[Measurement, ...] = ()
        self.now = scenes.NOON
        self.now_updated: int | None = None

    def think(self, *, shares: Sequence[float] = ()) -> Desired:
        """Decide and apply; each engine that answers holds such a share of the planned blocks."""
        reported = self.reported
        if reported is not None and shares:
            reports = tuple(
                WorkerReport(worker.uid, report(self.plan, share))
                for worker, share in zip(self.workers, shares, strict=False)
            )
            reported = reported._replace(reports=reports)
        return self.decide(reported)

    def decide(self, reported: Reported | None) -> Desired:
        desired = scenes.think(
            self.raw, FLEET, children=self.children, workers=self.workers, reported=reported,
            calibration=self.calibration, now=self.now,
        )  # fmt: skip
        self.raw, applied = scenes.applied(self.raw, desired)
        kept = {(c["kind"], c["metadata"]["name"]): c for c in (*self.children, *applied)}
        self.children = tuple(kept.values())
        if self.workers:
            self.children = scenes.with_ready(self.children, len(self.workers))
            if self.now_updated is not None:
                self.deployment["status"]["updatedReplicas"] = self.now_updated
        self.events += [event.reason for event in desired.events]
        self.measured += desired.measured
        return desired

    def start(self, count: int = 1, **changes: Any) -> None:
        """So many workers of the newest plan run and are Ready."""
        self.children = scenes.with_ready(self.children, count)
        self.workers = tuple(
            scenes.worker(POOL, number, plan_id=self.plan_id, ready_seconds=READY, **changes)
            for number in range(count)
        )

    def updated(self, count: int) -> None:
        """Of the workers so many run the newest template; they stand first."""
        self.workers = tuple(
            worker.model_copy(update={"plan_id": self.plan_id if at < count else "sha256:old"})
            for at, worker in enumerate(self.workers)
        )
        self.now_updated = count
        self.deployment["status"]["updatedReplicas"] = count

    @property
    def pool(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["status"]["pools"][0]
        return found

    @property
    def plan(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pool["plan"]
        return found

    @property
    def verified(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pool.get("verified") or {}
        return found

    @property
    def deployment(self) -> Manifest:
        return next(child for child in self.children if child["kind"] == "Deployment")

    @property
    def plan_id(self) -> str:
        found: str = self.deployment["metadata"]["annotations"][PLAN_ANNOTATION]
        return found

    @property
    def replicas(self) -> int:
        found: int = self.deployment["spec"]["replicas"]
        return found

    def condition(self, name: str = "PlanVerified") -> tuple[str, str]:
        found = next(each for each in self.raw["status"]["conditions"] if each["type"] == name)
        return found["status"], found["reason"]


def report(plan: dict[str, Any], share: float) -> EngineReport:
    """What vLLM 0.22 says when its pool has such a share of the planned blocks: 32 layers of 8 heads of
    128, two bytes each for key and value, 16 tokens a block."""
    planned = plan["kv"]["poolBytesPerCard"] // (32 * 8 * 128 * 2 * 2 * 16)
    return EngineReport(
        EngineName.VLLM,
        blocks=int(planned * share),
        block_tokens=16,
        utilization=plan["gpuMemoryUtilization"],
    )


def one_running(raw: Manifest | None = None) -> World:
    world = World(raw or small())
    world.think()
    world.start()
    return world


def test_a_first_worker_that_is_ready_but_not_read_holds_the_others() -> None:
    world = one_running()
    desired = world.think()
    assert world.replicas == 1
    assert world.condition() == ("Unknown", "NotVerifiedYet")
    assert world.condition("Ready") == ("False", "Verifying")
    assert desired.look_again_seconds is not None
    assert desired.look_again_seconds <= GRACE - 10


def test_the_others_follow_when_the_engine_holds_what_was_promised() -> None:
    world = one_running()
    world.think(shares=[1.02])
    assert world.replicas == 3
    assert world.condition() == ("True", "AsPlanned")
    assert "PlanVerified" in world.events
    assert world.verified["verdict"] == "Verified"
    assert world.verified["errorPercent"] == pytest.approx(-1.96, abs=0.05)
    assert world.verified["pod"] == "h100-0"


def test_an_engine_that_cannot_be_read_holds_nobody_for_ever() -> None:
    world = one_running()
    world.now = READY + GRACE - 1
    world.think()
    assert world.replicas == 1
    world.now = READY + GRACE
    problem = WorkerReport("h100-0", problem="timeout: no answer in 5 s")
    world.decide(NOBODY._replace(reports=(problem,)))
    assert world.replicas == 3
    assert world.condition() == ("Unknown", "EngineUnreadable")
    assert "no answer in 5 s" in world.verified["message"]
    assert world.events.count("EngineUnreadable") == 1
    world.think(shares=[1.0])
    assert world.condition() == ("True", "AsPlanned")


def test_an_engine_that_holds_less_stops_the_rollout_and_lowers_the_plan() -> None:
    world = one_running()
    before, before_id = deepcopy(world.plan), world.plan_id
    held = report(before, 0.6)
    world.think(shares=[0.6])
    assert world.replicas == 1
    assert world.condition() == ("False", "HoldsLess")
    assert "EngineHoldsLess" in world.events
    assert held.blocks is not None
    assert world.plan["kv"]["poolTokens"] <= (held.blocks - 1) * 16
    assert world.plan["concurrency"]["maxNumSeqs"] < before["concurrency"]["maxNumSeqs"]
    assert world.plan_id != before_id
    world.start()
    world.decide(NOBODY._replace(reports=(WorkerReport("h100-0", held),)))
    assert world.condition() == ("True", "AsPlanned")
    assert world.replicas == 3


def test_a_lowered_plan_stays_lowered_and_a_changed_question_starts_afresh() -> None:
    world = one_running()
    world.think(shares=[0.6])
    lowered = deepcopy(world.plan)
    for _ in range(3):
        world.think()
        assert world.plan == lowered
    world.raw["spec"]["limits"]["maxModelLen"] = 4096
    world.think()
    assert "ceiling" not in world.verified
    assert world.plan["kv"]["poolTokens"] > lowered["kv"]["poolTokens"]


def test_what_was_asked_for_and_is_not_there_is_refused_and_left_running() -> None:
    world = one_running(small(concurrency=50))
    world.think(shares=[0.6])
    assert world.condition("Planned") == ("False", "KvBudgetExceeded")
    assert world.condition() == ("False", "HoldsLess")
    assert world.replicas == 1
    for _ in range(2):
        assert not [e for e in world.think(shares=[0.6]).apply if e["kind"] == "Deployment"]
    assert world.events.count("EngineHoldsLess") == 1


def test_every_plan_is_lowered_a_bounded_number_of_times() -> None:
    world = one_running()
    for _ in range(2 * MOST_LOWERED):
        world.think(shares=[0.9])
        world.start()
    assert world.verified["ceiling"]["lowered"] == MOST_LOWERED


@settings(deadline=None, max_examples=40)
@given(st.floats(0.3, 4.0), st.integers(0, 12 << 30))
def test_any_hidden_cost_settles_and_never_starts_a_second_worker_too_many(
    factor: float, hidden_bytes: int
) -> None:
    """An engine that takes `factor` of the lines that we bound and something besides: vLLM's own sum."""
    world = one_running()

    def engine() -> EngineReport:
        lines = {line["owner"]: line["bytes"] for line in world.plan["ledger"]}
        inside = sum(lines[name] for name in ("ActivationPeak", "Collectives", "CudaGraphs"))
        usable = world.plan["cardBytes"] - lines["Driver"]
        pool = math.ceil(usable * world.plan["gpuMemoryUtilization"]) - lines["Weights"]
        pool -= int(inside * factor) + hidden_bytes
        return EngineReport(
            EngineName.VLLM,
            blocks=pool // (2 << 20),
            block_tokens=16,
            utilization=world.plan["gpuMemoryUtilization"],
        )

    for _ in range(MOST_LOWERED + 1):
        held = engine()
        assert held.blocks is not None
        promised = world.plan["kv"]["poolTokens"]
        world.decide(NOBODY._replace(reports=(WorkerReport("h100-0", held),)))
        if world.verified["verdict"] in ("Verified", "More"):
            assert promised * 0.99 <= (held.blocks - 1) * 16
            break
        assert world.replicas == 1
        world.start()
    assert world.condition()[0] == "True"
    assert world.replicas == 3
    assert len(set(world.events)) <= 4


def test_an_engine_that_holds_more_changes_nothing() -> None:
    world = one_running()
    before, template = deepcopy(world.plan), deepcopy(world.deployment["spec"]["template"])
    world.think(shares=[1.3])
    assert world.condition() == ("True", "HoldsMore")
    assert world.events.count("EngineHoldsMore") == 1
    assert "would fit" in world.verified["message"]
    assert (world.plan, world.deployment["spec"]["template"]) == (before, template)
    assert world.replicas == 3


def test_the_worker_that_holds_least_is_told_and_a_lost_report_changes_nothing() -> None:
    world = one_running()
    world.think(shares=[1.0])
    world.start(3)
    world.think(shares=[1.02, 0.995, 1.01])
    assert world.verified["pod"] == "h100-1"
    status = deepcopy(world.raw["status"])
    world.think()
    assert world.raw["status"] == status
    world.think(shares=[1.02])
    assert world.raw["status"] == status


def test_nothing_is_written_twice() -> None:
    world = one_running()
    world.think(shares=[1.0])
    status = deepcopy(world.raw["status"])
    events = list(world.events)
    world.now += 5
    world.think(shares=[1.0])
    assert world.raw["status"] == status
    assert world.events == events
    assert len(world.measured) == 1


def test_a_refused_change_leaves_the_verdict_of_what_runs() -> None:
    """The newest question is for another dtype and does not fit; the plan that runs is in 16 bit."""
    world = one_running()
    world.think(shares=[0.995])
    verified, measured = deepcopy(world.verified), len(world.measured)
    world.raw["spec"]["limits"]["concurrency"] = 5000
    world.raw["spec"]["kvCache"] = {"dtype": "fp8"}
    world.think(shares=[0.995])
    assert world.condition("Planned") == ("False", "KvBudgetExceeded")
    assert world.verified == verified
    assert len(world.measured) == measured


# ---- a rollout over running workers --------------------------------------------------------------


def _rolling(updated: int) -> World:
    """Three verified workers, a changed question, and so many workers that run the new plan."""
    world = one_running()
    world.think(shares=[1.0])
    world.start(3)
    world.raw["spec"]["limits"]["maxModelLen"] = 4096
    world.think(shares=[1.0] * 3)
    assert world.replicas == 3
    assert "paused" not in world.deployment["spec"]
    world.updated(updated)
    return world


def test_a_rollout_waits_after_its_first_worker() -> None:
    world = _rolling(1)
    world.think()
    assert world.deployment["spec"]["paused"] is True
    assert world.replicas == 3
    assert world.condition() == ("Unknown", "NotVerifiedYet")
    world.updated(1)
    world.think(shares=[1.0])
    assert "paused" not in world.deployment["spec"]
    assert world.condition() == ("True", "AsPlanned")


def test_no_worker_is_added_while_a_rollout_waits() -> None:
    world = _rolling(1)
    for wanted, replicas in ((5, 3), (2, 2)):
        world.raw["spec"]["replicas"] = wanted
        world.think()
        assert world.replicas == replicas
        world.updated(1)


def test_the_others_wait_until_no_worker_of_the_plan_before_is_left() -> None:
    """The Deployment's controller shares new workers out over all templates that still have one."""
    world = one_running()
    world.think(shares=[0.6])
    world.start()
    world.deployment["status"]["replicas"] = 2
    status = world.deployment["status"]
    world.decide(NOBODY._replace(reports=(WorkerReport("h100-0", report(world.plan, 1.0)),)))
    assert status["replicas"] == 2
    assert world.condition() == ("True", "AsPlanned")
    assert world.replicas == 1
    world.think(shares=[1.0])
    assert world.replicas == 3


def test_a_lone_worker_beside_its_successor_is_still_rolling_out() -> None:
    """The successor waits for a card: somebody has to come back and take the surge back."""
    world = one_running(small(1))
    world.think(shares=[1.0])
    assert world.condition("Ready") == ("True", "AllWorkersReady")
    world.deployment["status"] |= {"replicas": 2, "updatedReplicas": 1}
    desired = world.think(shares=[1.0])
    assert world.condition("Ready") == ("False", "RollingOut")
    assert desired.look_again_seconds is not None


def test_a_rollout_that_has_made_no_worker_yet_or_all_of_them_does_not_wait() -> None:
    for updated in (0, 3):
        world = _rolling(updated)
        world.think()
        assert "paused" not in world.deployment["spec"]


def test_a_rollout_goes_on_when_its_first_engine_cannot_be_read() -> None:
    world = _rolling(1)
    world.think()
    world.updated(1)
    world.now = READY + GRACE
    world.think()
    assert "paused" not in world.deployment["spec"]


def test_a_short_first_worker_is_all_that_gets_the_wrong_plan() -> None:
    world = _rolling(1)
    world.think()
    wrong = world.plan_id
    world.updated(1)
    world.think(shares=[0.6])
    assert world.plan_id != wrong
    assert "paused" not in world.deployment["spec"]
    world.updated(1)
    world.think()
    assert world.deployment["spec"]["paused"] is True


# ---- an upgrade ----------------------------------------------------------------------------------


def _from_before(workers: int) -> World:
    """A pool whose plan was accepted by an operator that did not ask engines."""
    world = World(small(), reported=None)
    world.think()
    world.start(workers)
    world.think()
    assert "verified" not in world.pool
    world.reported = NOBODY
    return world


@pytest.mark.parametrize("shares", [[], [1.0], [0.6]])
@pytest.mark.parametrize("workers", [1, 3])
def test_an_upgrade_neither_holds_back_nor_rolls(workers: int, shares: list[float]) -> None:
    world = _from_before(workers)
    template, plan = deepcopy(world.deployment["spec"]["template"]), deepcopy(world.plan)
    for _ in range(3):
        world.think(shares=shares * workers)
        assert world.replicas == 3
        assert world.deployment["spec"]["template"] == template
        assert world.plan == plan
        assert "ceiling" not in world.verified


def test_what_an_older_plan_promised_too_much_is_told() -> None:
    world = _from_before(1)
    world.think(shares=[0.6])
    assert world.condition() == ("False", "HoldsLess")
    assert "limits.concurrency" in world.verified["message"]
    assert world.events.count("EngineHoldsLess") == 1


def test_where_nobody_asks_engines_ready_is_enough() -> None:
    world = World(small(), reported=None)
    world.think()
    world.start()
    world.think()
    assert world.replicas == 3
    assert world.condition() == ("Unknown", "NotVerifiedYet")


def test_workers_of_another_plan_say_nothing_of_this_one() -> None:
    world = one_running()
    world.workers = tuple(w.model_copy(update={"plan_id": "sha256:old"}) for w in world.workers)
    world.think(shares=[0.3])
    assert world.verified["verdict"] == "Awaited"


def test_a_record_that_cannot_be_read_costs_only_itself() -> None:
    world = one_running()
    world.think(shares=[1.0])
    plan = deepcopy(world.plan)
    for broken in ("Verified", {"verdict": 7}, {"verdict": "Verified", "ceiling": {"tokens": "x"}}):
        world.pool["verified"] = broken
        world.think()
        assert world.plan == plan
        assert world.replicas == 3


# ---- calibration ---------------------------------------------------------------------------------


def test_a_verified_worker_teaches_the_next_plan_and_the_held_one_stays() -> None:
    world = one_running()
    world.think(shares=[0.995])
    (measured,) = world.measured
    world.calibration = (measured,)
    plan = deepcopy(world.plan)
    world.think()
    assert world.plan == plan
    world.raw["spec"]["limits"]["concurrency"] = 20
    world.think()
    confidence = {line["owner"]: line["confidence"] for line in world.plan["ledger"]}
    assert confidence["ActivationPeak"] == confidence["CudaGraphs"] == "Measured"


def test_additions_of_the_user_are_part_of_what_was_measured() -> None:
    raw = small()
    raw["spec"]["engines"]["vllm"]["extraArgs"] = ["--enable-auto-tool-choice"]
    world = one_running(raw)
    world.think(shares=[0.995])
    (measured,) = world.measured
    assert measured.key.extras
    plain = World(small())
    plain.calibration = (measured,)
    plain.think()
    assert "Measured" not in {line["confidence"] for line in plain.plan["ledger"]}
    alike = World(raw)
    alike.calibration = (measured,)
    alike.think()
    assert "Measured" in {line["confidence"] for line in alike.plan["ledger"]}


def test_no_cache_is_laid_out_while_no_engine_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of visits see no new figure; laying out the KV cache is the dearest part of a comparison."""
    laid_out: list[str] = []

    def counted(request: PlanRequest, plan: Plan) -> Geometry | None:
        laid_out.append(plan.kv.dtype)
        return geometry_of(request, plan)

    monkeypatch.setattr("plimsoll.api.verified.geometry_of", counted)
    world = World(small())
    world.think()
    world.start()
    world.think()
    assert [] == laid_out
    world.think(shares=(1.0,))
    assert laid_out
