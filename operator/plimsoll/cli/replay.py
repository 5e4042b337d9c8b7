"""What would have been said of a recorded worker, hour by hour, and what at its end?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from plimsoll.diagnose import recycle
from plimsoll.diagnose.floors import LEAST_SAMPLES, floors, percentile
from plimsoll.diagnose.records import Verdict, VerdictKind
from plimsoll.diagnose.recycle import Case, Hold, Policy, Recycle, Situation, Worker
from plimsoll.diagnose.settings import SlopeSettings
from plimsoll.diagnose.verdict import verdict
from plimsoll.facts.series import (
    ContainerLife,
    EngineSample,
    FloorBin,
    LatencyBin,
    Series,
    WorkerHistory,
)

MOST_LOOKS: Final = 400
"""Moments that are judged; a longer record is judged less often than each ten minutes."""
KEPT_HOURS: Final = 72.0
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
    waiting: Series = ()
    """Requests that wait."""
    kv_used: Series = ()
    """Part of the KV pool in use, 0 to 1."""
    preemptions: Series = ()
    """A counter."""
    requests: Series = ()
    """Finished ones, a counter."""
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
    life_seconds: tuple[float, ...] = ()
    """How long each of them lasted, oldest first."""
    before: VerdictKind | None = None
    """What the life before the newest one came to."""


def replay(recording: Recording, settings: SlopeSettings) -> Replay:
    """Judge the recording as the operator would have: one worker of a pool whose others are well and
    flat, with a card free for a successor, any time of the week.

    Where samples come less often than once an hour, every window is stretched in proportion: so many
    samples say as much of days as they would of hours.
    """
    lives = list(lives_of(recording.memory))
    found = _replayed(lives[-1], recording, settings, every=1)
    before = _replayed(lives[-2], recording, settings, every=0) if len(lives) > 1 else None
    return found._replace(
        lives=len(lives),
        life_seconds=tuple(life[-1].at_seconds - life[0].at_seconds for life in lives),
        before=before.moments[-1].verdict.kind if before is not None and before.moments else None,
    )


def _replayed(memory: Series, recording: Recording, settings: SlopeSettings, every: int) -> Replay:
    """One life, judged all along or, with `every` 0, at its end alone."""
    size = bin_seconds(memory, settings.hour_seconds * settings.bin_hours)
    hour = max(settings.hour_seconds, size)
    settings = settings._replace(hour_seconds=hour, bin_hours=size / hour)
    least = max(1, min(LEAST_SAMPLES, int(size / spacing(memory) / 4)))
    started, end = memory[0].at_seconds, memory[-1].at_seconds
    told, is_first = recording.ready_seconds, memory[0] == recording.memory[0]
    ready = told if told is not None and (is_first or told >= started) else started
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
        engine=engine_samples(recording, bins, size),
    )
    moments = []
    for at in _times(bins, size)[0 if every else -1 :]:
        seen = tuple(b for b in bins if at - KEPT_HOURS * hour < b.at_seconds <= at)
        known = history._replace(
            bins=seen,
            latencies=tuple(b for b in history.latencies if b.at_seconds <= at),
            newest_seconds=seen[-1].at_seconds if seen else None,
        )
        said = verdict(known, now_seconds=at, settings=settings)
        moments.append(Moment(at, said, _decision(said, known, at, settings)))
    return Replay(tuple(moments), bins, 1, size)


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


def bin_seconds(series: Series, usual: float) -> float:
    """The usual length; more where samples come less often."""
    return usual * max(1, math.ceil(spacing(series) / usual - 0.05))


def engine_samples(
    recording: Recording, bins: Sequence[FloorBin], size: float
) -> tuple[EngineSample, ...]:
    """What the engine said of itself, at the end of each bin; empty where nothing was given."""
    waiting, kv_used = _means(recording.waiting, size), _means(recording.kv_used, size)
    preemptions, requests = _lasts(recording.preemptions, size), _lasts(recording.requests, size)
    if not (waiting or kv_used or preemptions or requests):
        return ()
    return tuple(
        EngineSample(
            at_seconds=each.at_seconds,
            running=each.load,
            waiting=waiting.get(each.at_seconds),
            kv_used=kv_used.get(each.at_seconds),
            preemptions=preemptions.get(each.at_seconds),
            requests=requests.get(each.at_seconds),
        )
        for each in bins
    )


def _means(series: Series, size: float) -> dict[float, float]:
    grouped = groupby(series, key=lambda s: math.ceil(s.at_seconds / size) * size)
    return {end: statistics.fmean(s.value for s in group) for end, group in grouped}


def _lasts(series: Series, size: float) -> dict[float, float]:
    return {math.ceil(s.at_seconds / size) * size: s.value for s in series}


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
