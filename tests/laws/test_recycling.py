"""What holds of recycling whatever happens: searched over clusters, verdicts and histories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import scenes
from growing import HOUR, NOON, Cluster, judged, pod
from plimsoll.api.judged import Watched
from plimsoll.api.recycle_around import Act, ActKind
from plimsoll.api.recycle_step import step
from plimsoll.diagnose.records import VerdictKind
from plimsoll.diagnose.recycle import DAY

KINDS = st.sampled_from(list(VerdictKind))
NAMES = ("a", "b", "c", "d")
UNSEEN = frozenset({VerdictKind.UNKNOWN, VerdictKind.WARMING_UP})


@dataclass(frozen=True)
class Event:
    """Something that happens between two looks."""

    after_seconds: float
    name: str
    kind: VerdictKind | None
    """Its verdict from now on."""
    is_ready: bool
    is_moving: bool
    is_killed: bool
    """Whether the operator dies before it acts, and comes back."""


EVENTS = st.lists(
    st.builds(
        Event,
        after_seconds=st.sampled_from((5.0, 30.0, 700.0, 4000.0, 30_000.0)),
        name=st.sampled_from(NAMES),
        kind=st.none() | KINDS,
        is_ready=st.sampled_from((True, True, True, False)),
        is_moving=st.sampled_from((False, False, False, True)),
        is_killed=st.booleans(),
    ),
    max_size=25,
)


class Life:
    """A cluster in which acts have their effect and evicted workers are replaced."""

    def __init__(self, has_spare: bool, **spec: Any) -> None:
        self.cluster = Cluster(*(pod(name) for name in NAMES), grows=("a",), **spec)
        self.cluster.has_spare = has_spare
        self.evicted: list[tuple[float, str]] = []
        self.made = 0

    def live(self, event: Event) -> None:
        """One look, after something happened."""
        cluster = self.cluster
        cluster.now += event.after_seconds
        cluster.is_moving = event.is_moving
        names = {each.name for each in cluster.pods}
        if event.name in names:
            ready = cluster.now if event.is_ready else None
            facts = next(each for each in cluster.pods if each.name == event.name)
            since = facts.ready_seconds if facts.is_ready and event.is_ready else ready
            cluster.change(event.name, is_ready=event.is_ready, ready_seconds=since)
            if event.kind is not None:
                cluster.kinds[event.name] = event.kind
        for each in cluster.pods:
            cluster.idle(each.name)
        before = cluster.question()
        after = cluster.step()
        assert after == step(before), "the same question has two answers"
        if not event.is_killed:
            for act in after.acts:
                self.act(act)

    def act(self, act: Act) -> None:
        """As the cluster would do it."""
        if act.kind is not ActKind.EVICT:
            self.cluster.change(act.pod, is_in_service=act.kind is ActKind.PUT_BACK)
            return
        self.evicted.append((self.cluster.now, act.uid))
        self.made += 1
        self.cluster.replace(act.pod, f"new-{self.made}", VerdictKind.GROWTH)


@given(events=EVENTS, has_spare=st.booleans(), most=st.integers(0, 3))
def test_budget_and_uid_hold_whatever_happens(
    events: list[Event], has_spare: bool, most: int
) -> None:
    life = Life(has_spare, maxPerDay=most, cooldown="1s")
    for event in events:
        life.live(event)
    uids = [uid for _, uid in life.evicted]
    assert len(uids) == len(set(uids)), "somebody was evicted twice"
    for at, _ in life.evicted:
        within = [other for other, _ in life.evicted if at - DAY < other <= at]
        assert len(within) <= most + 1  # one that was intended a day ago may end today
    assert len(life.evicted) == life.cluster.record.total or life.cluster.record.history


@given(kinds=st.lists(KINDS, min_size=4, max_size=4), has_spare=st.booleans())
def test_at_most_one_leaves_and_only_with_a_reason(
    kinds: list[VerdictKind], has_spare: bool
) -> None:
    cluster = Cluster(*(pod(name) for name in NAMES))
    cluster.has_spare = has_spare
    cluster.kinds = dict(zip(NAMES, kinds, strict=True))
    after = cluster.step()
    assert len(after.acts) <= 1
    for entry in cluster.record.history:
        assert cluster.kinds[entry.pod] in (
            VerdictKind.GROWTH,
            VerdictKind.QUIET_GROWTH,
            VerdictKind.HUNG,
        )


@given(kinds=st.lists(st.sampled_from(sorted(UNSEEN)), min_size=4, max_size=4))
def test_no_data_means_no_recycle(kinds: list[VerdictKind]) -> None:
    cluster = Cluster(*(pod(name) for name in NAMES))
    cluster.kinds = dict(zip(NAMES, kinds, strict=True))
    assert () == cluster.step().acts
    assert () == cluster.record.history
    cluster.kinds = {}
    assert () == cluster.step().acts


@given(age=st.floats(min_value=121, max_value=1e7) | st.floats(min_value=-1e7, max_value=-121))
def test_data_of_another_time_means_no_recycle(age: float) -> None:
    cluster = Cluster(*(pod(name) for name in NAMES), grows=("a",))
    cluster.figures["a"] = {"newest_seconds": NOON - age}
    assert () == cluster.step().acts
    assert () == cluster.record.history


@given(
    ready=st.lists(st.booleans(), min_size=3, max_size=3),
    terminating=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_nobody_leaves_while_a_peer_is_away(ready: list[bool], terminating: list[bool]) -> None:
    cluster = Cluster(*(pod(name) for name in NAMES), grows=("a",))
    for name, is_ready, is_terminating in zip(NAMES[1:], ready, terminating, strict=True):
        cluster.change(name, is_ready=is_ready, is_terminating=is_terminating)
    after = cluster.step()
    if not all(ready) or any(terminating):
        assert () == after.acts
    else:
        assert [ActKind.DRAIN] == [act.kind for act in after.acts]


@given(kinds=st.lists(KINDS, min_size=2, max_size=2), minutes=st.integers(0, 9))
def test_deciding_again_writes_nothing_of_the_users_and_nothing_new(
    kinds: list[VerdictKind], minutes: int
) -> None:
    raw = scenes.example("mixed-fleet", replicas=2, recycling={"mode": "Observe"})
    raw["spec"]["pools"] = [p for p in raw["spec"]["pools"] if p["name"] == "a6000-single"]
    raw, children = scenes.applied(raw, scenes.think(raw))
    workers = tuple(pod(name, pool="a6000-single") for name in NAMES[:2])
    seen = Watched(
        judged=tuple(
            judged(f"uid-{name}", kind) for name, kind in zip(NAMES[:2], kinds, strict=True)
        ),
        operator_started_seconds=NOON - HOUR,
        stale_seconds=3600.0,
    )
    children = scenes.with_ready(children, 2)
    first = scenes.think(raw, children=children, workers=workers, watched=seen)
    raw, children = scenes.applied(raw, first)
    children = scenes.with_ready(children, 2)
    second = scenes.think(raw, children=children, workers=workers, watched=seen)
    raw, children = scenes.applied(raw, second)
    later = scenes.think(
        raw,
        children=scenes.with_ready(children, 2),
        workers=workers,
        watched=seen,
        now=NOON + 60 * minutes,
    )
    assert second.status == later.status
    assert () == later.events
    assert {"Service", "Deployment", "PodDisruptionBudget"} == {m["kind"] for m in later.apply}
