"""What does `decide` learn of the workers' memory: who was judged how, and under which terms?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from plimsoll.diagnose.prefix import PrefixUse, use_of
from plimsoll.diagnose.records import Finding, Gap, Trend, Verdict, VerdictKind
from plimsoll.facts.series import WorkerHistory
from plimsoll.facts.worker import WorkerFacts

UNSEEN: Final = Verdict(
    kind=VerdictKind.UNKNOWN,
    sentence="Its memory has not been seen yet.",
    finding=Finding(trend=Trend.UNKNOWN, gap=Gap.NO_DATA),
)
"""Of a worker that nobody has watched yet."""


class Judged(NamedTuple):
    """One worker's verdict, and the figures that are told beside it."""

    uid: str
    """UID of the pod."""
    verdict: Verdict = UNSEEN
    newest_seconds: float | None = None
    """When its memory was last seen."""
    ready_seconds: float | None = None
    limit_bytes: int | None = None
    in_flight: float | None = None
    """Requests that it works on or that wait in it, at `in_flight_seconds`."""
    in_flight_seconds: float | None = None
    ttft_p95_seconds: float | None = None
    kv_used: float | None = None
    prefix: PrefixUse | None = None
    """What its prefix cache was asked and found; None where it does not say."""


class Watched(NamedTuple):
    """The verdicts of one moment, and the terms under which they count."""

    judged: tuple[Judged, ...] = ()
    operator_started_seconds: float = 0.0
    settle_seconds: float = 120.0
    """After the operator's start nobody is recycled for so long."""
    stale_seconds: float = 120.0
    """Memory that was last seen longer ago says nothing."""
    hour_seconds: float = 3600.0
    """Length of an hour in every default of recycling; shorter in trials."""


def judged_of(history: WorkerHistory, verdict: Verdict) -> Judged:
    """The verdict with the newest figures of the history."""
    engine = history.engine[-1] if history.engine else None
    latency = history.latencies[-1] if history.latencies else None
    in_flight = None
    if engine is not None and engine.running is not None:
        in_flight = engine.running + (engine.waiting or 0.0)
    return Judged(
        uid=history.life.pod_uid,
        verdict=verdict,
        newest_seconds=history.newest_seconds,
        ready_seconds=history.ready_seconds,
        limit_bytes=history.limit_bytes,
        in_flight=in_flight,
        in_flight_seconds=engine.at_seconds if engine is not None else None,
        ttft_p95_seconds=latency.ttft_p95_seconds if latency is not None else None,
        kv_used=engine.kv_used if engine is not None else None,
        prefix=use_of(history.engine),
    )


def by_uid(watched: Watched, workers: Iterable[WorkerFacts]) -> Mapping[str, Judged]:
    """One for every worker that is there; those that nobody has watched are Unknown."""
    known = {each.uid: each for each in watched.judged}
    return {
        worker.uid: known.get(worker.uid) or Judged(worker.uid, ready_seconds=worker.ready_seconds)
        for worker in workers
    }
