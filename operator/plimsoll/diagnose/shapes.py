"""Which growth has a shape of its own: an overrun, a clean line, or one that follows the work?"""

from bisect import bisect_right
from itertools import pairwise

from plimsoll.diagnose.horizons import goes_on, scatter_of
from plimsoll.diagnose.records import Doubt, Rule
from plimsoll.diagnose.robust import (
    Line,
    Slope,
    median,
    theil_sen,
)
from plimsoll.diagnose.view import EMPTY, Seen, View, load_rise


def overrun(view: View) -> Seen | None:
    """Far above a declared cap, or so near the limit that no horizon can be waited for."""
    settings, bins = view.settings, view.bins
    hours = settings.overrun_hours
    at = bisect_right(view.times, -max(hours, 2 * settings.bin_hours) - settings.bin_hours)
    recent = Line(view.times[at:], [float(b.floor_bytes) for b in bins[at:]])
    if len(bins) < 4 or len(recent.times) < 3 or view.times[0] > -hours:
        return None
    if any(after <= before for before, after in pairwise(recent.values)):
        return None
    slope = theil_sen(recent)
    slope = slope._replace(lower=max(slope.lower, 0.0))
    base = min(b.floor_bytes for b in bins[:6])
    grown = recent.values[-1] - base
    cap = view.bounds.allowance_bytes
    if cap and grown > settings.overrun_times * cap + settings.overrun_growth_bytes:
        return Seen(Rule.OVERRUN, -view.times[0], slope, grown, True, None)
    limit = view.bounds.limit_bytes
    if limit is None or view.age < 0:
        return None
    left = limit - recent.values[-1]
    if left > slope.middle * settings.overrun_limit_hours or grown < limit / 4:
        return None
    return Seen(Rule.OVERRUN, -view.times[0], slope, grown, True, None)


def clean_line(view: View) -> Seen | None:
    """A straight line with next to no scatter: little growth is enough to see it."""
    settings = view.settings
    per_hour = settings.slope_bytes_per_hour * settings.hour_seconds / 3600
    for hours in settings.clean_hours:
        if view.age < hours - 1e-9 or not view.covers(hours):
            continue
        line = view.line.since(view.line.times[-1] - hours - 1e-9)
        if len(line.times) < 9:
            continue
        slope = theil_sen(line)
        grown = slope.middle * (line.times[-1] - line.times[0])
        if slope.lower <= per_hour or grown < settings.clean_growth_bytes:
            continue
        if grown < settings.clean_times * scatter_of(line, slope.middle):
            continue
        third = len(line.times) // 3
        parts = (
            Line(line.times[:third], line.values[:third]),
            Line(line.times[third:-third], line.values[third:-third]),
            Line(line.times[-third:], line.values[-third:]),
        )
        shares = [theil_sen(part).middle / slope.middle for part in parts]
        if min(shares) < 0.6 or max(shares) > 1.6:
            continue
        if load_rise(view, hours) > settings.risen_load or not view.is_new_high(hours, grown):
            continue
        since_start, doubt = view.doubt(slope, hours)
        is_near = view.hours_to_limit(slope) < settings.near_hours
        if doubt is None and not is_near:
            doubt = Doubt.EARLY
        return Seen(Rule.CLEAN_LINE, hours, slope, grown, since_start, doubt)
    return None


def per_work(view: View) -> Seen | None:
    """Growth against work done, where idle hours make growth against time look like steps.

    Work is the counter of tokens or requests; without one, the load summed over time.
    """
    settings = view.settings
    points = _by_work(view)
    if len(points.times) < settings.work_points:
        return None
    slope = theil_sen(points)
    work = points.times[-1] - points.times[0]
    grown = slope.middle * work
    if slope.lower <= 0 or grown < settings.work_growth_bytes:
        return None
    if slope.lower < settings.work_bound_share * slope.middle:
        return None
    if grown < settings.work_times * scatter_of(points, slope.middle):
        return None
    if not goes_on(points, 0.0, settings.third_share * 0.75):
        return None
    hours = view.line.times[-1] - view.line.times[0]
    each_hour = work / hours
    in_time = Slope(slope.middle * each_hour, slope.lower * each_hour, slope.upper * each_hour)
    per_hour = settings.slope_bytes_per_hour * settings.hour_seconds / 3600
    if in_time.lower <= per_hour:
        return None
    cap = view.bounds.allowance_bytes or settings.largest_cache_bytes
    is_more = grown > settings.cache_margin * cap
    is_settled = is_more or view.hours_to_limit(in_time) < settings.near_hours
    doubt = None if is_settled else Doubt.MAY_BE_FILLING
    return Seen(Rule.PER_WORK, hours, in_time, grown, True, doubt, slope.middle)


def _by_work(view: View) -> Line:
    """The floor each time that some work was done; empty unless there were idle hours."""
    line = view.line
    bins = view.bins[view.settled_from :]
    if len(bins) < 2:
        return EMPTY
    works: list[float] = []
    if all(b.work is not None for b in bins):
        works = [b.work or 0.0 for b in bins]
    elif view.load_is_known:
        total = 0.0
        for value in view.loads[0]:
            total += value
            works.append(total)
    gains = [after - before for before, after in pairwise(works)]
    busy = [gain for gain in gains if gain > 0]
    if not busy or min(gains) < 0:
        return EMPTY
    usual = median(busy)
    idle = sum(gain < 0.1 * usual for gain in gains)
    if idle < view.settings.idle_share * len(gains):
        return EMPTY
    kept_works, kept = [works[0]], [line.values[0]]
    least = (works[-1] - works[0]) / view.settings.work_most_points
    for work, value in zip(works, line.values, strict=True):
        if work - kept_works[-1] > max(least, 0.1 * usual):
            kept_works.append(work)
            kept.append(value)
    return Line(kept_works, kept)
