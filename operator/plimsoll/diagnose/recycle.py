"""Is it time to replace this worker, and if not, what is it that holds us back?

Each check is `Case -> Hold | None`; they are asked in order and the first that holds answers. Doing
nothing has a reason too, and it is published like any other result. Who calls this fills the Case from
what is recorded (status, API objects), never from memory: an operator that starts anew must come to the
same answer.
"""

from collections.abc import Callable, Iterable
from typing import Final

from plimsoll.diagnose.case import (
    DAY,
    HOUR,
    WEEK,
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
from plimsoll.diagnose.outcome import outcome
from plimsoll.diagnose.records import GROWING, Cause, Doubt, Trend, VerdictKind
from plimsoll.units import counted

__all__ = [
    "CHECKS",
    "DAY",
    "HOUR",
    "WEEK",
    "Case",
    "Check",
    "Hold",
    "HoldReason",
    "Mode",
    "Past",
    "Policy",
    "Recycle",
    "Situation",
    "Window",
    "Worker",
    "can_surge",
    "choose",
    "is_overrun",
    "next_open",
    "order",
    "outcome",
]

Check = Callable[[Case], Hold | None]


def choose(case: Case) -> Recycle | Hold:
    """The first check that holds answers; without one the worker is replaced."""
    holds = (hold for check in CHECKS if (hold := check(case)))
    return next(holds, _recycle(case))


def order(workers: Iterable[Worker]) -> tuple[Worker, ...]:
    """In which order to ask: hung ones, then nearest to its limit, then steepest, then by name."""
    return tuple(sorted(workers, key=_urgency))


# --- what is known --------------------------------------------------------------------------------


def mode_is_off(case: Case) -> Hold | None:
    if case.policy.mode is Mode.OFF:
        return Hold(reason=HoldReason.OFF, sentence="spec.recycling.mode is Off.")
    return None


def nothing_is_known(case: Case) -> Hold | None:
    if case.worker.verdict.kind is VerdictKind.UNKNOWN:
        return Hold(reason=HoldReason.NO_DATA, sentence=case.worker.verdict.sentence)
    return None


def data_are_stale(case: Case) -> Hold | None:
    newest = case.worker.newest_seconds
    if case.worker.verdict.kind is VerdictKind.HUNG:
        return None  # rests on the engine's own figures, and the verdict has looked at their age
    if newest is None:
        return Hold(reason=HoldReason.STALE_DATA, sentence="Memory has never been seen.")
    age = case.now_seconds - newest
    if -case.policy.stale_seconds <= age <= case.policy.stale_seconds:
        return None
    return Hold(
        reason=HoldReason.STALE_DATA,
        sentence=f"Memory was last seen {age:.0f} s ago; older than {case.policy.stale_seconds:.0f} s "
        "says nothing."
        if age > 0
        else f"Memory is stamped {-age:.0f} s ahead of our clock; one of the two is wrong.",
    )


def is_warming_up(case: Case) -> Hold | None:
    worker, policy = case.worker, case.policy
    if worker.verdict.kind is VerdictKind.HUNG:
        return None
    if worker.verdict.kind is VerdictKind.WARMING_UP:
        until = (
            None if worker.ready_seconds is None else worker.ready_seconds + policy.warm_up_seconds
        )
        return Hold(
            reason=HoldReason.WARMING_UP, sentence=worker.verdict.sentence, until_seconds=until
        )
    if is_overrun(worker):
        return None
    if worker.ready_seconds is None:
        return Hold(reason=HoldReason.WARMING_UP, sentence="It is not Ready yet.")
    until = worker.ready_seconds + policy.warm_up_seconds
    if case.now_seconds < until:
        return Hold(
            reason=HoldReason.WARMING_UP,
            sentence=f"It is Ready for {_time(case.now_seconds - worker.ready_seconds)}; what it does in "
            f"the first {_time(policy.warm_up_seconds)} is warming up.",
            until_seconds=until,
        )
    return None


def recycling_is_no_cure(case: Case) -> Hold | None:
    verdict = case.worker.verdict
    match verdict.kind:
        case VerdictKind.STEADY:
            return Hold(reason=HoldReason.STEADY, sentence=verdict.sentence)
        case VerdictKind.PRESSURE:
            return Hold(
                reason=HoldReason.PRESSURE, sentence=f"{verdict.sentence} {verdict.advice}".strip()
            )
        case VerdictKind.HUNG if not case.policy.recycle_hung:
            return Hold(
                reason=HoldReason.HUNG_IS_LEFT,
                sentence=f"{verdict.sentence} Replacing hung workers is switched off.",
            )
    return None


def is_leaving(case: Case) -> Hold | None:
    if case.worker.is_leaving:
        return Hold(reason=HoldReason.LEAVING, sentence="It is on its way out already.")
    return None


def operator_just_started(case: Case) -> Hold | None:
    until = case.situation.operator_started_seconds + case.policy.settle_seconds
    if case.now_seconds < until:
        return Hold(
            reason=HoldReason.OPERATOR_JUST_STARTED,
            sentence="The operator has just started and looks at everyone first.",
            until_seconds=until,
        )
    return None


# --- whether it is worth it -----------------------------------------------------------------------


def limit_is_unknown(case: Case) -> Hold | None:
    verdict = case.worker.verdict
    if verdict.kind is not VerdictKind.QUIET_GROWTH or is_overrun(case.worker):
        return None
    if verdict.finding.hours_to_limit is not None:
        return None
    return Hold(
        reason=HoldReason.NO_LIMIT,
        sentence="It grows, and neither a memory limit nor the node's allocatable memory is known, so there "
        "is no end to project to; set a memory limit.",
    )


def growth_is_in_doubt(case: Case) -> Hold | None:
    """Latency that rises along settles the doubt; so does a limit that comes near."""
    verdict = case.worker.verdict
    if verdict.kind is not VerdictKind.QUIET_GROWTH or verdict.finding.doubt is None:
        return None
    return DOUBTS[verdict.finding.doubt]


DOUBTS: Final = {
    Doubt.MAY_BE_FILLING: Hold(
        reason=HoldReason.MAY_BE_FILLING,
        sentence="It has risen since it started and never been flat: a cache that fills looks the same. "
        "It is acted on when that goes on for long or the limit comes near.",
    ),
    Doubt.EARLY: Hold(
        reason=HoldReason.EARLY,
        sentence="It rises in a clean line, and not by much yet. It is acted on when the rise goes on or "
        "the limit comes near.",
    ),
    Doubt.LOAD_UNKNOWN: Hold(
        reason=HoldReason.LOAD_UNKNOWN,
        sentence="It rises, and the load of these hours is not known: a day's tide looks the same. It is "
        "acted on when days compare or the limit comes near.",
    ),
}


def limit_is_far(case: Case) -> Hold | None:
    verdict, policy = case.worker.verdict, case.policy
    if verdict.kind is not VerdictKind.QUIET_GROWTH or is_overrun(case.worker):
        return None
    hours = verdict.finding.hours_to_limit
    if hours is None:
        return None
    report_hours = max(policy.report_seconds, policy.urgent_seconds) / HOUR
    if hours <= report_hours:
        return None
    whose = "the node's allocatable memory" if verdict.finding.limit_is_node else "its memory limit"
    return Hold(
        reason=HoldReason.LIMIT_IS_FAR,
        sentence=f"It grows and reaches {whose} in {_time(hours * HOUR)}; up to {_time(report_hours * HOUR)} "
        "before that, this is only told.",
        until_seconds=case.now_seconds + (hours - report_hours) * HOUR,
    )


def recycles_do_not_help(case: Case) -> Hold | None:
    policy = case.policy
    known = [past for past in _recent(case, policy.stall_seconds) if past.helped is not None]
    last = known[: policy.useless_recycles]
    if len(last) < policy.useless_recycles or any(past.helped for past in last):
        return None
    return Hold(
        reason=HoldReason.STALLED,
        sentence=f"The last {counted(len(last), 'recycle')} did not help: the successors were no better. "
        "It is the version or the load; look at the engine's release, then change the spec.",
        until_seconds=last[-1].at_seconds + policy.stall_seconds,
    )


def most_peers_rise_too(case: Case) -> Hold | None:
    if case.worker.verdict.kind is VerdictKind.HUNG:
        return None
    rising, known = _rising(case)
    tried = [p for p in _recent(case, case.policy.stall_seconds) if p.verdict in GROWING]
    if len(tried) < case.policy.canaries:
        return None
    awaited = _awaited(case, tried)
    if awaited and _are_most(rising + len(awaited), known + len(awaited)):
        words = f"It rises, as did the worker before {', '.join(awaited)}; what the successor does tells"
        words += " whether a recycle helps, and that is not known yet."
        return Hold(reason=HoldReason.CANARY_AWAITED, sentence=words)
    if not _are_most(rising, known):
        return None
    return Hold(
        reason=HoldReason.COMMON_CAUSE,
        sentence=f"{rising} of {counted(known, 'worker')} of the pool rise together, and "
        f"{counted(len(tried), 'recycle')} has not changed that: it is the version or the load, "
        "not this worker.",
        until_seconds=tried[-1].at_seconds + case.policy.stall_seconds if tried else None,
    )


# --- whether it may be now ------------------------------------------------------------------------


def is_rolling_out(case: Case) -> Hold | None:
    if case.situation.is_rolling_out:
        return Hold(
            reason=HoldReason.ROLLING_OUT, sentence="The pool is rolling out or being scaled."
        )
    return None


def node_is_draining(case: Case) -> Hold | None:
    if case.situation.node_is_draining:
        return Hold(
            reason=HoldReason.NODE_IS_DRAINING,
            sentence="Its node is being emptied; it leaves anyway.",
        )
    return None


def another_is_in_flight(case: Case) -> Hold | None:
    if case.situation.in_flight is not None:
        return Hold(reason=HoldReason.RECYCLE_IN_FLIGHT, sentence=f"{case.situation.in_flight}.")
    return None


def a_peer_is_down(case: Case) -> Hold | None:
    if case.worker.verdict.kind is VerdictKind.HUNG:
        return None  # it serves nobody, so that replacing it takes nothing away
    down = sorted(peer.pod for peer in case.situation.peers if not peer.is_ready or peer.is_leaving)
    missing = case.situation.replicas_wanted - 1 - len(case.situation.peers)
    if not down and missing <= 0:
        return None
    who = ", ".join(down) if down else counted(missing, "peer")
    verb = "is" if len(down) == 1 or (not down and missing == 1) else "are"
    return Hold(reason=HoldReason.PEER_IS_DOWN, sentence=f"{who} {verb} not Ready.")


def is_cooling_down(case: Case) -> Hold | None:
    mine = [
        past for past in _recent(case, WEEK) if case.worker.uid in (past.uid, past.successor_uid)
    ]
    if not mine:
        return None
    lasts = case.policy.cooldown_seconds * (1 + case.policy.jitter * case.draw)
    until = mine[0].at_seconds + lasts
    if case.now_seconds >= until:
        return None
    return Hold(
        reason=HoldReason.COOLING_DOWN,
        sentence=f"It was recycled {_time(case.now_seconds - mine[0].at_seconds)} ago; the next may come "
        f"{_time(lasts)} after that.",
        until_seconds=until,
    )


def budget_is_spent(case: Case) -> Hold | None:
    most = case.policy.max_per_day
    if most is None:
        most = min(6, 2 * max(1, case.situation.replicas_wanted))
    done = _recent(case, DAY)
    if len(done) < most:
        return None
    return Hold(
        reason=HoldReason.BUDGET_IS_SPENT,
        sentence=f"{counted(len(done), 'recycle')} in 24 hours; at most {most} are allowed.",
        until_seconds=done[most - 1].at_seconds + DAY if most else None,
    )


def eviction_is_blocked(case: Case) -> Hold | None:
    situation = case.situation
    if situation.blocked is None:
        return None
    if situation.blocked_until_seconds is not None and (
        case.now_seconds >= situation.blocked_until_seconds
    ):
        return None
    return Hold(
        reason=HoldReason.BLOCKED,
        sentence=situation.blocked,
        until_seconds=situation.blocked_until_seconds,
    )


def nobody_else_serves(case: Case) -> Hold | None:
    if case.worker.verdict.kind is VerdictKind.HUNG or can_surge(case):
        return None
    if any(peer.is_ready and not peer.is_leaving for peer in case.situation.peers):
        return None
    why = (
        "an autoscaler owns the number of replicas"
        if case.situation.is_autoscaled
        else "spec.recycling.surge is Never"
        if not case.policy.may_surge
        else "no fitting card is free"
    )
    return Hold(
        reason=HoldReason.LAST_REPLICA,
        sentence=f"It is the only one that serves, and a successor cannot start first: {why}.",
    )


def window_is_closed(case: Case) -> Hold | None:
    """A limit that comes before the next window opens does not wait for it: a kill for want of memory
    drops requests, a recycle does not."""
    opens = next_open(case.policy.windows, case.now_seconds)
    if opens <= case.now_seconds or case.worker.verdict.kind is VerdictKind.HUNG:
        return None
    hours = case.worker.verdict.finding.hours_to_limit
    limit_at = None if hours is None else case.now_seconds + hours * HOUR
    is_urgent = hours is not None and hours * HOUR < case.policy.urgent_seconds
    if is_overrun(case.worker) or (is_urgent and limit_at is not None and limit_at <= opens + HOUR):
        return None
    return Hold(
        reason=HoldReason.OUTSIDE_WINDOW,
        sentence=f"The next window opens in {_time(opens - case.now_seconds)}.",
        until_seconds=opens,
    )


def we_only_watch(case: Case) -> Hold | None:
    if case.policy.mode is Mode.OBSERVE:
        return Hold(
            reason=HoldReason.OBSERVING,
            sentence=f"{case.worker.verdict.sentence} It would be recycled now; spec.recycling.mode is "
            "Observe.",
        )
    return None


CHECKS: Final[tuple[Check, ...]] = (
    mode_is_off,
    nothing_is_known,
    data_are_stale,
    is_warming_up,
    recycling_is_no_cure,
    is_leaving,
    operator_just_started,
    limit_is_unknown,
    growth_is_in_doubt,
    limit_is_far,
    recycles_do_not_help,
    most_peers_rise_too,
    is_rolling_out,
    node_is_draining,
    another_is_in_flight,
    a_peer_is_down,
    is_cooling_down,
    budget_is_spent,
    eviction_is_blocked,
    nobody_else_serves,
    window_is_closed,
    we_only_watch,
)
"""The policy: the first that holds answers."""


# --- the parts ------------------------------------------------------------------------------------


def is_overrun(worker: Worker) -> bool:
    """Whether it grows so far beyond its declared caps that no window can be waited for."""
    return worker.verdict.cause is Cause.OVERRUN


def can_surge(case: Case) -> bool:
    """Whether the successor may and can start before this one leaves."""
    situation = case.situation
    return case.policy.may_surge and situation.has_spare_card and not situation.is_autoscaled


def _recent(case: Case, seconds: float) -> list[Past]:
    """Newest first. What is stamped ahead of our clock counts as recent: a budget errs downwards."""
    since = case.now_seconds - seconds
    return sorted((p for p in case.past if p.at_seconds > since), key=lambda p: -p.at_seconds)


def _rising(case: Case) -> tuple[int, int]:
    """Workers of the pool that rise, and those whose trend is known; this one is one of them."""
    trends = [peer.verdict.finding.trend for peer in (case.worker, *case.situation.peers)]
    known = [trend for trend in trends if trend is not Trend.UNKNOWN]
    return sum(trend is Trend.RISING for trend in known), len(known)


def _are_most(rising: int, known: int) -> bool:
    return rising >= 2 and 2 * rising > known


def _awaited(case: Case, tried: Iterable[Past]) -> list[str]:
    """Successors of recycled workers of which nothing can be said yet."""
    uids = {past.successor_uid for past in tried if past.helped is None}
    unknown = (p for p in case.situation.peers if p.verdict.finding.trend is Trend.UNKNOWN)
    return sorted(peer.pod for peer in unknown if peer.uid in uids)


def _recycle(case: Case) -> Recycle:
    verdict = case.worker.verdict
    return Recycle(
        pod=case.worker.pod,
        uid=case.worker.uid,
        reason=verdict.kind,
        sentence=verdict.sentence,
        surge=can_surge(case),
        hours_to_limit=verdict.finding.hours_to_limit,
        floor_bytes=verdict.finding.floor_bytes,
    )


def _urgency(worker: Worker) -> tuple[bool, bool, float, int, str]:
    finding = worker.verdict.finding
    hours = finding.hours_to_limit
    return (
        worker.verdict.kind is not VerdictKind.HUNG,
        not is_overrun(worker),
        float("inf") if hours is None else hours,
        -(finding.bytes_per_hour or 0),
        worker.pod,
    )


def _time(seconds: float) -> str:
    """For people: "40 s", "25 min", "6 h", "3 days"."""
    for size, unit, most in ((1, "s", 120), (60, "min", 120), (HOUR, "h", 72)):
        if seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / DAY:.0f} days"
