"""What would have been said of a recorded worker, hour by hour, and what at its end?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from plimsoll.diagnose import recycle
from plimsoll.diagnose.floors import BIN_SECONDS, LEAST_SAMPLES, floors, percentile
from plimsoll.diagnose.records import Verdict
from plimsoll.diagnose.recycle import Case, Hold, Policy, Recycle, Situation, Worker
from plimsoll.diagnose.settings import SlopeSettings
from plimsoll.diagnose.verdict import verdict
from plimsoll.facts.series import (
    ContainerLife,
    FloorBin,
    LatencyBin,
    Series,
    WorkerHistory,
)

MOST_LOOKS: Final = 400
"""Moments that are judged; a longer record is judged less often than each ten minutes."""
KEPT_SECONDS: Final = 72 * 3600.0
"""As the operator keeps."""
POD: Final = "recorded"


class Recording(NamedTuple):
    """What was recorded of one worker."""

    memory: Series
    """Resident bytes (anonymous and swap)."""
    ttft: Series = ()
    """Seconds to the first token: single ones, or p95s."""
    load: Series = ()
    """Requests in flight."""
    work: Series = ()
    """Tokens or requests done, a counter."""
    limit_bytes: int | None = None
    cache_cap_bytes: int = 0
    ready_seconds: float | None = None
    """When it was Ready; its first sample when not known."""


class Moment(NamedTuple):
    """What is said at one time."""

    at_seconds: float
    verdict: Verdict
    decision: Recycle | Hold


class Replay(NamedTuple):
    """What was said over time, and what it was said of."""

    moments: tuple[Moment, ...]
    """Of the newest life."""
    bins: tuple[FloorBin, ...]
    lives: int
    """Starts that the memory shows."""
    bin_seconds: float


def replay(recording: Recording, settings: SlopeSettings) -> Replay:
    """Judge the recording as the operator would have: one worker of a pool whose others are well and
    flat, with a card free for a successor, any time of the week."""
    lives = list(lives_of(recording.memory))
    memory = lives[-1]
    size = bin_seconds(memory)
    least = max(1, min(LEAST_SAMPLES, int(size / spacing(memory) / 4)))
    started, end = memory[0].at_seconds, memory[-1].at_seconds
    ready = started
    if len(lives) == 1 and recording.ready_seconds is not None:
        ready = recording.ready_seconds
    now = math.ceil(end / size) * size
    bins = floors(
        memory,
        load=recording.load,
        work=recording.work,
        now_seconds=now,
        started_seconds=started,
        bin_seconds=size,
        least_samples=least,
    )
    history = WorkerHistory(
        life=ContainerLife(POD, POD, started),
        pod=POD,
        ready_seconds=ready,
        limit_bytes=recording.limit_bytes,
        cache_cap_bytes=recording.cache_cap_bytes,
        newest_seconds=end,
        latencies=latency_bins(recording.ttft, size),
    )
    settings = settings._replace(bin_hours=size / settings.hour_seconds)
    moments = []
    for at in _times(bins, size):
        seen = tuple(b for b in bins if at - KEPT_SECONDS < b.at_seconds <= at)
        known = history._replace(
            bins=seen,
            latencies=tuple(b for b in history.latencies if b.at_seconds <= at),
            newest_seconds=seen[-1].at_seconds if seen else None,
        )
        said = verdict(known, now_seconds=at, settings=settings)
        moments.append(Moment(at, said, _decision(said, known, at, settings)))
    return Replay(tuple(moments), bins, len(lives), size)


def lives_of(memory: Series) -> Iterator[Series]:
    """The memory of each container start. A fall by more than half, to no more than a quarter above
    where the life began, is a restart: no cache gives back that much and its own beginning too."""
    first = 0
    for at in range(1, len(memory)):
        before, after = memory[at - 1].value, memory[at].value
        if after < before / 2 and after <= 1.25 * memory[first].value:
            yield memory[first:at]
            first = at
    yield memory[first:]


def spacing(series: Series) -> float:
    """Usual seconds from one sample to the next."""
    gaps = [b.at_seconds - a.at_seconds for a, b in pairwise(series)]
    positive = [gap for gap in gaps if gap > 0]
    return statistics.median(positive) if positive else 30.0


def bin_seconds(series: Series) -> float:
    """Ten minutes; more where samples come less often."""
    return BIN_SECONDS * max(1, math.ceil(spacing(series) / BIN_SECONDS - 0.05))


def latency_bins(ttft: Series, size: float) -> tuple[LatencyBin, ...]:
    """The 95th percentile of what stands in each bin."""
    found = []
    for end, group in groupby(ttft, key=lambda s: math.ceil(s.at_seconds / size) * size):
        values = sorted(sample.value for sample in group)
        found.append(
            LatencyBin(
                at_seconds=end,
                requests=len(values),
                ttft_p50_seconds=percentile(values, 0.5),
                ttft_p95_seconds=percentile(values, 0.95),
            )
        )
    return tuple(found)


def _times(bins: Sequence[FloorBin], size: float) -> list[float]:
    """Ends of bins, every so many, the last one always among them."""
    if not bins:
        return []
    first, last = bins[0].at_seconds, bins[-1].at_seconds
    count = round((last - first) / size) + 1
    step = max(1, math.ceil(count / MOST_LOOKS))
    return [last - back * step * size for back in range((count - 1) // step + 1)][::-1]


def _decision(
    said: Verdict, history: WorkerHistory, now: float, settings: SlopeSettings
) -> Recycle | Hold:
    hour = settings.hour_seconds
    worker = Worker(
        pod=POD,
        uid=POD,
        pool=POD,
        verdict=said,
        ready_seconds=history.ready_seconds,
        newest_seconds=now,
    )
    situation = Situation(
        replicas_wanted=1, operator_started_seconds=-math.inf, has_spare_card=True
    )
    policy = Policy(warm_up_seconds=settings.warm_up_hours * hour)
    return recycle.choose(Case(now, worker, policy, situation))
