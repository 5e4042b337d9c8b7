"""What is there to see of one life at one moment, with the load taken out?

Times are in hours before that moment (never above 0), values in bytes.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from plimsoll.diagnose import load
from plimsoll.diagnose.records import Doubt, Rule
from plimsoll.diagnose.robust import (
    Line,
    Slope,
    interpolated,
    median,
    rolling_minima,
    step_heights,
    theil_sen,
)
from plimsoll.diagnose.settings import SlopeSettings
from plimsoll.facts.series import FloorBin

EMPTY: Final = Line([], [])


class Seen(NamedTuple):
    """Growth, as one rule saw it."""

    rule: Rule
    hours: float
    """That the slope was taken over."""
    slope: Slope
    """Bytes per hour of the settings."""
    grown_bytes: float
    since_start: bool
    doubt: Doubt | None
    bytes_per_work: float | None = None


class Bounds(NamedTuple):
    """What is declared about the container."""

    allowance_bytes: int = 0
    """Cache caps that may still fill."""
    limit_bytes: int | None = None


class View:
    """One life as it stands at one moment."""

    def __init__(
        self,
        bins: Sequence[FloorBin],
        at_seconds: float,
        ready_seconds: float,
        bounds: Bounds,
        settings: SlopeSettings,
    ) -> None:
        """`bins` are of this life alone, oldest first."""
        self.settings, self.bounds = settings, bounds
        hour = settings.hour_seconds
        slack = hour / 3600
        last = bisect_right(bins, at_seconds + slack, key=lambda b: b.at_seconds)
        first = bisect_right(bins, ready_seconds + slack, key=lambda b: b.at_seconds)
        warm = ready_seconds + settings.warm_up_hours * hour
        self.bins = bins[first:last]
        """Since Ready."""
        self.times = [(b.at_seconds - at_seconds) / hour for b in self.bins]
        self.age = (at_seconds - warm) / hour
        """Since the warm-up ended; negative before that."""
        self.settled_from = bisect_right(self.times, -self.age - settings.bin_hours / 2)

    @property
    def has_enough(self) -> bool:
        """Two hours of bins, or six where bins are long; with fewer there is nothing to see."""
        least = max(6, round(2 / self.settings.bin_hours))
        return len(self.line.times) >= least

    @cached_property
    def line(self) -> Line:
        """Floors since the warm-up ended."""
        at = self.settled_from
        return Line(self.times[at:], [float(b.floor_bytes) for b in self.bins[at:]])

    @cached_property
    def load_is_known(self) -> bool:
        """For all but one bin in ten, and the peak with it."""
        after = self.bins[self.settled_from :]
        known = sum(b.load is not None and b.peak_load is not None for b in after)
        return bool(after) and known >= 0.9 * len(after)

    @cached_property
    def base_bytes(self) -> float:
        """Where the floor stood when the warm-up was over."""
        return median(self.line.values[:6])

    @cached_property
    def stepless(self) -> list[float] | None:
        """Floors without large steps, as memory and load are compared; None when there is too little."""
        hourly = self._minima(self.line, 1.0)
        if len(hourly.times) < 7:
            return None
        settings = self.settings
        heights = step_heights(
            hourly,
            lag=settings.minimum_hours,
            sigmas=settings.load_step_sigmas,
            noise=settings.step_noise_bytes,
            longest=settings.step_hours,
        )
        steps = interpolated(Line(hourly.times, heights), self.line.times)
        return [value - step for value, step in zip(self.line.values, steps, strict=True)]

    @cached_property
    def free(self) -> Line | None:
        """Floors without what the load explains; as they are where it is not known; None when there is
        too little to say."""
        if not self.load_is_known:
            return self.line
        if self.stepless is None:
            return None
        explained = load.of_load(self.line.times, self.stepless, *self.loads)
        return None if explained is None else self._less(explained)

    @cached_property
    def unexplained(self) -> Line:
        """Minima each hour of what no load explains, whatever the load can imitate laid on it."""
        if self.stepless is None or not self.load_is_known:
            return self.hourly
        explained = load.of_load_alone(self.line.times, self.stepless, *self.loads)
        return self._minima(self._less(explained), 1.0)

    @cached_property
    def fine(self) -> Line:
        """Minima each half hour of the longest horizon, the load removed."""
        longest = max(horizon.hours for horizon in self.settings.horizons)
        return self._minima(self.free, self.settings.fine_hours, longest) if self.free else EMPTY

    @cached_property
    def plain(self) -> Line:
        """Minima each hour of the longest horizon, the load in them."""
        longest = max(horizon.hours for horizon in self.settings.horizons)
        return self._minima(self.line, 1.0, longest)

    @cached_property
    def hourly(self) -> Line:
        """Minima each hour of the life, the load removed."""
        return self._minima(self.free, 1.0) if self.free else EMPTY

    @cached_property
    def stretches(self) -> list[tuple[float, float]]:
        """Of all stretches of `flat_hours`: when they end, and their slope."""
        times, values = self.hourly
        width = round(self.settings.flat_hours)
        found = []
        for first in range(len(times) - width):
            last = first + width
            if times[last] - times[first] < 1.5 * width:
                part = Line(times[first : last + 1], values[first : last + 1])
                found.append((times[last], theil_sen(part).middle))
        return found

    def was_flat(self, slope: Slope, hours: float) -> bool:
        """Whether the memory has been flat in this life, before it began to rise."""
        if not self.stretches:
            return False
        before = self.hourly.times[-1] - max(2.0, hours * self.settings.before_share)
        least = self.settings.flat_share * slope.middle
        return any(end <= before and each < least for end, each in self.stretches)

    def has_ended(self, slope: Slope) -> bool:
        """Whether the newest stretch is flat again."""
        least = self.settings.ended_share * slope.middle
        return any(end == self.hourly.times[-1] and each < least for end, each in self.stretches)

    def covers(self, hours: float) -> bool:
        """Whether the life is as long as this horizon and enough of its bins are there."""
        times = self.line.times
        there = len(times) - bisect_right(times, times[-1] - hours - 1e-9)
        return self.age >= hours - 1e-9 and there >= (
            self.settings.coverage * hours / self.settings.bin_hours
        )

    def is_new_high(self, hours: float, grown: float) -> bool:
        """Whether memory stands above all that it held before these hours, by a part of the growth: a tide
        and a sawtooth come back to where they were, a leak does not."""
        times, values = self.plain
        before = values[: bisect_right(times, times[-1] - hours - 1e-9)]
        return not before or values[-1] >= max(before) + self.settings.plain_share * grown

    def doubt(self, slope: Slope, hours: float) -> tuple[bool, Doubt | None]:
        """Whether the rise goes on since the start, and what else it could then be."""
        settings = self.settings
        since_start = not self.was_flat(slope, hours)
        if self.hours_to_limit(slope) < settings.near_hours:
            return since_start, None
        if not self.load_is_known and hours < settings.tide_hours:
            return since_start, Doubt.LOAD_UNKNOWN
        if not since_start:
            return False, None
        cap = self.bounds.allowance_bytes or settings.largest_cache_bytes
        grown = self.line.values[-1] - self.base_bytes
        if grown > settings.cache_margin * cap:
            return True, None
        if self.age >= settings.settled_hours:
            tail = self.hourly.since(self.hourly.times[-1] - settings.settled_tail_hours)
            if len(tail.times) > 1 and theil_sen(tail).middle >= settings.last_share * slope.middle:
                return True, None
        return True, Doubt.MAY_BE_FILLING

    def hours_to_limit(self, slope: Slope) -> float:
        """At the lower bound of the slope; inf without a limit or a rise."""
        if self.bounds.limit_bytes is None or slope.lower <= 0:
            return math.inf
        return max(0.0, self.bounds.limit_bytes - self.bins[-1].floor_bytes) / slope.lower

    def _less(self, explained: list[float]) -> Line:
        rest = [v - e for v, e in zip(self.line.values, explained, strict=True)]
        return Line(self.line.times, rest)

    def _minima(self, line: Line, step: float, span: float = math.inf) -> Line:
        width = self.settings.minimum_hours
        least = width / self.settings.bin_hours / 2
        return rolling_minima(line, width=width, step=step, span=span, least=least)

    @cached_property
    def loads(self) -> tuple[list[float], list[float]]:
        """Load and peak of each bin; what one bin does not know it has from the one before."""
        loads, peaks, before = [], [], (0.0, 0.0)
        for each in self.bins[self.settled_from :]:
            if each.load is not None and each.peak_load is not None:
                before = (each.load, each.peak_load)
            loads.append(before[0])
            peaks.append(before[1])
        return loads, peaks


def surest(seen: Iterable[Seen | None]) -> Seen | None:
    doubtful: Seen | None = None
    for each in seen:
        if each is not None and each.doubt is None:
            return each
        doubtful = doubtful or each
    return doubtful


def peak_rises(view: View, hours: float) -> bool:
    """Whether the load has reached a new high in these hours, in a life that has not seen a whole day and
    its night: allocators follow it and stay up there."""
    if not view.load_is_known or view.age > view.settings.peak_hours:
        return False
    peaks = view.loads[1]
    at = min(bisect_right(view.line.times, view.line.times[-1] - hours), len(peaks) - 1)
    return peaks[-1] > view.settings.new_peak * peaks[at]


def load_rise(view: View, hours: float) -> float:
    """Load of the last third as so many times that of the first, one request added to each; 1 where it is
    not known. Memory may follow it."""
    at = bisect_right(view.line.times, view.line.times[-1] - hours - 1e-9)
    loads = view.loads[0][at:]
    third = len(loads) // 3
    if not view.load_is_known or third == 0:
        return 1.0
    return (median(loads[-third:]) + 1) / (median(loads[:third]) + 1)
