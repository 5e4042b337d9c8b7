"""A worker died: is anything changed, and for whom?"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import scenes
from plimsoll.api.deaths_status import KEPT_DEATHS, DeathStatus, TaughtStatus
from plimsoll.api.deaths_taught import steps_taught
from plimsoll.decide import Desired, Manifest
from plimsoll.facts.worker import ContainerEnd, WorkerFacts
from plimsoll.plan.steps import Steps
from plimsoll.render.labels import PLAN_ANNOTATION

POOL = "a6000-single"
START = scenes.NOON
CAPTURE = (
    "File gpu_worker.py, in compile_or_warm_up_model\ntorch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB. GPU 0 has a total capacity of 47.40 GiB of which 1.21 GiB is free."
)
KILLED: dict[str, Any] = {"exit_code": 137, "reason": "OOMKilled"}


class Scene:
    """One llama.cpp pool of the mixed fleet and one vLLM pool, and what is decided for them."""

    def __init__(self, **spec: Any) -> None:
        self.raw = scenes.example("mixed-fleet", **spec)
        self.children: tuple[Manifest, ...] = ()
        self.now = START
        self.desired = self.decide()

    def decide(self, *workers: WorkerFacts) -> Desired:
        """One reconcile, and its outcome applied."""
        self.now += 60
        self.desired = scenes.think(self.raw, children=self.children, workers=workers, now=self.now)
        self.raw, self.children = scenes.applied(self.raw, self.desired)
        return self.desired

    def deployment(self, pool: str) -> Manifest:
        """The pool's live Deployment."""
        return next(
            child
            for child in self.children
            if child["kind"] == "Deployment"
            and child["metadata"]["labels"]["plimsoll.dev/pool"] == pool
        )

    def args(self, pool: str) -> list[str]:
        """Its engine's arguments."""
        container = self.deployment(pool)["spec"]["template"]["spec"]["containers"][0]
        return list(container["args"])

    def plan_id(self, pool: str) -> str:
        """Which plan it runs."""
        return str(self.deployment(pool)["metadata"]["annotations"][PLAN_ANNOTATION])

    def worker(self, pool: str, number: int = 0, **changes: Any) -> WorkerFacts:
        """A pod with the plan that runs."""
        return scenes.worker(pool, number, **({"plan_id": self.plan_id(pool)} | changes))

    def dead(self, pool: str, number: int = 0, *, at: float = 0.0, **end: Any) -> WorkerFacts:
        """One that has died."""
        told: dict[str, Any] = {
            "exit_code": 1, "reason": "Error", "message": CAPTURE, "was_ready": False, "engine": "vllm",
            "started_seconds": START + at, "finished_seconds": START + at + 30,
        }  # fmt: skip
        return self.worker(pool, number, is_ready=False, end=ContainerEnd(**(told | end)))

    def taught(self, pool: str) -> Manifest:
        """What its status keeps."""
        assert self.desired.status is not None
        found: Manifest = next(
            each for each in self.desired.status["pools"] if each["name"] == pool
        ).get("taught", {})
        return found

    def outcomes(self, pool: str) -> list[str]:
        """Of its deaths, newest first."""
        return [each["outcome"] for each in self.taught(pool).get("deaths", ())]


@pytest.fixture
def scene() -> Scene:
    return Scene()


VLLM, LLAMA = "a6000-tp4", POOL


def test_a_worker_that_never_came_up_is_moved_for_at_its_first_death(scene: Scene) -> None:
    before = scene.args(VLLM)
    desired = scene.decide(scene.dead(VLLM))
    assert ["Stepped"] == scene.outcomes(VLLM)
    assert before != scene.args(VLLM)
    assert ["WorkerDied", "PlanStepped", "PlanAccepted"] == [e.reason for e in desired.events]
    assert scenes.condition(desired, "Stalled") is None


def test_the_same_world_a_second_time_writes_and_tells_nothing(scene: Scene) -> None:
    dead = scene.dead(VLLM)
    first = scene.decide(dead)
    second = scene.decide(dead)
    assert (first.status, ()) == (second.status, second.events)


def test_a_death_of_an_older_plan_does_not_count_against_the_new_one(scene: Scene) -> None:
    old = scene.dead(VLLM)
    scene.decide(old)
    args = scene.args(VLLM)
    dies_again = old.model_copy(
        update={"end": old.end and old.end.model_copy(update={"finished_seconds": START + 999})}
    )
    assert () == scene.decide(dies_again).events
    assert args == scene.args(VLLM)


def test_what_serves_is_left_alone_when_another_cannot_start(scene: Scene) -> None:
    before = scene.args(VLLM)
    desired = scene.decide(scene.worker(VLLM, 0), scene.dead(VLLM, 1))
    assert ["ServesElsewhere"] == scene.outcomes(VLLM)
    assert before == scene.args(VLLM)
    assert "matter of its node or card" in desired.events[0].message


def test_a_plan_that_has_served_is_only_moved_for_at_the_second_death(scene: Scene) -> None:
    scene.decide(scene.worker(VLLM))
    before = scene.args(VLLM)
    scene.decide(scene.dead(VLLM, at=100))
    assert (["Watched"], before) == (scene.outcomes(VLLM), scene.args(VLLM))
    scene.decide(scene.dead(VLLM, at=200))
    assert ["Stepped", "Watched"] == scene.outcomes(VLLM)
    assert before != scene.args(VLLM)


def test_killed_while_serving_counts_twice_within_a_day_and_not_over_more(scene: Scene) -> None:
    served: dict[str, Any] = KILLED | {"was_ready": True, "unready_seconds": 0.0, "message": ""}
    scene.decide(scene.worker(VLLM, 1), scene.dead(VLLM, at=0, **served))
    scene.now = START + 100_000
    scene.decide(scene.worker(VLLM, 1), scene.dead(VLLM, at=100_000, **served))
    assert ["Watched", "Watched"] == scene.outcomes(VLLM)
    scene.decide(scene.worker(VLLM, 1), scene.dead(VLLM, 2, at=100_010, **served))
    assert ["Stepped", "Watched", "Watched"] == scene.outcomes(VLLM)
    assert "MoreHostMemory" == scene.taught(VLLM)["deaths"][0]["move"]


def test_after_four_steps_a_person_decides_and_another_spec_begins_anew(scene: Scene) -> None:
    seen = {tuple(scene.args(VLLM))}
    for number in range(4):
        scene.decide(scene.dead(VLLM, number, at=100 * number))
        seen.add(tuple(scene.args(VLLM)))
    assert 5 == len(seen)
    desired = scene.decide(scene.dead(VLLM, 4, at=500))
    stalled = scenes.condition(desired, "Stalled")
    assert stalled is not None
    assert "OutOfSteps" == stalled["reason"]
    assert (
        "Tried: MoreReserve, then MoreReserve, then FewerGraphs, then NoGraphs"
        in stalled["message"]
    )
    assert scenes.condition(desired, "Reconciling") is None
    scene.raw["spec"]["limits"] = {"maxModelLen": 8192}
    fresh = scene.decide()
    assert scenes.condition(fresh, "Stalled") is None
    assert "--enforce-eager" not in scene.args(VLLM)
    assert [] == scene.outcomes(VLLM)


def test_a_worker_that_serves_at_last_ends_the_waiting(scene: Scene) -> None:
    flag = "vllm serve: error: unrecognized arguments: --no-such-flag"
    desired = scene.decide(scene.dead(VLLM, exit_code=2, message=flag))
    stalled = scenes.condition(desired, "Stalled")
    assert stalled is not None
    assert ("BadFlag", ["NothingToChange"]) == (stalled["reason"], scene.outcomes(VLLM))
    assert scenes.condition(scene.decide(scene.worker(VLLM)), "Stalled") is None


def test_an_unknown_death_is_told_and_changes_nothing(scene: Scene) -> None:
    before = scene.args(VLLM)
    desired = scene.decide(scene.dead(VLLM, message="KeyError: 'x'"))
    assert (["NothingToChange"], before) == (scene.outcomes(VLLM), scene.args(VLLM))
    assert ["WorkerDied"] == [event.reason for event in desired.events]
    assert scenes.condition(desired, "Stalled") is None


def test_a_value_that_the_user_pinned_is_not_changed() -> None:
    raw = scenes.example("mixed-fleet")
    pools = deepcopy(raw["spec"]["pools"])
    next(pool for pool in pools if pool["name"] == VLLM)["gpuMemoryUtilization"] = 0.94
    scene = Scene(pools=pools)
    scene.decide(scene.dead(VLLM))
    death = scene.taught(VLLM)["deaths"][0]
    assert ("Stepped", "FewerGraphs") == (death["outcome"], death["move"])
    assert "0.940" == scene.args(VLLM)[scene.args(VLLM).index("--gpu-memory-utilization") + 1]
    scene.decide(scene.dead(VLLM, 1, at=100))
    assert "NoGraphs" == scene.taught(VLLM)["deaths"][0]["move"]
    desired = scene.decide(scene.dead(VLLM, 2, at=200))
    stalled = scenes.condition(desired, "Stalled")
    assert stalled is not None
    assert "MoveHeldBack" == stalled["reason"]
    assert "gpuMemoryUtilization, which you pinned" in stalled["message"]


def test_a_card_that_is_held_for_a_moment_is_waited_for_and_then_planned_around(
    scene: Scene,
) -> None:
    held = (
        "ValueError: Free memory on device cuda:0 (40.00/47.40 GiB) on startup is less than desired GPU memory "
        "utilization (0.95, 45.03 GiB). Decrease GPU memory utilization"
    )
    scene.decide(scene.dead(VLLM, message=held))
    assert ["Watched"] == scene.outcomes(VLLM)
    scene.decide(scene.dead(VLLM, at=100, message=held))
    assert ["Stepped", "Watched"] == scene.outcomes(VLLM)
    args = scene.args(VLLM)
    share = float(args[args.index("--gpu-memory-utilization") + 1])
    assert 0.80 < share <= 40 / 47.4


def test_pods_without_a_plan_of_ours_teach_nothing(scene: Scene) -> None:
    dead = scene.dead(VLLM).model_copy(update={"plan_id": ""})
    assert () == scene.decide(dead).events
    assert {} == scene.taught(VLLM)


def test_what_ended_days_ago_is_no_news(scene: Scene) -> None:
    scene.now = START + 200_000
    assert () == scene.decide(scene.dead(VLLM)).events
    assert [] == scene.outcomes(VLLM)


def test_a_worker_that_is_being_deleted_did_not_die(scene: Scene) -> None:
    assert () == scene.decide(scene.dead(VLLM).model_copy(update={"is_terminating": True})).events


def test_many_dead_workers_are_kept_to_the_lists_bound_and_written_once(scene: Scene) -> None:
    dead = [scene.dead(VLLM, number, at=number, message="KeyError: 'x'") for number in range(40)]
    first = scene.decide(*dead)
    assert KEPT_DEATHS == len(scene.outcomes(VLLM))
    second = scene.decide(*dead)
    assert (first.status, ()) == (second.status, second.events)


def test_steps_are_never_dropped_from_the_list() -> None:
    taught = TaughtStatus(question="q").with_death(
        DeathStatus(pod="p", kind="K", move="MoreReserve", settings="reserveBytes=5 unknown=1")
    )
    for number in range(40):
        taught = taught.with_death(DeathStatus(pod=f"p{number}", kind="K"))
    assert KEPT_DEATHS == len(taught.deaths)
    assert Steps(reserve_bytes=5) == steps_taught(taught, "q")
    assert Steps() == steps_taught(taught, "another")
    assert Steps() == steps_taught(None, "q")
