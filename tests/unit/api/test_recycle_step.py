"""From a verdict to an eviction, phase by phase, and every way in which it stops."""

from __future__ import annotations

from typing import Any

import pytest

from growing import HOUR, NOON, Cluster, phases, pod, reasons, verdict
from plimsoll.api.recycle_around import Act, ActKind
from plimsoll.api.recycle_phases import BLOCKED_SECONDS, REPLACE_SECONDS, SURGE_SECONDS
from plimsoll.api.recycle_step import after_block
from plimsoll.api.recycling import text_of
from plimsoll.diagnose.records import VerdictKind
from plimsoll.units import GIB


def three(grows: str = "a", **spec: Any) -> Cluster:
    return Cluster(pod("a"), pod("b"), pod("c"), grows=tuple(grows), **spec)


def act(kind: ActKind, name: str = "a") -> Act:
    return Act(kind=kind, pod=name, uid=f"uid-{name}")


def test_a_growing_worker_is_drained_first_and_the_intent_is_on_record() -> None:
    cluster = three()
    after = cluster.step()
    assert (act(ActKind.DRAIN),) == after.acts
    assert ["Draining"] == phases(cluster.record)
    entry = cluster.record.history[0]
    assert ("a", "uid-a", "Growth", text_of(NOON)) == (
        entry.pod, entry.uid, entry.reason, entry.at,
    )  # fmt: skip
    assert ["RecycleBegun"] == [told.reason for told in after.told]
    assert 5 == cluster.record.budget_left


def test_the_same_question_has_the_same_answer() -> None:
    cluster = three()
    first = cluster.step()
    second = cluster.step()
    assert first.recycling.history == second.recycling.history
    assert first.acts == second.acts
    assert () == second.told


def test_it_is_evicted_when_nothing_is_in_flight() -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 5
    cluster.idle("a")
    assert () == cluster.step().acts  # proxies may still send it requests
    cluster.now += 20
    assert () == cluster.step().acts  # what is known is from before
    cluster.idle("a")
    assert (act(ActKind.EVICT),) == cluster.step().acts
    assert ["Evicting"] == phases(cluster.record)


def test_requests_that_do_not_end_have_their_time_and_no_more() -> None:
    cluster = three(drainTimeout="5m")
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 299
    cluster.figures["a"] = {"in_flight": 3.0, "in_flight_seconds": cluster.now}
    assert () == cluster.step().acts
    cluster.now += 1
    assert (act(ActKind.EVICT),) == cluster.step().acts


def test_where_gates_stand_they_say_when_it_is_drained() -> None:
    cluster = three(drainTimeout="5m")
    cluster.around["drained_at_gates"] = frozenset()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 60
    cluster.idle("a")  # its engine rests for a moment; requests may be on their way
    assert () == cluster.step().acts
    cluster.around["drained_at_gates"] = frozenset({"b"})
    assert () == cluster.step().acts
    cluster.around["drained_at_gates"] = frozenset({"a"})
    assert (act(ActKind.EVICT),) == cluster.step().acts


def test_the_word_of_gates_needs_no_other_proxies_time() -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 1
    cluster.around["drained_at_gates"] = frozenset({"a"})
    assert (act(ActKind.EVICT),) == cluster.step().acts


def test_a_gate_that_is_silent_holds_an_eviction_up_no_longer_than_a_drain() -> None:
    cluster = three(drainTimeout="5m")
    cluster.around["drained_at_gates"] = frozenset()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 299
    assert () == cluster.step().acts
    cluster.now += 1
    assert (act(ActKind.EVICT),) == cluster.step().acts


def test_an_eviction_that_happened_is_not_asked_for_again() -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 600
    assert (act(ActKind.EVICT),) == cluster.step().acts
    assert (act(ActKind.EVICT),) == cluster.step().acts  # killed before it: the pod is as it was
    cluster.change("a", is_terminating=True)
    after = cluster.step()
    assert () == after.acts
    assert ["WorkerRecycled"] == [told.reason for told in after.told]
    assert 1 == cluster.record.total
    assert () == cluster.step().told


def test_nobody_else_is_recycled_until_the_successor_is_warm() -> None:
    cluster = three("ab")
    cluster.kinds["c"] = VerdictKind.STEADY
    cluster.wanted = 4
    cluster.pods.append(pod("d"))
    cluster.kinds["d"] = VerdictKind.STEADY
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 600
    cluster.step()
    cluster.replace("a", "e", VerdictKind.WARMING_UP)
    after = cluster.step()
    assert ["Replacing"] == phases(cluster.record)
    assert "RecycleInFlight" == reasons(after.holds)["b"]
    cluster.now += HOUR
    cluster.kinds["e"] = VerdictKind.STEADY
    after = cluster.step()
    assert ["Draining", "Done"] == phases(cluster.record)
    assert "b" == cluster.record.history[0].pod
    assert "uid-e" == cluster.record.history[1].successor_uid


def test_a_successor_that_never_comes_is_not_waited_for_for_ever() -> None:
    cluster = three()
    cluster.step()
    cluster.now += 600
    cluster.step()
    cluster.pods = cluster.pods[1:]
    cluster.step()
    cluster.now += REPLACE_SECONDS + 1
    cluster.step()
    assert ["GivenUp"] == phases(cluster.record)


# --- surge ----------------------------------------------------------------------------------------


def test_where_a_card_is_free_the_successor_starts_first() -> None:
    cluster = Cluster(pod("a"), grows=("a",))
    cluster.has_spare = True
    after = cluster.step()
    assert () == after.acts
    assert "h100" == after.surge_pool
    assert ["Surging"] == phases(cluster.record)
    cluster.now += 60
    cluster.pods.append(pod("b", created_seconds=cluster.now, is_ready=False, ready_seconds=None))
    assert () == cluster.step().acts
    cluster.change("b", is_ready=True, ready_seconds=cluster.now)
    after = cluster.step()
    assert (act(ActKind.DRAIN),) == after.acts
    assert "h100" == after.surge_pool
    cluster.change("a", is_in_service=False)
    cluster.now += 600
    assert (act(ActKind.EVICT),) == cluster.step().acts
    cluster.change("a", is_terminating=True)
    assert cluster.step().surge_pool is None


def test_a_surge_that_finds_no_card_is_taken_back_and_tried_later() -> None:
    cluster = Cluster(pod("a"), grows=("a",))
    cluster.has_spare = True
    cluster.step()
    cluster.pods.append(
        pod("b", node=None, created_seconds=NOON, is_ready=False, ready_seconds=None)
    )
    cluster.now += SURGE_SECONDS + 1
    after = cluster.step()
    assert after.surge_pool is None
    assert [] == phases(cluster.record)
    assert ["RecycleTakenBack"] == [told.reason for told in after.told]
    cluster.pods.pop()
    assert "RecycleBlocked" == reasons(cluster.step().holds)["a"]


def test_no_surge_where_an_autoscaler_owns_the_scale() -> None:
    cluster = Cluster(pod("a"), grows=("a",))
    cluster.has_spare, cluster.around = True, {"is_autoscaled": True}
    after = cluster.step()
    assert after.surge_pool is None
    assert {"a": "LastReplica"} == reasons(after.holds)


# --- taken back -----------------------------------------------------------------------------------


def test_a_worker_that_is_well_again_is_put_back() -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.kinds["a"] = VerdictKind.STEADY
    after = cluster.step()
    assert (act(ActKind.PUT_BACK),) == after.acts
    assert ["RecycleTakenBack"] == [told.reason for told in after.told]
    assert [] == phases(cluster.record)


@pytest.mark.parametrize("mode", ["Observe", "Off"])
def test_a_mode_that_is_changed_meanwhile_is_heeded(mode: str) -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.spec = cluster.spec.model_validate({"mode": mode})
    assert (act(ActKind.PUT_BACK),) == cluster.step().acts


def test_a_rollout_takes_it_back() -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.is_moving = True
    assert (act(ActKind.PUT_BACK),) == cluster.step().acts


def test_figures_that_are_missing_for_a_while_do_not() -> None:
    cluster = three()
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.kinds["a"] = VerdictKind.UNKNOWN
    assert () == cluster.step().acts
    assert ["Draining"] == phases(cluster.record)


def test_a_worker_that_goes_by_itself_is_no_recycle() -> None:
    cluster = three()
    cluster.step()
    cluster.pods = cluster.pods[1:]
    cluster.step()
    assert ([], 0) == (phases(cluster.record), cluster.record.total)


def test_a_worker_out_of_service_without_a_record_is_put_back() -> None:
    cluster = three(grows="")
    cluster.change("b", is_in_service=False)
    assert (act(ActKind.PUT_BACK, "b"),) == cluster.step().acts


# --- stopped --------------------------------------------------------------------------------------


def test_an_eviction_that_is_not_allowed_costs_no_budget_and_waits_longer_each_time() -> None:
    cluster = three()
    cluster.step()
    waits = []
    for _ in range(3):
        cluster.record = after_block(cluster.record, "uid-a", "No.", cluster.now)
        assert cluster.record.blocked is not None
        after = cluster.step()
        assert ("RecycleBlocked", 6) == (
            reasons(after.holds)["a"],
            cluster.record.budget_left,
        )
        before = cluster.now
        while not phases(cluster.record):
            cluster.now += BLOCKED_SECONDS / 2
            cluster.step()
        waits.append((cluster.now - before) / BLOCKED_SECONDS)
    assert [1, 2, 4] == waits


def test_two_recycles_that_did_not_help_are_the_last() -> None:
    cluster = three(cooldown="1s")
    cluster.recycle("a", "d", VerdictKind.GROWTH)
    cluster.recycle("d", "e", VerdictKind.GROWTH)
    assert [False, False] == [entry.helped for entry in cluster.record.history]
    assert cluster.record.hold is not None
    assert "Stalled" == cluster.record.hold.reason
    assert () == cluster.step().acts


def test_when_most_rise_together_one_is_tried_and_then_it_stops() -> None:
    cluster = three("abc")
    cluster.step()
    first = cluster.record.history[0].pod
    cluster.record = cluster.record.model_copy(update={"history": ()})
    cluster.recycle(first, "d", VerdictKind.GROWTH)
    after = cluster.step()
    assert {"CommonCause"} <= set(reasons(after.holds).values())
    assert cluster.record.hold is not None
    assert "CommonCause" == cluster.record.hold.reason
    assert () == after.acts


def test_while_it_is_not_known_what_the_canary_does_nobody_follows() -> None:
    cluster = Cluster(pod("a"), pod("b"), grows=("a", "b"), cooldown="1s")
    fresh = {"floor_bytes": 4 * GIB, "hours_to_limit": None}
    cluster.figures["c"] = {"verdict": verdict(VerdictKind.WARMING_UP, numbers=fresh)}
    cluster.recycle("a", "c", VerdictKind.WARMING_UP)
    assert "CanaryAwaited" == reasons(cluster.step().holds)["b"]
    cluster.figures["c"] = {"verdict": verdict(VerdictKind.GROWTH, numbers=fresh)}
    assert "CommonCause" == reasons(cluster.step().holds)["b"]


def test_nothing_is_said_of_a_common_cause_before_the_first_successor_is_there() -> None:
    cluster = three("abc")
    first = cluster.step().recycling.history[0].pod
    others = {"a", "b", "c"} - {first}
    held = cluster.step().holds
    assert "RecycleInFlight" == reasons(held)[first]
    assert {"CanaryAwaited"} == {reasons(held)[other] for other in others}
    assert all(
        f"as did {first};" in hold.sentence for uid, hold in held.items() if uid != f"uid-{first}"
    )


def test_a_hung_worker_is_not_waited_for() -> None:
    cluster = three(grows="")
    cluster.kinds["a"] = VerdictKind.HUNG
    cluster.step()
    cluster.change("a", is_in_service=False)
    cluster.now += 10
    assert (act(ActKind.EVICT),) == cluster.step().acts


def test_a_hung_worker_is_left_when_the_spec_says_so() -> None:
    cluster = three(grows="", recycleHung=False)
    cluster.kinds["a"] = VerdictKind.HUNG
    after = cluster.step()
    assert () == after.acts
    assert "HungIsLeft" == reasons(after.holds)["a"]


def test_nearest_to_its_limit_goes_first() -> None:
    cluster = three("ab", maxPerDay=1)
    cluster.figures["b"] = {"verdict": verdict(numbers={"hours_to_limit": 2.0})}
    cluster.step()
    assert ["b"] == [entry.pod for entry in cluster.record.history]
