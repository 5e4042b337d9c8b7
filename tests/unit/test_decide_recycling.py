"""What does one reconcile make of workers that grow?"""

from __future__ import annotations

from typing import Any

import growing
import scenes
from growing import HOUR, NOON, judged
from plimsoll.api.judged import Watched
from plimsoll.api.recycle_around import ActKind
from plimsoll.decide import Desired, Manifest, after_block
from plimsoll.diagnose.records import VerdictKind
from plimsoll.facts.worker import WorkerFacts
from plimsoll.units import GIB

POOL = "a6000-single"


def chat(**recycling: Any) -> tuple[Manifest, tuple[Manifest, ...]]:
    """Two single-card workers, as they stand after the rollout."""
    raw = scenes.example("mixed-fleet", replicas=2, recycling=recycling)
    raw["spec"]["pools"] = [pool for pool in raw["spec"]["pools"] if pool["name"] == POOL]
    raw, children = scenes.applied(raw, scenes.think(raw))
    raw, children = scenes.applied(raw, scenes.think(raw, children=scenes.with_ready(children, 1)))
    return raw, scenes.with_ready(children, 2)


def pods(*names: str) -> tuple[WorkerFacts, ...]:
    return tuple(growing.pod(name, pool=POOL) for name in names)


def watched(**kinds: VerdictKind) -> Watched:
    return Watched(
        judged=tuple(judged(f"uid-{name}", kind) for name, kind in kinds.items()),
        operator_started_seconds=NOON - HOUR,
    )


ONE_GROWS = watched(a=VerdictKind.GROWTH, b=VerdictKind.STEADY)


def reconcile(raw: Manifest, children: tuple[Manifest, ...], seen: Watched, **more: Any) -> Desired:
    known: dict[str, Any] = {"workers": pods("a", "b"), "inventory": FULL}
    return scenes.think(raw, children=children, watched=seen, **(known | more))


FULL = scenes.MIXED.model_copy(
    update={"nodes": tuple(node.model_copy(update={"free": 0}) for node in scenes.MIXED.nodes)}
)


def test_a_growing_worker_is_told_recorded_and_drained() -> None:
    raw, children = chat()
    desired = reconcile(raw, children, ONE_GROWS)
    assert [(ActKind.DRAIN, "a")] == [(act.kind, act.pod) for act in desired.acts]
    assert desired.status is not None
    assert "Growth 1/2" == desired.status["trend"]
    assert ["a", "b"] == [each["pod"] for each in desired.status["workers"]]
    stable = scenes.condition(desired, "MemoryStable")
    assert stable is not None
    assert ("False", "Growth") == (stable["status"], stable["reason"])
    assert ["RecycleBegun"] == [event.reason for event in desired.events]
    assert "Draining" == desired.status["recycling"]["history"][0]["phase"]


def test_a_second_reconcile_writes_the_same_status_even_minutes_later() -> None:
    raw, children = chat(mode="Observe")
    first = reconcile(raw, children, ONE_GROWS)
    raw, _ = scenes.applied(raw, first)
    later = ONE_GROWS._replace(stale_seconds=HOUR)
    second = reconcile(raw, children, later, now=NOON + 60)
    assert first.status == second.status
    assert ((), ()) == (second.acts, second.events)
    assert first.status == reconcile(raw, children, later, now=NOON + 601).status


def test_figures_that_moved_are_told_after_ten_minutes_and_not_before() -> None:
    raw, children = chat(mode="Observe")
    first = reconcile(raw, children, ONE_GROWS)
    raw, _ = scenes.applied(raw, first)
    moved = Watched(
        judged=(
            judged("uid-a", verdict=growing.verdict(numbers={"floor_bytes": 13 * GIB})),
            judged("uid-b", VerdictKind.STEADY),
        ),
        operator_started_seconds=NOON - HOUR,
        stale_seconds=HOUR,
    )
    assert first.status == reconcile(raw, children, moved, now=NOON + 599).status
    told = reconcile(raw, children, moved, now=NOON + 601).status
    assert told is not None
    assert (13 * GIB, "2026-11-30T12:10:01Z") == (
        told["workers"][0]["residentBytes"],
        told["diagnosedAt"],
    )


def test_an_operator_that_has_just_started_says_nothing_else_of_those_it_has_not_seen() -> None:
    raw, children = chat(mode="Observe")
    first = reconcile(raw, children, ONE_GROWS)
    raw, _ = scenes.applied(raw, first)
    anew = Watched(operator_started_seconds=NOON + 3600)
    for seconds in (1, 600):
        desired = reconcile(raw, children, anew, now=NOON + 3600 + seconds)
        assert (first.status, (), ()) == (desired.status, desired.acts, desired.events)
    late = reconcile(raw, children, anew, now=NOON + 3600 + 901)
    assert late.status is not None
    assert {"Unknown"} == {each["verdict"] for each in late.status["workers"]}


def test_what_it_has_seen_since_its_start_is_told_at_once() -> None:
    raw, children = chat(mode="Observe")
    raw, _ = scenes.applied(raw, reconcile(raw, children, ONE_GROWS))
    seen = watched(b=VerdictKind.GROWTH)._replace(operator_started_seconds=NOON + 3600)
    told = reconcile(raw, children, seen, now=NOON + 3660).status
    assert told is not None
    assert {("a", "Growth"), ("b", "Growth")} == {(w["pod"], w["verdict"]) for w in told["workers"]}


def test_all_steady_is_stable() -> None:
    raw, children = chat()
    desired = reconcile(raw, children, watched(a=VerdictKind.STEADY, b=VerdictKind.STEADY))
    stable = scenes.condition(desired, "MemoryStable")
    assert stable is not None
    assert ("True", "Steady") == (stable["status"], stable["reason"])
    assert desired.status is not None
    assert "Steady" == desired.status["trend"]
    assert () == desired.acts


def test_pressure_is_told_with_its_advice_and_nobody_is_recycled() -> None:
    raw, children = chat()
    desired = reconcile(raw, children, watched(a=VerdictKind.PRESSURE, b=VerdictKind.STEADY))
    stable = scenes.condition(desired, "MemoryStable")
    assert stable is not None
    assert ("True", "Pressure") == (stable["status"], stable["reason"])
    assert () == desired.acts


def test_without_data_it_is_unknown_and_nobody_is_recycled() -> None:
    raw, children = chat()
    desired = reconcile(raw, children, Watched(operator_started_seconds=NOON - HOUR))
    stable = scenes.condition(desired, "MemoryStable")
    assert stable is not None
    assert ("Unknown", "NoSeries") == (stable["status"], stable["reason"])
    assert () == desired.acts


def test_a_free_card_is_used_before_the_worker_leaves() -> None:
    raw, children = chat()
    desired = reconcile(raw, children, ONE_GROWS, inventory=scenes.MIXED)
    assert () == desired.acts
    assert 3 == scenes.deployments(desired)[POOL]["spec"]["replicas"]
    raw, children = scenes.applied(raw, desired)
    again = reconcile(raw, children, ONE_GROWS, inventory=scenes.MIXED)
    assert 3 == scenes.deployments(again)[POOL]["spec"]["replicas"]


def test_the_pods_template_and_the_service_are_as_without_recycling() -> None:
    raw, children = chat()
    with_it = scenes.deployments(reconcile(raw, children, ONE_GROWS))[POOL]
    without = scenes.deployments(scenes.think(raw, FULL, children=children, workers=pods("a", "b")))
    assert without[POOL] == with_it


def test_a_worker_on_a_cordoned_node_is_left_to_it() -> None:
    raw, children = chat()
    observed_on = {"leaving_nodes": frozenset({"h100-0"})}
    desired = reconcile(raw, children, ONE_GROWS, **observed_on)
    assert desired.status is not None
    assert "NodeIsDraining" == desired.status["recycling"]["hold"]["reason"]


def test_when_recycling_does_not_help_it_is_stalled_and_told() -> None:
    raw, children = chat()
    entry = {"pool": POOL, "reason": "Growth", "phase": "Done", "helped": False}
    raw["status"]["recycling"] = {
        "total": 2,
        "history": [
            entry | {"pod": "x", "uid": "uid-x", "at": "2026-11-28T12:00:00Z"},
            entry | {"pod": "y", "uid": "uid-y", "at": "2026-11-27T12:00:00Z"},
        ],
    }
    desired = reconcile(raw, children, ONE_GROWS)
    stalled = scenes.condition(desired, "Stalled")
    assert stalled is not None
    assert "CommonCause" == stalled["reason"]
    assert ["CommonCause"] == [event.reason for event in desired.events]
    raw, _ = scenes.applied(raw, desired)
    assert () == reconcile(raw, children, ONE_GROWS).events


def test_an_eviction_that_is_not_allowed_is_recorded_and_told() -> None:
    raw, children = chat()
    desired = reconcile(raw, children, ONE_GROWS)
    assert desired.status is not None
    status, event = after_block(desired.status, "uid-a", "The budget says no.", now_seconds=NOON)
    assert ("Warning", "RecycleBlocked") == (event.type, event.reason)
    raw["status"] = status
    blocked = reconcile(raw, children, ONE_GROWS)
    assert () == blocked.acts
    assert blocked.status is not None
    assert "RecycleBlocked" == blocked.status["recycling"]["hold"]["reason"]


def test_an_autoscaler_is_known_by_the_scale_subresource() -> None:
    raw, children = chat()
    raw["metadata"]["managedFields"] = [
        {"manager": "kube-controller-manager", "subresource": "scale"}
    ]
    desired = reconcile(raw, children, ONE_GROWS, inventory=scenes.MIXED)
    assert [ActKind.DRAIN] == [act.kind for act in desired.acts]


def test_a_spec_that_cannot_be_read_keeps_the_record_and_does_nothing() -> None:
    raw, children = chat()
    raw, children = scenes.applied(raw, reconcile(raw, children, ONE_GROWS))
    raw["spec"]["limits"] = {"maxModelLen": "long"}
    desired = reconcile(raw, scenes.with_ready(children, 2), ONE_GROWS)
    assert () == desired.acts
    assert desired.status is not None
    assert raw["status"]["recycling"] == desired.status["recycling"]
