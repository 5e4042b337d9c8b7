"""What is remembered of one container from its start on?

Samples of the bin that is open, and figures of the bins that are closed. A restart is another life.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from plimsoll.controller.columns import Columns
from plimsoll.diagnose.floors import floors
from plimsoll.facts.series import EngineSample, FloorBin, LatencyBin, Sample, Series
from plimsoll.facts.watched import (
    Buckets,
    EngineReading,
    MemorySample,
    PastLife,
    added,
    gained,
    quantile,
)

GRACE: Final = 0.1
"""Part of a bin that late samples are waited for after its end: a minute of ten."""
SAME_START_SECONDS: Final = 10.0
"""The kubelet gives a container's creation, cAdvisor that of its cgroup: one start, seconds apart. A
container that died comes back 10 s later at the earliest (kubelet, CrashLoopBackOff)."""


_KV_USED: Final = EngineSample._fields.index("kv_used")
_HEALTHY: Final = EngineSample._fields.index("healthy")  # the last


class Terms(NamedTuple):
    """How much is remembered, and how finely."""

    bin_seconds: float = 600.0
    keep_seconds: float = 72 * 3600.0
    stale_seconds: float = 120.0
    engine_step_seconds: float = 60.0
    """Between the engine samples that are kept; the newest is always there."""
    engine_seconds: float = 2 * 3600.0
    resident_seconds: float = 3600.0
    backlog: int = 4096
    """Samples of bins that are not closed; more is no honest source."""


class Life:
    """One container's life so far."""

    def __init__(self, terms: Terms, *, started_seconds: float | None = None) -> None:
        self._terms = terms
        self.started_seconds = started_seconds
        """As the memory source says; None until it has."""
        self.status_started_seconds: float | None = None
        """As the pod's status says; compared with itself only, the two clocks differ."""
        self.newest_seconds: float | None = None
        """Of memory."""
        self._memory: list[Sample] = []
        self._load: list[Sample] = []
        self._work: list[Sample] = []
        self._bins = Columns(len(FloorBin._fields))
        self._latencies = Columns(len(LatencyBin._fields))
        self._engine = Columns(len(EngineSample._fields))
        self._resident = Columns(len(Sample._fields))
        self._peak: float | None = None
        self._done: float | None = None
        self._closed_seconds = 0.0
        self._ttft: Buckets = ()
        self._ttft_seconds: float | None = None
        self._open: Buckets = ()
        self._before: Buckets = ()

    def take_memory(self, sample: MemorySample) -> None:
        """A newer sample; one that is known already changes nothing."""
        if self.newest_seconds is not None and sample.at_seconds <= self.newest_seconds:
            return
        self.newest_seconds = sample.at_seconds
        seen = Sample(sample.at_seconds, float(sample.resident_bytes))
        self._memory = [*self._memory[-self._terms.backlog :], seen]
        self._resident.append(seen)
        self._resident.drop_before(sample.at_seconds - self._terms.resident_seconds)

    def take_engine(self, reading: EngineReading) -> None:
        """A newer scrape of the engine."""
        sample, at = reading.sample, reading.sample.at_seconds
        last = self._engine.last()
        if last is not None and last[0] is not None and at <= last[0]:
            return
        before = self._engine.last(2)
        is_close = (
            before is not None
            and last is not None
            and (last[0] or 0.0) - (before[0] or 0.0) < self._terms.engine_step_seconds
        )
        (self._engine.replace_last if is_close else self._engine.append)(sample)
        self._engine.drop_before(at - self._terms.engine_seconds)
        if sample.running is not None:
            self._load = [*self._load[-self._terms.backlog :], Sample(at, sample.running)]
        work = sample.generated_tokens if sample.generated_tokens is not None else sample.requests
        if work is not None:
            self._work = [*self._work[-self._terms.backlog :], Sample(at, work)]
        self._take_ttft(at, reading.ttft)

    def _take_ttft(self, at_seconds: float, ttft: Buckets) -> None:
        """What the histogram gained since the scrape before; a gap of more than a bin belongs to none."""
        is_near = (
            self._ttft_seconds is not None
            and at_seconds - self._ttft_seconds <= self._terms.bin_seconds
        )
        if is_near and (gain := gained(self._ttft, ttft)):
            self._open = added(self._open, gain) if self._open else gain
        self._ttft, self._ttft_seconds = ttft, at_seconds

    def close_bins(self, now_seconds: float) -> bool:
        """Turn samples of bins that ended into floors; whether there was a bin to close."""
        size = self._terms.bin_seconds
        end = (now_seconds - GRACE * size) // size * size
        if end <= self._closed_seconds:
            return False
        for closed in floors(
            tuple(self._memory), load=tuple(self._load), work=tuple(self._work),
            now_seconds=end, bin_seconds=size,
        ):  # fmt: skip
            self._add_bin(closed)
        self._peak = _most(self._peak, _highest_mean(self._load, end, size))
        self._close_latency(end)
        self._memory, self._load, self._work = (
            [sample for sample in series if sample.at_seconds > end]
            for series in (self._memory, self._load, self._work)
        )
        for columns in (self._bins, self._latencies):
            columns.drop_before(now_seconds - self._terms.keep_seconds)
        self._closed_seconds = end
        return True

    def _add_bin(self, closed: FloorBin) -> None:
        last = self._bins.last()
        if last is not None and closed.at_seconds <= (last[0] or 0.0):
            return
        work = closed.work
        if work is not None and self._done is not None and work < self._done:
            work = None  # the engine counts anew inside a container that lives on
        self._done = work if work is not None else self._done
        self._bins.append(closed._replace(peak_load=_most(self._peak, closed.peak_load), work=work))

    def _close_latency(self, end_seconds: float) -> None:
        requests = round(self._open[-1].total) if self._open else 0
        if requests > 0:
            p50, p95 = quantile(self._open, 0.5), quantile(self._open, 0.95)
            self._latencies.append(LatencyBin(end_seconds, requests, p50, p95))
        self._before, self._open = self._open, ()

    def ttft_p95_seconds(self, now_seconds: float) -> float | None:
        """Of the bin that is open and the one before it; None without requests, or stale."""
        if self._ttft_seconds is None or not self._is_fresh(self._ttft_seconds, now_seconds):
            return None
        both = added(self._before, self._open) if self._before and self._open else ()
        return quantile(both or self._open or self._before, 0.95)

    def kv_used(self, now_seconds: float) -> float | None:
        """At the last scrape; None when it did not say, or is stale."""
        last = self._engine.last()
        if last is None or not self._is_fresh(last[0] or 0.0, now_seconds):
            return None
        return last[_KV_USED]

    def resident_bytes(self, now_seconds: float) -> int | None:
        """The newest; None when it is stale."""
        last = self._resident.last()
        if last is None or not self._is_fresh(last[0] or 0.0, now_seconds):
            return None
        return round(last[1] or 0.0) or None

    def _is_fresh(self, at_seconds: float, now_seconds: float) -> bool:
        return now_seconds - at_seconds <= self._terms.stale_seconds

    def bins(self, newest: int | None = None) -> tuple[FloorBin, ...]:
        """All, or so many of the newest; oldest first."""
        return tuple(
            FloorBin(row[0] or 0.0, round(row[1] or 0.0), *row[2:])
            for row in self._bins.rows(newest)
        )

    def latencies(self, newest: int | None = None) -> tuple[LatencyBin, ...]:
        """All, or so many of the newest; oldest first."""
        return tuple(
            LatencyBin(row[0] or 0.0, round(row[1] or 0.0), *row[2:])
            for row in self._latencies.rows(newest)
        )

    def engine(self) -> tuple[EngineSample, ...]:
        """Oldest first."""
        return tuple(
            EngineSample._make(row)._replace(
                healthy=None if row[_HEALTHY] is None else bool(row[_HEALTHY])
            )
            for row in self._engine.rows()
        )

    def resident(self) -> Series:
        """Oldest first."""
        return tuple(Sample(row[0] or 0.0, row[1] or 0.0) for row in self._resident.rows())

    def is_same_start(self, started_seconds: float) -> bool:
        """Whether that start, as a memory source has it, is this one."""
        return (
            self.started_seconds is not None
            and abs(self.started_seconds - started_seconds) <= SAME_START_SECONDS
        )

    def remember(self, past: PastLife) -> None:
        """Put what was kept of this very life before what has been seen since."""
        own, own_latencies = self.bins(), self.latencies()
        first = own[0].at_seconds if own else float("inf")
        before = [each for each in past.bins if each.at_seconds < first]
        self._peak = _most(self._peak, past.bins[-1].peak_load if past.bins else None)
        self._bins = _filled(len(FloorBin._fields), _peaked([*before, *own]))
        first = own_latencies[0].at_seconds if own_latencies else float("inf")
        older = [each for each in past.latencies if each.at_seconds < first]
        self._latencies = _filled(len(LatencyBin._fields), [*older, *own_latencies])
        if self._done is None:
            self._done = next((b.work for b in reversed(before) if b.work is not None), None)


def _filled(width: int, rows: Iterable[tuple[float | None, ...]]) -> Columns:
    columns = Columns(width)
    for row in rows:
        columns.append(row)
    return columns


def _peaked(bins: Iterable[FloorBin]) -> Iterable[FloorBin]:
    """The high-water mark of the load never falls within a life."""
    peak: float | None = None
    for each in bins:
        peak = _most(peak, each.peak_load)
        yield each._replace(peak_load=peak)


def _highest_mean(load: Iterable[Sample], end_seconds: float, size: float) -> float | None:
    """Highest mean of a bin that ends by then: a bin without memory has load all the same."""
    found: dict[float, list[float]] = {}
    for at, value in load:
        bin_end = -(-at // size) * size
        if bin_end <= end_seconds:
            found.setdefault(bin_end, []).append(value)
    return max((sum(values) / len(values) for values in found.values()), default=None)


def _most(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
