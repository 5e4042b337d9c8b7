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
    can_surge,
    is_overrun,
    next_open,
    recent,
    time_words,
)
from plimsoll.diagnose.chance import (
    a_peer_is_down,
    another_is_in_flight,
    budget_is_spent,
    eviction_is_blocked,
    is_cooling_down,
    is_rolling_out,
    nobody_else_serves,
    node_is_draining,
    we_only_watch,
    window_is_closed,
)
from plimsoll.diagnose.outcome import outcome
from plimsoll.diagnose.records import GROWING, Doubt, Trend, VerdictKind
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
    "a_peer_is_down",
    "another_is_in_flight",
    "budget_is_spent",
    "can_surge",
    "choose",
    "eviction_is_blocked",
    "is_cooling_down",
    "is_overrun",
    "is_rolling_out",
    "next_open",
    "nobody_else_serves",
    "node_is_draining",
    "order",
    "outcome",
    "we_only_watch",
    "window_is_closed",
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
        ready = worker.ready_seconds
        until = None if ready is None else ready + policy.warm_up_seconds
        return Hold(
            reason=HoldReason.WARMING_UP,
            sentence=worker.verdict.sentence,
            until_seconds=until if until is not None and until > case.now_seconds else None,
        )
    if is_overrun(worker):
        return None
    if worker.ready_seconds is None:
        return Hold(reason=HoldReason.WARMING_UP, sentence="It is not Ready yet.")
    until = worker.ready_seconds + policy.warm_up_seconds
    if case.now_seconds < until:
        return Hold(
            reason=HoldReason.WARMING_UP,
            sentence=f"It is Ready for {time_words(case.now_seconds - worker.ready_seconds)}; what it does in "
            f"the first {time_words(policy.warm_up_seconds)} is warming up.",
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
        sentence=f"It grows and reaches {whose} in {time_words(hours * HOUR)}; up to {time_words(report_hours * HOUR)} "
        "before that, this is only told.",
        until_seconds=case.now_seconds + (hours - report_hours) * HOUR,
    )


def recycles_do_not_help(case: Case) -> Hold | None:
    policy = case.policy
    known = [past for past in recent(case, policy.stall_seconds) if past.helped is not None]
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
    tried = [p for p in recent(case, case.policy.stall_seconds) if p.verdict in GROWING]
    if len(tried) < case.policy.canaries:
        return None
    awaited = _awaited(case, tried)
    if case.worker.uid in {past.uid for past in awaited}:
        return None  # it is the one that is tried
    here = {peer.uid for peer in case.situation.peers}
    more = sum(past.uid not in here for past in awaited)
    if awaited and _are_most(rising + more, known + more):
        words = f"It rises, as did {', '.join(sorted(past.pod for past in awaited))}; what the successor does"
        words += " tells whether a recycle helps, and that is not known yet."
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


def _rising(case: Case) -> tuple[int, int]:
    """Workers of the pool that rise, and those whose trend is known; this one is one of them."""
    trends = [peer.verdict.finding.trend for peer in (case.worker, *case.situation.peers)]
    known = [trend for trend in trends if trend is not Trend.UNKNOWN]
    return sum(trend is Trend.RISING for trend in known), len(known)


def _are_most(rising: int, known: int) -> bool:
    return rising >= 2 and 2 * rising > known


def _awaited(case: Case, tried: Iterable[Past]) -> list[Past]:
    """Recycles of which it is not known what they did: the successor is not there yet, or nothing can be
    said of it."""
    unknown = {p.uid for p in case.situation.peers if p.verdict.finding.trend is Trend.UNKNOWN}
    return [
        past
        for past in tried
        if past.helped is None
        and (
            past.successor_uid in unknown
            if past.successor_uid is not None
            else past.ended_seconds is None
        )
    ]


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
