"""How steep is a noisy line, told so that a few wild points cannot change the answer?

Times are in hours and rise strictly; values are in whatever unit the caller has.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

Z_95: Final = 1.6448536
"""One-sided 95 % of the normal distribution."""
MAD_TO_SIGMA: Final = 1.4826
"""Median absolute deviation to standard deviation, for normal noise."""


class Slope(NamedTuple):
    """Value per hour, with one-sided 95 % bounds."""

    middle: float
    lower: float
    upper: float


class Line(NamedTuple):
    """Points, oldest first."""

    times: list[float]
    values: list[float]

    def since(self, hours: float) -> "Line":
        """What is later than `hours`."""
        at = bisect_right(self.times, hours)
        return Line(self.times[at:], self.values[at:])


def median(values: Sequence[float]) -> float:
    """Of at least one value."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float]) -> float:
    """Standard deviation as the median absolute deviation tells it."""
    middle = median(values)
    return MAD_TO_SIGMA * median([abs(value - middle) for value in values])


def theil_sen(line: Line) -> Slope:
    """Median of the slopes between all pairs, with the bounds of Sen (1968) without ties.

    Needs two points. The bounds are -inf and inf where there are too few points for any.
    """
    times, values = line
    slopes: list[float] = []
    for at, (time, value) in enumerate(zip(times, values, strict=True)):
        slopes += [
            (v - value) / (t - time) for t, v in zip(times[at + 1 :], values[at + 1 :], strict=True)
        ]
    slopes.sort()
    pairs, points = len(slopes), len(times)
    deviation = math.sqrt(points * (points - 1) * (2 * points + 5) / 18)
    low = round((pairs - Z_95 * deviation) / 2) - 1
    high = round((pairs + Z_95 * deviation) / 2)
    middle = (slopes[(pairs - 1) // 2] + slopes[pairs // 2]) / 2
    return Slope(
        middle,
        slopes[low] if low >= 0 else -math.inf,
        slopes[high] if high < pairs else math.inf,
    )


def rolling_minima(
    line: Line, *, width: float, step: float, span: float = math.inf, least: float
) -> Line:
    """The least value of the trailing `width` hours, every `step` hours back from the newest point.

    A window that is longer than a sawtooth's period sees its floor, wherever the period begins. A
    place with fewer than `least` points is left out.
    """
    times, values = line
    newest = times[-1]
    reach = min(span, newest - times[0] - width)
    found: list[tuple[float, float]] = []
    for back in range(int(reach / step + 1e-9) + 1 if reach >= -1e-9 else 0):
        at = newest - back * step
        first = bisect_right(times, at - width + 1e-9)
        last = bisect_right(times, at + 1e-9)
        if last - first >= least:
            found.append((at, min(values[first:last])))
    found.reverse()
    return Line([at for at, _ in found], [value for _, value in found])


class Steps(NamedTuple):
    """Steps of a line, and its gain from point to point without them."""

    is_step: list[bool]
    """For each increment: whether it is part of a step."""
    rate: float
    """Usual gain per hour."""


def steps_of(line: Line, *, lag: float, sigmas: float, noise: float, longest: float) -> Steps:
    """Which increments belong to a step.

    Gains over `lag` hours are compared with each other: minima stand still and then jump, so that
    their gains from point to point say little. A step is a run of gains on one side of the usual one,
    each `sigmas` deviations away, of at most `longest` hours, and over: what still rises at the end
    may be a leak's onset. `noise` is the least deviation of a gain that is believed.
    """
    times, values = line
    count = len(times)
    mean_gap = (times[-1] - times[0]) / (count - 1)
    width = max(1, min(round(lag / mean_gap), count // 3))
    gains = [values[at + width] - values[at] for at in range(count - width)]
    usual = median(gains)
    margin = sigmas * max(spread(gains), noise)
    is_step, at = [False] * (count - 1), 0
    while at < len(gains):
        if abs(gains[at] - usual) <= margin:
            at += 1
            continue
        is_up, end = gains[at] > usual, at
        while end < len(gains) and (
            gains[end] > usual + margin if is_up else gains[end] < usual - margin
        ):
            end += 1
        if times[end - 1] - times[at] <= longest + 1e-9 and end < len(gains):
            is_step[at : end - 1 + width] = [True] * (end - 1 + width - at)
        at = end
    return Steps(is_step, usual / (width * mean_gap))


def without_steps(
    line: Line, *, lag: float, sigmas: float, noise: float, longest: float
) -> tuple[Line, float]:
    """The line with each step replaced by the usual rate, beginning at 0, and the height of the
    largest step, up or down."""
    if len(line.times) < 6:
        return line, 0.0
    heights = step_heights(line, lag=lag, sigmas=sigmas, noise=noise, longest=longest)
    first = line.values[0]
    levels = [v - h - first for v, h in zip(line.values, heights, strict=True)]
    return Line(line.times, levels), max(map(abs, heights))


def step_heights(
    line: Line, *, lag: float, sigmas: float, noise: float, longest: float
) -> list[float]:
    """At each point: how much all steps up to it have added beyond the usual rate."""
    if len(line.times) < 3:
        return [0.0] * len(line.times)
    found = steps_of(line, lag=lag, sigmas=sigmas, noise=noise, longest=longest)
    height, heights = 0.0, [0.0]
    for at, is_step in enumerate(found.is_step):
        if is_step:
            gain = line.values[at + 1] - line.values[at]
            height += gain - found.rate * (line.times[at + 1] - line.times[at])
        heights.append(height)
    return heights


def interpolated(line: Line, times: Sequence[float]) -> list[float]:
    """Values at these times, which rise; beyond the ends the line is level."""
    found: list[float] = []
    for time in times:
        after = bisect_left(line.times, time)
        if after == 0:
            found.append(line.values[0])
        elif after == len(line.times):
            found.append(line.values[-1])
        else:
            before = after - 1
            share = (time - line.times[before]) / (line.times[after] - line.times[before])
            gain = line.values[after] - line.values[before]
            found.append(line.values[before] + share * gain)
    return found
