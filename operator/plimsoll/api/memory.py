"""What do we tell of the workers' memory, and when is it news?

Figures move with every scrape; a status that moved with them would be written for ever. So what was told
stays as it is while no worker's verdict and no hold changes, for ten minutes at most. An operator that has
just started has seen nobody yet: until it has, what was told of a worker stands, with its date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.api.conditions import Condition, ConditionName, ConditionReason, Tristate
from plimsoll.api.judged import UNSEEN, Judged
from plimsoll.api.recycle_step import COMMON, LONGEST_MESSAGE, TROUBLE, Step
from plimsoll.api.recycling import seconds_of, text_of
from plimsoll.api.status_types import (
    InferenceDeploymentStatus,
    RecyclingStatus,
    WorkerStatus,
)
from plimsoll.diagnose.records import GROWING, VerdictKind
from plimsoll.diagnose.recycle import HoldReason
from plimsoll.facts.worker import WorkerFacts
from plimsoll.units import counted

SHOWN_WORKERS: Final = 64
NAMED_WORKERS: Final = 3
"""Workers that a condition names one by one."""
UNTOLD: Final = "Unknown"
_FRESH_HOURS: Final = 1 / 6
"""Figures are told anew after a bin of floors: ten minutes."""
_NOTHING_SEEN_HOURS: Final = 1 / 4
"""After the operator's start: a bin of floors has ended by then, and a round has been made."""

_BY_URGENCY: Final = (
    VerdictKind.HUNG,
    VerdictKind.GROWTH,
    VerdictKind.QUIET_GROWTH,
    VerdictKind.PRESSURE,
    VerdictKind.UNKNOWN,
    VerdictKind.WARMING_UP,
    VerdictKind.STEADY,
)


class Memory(NamedTuple):
    """The part of the status that speaks of memory."""

    trend: str = UNTOLD
    workers: tuple[WorkerStatus, ...] = ()
    told_at: str | None = None
    recycling: RecyclingStatus | None = None
    stable: Condition | None = None
    """MemoryStable; None where nobody watches."""
    common_cause: str = ""
    """Why recycling has stopped until a person looks; empty when it has not."""


def memory_of(
    step: Step,
    workers: Sequence[WorkerFacts],
    before: InferenceDeploymentStatus,
    *,
    now_seconds: float,
    hour_seconds: float = 3600.0,
    operator_started_seconds: float = 0.0,
) -> Memory:
    """What to tell now; what was told `before` where that is recent and still says the same."""
    is_young = now_seconds - operator_started_seconds < _NOTHING_SEEN_HOURS * hour_seconds
    standing = _standing(step, before.workers) if is_young else {}
    alive = [worker for worker in workers if not worker.is_terminating]
    told = _entries(step, alive, standing)
    recycling = _with_hold(step.recycling, before.recycling, standing)
    told_at = text_of(now_seconds)
    since = seconds_of(before.diagnosed_at)
    is_recent = since is not None and 0 <= now_seconds - since < _FRESH_HOURS * hour_seconds
    held = before.recycling
    if told == before.workers:  # nothing moved, so there is nothing to write either
        told_at = before.diagnosed_at or told_at
    if is_recent and _gist(told) == _gist(before.workers):
        told, told_at = before.workers, before.diagnosed_at or told_at
        if held is not None and _hold_gist(held) == _hold_gist(recycling):
            recycling = recycling.model_copy(update={"hold": held.hold})
    return Memory(
        trend=_trend(told),
        workers=told,
        told_at=told_at if told else None,
        recycling=recycling if recycling != RecyclingStatus() else None,
        stable=_stable(told, recycling, step),
        common_cause=_common_cause(recycling),
    )


def _standing(step: Step, before: Sequence[WorkerStatus]) -> dict[str, WorkerStatus]:
    """What was told, by uid, of workers of which nothing has been seen since."""
    return {entry.uid: entry for entry in before if _is_unseen(step.judged.get(entry.uid))}


def _is_unseen(judged: Judged | None) -> bool:
    if judged is None or judged.verdict.kind is VerdictKind.UNKNOWN:
        return True
    return judged.verdict.kind is VerdictKind.WARMING_UP and judged.newest_seconds is None


def _with_hold(
    now: RecyclingStatus, before: RecyclingStatus | None, standing: Mapping[str, WorkerStatus]
) -> RecyclingStatus:
    """With the hold that was told of a worker for which that still stands."""
    hold = before.hold if before is not None and now.hold is None else None
    if hold is None or all(hold.pod != entry.pod for entry in standing.values()):
        return now
    return now.model_copy(update={"hold": hold})


def _entries(
    step: Step, workers: Sequence[WorkerFacts], standing: Mapping[str, WorkerStatus]
) -> tuple[WorkerStatus, ...]:
    is_cut = len(standing) >= SHOWN_WORKERS  # who was not among them has nothing to say now
    entries = [
        standing.get(worker.uid) or _entry(worker, step)
        for worker in workers
        if not is_cut or worker.uid in standing or not _is_unseen(step.judged.get(worker.uid))
    ]
    entries.sort(key=lambda entry: (_rank(entry), *_nearness(entry), entry.pod))
    return tuple(entries[:SHOWN_WORKERS])


def _entry(worker: WorkerFacts, step: Step) -> WorkerStatus:
    judged = step.judged.get(worker.uid) or Judged(worker.uid, UNSEEN)
    verdict, finding = judged.verdict, judged.verdict.finding
    hold = step.holds.get(worker.uid)
    says_more = hold is not None and hold.sentence != verdict.sentence
    hours = finding.hours_to_limit
    return WorkerStatus(
        pod=worker.name,
        uid=worker.uid,
        pool=worker.pool,
        verdict=verdict.kind.value,
        message=f"{verdict.sentence} {verdict.advice}".strip()[:LONGEST_MESSAGE],
        hold=hold.reason.value if hold is not None else "",
        hold_message=hold.sentence[:LONGEST_MESSAGE] if hold is not None and says_more else "",
        resident_bytes=finding.floor_bytes,
        limit_bytes=judged.limit_bytes,
        bytes_per_hour=finding.bytes_per_hour,
        lower_bytes_per_hour=finding.lower_bytes_per_hour,
        upper_bytes_per_hour=finding.upper_bytes_per_hour,
        hours_to_limit=None if hours is None else round(hours, 1),
        ttft_p95_seconds=_rounded(judged.ttft_p95_seconds),
        kv_used=_rounded(judged.kv_used),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _rank(entry: WorkerStatus) -> int:
    return _BY_URGENCY.index(VerdictKind(entry.verdict))


def _nearness(entry: WorkerStatus) -> tuple[float, ...]:
    """Among those in trouble the nearest to its limit stands first; the others keep their places."""
    if entry.verdict not in TROUBLE:
        return (0.0,)
    return (float("inf") if entry.hours_to_limit is None else entry.hours_to_limit,)


def _gist(entries: Sequence[WorkerStatus]) -> frozenset[tuple[str, str, str]]:
    return frozenset((entry.uid, entry.verdict, entry.hold) for entry in entries)


def _hold_gist(recycling: RecyclingStatus) -> tuple[str, str]:
    hold = recycling.hold
    return ("", "") if hold is None else (hold.pod, hold.reason)


def _trend(entries: Sequence[WorkerStatus]) -> str:
    """The worst verdict, and of how many when not of all."""
    if not entries:
        return UNTOLD
    worst = min(_rank(entry) for entry in entries)
    kind = _BY_URGENCY[worst].value
    count = sum(_rank(entry) == worst for entry in entries)
    return kind if count == len(entries) else f"{kind} {count}/{len(entries)}"


def _stable(
    entries: Sequence[WorkerStatus], recycling: RecyclingStatus, step: Step
) -> Condition | None:
    if any(hold.reason is HoldReason.OFF for hold in step.holds.values()):
        return _condition(
            Tristate.UNKNOWN, ConditionReason.NO_SERIES, "spec.recycling.mode is Off."
        )
    growing = [entry for entry in entries if entry.verdict in GROWING]
    if growing:
        words = " ".join(f"{entry.pod}: {entry.message}" for entry in growing[:NAMED_WORKERS])
        more = len(growing) - NAMED_WORKERS
        words += f" And {counted(more, 'worker')} more." if more > 0 else ""
        hold = recycling.hold
        if hold is not None and hold.message:
            words += f" {hold.pod} is left alone ({hold.reason}): {hold.message}"
        return _condition(Tristate.FALSE, _growth_reason(growing, recycling), words)
    unknown = [e for e in entries if e.verdict in (VerdictKind.UNKNOWN, VerdictKind.WARMING_UP)]
    if unknown or not entries:
        is_warming = any(entry.verdict == VerdictKind.WARMING_UP for entry in unknown)
        return _condition(
            Tristate.UNKNOWN,
            ConditionReason.WARMING_UP if is_warming else ConditionReason.NO_SERIES,
            f"{unknown[0].pod}: {unknown[0].message}" if unknown else "No worker runs.",
        )
    pressed = [entry for entry in entries if entry.verdict == VerdictKind.PRESSURE]
    if pressed:
        return _condition(
            Tristate.TRUE,
            ConditionReason.PRESSURE,
            "No worker's memory grows. "
            + " ".join(f"{entry.pod}: {entry.message}" for entry in pressed[:NAMED_WORKERS]),
        )
    return _condition(Tristate.TRUE, ConditionReason.STEADY, "No worker's memory grows.")


def _growth_reason(growing: Sequence[WorkerStatus], recycling: RecyclingStatus) -> ConditionReason:
    if _common_cause(recycling):
        return ConditionReason.COMMON_CAUSE
    is_loud = any(entry.verdict == VerdictKind.GROWTH for entry in growing)
    return ConditionReason.GROWTH if is_loud else ConditionReason.QUIET_GROWTH


def _common_cause(recycling: RecyclingStatus) -> str:
    hold = recycling.hold
    return hold.message if hold is not None and hold.reason in COMMON else ""


def _condition(status: Tristate, reason: ConditionReason, message: str) -> Condition:
    return Condition(
        type=ConditionName.MEMORY_STABLE.value, status=status, reason=reason.value, message=message
    )
