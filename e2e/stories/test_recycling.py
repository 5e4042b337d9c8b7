"""Who is recycled, who is left alone, and how often does the API server hear of an eviction?

All workers of the stories grow, or do not, at the same time under one operator; an hour lasts 30 s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from controlplane import fleet
from controlplane.cluster import Manifest
from installation import USER, Installation
from objects import small
from patience import Patience, eventually
from stand_ins.chaos_proxy import ChaosProxy, Moment
from stand_ins.engines import Behaviour, FakeEngines, age_seconds
from stand_ins.kubelet import FakeKubelets
from world import World

pytestmark = pytest.mark.skipif(
    FakeEngines.why_not() is not None, reason=str(FakeEngines.why_not())
)

HOUR = 30.0
GIB = 1 << 30
BASE = 4 * GIB
LEAK_PER_HOUR = 4 * GIB
SLOW_LEAK_PER_HOUR = 1 * GIB
"""So slow that its latency is seen to rise long before its limit comes near."""
DEPLOYMENT = "plimsoll.dev/deployment"
COMPONENT = "app.kubernetes.io/component"
NODE = "h100-recycling"
SHORT: dict[str, Any] = {
    "PLIMSOLL_HOUR_SECONDS": str(HOUR),
    "PLIMSOLL_WATCH_SECONDS": "0.5",
    "PLIMSOLL_STALE_SECONDS": "4",
    "PLIMSOLL_FLOOR_BIN_SECONDS": str(HOUR / 6),
    "PLIMSOLL_FLOOR_FLUSH_SECONDS": "3",
    "PLIMSOLL_SETTLE_SECONDS": "5",
    # much is measured at once here, and losing the Lease is no part of these stories
    "PLIMSOLL_LEASE_SECONDS": "15",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "10",
    "PLIMSOLL_RETRY_SECONDS": "2",
}
QUICK = {"cooldown": "1s", "drainTimeout": "15s", "surge": "Never", "maxPerDay": 20}
WORKERS = {
    "grows": 2, "settles": 1, "busy": 2, "blocked": 2, "alone": 1, "spare": 1, "all": 2,
    "useless": 3, "silent": 2, "watched": 2, "hung": 2, "stuck": 2,
}  # fmt: skip
RECYCLING: dict[str, dict[str, Any]] = {
    "spare": QUICK | {"surge": "WhenSpare"},
    "watched": QUICK | {"mode": "Observe"},
    "stuck": QUICK | {"recycleHung": False},
}
HUNG = ("hung", "stuck")
"""One worker of each takes requests and makes no token."""
LEAKING = ("grows", "blocked", "alone", "spare", "all", "useless", "silent", "watched")


@dataclass
class Leaks:
    """Which pods leak, and since when; and which hang."""

    since: dict[str, float] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)

    def holds(self, pod: Mapping[str, Any]) -> int:
        """Resident bytes of a pod."""
        metadata = pod["metadata"]
        name, story = metadata["name"], metadata["labels"].get(DEPLOYMENT, "")
        if story in ("all", "useless") and self.since:  # whoever comes later leaks as well
            late = story == "all" or age_seconds(pod) < time.time() - min(self.since.values()) - 5
            if late:
                self.since.setdefault(name, time.time())
        if story == "settles":
            return BASE + int(LEAK_PER_HOUR * min(1.0, age_seconds(pod) / HOUR))
        if name not in self.since:
            return BASE
        rate = SLOW_LEAK_PER_HOUR if story == "grows" else LEAK_PER_HOUR
        return BASE + int(rate * (time.time() - self.since[name]) / HOUR)

    def behaves(self, pod: Mapping[str, Any]) -> Behaviour | None:
        """How its engine does."""
        metadata = pod["metadata"]
        if metadata["labels"].get(COMPONENT) == "worker-draining":
            return Behaviour(running=0, requests_per_second=0)
        if metadata["name"] in self.hung:
            return Behaviour(running=8, waiting=6, requests_per_second=0)
        if metadata["labels"].get(DEPLOYMENT) == "busy":
            return Behaviour(
                running=64, waiting=40, ttft_seconds=4.0, kv_used=0.99, preemptions_per_second=5
            )
        leaks = metadata["name"] in self.since
        late = leaks and time.time() - self.since[metadata["name"]] > HOUR
        return Behaviour(ttft_seconds=0.8 if late else 0.2)


class Trial:
    """The stories' workers, and what became of them."""

    def __init__(self, world: World, kubelets: FakeKubelets, leaks: Leaks) -> None:
        self.world, self.kubelets, self.leaks = world, kubelets, leaks

    def apply(self, name: str, workers: int, **recycling: Any) -> None:
        """One InferenceDeployment with its workers ready."""
        raw = small(self.world, name=name, workers=workers, recycling=recycling or QUICK)
        if name == "silent":
            raw["spec"]["pools"][0] = {
                "name": "a6000",
                "engine": "vllm",
                "gpu": {"product": fleet.A6000.product, "perWorker": 1},
            }
        self.world.apply(raw)

    def recycling(self, name: str) -> Manifest:
        """What its status says of recycling."""
        found: Manifest = self.world.object(name)["status"].get("recycling") or {}
        return found

    def verdicts(self, name: str) -> dict[str, str]:
        """Verdict by pod."""
        workers = self.world.object(name)["status"].get("workers") or ()
        return {each["pod"]: each["verdict"] for each in workers}

    def resident(self, name: str) -> list[int]:
        """What each of its workers holds, as far as it is told."""
        workers = self.world.object(name)["status"].get("workers") or ()
        return [each.get("residentBytes", 0) for each in workers]

    def holds(self, name: str) -> set[str]:
        """Why its workers are left alone."""
        workers = self.world.object(name)["status"].get("workers") or ()
        return {each.get("hold", "") for each in workers}

    def evictions(self, name: str, *, only_granted: bool = False) -> list[str]:
        """Pods of it for which an eviction was asked."""
        return [
            request.use.name
            for request in self.world.installed.log.requests(USER, self.world.started)
            if request.use.resource == "pods/eviction"
            and request.use.verb == "create"
            and request.use.name.startswith(f"{name}-")
            and (request.code < 300 or not only_granted)
        ]

    def deleted(self) -> list[str]:
        """Pods that the operator deleted: there must be none."""
        return [
            request.use.name
            for request in self.world.quiet_writes()
            if request.use.resource == "pods" and request.use.verb == "delete"
        ]

    def await_phase(self, name: str, *phases: str, within: float) -> Manifest:
        """Wait until its newest recycle is in one of these phases."""

        def there() -> Manifest | None:
            history = self.recycling(name).get("history") or ()
            if not history or history[0]["phase"] not in phases:
                raise LookupError(
                    f"{self.recycling(name)} {self.verdicts(name)} {self.holds(name)}"
                )
            entry: Manifest = history[0]
            return entry

        found = eventually(there, within=within, says=f"{name} is {' or '.join(phases)}")
        assert found is not None
        return found

    def await_hold(self, name: str, reason: str, within: float = Patience.VERDICT_REACHED) -> None:
        """Wait until a worker of it is left alone for this reason."""

        def there() -> bool:
            if reason not in self.holds(name):
                raise LookupError(f"{self.holds(name)} {self.verdicts(name)}")
            return True

        eventually(there, within=within, says=f"a worker of {name} is held: {reason}")

    def events(self, name: str) -> set[str]:
        """Reasons of the events about it."""
        return {
            event["reason"]
            for event in self.world.items(":events")
            if event["involvedObject"]["name"] == name
        }


@pytest.fixture(scope="module")
def trial(plimsoll: Installation) -> Iterator[Trial]:
    """Everyone's workers ready and beginning to leak, under one operator."""
    plimsoll.stop()
    world, leaks = World(plimsoll, "recycling"), Leaks()
    world.cluster.add_nodes(fleet.whole_cards(NODE, fleet.H100, 32, cpu="192", memory="2048Gi"))
    kubelets = FakeKubelets(world.cluster, curve=leaks.holds, has_fine_stamps=True)
    with kubelets, FakeEngines(world.cluster, leaks.behaves):
        plimsoll.start(**SHORT)
        made = Trial(world, kubelets, leaks)
        for name, workers in WORKERS.items():
            made.apply(name, workers, **RECYCLING.get(name, {}))
        world.apply(second_budget(world, "blocked"))
        for name, workers in WORKERS.items():
            world.await_ready(name, workers)
        begin = time.time()
        for name in LEAKING:
            pods = sorted(pod["metadata"]["name"] for pod in world.pods(name))
            leaks.since |= dict.fromkeys(pods if name == "all" else pods[:1], begin)
        for name in HUNG:
            leaks.hung.add(min(pod["metadata"]["name"] for pod in world.pods(name)))
        yield made
        plimsoll.stop()
        world.leave()
        world.cluster.kubectl("delete", "node", NODE)
    denied = plimsoll.log.denied(USER, since_seconds=world.started)
    assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def second_budget(world: World, name: str) -> Manifest:
    """A budget of the user's own that allows no disruption."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"{name}-of-the-user", "namespace": world.namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {DEPLOYMENT: name}}},
    }


def endpoints(world: World, name: str) -> set[str]:
    """Pods that the Service of this name leads to."""
    slices = world.items("discovery.k8s.io/v1:endpointslices", f"kubernetes.io/service-name={name}")
    return {
        endpoint["targetRef"]["name"]
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if endpoint["conditions"].get("ready")
    }


def test_recycling_does_nothing_where_a_kubelet_is_silent(trial: Trial) -> None:
    """First in this file: the workers' memory is seen to grow, and then no longer."""
    eventually(
        lambda: max(trial.resident("silent")) > BASE + LEAK_PER_HOUR // 2,
        within=Patience.VERDICT_REACHED,
        says="one is seen to grow",
    )
    for node in ("a6000-0", "a6000-1", "a6000-2"):
        trial.kubelets.fail(node, status=503)
    pods = [pod["metadata"]["name"] for pod in trial.world.pods("silent")]
    eventually(
        lambda: {"Unknown"} == set(trial.verdicts("silent").values()),
        within=Patience.CONDITION_SEEN,
        says="nothing is known of them",
    )
    assert "Unknown" == trial.world.condition("silent", "MemoryStable")["status"]
    assert pods == [pod["metadata"]["name"] for pod in trial.world.pods("silent")]


def test_recycling_a_growing_worker_drains_it_and_evicts_it_once(trial: Trial) -> None:
    entry = trial.await_phase("grows", "Draining", "Evicting", within=Patience.VERDICT_REACHED)
    victim = entry["pod"]
    assert "Growth" == entry["reason"]
    assert victim in trial.leaks.since
    assert "False" == trial.world.condition("grows", "MemoryStable")["status"]
    eventually(
        lambda: victim not in endpoints(trial.world, "grows"),
        within=Patience.CONDITION_SEEN,
        says="the Service leads to it no longer",
    )
    trial.await_phase("grows", "Done", within=Patience.RECYCLE_DONE)
    assert [victim] == trial.evictions("grows")
    assert 1 == trial.recycling("grows")["total"]
    assert {"RecycleBegun", "WorkerRecycled"} <= trial.events("grows")
    trial.world.await_condition(
        "grows", "MemoryStable", "True", reason="Steady", within=Patience.VERDICT_REACHED
    )


def test_recycling_leaves_a_warm_up_that_ends_alone(trial: Trial) -> None:
    trial.world.await_condition(
        "settles", "MemoryStable", "True", reason="Steady", within=Patience.VERDICT_REACHED
    )
    assert [] == trial.evictions("settles")


def test_recycling_leaves_the_overloaded_alone(trial: Trial) -> None:
    trial.world.await_condition(
        "busy", "MemoryStable", "True", reason="Pressure", within=Patience.VERDICT_REACHED
    )
    assert [] == trial.evictions("busy")
    assert [] == (trial.recycling("busy").get("history") or [])


def test_recycling_replaces_a_worker_that_takes_requests_and_makes_no_token(trial: Trial) -> None:
    entry = trial.await_phase("hung", "Replacing", "Done", within=Patience.VERDICT_REACHED)
    assert "Hung" == entry["reason"]
    assert entry["pod"] in trial.leaks.hung
    assert [entry["pod"]] == trial.evictions("hung")


def test_recycling_leaves_one_that_hangs_where_that_is_switched_off(trial: Trial) -> None:
    trial.await_hold("stuck", "HungIsLeft")
    assert [] == trial.evictions("stuck")


def test_recycling_obeys_a_budget_that_allows_none(trial: Trial) -> None:
    trial.await_hold("blocked", "RecycleBlocked")
    assert [] == trial.evictions("blocked", only_granted=True)
    assert [] == trial.deleted()
    assert "RecycleBlocked" in trial.events("blocked")
    pods = {pod["metadata"]["name"] for pod in trial.world.pods("blocked")}
    eventually(
        lambda: pods == endpoints(trial.world, "blocked"),
        within=Patience.CONDITION_SEEN,
        says="both serve",
    )


def test_recycling_leaves_the_only_replica_where_none_can_start_first(trial: Trial) -> None:
    trial.await_hold("alone", "LastReplica")
    assert [] == trial.evictions("alone")


def test_recycling_only_tells_where_it_may_only_tell(trial: Trial) -> None:
    trial.await_hold("watched", "Observing")
    assert [] == trial.evictions("watched")


def test_recycling_starts_the_successor_first_where_a_card_is_free(trial: Trial) -> None:
    trial.await_phase("spare", "Replacing", "Done", within=Patience.VERDICT_REACHED)
    assert 1 == len(trial.evictions("spare"))
    trial.world.await_ready("spare", 1)
    lowest = [
        endpoint
        for endpoint in endpoints(trial.world, "spare")
        if endpoint not in trial.leaks.since
    ]
    assert 1 == len(lowest)


def test_recycling_stops_when_all_rise_together(trial: Trial) -> None:
    trial.await_phase("all", "Replacing", "Done", within=Patience.VERDICT_REACHED)
    trial.await_hold("all", "CommonCause", within=Patience.TWO_RECYCLES)
    assert 1 == len(trial.evictions("all"))
    stalled = trial.world.condition("all", "Stalled")
    assert ("True", "CommonCause") == (stalled["status"], stalled["reason"])
    assert "CommonCause" in trial.events("all")


def test_recycling_stops_when_two_did_not_help(trial: Trial) -> None:
    trial.await_hold("useless", "Stalled", within=Patience.TWO_RECYCLES)
    assert 2 == len(trial.evictions("useless"))
    history = trial.recycling("useless")["history"]
    assert [False, False] == [entry["helped"] for entry in history]
    assert "CommonCause" == trial.world.condition("useless", "Stalled")["reason"]


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
def test_recycling_goes_on_after_the_operator_was_killed(trial: Trial, moment: Moment) -> None:
    world, name = trial.world, f"killed-{moment.value}"
    world.installed.stop()
    with ChaosProxy.to(world.cluster) as wire:
        kubeconfig = wire.kubeconfig(world.installed.kubeconfig)
        operator = world.installed.start(kubeconfig=kubeconfig, **SHORT)
        trial.apply(name, 2)
        world.await_ready(name, 2)
        victim = min(pod["metadata"]["name"] for pod in world.pods(name))
        trial.leaks.since[victim] = time.time()
        wire.break_on(f"/{victim}/eviction", moment, operator.kill)
        eventually(
            lambda: not operator.process.is_running,
            within=Patience.VERDICT_REACHED,
            says=f"the operator was killed {moment.value} the eviction",
        )
        world.installed.start(kubeconfig=kubeconfig, **SHORT)
        trial.await_phase(name, "Replacing", "Done", within=Patience.RECYCLE_DONE)
        world.installed.stop()
    assert [victim] == trial.evictions(name)
    assert 1 == trial.recycling(name)["total"]


def test_recycling_never_touched_the_workers_of_a_silent_kubelet(trial: Trial) -> None:
    """Last: minutes have passed in which the other workers were recycled."""
    assert [] == trial.evictions("silent")
