from __future__ import annotations

from typing import Any

import pytest

from growing import HOUR, NOON, verdict
from plimsoll.diagnose.case import (
    DAY,
    Case,
    Hold,
    HoldReason,
    Mode,
    Past,
    Policy,
    Recycle,
    Situation,
    Window,
    Worker,
    next_open,
)
from plimsoll.diagnose.records import Cause, Doubt, VerdictKind
from plimsoll.diagnose.recycle import CHECKS, choose, order

MIDNIGHT = NOON - NOON % DAY


def worker(kind: VerdictKind = VerdictKind.GROWTH, **changes: Any) -> Worker:
    known: dict[str, Any] = {
        "pod": "chat-0",
        "uid": "uid-0",
        "pool": "h100",
        "verdict": verdict(kind, **changes.pop("said", {})),
        "ready_seconds": NOON - 50 * HOUR,
        "newest_seconds": NOON - 20,
    }
    return Worker(**(known | changes))


STEADY = worker(VerdictKind.STEADY, pod="chat-1", uid="uid-1")


def past(hours_ago: float, **changes: Any) -> Past:
    at = NOON - hours_ago * HOUR
    known: dict[str, Any] = {
        "at_seconds": at,
        "pod": "chat-9",
        "uid": f"uid-{at}",
        "pool": "h100",
        "verdict": VerdictKind.GROWTH,
        "ended_seconds": at + HOUR,
    }
    return Past(**(known | changes))


def case(
    of: Worker | None = None,
    *,
    policy: dict[str, Any] | None = None,
    situation: dict[str, Any] | None = None,
    history: tuple[Past, ...] = (),
) -> Case:
    around: dict[str, Any] = {
        "replicas_wanted": 2,
        "operator_started_seconds": NOON - DAY,
        "peers": (STEADY,),
    }
    return Case(
        NOON,
        of or worker(),
        Policy(**(policy or {})),
        Situation(**(around | (situation or {}))),
        history,
    )


def quiet(**numbers: Any) -> Worker:
    return worker(VerdictKind.QUIET_GROWTH, said={"numbers": numbers})


def test_growth_with_nothing_in_the_way_is_recycled() -> None:
    found = choose(case())
    assert isinstance(found, Recycle)
    assert ("chat-0", "uid-0", VerdictKind.GROWTH) == (found.pod, found.uid, found.reason)


def test_a_warm_up_that_is_over_promises_no_time() -> None:
    """What is too young to tell long after the warm-up is held without a date."""
    young = choose(case(worker(VerdictKind.WARMING_UP, ready_seconds=NOON - 600)))
    assert isinstance(young, Hold)
    assert NOON + 3000 == young.until_seconds
    older = choose(case(worker(VerdictKind.WARMING_UP, ready_seconds=NOON - 5 * HOUR)))
    assert isinstance(older, Hold)
    assert None is older.until_seconds


HOLDS = [
    (HoldReason.OFF, case(policy={"mode": Mode.OFF})),
    (HoldReason.OBSERVING, case(policy={"mode": Mode.OBSERVE})),
    (HoldReason.NO_DATA, case(worker(VerdictKind.UNKNOWN))),
    (HoldReason.STALE_DATA, case(worker(newest_seconds=NOON - 300))),
    (HoldReason.STALE_DATA, case(worker(newest_seconds=None))),
    (HoldReason.STALE_DATA, case(worker(newest_seconds=NOON + 3600))),
    (HoldReason.WARMING_UP, case(worker(VerdictKind.WARMING_UP))),
    (HoldReason.WARMING_UP, case(worker(ready_seconds=NOON - 1800))),
    (HoldReason.WARMING_UP, case(worker(ready_seconds=None))),
    (HoldReason.STEADY, case(worker(VerdictKind.STEADY))),
    (HoldReason.PRESSURE, case(worker(VerdictKind.PRESSURE))),
    (HoldReason.LEAVING, case(worker(is_leaving=True))),
    (
        HoldReason.OPERATOR_JUST_STARTED,
        case(situation={"operator_started_seconds": NOON - 60}),
    ),
    (HoldReason.MAY_BE_FILLING, case(quiet(doubt=Doubt.MAY_BE_FILLING))),
    (HoldReason.LOAD_UNKNOWN, case(quiet(doubt=Doubt.LOAD_UNKNOWN))),
    (HoldReason.EARLY, case(quiet(doubt=Doubt.EARLY))),
    (HoldReason.LIMIT_IS_FAR, case(quiet(hours_to_limit=100.0))),
    (HoldReason.NO_LIMIT, case(quiet(hours_to_limit=None))),
    (
        HoldReason.STALLED,
        case(history=(past(30, helped=False), past(60, helped=False))),
    ),
    (
        HoldReason.COMMON_CAUSE,
        case(
            situation={"peers": (worker(pod="chat-1", uid="uid-1"),)},
            history=(past(30, helped=True),),
        ),
    ),
    (HoldReason.ROLLING_OUT, case(situation={"is_rolling_out": True})),
    (HoldReason.NODE_IS_DRAINING, case(situation={"node_is_draining": True})),
    (HoldReason.RECYCLE_IN_FLIGHT, case(situation={"in_flight": "chat-3 is being recycled"})),
    (HoldReason.PEER_IS_DOWN, case(situation={"peers": (STEADY._replace(is_ready=False),)})),
    (HoldReason.PEER_IS_DOWN, case(situation={"replicas_wanted": 3})),
    (HoldReason.COOLING_DOWN, case(history=(past(5, successor_uid="uid-0", helped=True),))),
    (
        HoldReason.BUDGET_IS_SPENT,
        case(history=tuple(past(hours, helped=True) for hours in (3, 5, 8, 11))),
    ),
    (HoldReason.BUDGET_IS_SPENT, case(policy={"max_per_day": 0})),
    (HoldReason.BLOCKED, case(situation={"blocked": "A budget blocks it."})),
    (HoldReason.LAST_REPLICA, case(situation={"replicas_wanted": 1, "peers": ()})),
    (
        HoldReason.OUTSIDE_WINDOW,
        case(quiet(hours_to_limit=40.0), policy={"windows": (Window(22 * 60, 4 * 60),)}),
    ),
]


@pytest.mark.parametrize(("reason", "of"), HOLDS)
def test_each_reason_holds(reason: HoldReason, of: Case) -> None:
    found = choose(of)
    assert isinstance(found, Hold)
    assert reason == found.reason
    assert found.sentence.endswith(".")


def test_every_check_is_asked_for_something() -> None:
    asked = {check for check in CHECKS for _, of in HOLDS if check(of) is not None}
    assert set(CHECKS) == asked


def test_a_near_limit_recycles_quiet_growth() -> None:
    assert isinstance(choose(case(quiet(hours_to_limit=50.0))), Recycle)


def test_latency_that_rises_along_settles_a_doubt() -> None:
    of = worker(said={"numbers": {"doubt": Doubt.MAY_BE_FILLING, "hours_to_limit": 500.0}})
    assert isinstance(choose(case(of)), Recycle)


def test_a_limit_before_the_window_does_not_wait_for_it() -> None:
    policy = {"windows": (Window(22 * 60, 4 * 60),)}
    opens = next_open(policy["windows"], NOON)
    hours = (opens - NOON) / HOUR
    assert isinstance(choose(case(quiet(hours_to_limit=hours - 2), policy=policy)), Recycle)
    held = choose(case(quiet(hours_to_limit=hours + 5), policy=policy))
    assert isinstance(held, Hold)
    assert opens == held.until_seconds


def test_an_overrun_waits_for_no_window() -> None:
    of = worker(
        VerdictKind.QUIET_GROWTH,
        said={"cause": Cause.OVERRUN, "numbers": {"hours_to_limit": None}},
    )
    assert isinstance(choose(case(of, policy={"windows": (Window(1, 2),)})), Recycle)


def test_a_hung_worker_is_replaced_though_it_is_the_last() -> None:
    alone = {"replicas_wanted": 1, "peers": ()}
    assert isinstance(choose(case(worker(VerdictKind.HUNG), situation=alone)), Recycle)
    left = choose(case(worker(VerdictKind.HUNG), policy={"recycle_hung": False}))
    assert isinstance(left, Hold)
    assert HoldReason.HUNG_IS_LEFT == left.reason


def test_a_hung_worker_is_bounded_by_the_same_budget() -> None:
    held = choose(case(worker(VerdictKind.HUNG), policy={"max_per_day": 0}))
    assert isinstance(held, Hold)
    assert HoldReason.BUDGET_IS_SPENT == held.reason


def test_a_single_replica_is_recycled_when_a_successor_can_start_first() -> None:
    alone = {"replicas_wanted": 1, "peers": (), "has_spare_card": True}
    found = choose(case(situation=alone))
    assert isinstance(found, Recycle)
    assert found.surge
    scaled = choose(case(situation=alone | {"is_autoscaled": True}))
    assert isinstance(scaled, Hold)
    assert "autoscaler" in scaled.sentence


def test_one_canary_is_tried_when_most_rise() -> None:
    together = {"peers": (worker(pod="chat-1", uid="uid-1"),)}
    assert isinstance(choose(case(situation=together)), Recycle)


def test_recycles_stamped_ahead_of_our_clock_count() -> None:
    ahead = tuple(past(-hours, helped=True) for hours in (1, 2, 3, 4))
    held = choose(case(history=ahead))
    assert isinstance(held, Hold)
    assert HoldReason.BUDGET_IS_SPENT == held.reason


def test_the_draw_lengthens_a_cooldown_by_a_fifth_at_most() -> None:
    of = case(history=(past(6.5, successor_uid="uid-0", helped=True),))
    assert isinstance(choose(of), Recycle)
    later = choose(of._replace(draw=0.99))
    assert isinstance(later, Hold)
    assert HoldReason.COOLING_DOWN == later.reason


def test_nearest_to_its_limit_comes_first() -> None:
    near = quiet(hours_to_limit=5.0)._replace(pod="near")
    far = quiet(hours_to_limit=50.0)._replace(pod="far")
    hung = worker(VerdictKind.HUNG, pod="hung")
    none = quiet(hours_to_limit=None)._replace(pod="none")
    assert ["hung", "near", "far", "none"] == [w.pod for w in order((none, far, hung, near))]


WINDOWS = [
    ((), NOON),
    ((Window(11 * 60, 13 * 60),), NOON),
    ((Window(22 * 60, 4 * 60),), MIDNIGHT + 22 * HOUR),
    ((Window(12 * 60, 12 * 60),), NOON),
    ((Window(1 * 60, 2 * 60),), MIDNIGHT + 25 * HOUR),
]


@pytest.mark.parametrize(("windows", "opens"), WINDOWS)
def test_a_window_opens_when_it_says(windows: tuple[Window, ...], opens: float) -> None:
    assert opens == next_open(windows, NOON)


def test_a_window_that_crosses_midnight_belongs_to_the_day_it_begins() -> None:
    monday = 4 * DAY  # 5 January 1970
    window = (Window(22 * 60, 4 * 60, days=(0,)),)
    assert monday + 22 * HOUR == next_open(window, monday + 12 * HOUR)
    assert monday + 26 * HOUR == next_open(window, monday + 26 * HOUR)  # Tuesday, 02:00
    assert monday + 7 * DAY + 22 * HOUR == next_open(window, monday + 28 * HOUR)
