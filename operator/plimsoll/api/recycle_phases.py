"""How far is the recycle that is under way?

What the pods show counts for more than what we remember of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from plimsoll.api.judged import Judged
from plimsoll.api.recycle_around import Around, Told
from plimsoll.api.recycling import Phase, drain_seconds, seconds_of, text_of
from plimsoll.api.status_types import BlockedStatus, RecycleEntry
from plimsoll.diagnose.records import VerdictKind
from plimsoll.diagnose.recycle import Mode, Policy
from plimsoll.facts.worker import WorkerFacts
from plimsoll.render.lifecycle import PRE_STOP_SECONDS

SURGE_SECONDS: Final = 300.0
"""A successor that finds no card for so long is taken back."""
REPLACE_SECONDS: Final = 2 * 3600.0
"""No longer is a successor waited for: weights from the slowest disk and an image of 10 GB come sooner."""
BLOCKED_SECONDS: Final = 900.0
"""Until the next try after an eviction that was not allowed; it doubles each time."""
SKEW_SECONDS: Final = 5.0
"""A pod made so long before our intent, by the API server's clock, may be the successor."""

_CALM: Final = frozenset({VerdictKind.STEADY, VerdictKind.PRESSURE})


class After(NamedTuple):
    """What became of it."""

    entry: RecycleEntry | None
    """The recycle from now on; None when it is given up before anything was done."""
    told: tuple[Told, ...] = ()
    is_done_now: bool = False
    """Whether the worker has just gone by our doing."""
    blocked: BlockedStatus | None = None


def advance(
    entry: RecycleEntry, around: Around, policy: Policy, judged: Mapping[str, Judged]
) -> After:
    """One phase further, where the world is so far."""
    victim = next((each for each in around.workers if each.uid == entry.uid), None)
    is_gone = victim is None or victim.is_terminating
    match entry.phase:
        case Phase.REPLACING:
            return After(_replaced(entry, around, policy))
        case Phase.EVICTING if is_gone:
            return After(
                _at(entry, Phase.REPLACING, around), (_told_done(entry),), is_done_now=True
            )
        case Phase.EVICTING:
            return After(entry)
    if is_gone:
        return After(None)  # somebody else ended it
    if why := _no_longer_wanted(entry, around, policy, judged):
        return After(
            None,
            (Told(reason="RecycleTakenBack", message=f"{entry.pod} stays: {why}"),),
        )
    if entry.phase == Phase.SURGING:
        return _surged(entry, around)
    if _is_drained(entry, around, judged[entry.uid]):
        return After(_at(entry, Phase.EVICTING, around))
    return After(entry)


def _no_longer_wanted(
    entry: RecycleEntry, around: Around, policy: Policy, judged: Mapping[str, Judged]
) -> str:
    """Why a recycle that has not done anything final yet is taken back; empty when it goes on.

    That figures are missing for a while is no reason: the decision rested on figures.
    """
    if policy.mode is not Mode.AUTO:
        return f"spec.recycling.mode is {policy.mode.value}."
    pool = around.pools.get(entry.pool)
    if pool is None or pool.is_moving:
        return "its pool is rolling out or being scaled."
    verdict = judged[entry.uid].verdict
    if entry.reason != VerdictKind.HUNG and verdict.kind in _CALM:
        return f"it is {verdict.kind.value} now."
    return ""


def _surged(entry: RecycleEntry, around: Around) -> After:
    since = _since(entry, around)
    successor = _successor(entry, around)
    if successor is not None and successor.is_ready:
        return After(
            _at(entry, Phase.DRAINING, around).model_copy(update={"successor_uid": successor.uid})
        )
    finds_none = successor is None or successor.node is None
    if since <= (SURGE_SECONDS if finds_none else REPLACE_SECONDS):
        return After(entry)
    why = "found no card" if finds_none else "was not Ready"
    until = text_of(around.now_seconds + BLOCKED_SECONDS)
    message = f"A successor for {entry.pod} {why} for {since / 60:.0f} min and was taken back."
    blocked = BlockedStatus(pool=entry.pool, message=message, until=until)
    return After(
        None, (Told(reason="RecycleTakenBack", message=message, is_warning=True),), blocked=blocked
    )


def _is_drained(entry: RecycleEntry, around: Around, judged: Judged) -> bool:
    """Whether the worker has nothing in flight, or has had its time.

    For the first seconds proxies may still send it requests; a figure from then says nothing. Gates know
    better: they are the only proxies, and say that they have drained it.
    """
    since = _since(entry, around)
    if around.drained_at_gates is not None and entry.pod in around.drained_at_gates:
        return True
    if since < PRE_STOP_SECONDS:
        return False
    if since >= drain_seconds(around.spec) or entry.reason == VerdictKind.HUNG:
        return True
    if around.drained_at_gates is not None:
        return False
    settled = (seconds_of(entry.phase_at) or around.now_seconds) + PRE_STOP_SECONDS
    seen = judged.in_flight_seconds
    return seen is not None and seen >= settled and judged.in_flight == 0


def _replaced(entry: RecycleEntry, around: Around, policy: Policy) -> RecycleEntry:
    successor = _successor(entry, around)
    if successor is not None:
        entry = entry.model_copy(update={"successor_uid": successor.uid})
    ready = successor.ready_seconds if successor is not None else None
    if ready is not None and around.now_seconds - ready >= policy.warm_up_seconds:
        return _ended(entry, Phase.DONE, around)
    if ready is None and _since(entry, around) > REPLACE_SECONDS:
        return _ended(entry, Phase.GIVEN_UP, around)
    return entry


def _successor(entry: RecycleEntry, around: Around) -> WorkerFacts | None:
    """The pod in the worker's place: the one that is recorded, else the first of the pool that was made
    after the intent."""
    at = seconds_of(entry.at) or 0.0
    alive = [
        each
        for each in around.workers
        if each.pool == entry.pool and each.uid != entry.uid and not each.is_terminating
    ]
    for each in alive:
        if each.uid == entry.successor_uid:
            return each
    made = [
        (each.created_seconds, each.name, each)
        for each in alive
        if each.created_seconds is not None and each.created_seconds >= at - SKEW_SECONDS
    ]
    return min(made)[2] if made else None


def _at(entry: RecycleEntry, phase: Phase, around: Around) -> RecycleEntry:
    now = text_of(around.now_seconds)
    return entry.model_copy(update={"phase": phase.value, "phase_at": now})


def _ended(entry: RecycleEntry, phase: Phase, around: Around) -> RecycleEntry:
    now = text_of(around.now_seconds)
    return _at(entry, phase, around).model_copy(update={"ended_at": now})


def _since(entry: RecycleEntry, around: Around) -> float:
    at = seconds_of(entry.phase_at)
    return 0.0 if at is None else around.now_seconds - at


def _told_done(entry: RecycleEntry) -> Told:
    return Told(
        reason="WorkerRecycled",
        message=f"{entry.pod} was evicted ({entry.reason}). {entry.message}",
    )
