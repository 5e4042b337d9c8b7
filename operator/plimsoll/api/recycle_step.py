"""What is the next step of replacing workers, one at a time, and is there one?

A recycle is a row of phases in the status. Each is written before the act that belongs to it, and each
act can be done again without harm, so an operator that is killed anywhere goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.api.judged import Judged, by_uid
from plimsoll.api.recycle_around import Act, ActKind, Around, Told, worker_of
from plimsoll.api.recycle_phases import BLOCKED_SECONDS, advance
from plimsoll.api.recycling import (
    Phase,
    budget_left,
    is_under_way,
    past_of,
    pasts,
    policy_of,
    seconds_of,
    text_of,
)
from plimsoll.api.status_types import BlockedStatus, HoldStatus, RecycleEntry, RecyclingStatus
from plimsoll.diagnose.records import VerdictKind
from plimsoll.diagnose.recycle import (
    Case,
    Hold,
    HoldReason,
    Mode,
    Policy,
    Recycle,
    Situation,
    Worker,
    choose,
    order,
    outcome,
)
from plimsoll.render.labels import short_hash

MOST_BLOCKED_SECONDS: Final = 6 * 3600.0
STEP_SECONDS: Final = 5.0
"""Between two looks while a recycle is under way."""
KEPT_ENTRIES: Final = 32
LONGEST_MESSAGE: Final = 512

TROUBLE: Final = frozenset({VerdictKind.GROWTH, VerdictKind.QUIET_GROWTH, VerdictKind.HUNG})
COMMON: Final = frozenset({HoldReason.COMMON_CAUSE.value, HoldReason.STALLED.value})
"""Holds that need a person: it is the version or the load, and no worker."""


class Step(NamedTuple):
    """What is recorded, and what is done after that."""

    recycling: RecyclingStatus
    judged: Mapping[str, Judged]
    """By uid, everyone."""
    holds: Mapping[str, Hold]
    """By uid, everyone who is left alone."""
    acts: tuple[Act, ...] = ()
    surge_pool: str | None = None
    """The pool that has one worker more for the time being."""
    told: tuple[Told, ...] = ()
    again_seconds: float | None = None


def step(around: Around) -> Step:
    """The next step. The same question has the same answer, and the answer's own record leads no further
    until something changes."""
    policy = policy_of(around.spec, around.watched)
    judged = by_uid(around.watched, around.workers)
    told: list[Told] = []
    history, total, blocked = around.held.history, around.held.total, around.held.blocked
    entry = next((each for each in history if is_under_way(each)), None)
    others = tuple(each for each in history if each is not entry)
    if entry is not None:
        after = advance(entry, around, policy, judged)
        told += after.told
        total += after.is_done_now
        blocked = after.blocked or (None if after.is_done_now else blocked)
        entry = after.entry
    known = _with_outcomes(
        (entry, *others) if entry is not None else others, around, policy, judged
    )
    entry = known[0] if known and is_under_way(known[0]) else None
    blocked = _still(blocked, around)
    holds: dict[str, Hold] = {}
    hold: HoldStatus | None = None
    for case in _cases(around, policy, judged, history=known, entry=entry, blocked=blocked):
        match choose(case):
            case Hold() as found:
                holds[case.worker.uid] = found
                if hold is None and case.worker.verdict.kind in TROUBLE:
                    hold = _hold_status(case.worker, found)
            case Recycle() as chosen if entry is None:
                entry = _begin(chosen, case, around)
                known = (entry, *known)
                told.append(_told_begin(entry))
                break
    told += _told_hold(around.held.hold, hold)
    most = max((pool.wanted for pool in around.pools.values()), default=0)
    past = pasts(known, around.now_seconds)
    recycling = RecyclingStatus(
        history=known[:KEPT_ENTRIES],
        hold=hold,
        blocked=blocked,
        budget_left=None
        if policy.mode is Mode.OFF
        else budget_left(policy, past, most, around.now_seconds),
        total=total,
    )
    return Step(
        recycling=recycling,
        judged=judged,
        holds=holds,
        acts=tuple(_acts(entry, around)),
        surge_pool=_surge_pool(entry, around),
        told=tuple(told),
        again_seconds=STEP_SECONDS if entry is not None else None,
    )


def after_block(
    held: RecyclingStatus, pod_uid: str, why: str, now_seconds: float
) -> RecyclingStatus:
    """The record after an eviction was not allowed: nothing was done to the worker, so nothing counts,
    and the next try waits twice as long as this one did."""
    entry = next((each for each in held.history if each.uid == pod_uid), None)
    tries = held.blocked.tries + 1 if held.blocked is not None else 1
    wait = min(BLOCKED_SECONDS * 2 ** min(tries - 1, 10), MOST_BLOCKED_SECONDS)
    return held.model_copy(
        update={
            "history": tuple(each for each in held.history if each is not entry),
            "blocked": BlockedStatus(
                pool=entry.pool if entry is not None else "",
                message=why[:LONGEST_MESSAGE],
                until=text_of(now_seconds + wait),
                tries=tries,
            ),
        }
    )


def _with_outcomes(
    history: Sequence[RecycleEntry], around: Around, policy: Policy, judged: Mapping[str, Judged]
) -> tuple[RecycleEntry, ...]:
    """The history, with what is known by now of whether each recycle helped."""
    workers = {each.uid: each for each in around.workers}

    def told(entry: RecycleEntry) -> RecycleEntry:
        facts = workers.get(entry.successor_uid)
        if entry.helped is not None or facts is None:
            return entry
        successor = worker_of(facts, judged[facts.uid])
        helped = outcome(past_of(entry, around.now_seconds), successor, policy, around.now_seconds)
        return entry if helped is None else entry.model_copy(update={"helped": helped})

    return tuple(told(entry) for entry in history)


# --- what begins ----------------------------------------------------------------------------------


def _cases(
    around: Around,
    policy: Policy,
    judged: Mapping[str, Judged],
    *,
    history: Sequence[RecycleEntry],
    entry: RecycleEntry | None,
    blocked: BlockedStatus | None,
) -> Iterator[Case]:
    """Everyone who may be asked about, most urgent first."""
    facts = {each.uid: each for each in around.workers if each.pool in around.pools}
    workers = {uid: worker_of(each, judged[uid]) for uid, each in facts.items()}
    past = pasts(history, around.now_seconds)
    for worker in order(workers.values()):
        pool = around.pools[worker.pool]
        is_blocked = blocked is not None and blocked.pool == worker.pool
        yield Case(
            now_seconds=around.now_seconds,
            worker=worker,
            policy=policy,
            past=past,
            draw=int(short_hash(worker.uid), 16) / 16**8,
            situation=Situation(
                replicas_wanted=pool.wanted,
                operator_started_seconds=around.watched.operator_started_seconds,
                peers=tuple(
                    each
                    for each in workers.values()
                    if each.pool == worker.pool and each.uid != worker.uid
                ),
                is_rolling_out=pool.is_moving,
                node_is_draining=facts[worker.uid].node in around.leaving_nodes,
                in_flight=None if entry is None else _in_words(entry),
                blocked=blocked.message if blocked is not None and is_blocked else None,
                blocked_until_seconds=seconds_of(blocked.until) if blocked is not None else None,
                is_autoscaled=around.is_autoscaled,
                has_spare_card=pool.has_spare,
            ),
        )


def _begin(chosen: Recycle, case: Case, around: Around) -> RecycleEntry:
    now = text_of(around.now_seconds)
    return RecycleEntry(
        pod=chosen.pod,
        uid=chosen.uid,
        pool=case.worker.pool,
        at=now,
        reason=chosen.reason.value,
        message=chosen.sentence[:LONGEST_MESSAGE],
        phase=Phase.SURGING if chosen.surge else Phase.DRAINING,
        phase_at=now,
        surge=chosen.surge,
        resident_bytes=chosen.floor_bytes,
    )


def _acts(entry: RecycleEntry | None, around: Around) -> Iterator[Act]:
    """What follows from the record and the pods. A worker that is out of the Service without a recycle
    under way is put back, whoever left it there."""
    draining = (
        entry if entry is not None and entry.phase in (Phase.DRAINING, Phase.EVICTING) else None
    )
    for worker in around.workers:
        if worker.is_terminating:
            continue
        if draining is not None and worker.uid == draining.uid:
            if worker.is_in_service:
                yield Act(kind=ActKind.DRAIN, pod=worker.name, uid=worker.uid)
            if draining.phase == Phase.EVICTING:
                yield Act(kind=ActKind.EVICT, pod=worker.name, uid=worker.uid)
        elif not worker.is_in_service:
            yield Act(kind=ActKind.PUT_BACK, pod=worker.name, uid=worker.uid)


def _surge_pool(entry: RecycleEntry | None, around: Around) -> str | None:
    """One worker more from the intent until the old one goes; then the count is what it was."""
    if entry is None or not entry.surge:
        return None
    is_before = entry.phase in (Phase.SURGING, Phase.DRAINING, Phase.EVICTING)
    return entry.pool if is_before and entry.pool in around.pools else None


def _still(blocked: BlockedStatus | None, around: Around) -> BlockedStatus | None:
    """Kept for a day after its time, so that tries in a row are counted; then it is old."""
    until = None if blocked is None else seconds_of(blocked.until)
    if until is None or around.now_seconds > until + 24 * 3600:
        return None
    return blocked


# --- words ----------------------------------------------------------------------------------------


_PHASE_WORDS: Final = {
    Phase.SURGING.value: "waits for its successor",
    Phase.DRAINING.value: "finishes its requests",
    Phase.EVICTING.value: "is being evicted",
    Phase.REPLACING.value: "was evicted and its successor is not warm yet",
}


def _in_words(entry: RecycleEntry) -> str:
    return f"{entry.pod} {_PHASE_WORDS[entry.phase]}"


def _told_begin(entry: RecycleEntry) -> Told:
    first = "its successor starts first" if entry.surge else "it gets no new requests"
    return Told(
        reason="RecycleBegun",
        message=f"{entry.pod} is replaced ({entry.reason}), {first}. {entry.message}",
    )


def _hold_status(worker: Worker, hold: Hold) -> HoldStatus:
    return HoldStatus(
        pod=worker.pod,
        reason=hold.reason.value,
        message=hold.sentence[:LONGEST_MESSAGE],
        until=None if hold.until_seconds is None else text_of(hold.until_seconds),
    )


def _told_hold(before: HoldStatus | None, after: HoldStatus | None) -> Iterator[Told]:
    """Only that it has stopped is news; other holds are in status."""
    if after is None or after.reason not in COMMON:
        return
    if before is None or before.reason not in COMMON:
        yield Told(reason="CommonCause", message=after.message, is_warning=True)
