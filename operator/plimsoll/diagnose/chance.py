"""May a worker that is worth replacing be replaced now?

Each check is `Case -> Hold | None`, as in recycle.py, which asks them last.
"""

from plimsoll.diagnose.case import (
    DAY,
    HOUR,
    WEEK,
    Case,
    Hold,
    HoldReason,
    Mode,
    can_surge,
    is_overrun,
    next_open,
    recent,
    time_words,
)
from plimsoll.diagnose.records import VerdictKind
from plimsoll.units import counted


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
        past for past in recent(case, WEEK) if case.worker.uid in (past.uid, past.successor_uid)
    ]
    if not mine:
        return None
    lasts = case.policy.cooldown_seconds * (1 + case.policy.jitter * case.draw)
    until = mine[0].at_seconds + lasts
    if case.now_seconds >= until:
        return None
    return Hold(
        reason=HoldReason.COOLING_DOWN,
        sentence=f"It was recycled {time_words(case.now_seconds - mine[0].at_seconds)} ago; the next may come "
        f"{time_words(lasts)} after that.",
        until_seconds=until,
    )


def budget_is_spent(case: Case) -> Hold | None:
    most = case.policy.max_per_day
    if most is None:
        most = min(6, 2 * max(1, case.situation.replicas_wanted))
    done = recent(case, DAY)
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
        sentence=f"The next window opens in {time_words(opens - case.now_seconds)}.",
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
