"""Does memory grow against time, over any of the horizons?"""

from bisect import bisect_right

from plimsoll.diagnose import load
from plimsoll.diagnose.records import Rule
from plimsoll.diagnose.robust import (
    Line,
    median,
    spread,
    theil_sen,
    without_steps,
)
from plimsoll.diagnose.settings import Horizon
from plimsoll.diagnose.view import Seen, View, load_rise, peak_rises, surest


def slope_over_horizons(view: View) -> Seen | None:
    """Growth against time over one of the horizons."""
    if len(view.fine.times) < 7:
        return None
    return surest(_over(view, horizon) for horizon in view.settings.horizons)


def _over(view: View, horizon: Horizon) -> Seen | None:
    settings, hours = view.settings, horizon.hours
    is_short = hours <= settings.tide_hours
    if not view.covers(hours):
        return None
    raw = view.fine.since(view.fine.times[-1] - hours - 1e-9)
    if hours > settings.coarse_hours:  # every second point: as many pairs as a short horizon has
        raw = Line(raw.times[::-1][::2][::-1], raw.values[::-1][::2][::-1])
    if len(raw.times) < 6:
        return None
    line, taken = without_steps(
        raw,
        lag=settings.minimum_hours,
        sigmas=settings.step_sigmas,
        noise=settings.step_noise_bytes,
        longest=settings.step_hours,
    )
    per_hour = settings.slope_bytes_per_hour * settings.hour_seconds / 3600
    more = _by_load(view, hours) if is_short and hours >= settings.straight_hours else 1.0
    demanded = max(per_hour, more * horizon.growth_bytes / hours)
    if not goes_on(line, demanded * hours * 0.3, settings.third_share):
        return None
    slope = theil_sen(line)
    if slope.middle <= demanded or slope.lower <= settings.lower_share * demanded:
        return None
    grown = slope.middle * (line.times[-1] - line.times[0])
    if peak_rises(view, hours) or (is_short and not _is_new(view, hours, grown)):
        return None
    steps_share = settings.steps_share if is_short else settings.long_steps_share
    if taken > steps_share * grown or (is_short and not _shows_itself(view, hours, grown)):
        return None
    is_steep = grown > settings.steep_times * demanded * hours
    if (hours <= settings.straight_hours or is_steep) and (
        _bend(line, slope.middle) > settings.bend_share * grown
    ):
        return None
    if grown < settings.scatter_times * scatter_of(line, slope.middle):
        return None
    if hours > settings.flat_hours and view.has_ended(slope):
        return None
    third = len(line.times) // 3
    tail = Line(line.times[-third:], line.values[-third:])
    if third >= 3 and theil_sen(tail).middle < settings.last_share * slope.middle:
        return None
    if not _is_more_than_load(view, hours, demanded) or _is_rather_a_step(view, hours):
        return None
    return Seen(Rule.SLOPE, hours, slope, grown, *view.doubt(slope, hours))


def _by_load(view: View, hours: float) -> float:
    """How many times the demanded growth must be there, for the load may have a part in it."""
    settings = view.settings
    if view.load_is_known and view.age < settings.young_hours:
        return settings.young_times
    more = 1 + settings.loaded_share * (load_rise(view, hours) - 1)
    return min(settings.loaded_most, max(1.0, more))


def _is_new(view: View, hours: float, grown: float) -> bool:
    """Where the load is not known, a short rise must lead above all that was held before it."""
    return view.load_is_known or view.is_new_high(hours, grown)


def _is_more_than_load(view: View, hours: float, demanded: float) -> bool:
    """Whether growth is left when the load has explained all that it can, a new high-water mark for one;
    where the load is not known, whether days compare."""
    settings = view.settings
    if not view.load_is_known:
        return hours < settings.tide_hours or _day_over_day(view, demanded)
    raw = view.unexplained.since(view.unexplained.times[-1] - hours - 1e-9)
    if len(raw.times) < 3:
        return False
    line, _ = without_steps(
        raw,
        lag=settings.minimum_hours,
        sigmas=settings.step_sigmas,
        noise=settings.step_noise_bytes,
        longest=settings.step_hours,
    )
    return theil_sen(line).middle >= settings.alone_share * demanded


def _is_rather_a_step(view: View, hours: float) -> bool:
    """Whether one step at some hour, hidden by the load's tide, says as much as growth all along."""
    if view.stepless is None:
        return False
    at = bisect_right(view.line.times, view.line.times[-1] - hours - 1e-9)
    loads, peaks = view.loads
    return load.step_explains_as_well(
        view.line.times[at:], view.stepless[at:], loads[at:], peaks[at:]
    )


def goes_on(line: Line, least: float, share: float) -> bool:
    """Each third stands above the one before: neither a step nor a rise that has ended."""
    third = len(line.values) // 3
    low = median(line.values[:third])
    middle = median(line.values[third:-third])
    high = median(line.values[-third:])
    total = high - low
    return total > 0 and total >= least and min(middle - low, high - middle) >= share * total


def _bend(line: Line, slope: float) -> float:
    """How far a point lies off the line at most: two steps in a row rise in each third as well, but
    far off it."""
    rests = [v - slope * t for t, v in zip(line.times, line.values, strict=True)]
    middle = median(rests)
    return max(abs(rest - middle) for rest in rests)


def _shows_itself(view: View, hours: float, grown: float) -> bool:
    """Whether part of the growth is there before the load is taken out: load that falls may make a
    rise of a flat line."""
    plain = view.plain.since(view.plain.times[-1] - hours - 1e-9).values
    third = len(plain) // 3
    if third == 0:
        return False
    rise = median(plain[-third:]) - median(plain[:third])
    return rise >= view.settings.plain_share * grown


def scatter_of(line: Line, slope: float) -> float:
    return spread([v - slope * t for t, v in zip(line.times, line.values, strict=True)])


def _day_over_day(view: View, demanded: float) -> bool:
    """Without a known load: nearly every hour of the last day stands above its like the day before."""
    by_hour = {round(time): value for time, value in zip(*view.hourly, strict=True)}
    gains = sorted(
        value - by_hour[time - 24]
        for time, value in by_hour.items()
        if time > -24 and time - 24 in by_hour
    )
    if len(gains) < 6:
        return False
    return gains[len(gains) // 5] >= 24 * demanded * view.settings.lower_share
