"""Does a worker's memory grow, how fast, and when does that end?

What is looked at is the floor (floors.py) after the first hour, without what the load explains (load.py)
and without steps that are over (robust.py), over several horizons: each demands a growth rather than a
slope, so that a big leak is found soon and a small one with patience. Growth must have a lower bound that
holds, go on in each third of the window, stand well above its own scatter, be more than the load can
explain, and be seen in four looks over an hour.
A rise since the start may be a cache that fills: it is told, but carries a doubt until a flat stretch
earlier in the same life, its size, its length or a near limit rules that out.

Error rates and delays: measured: docs/measured/slope.md.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from plimsoll.diagnose.look import look
from plimsoll.diagnose.records import Finding, Gap, Trend
from plimsoll.diagnose.robust import theil_sen
from plimsoll.diagnose.sentences import flat, rising
from plimsoll.diagnose.settings import DEFAULT, SlopeSettings
from plimsoll.diagnose.shapes import overrun
from plimsoll.diagnose.view import Bounds, View
from plimsoll.facts.series import FloorBin


def growth(
    bins: Sequence[FloorBin],
    *,
    now_seconds: float,
    ready_seconds: float | None,
    settings: SlopeSettings = DEFAULT,
    allowance_bytes: int = 0,
    limit_bytes: int | None = None,
    limit_is_node: bool = False,
) -> Finding:
    """What the memory of one container's life does. `bins` are oldest first, `allowance_bytes` declared
    cache caps that may still fill, `limit_bytes` the memory limit or the node's allocatable."""
    bounds = Bounds(allowance_bytes, limit_bytes)
    since = now_seconds if ready_seconds is None else ready_seconds

    def view(back: int) -> View:
        at = now_seconds - back * settings.look_hours * settings.hour_seconds
        return View(bins, at, since, bounds, settings)

    newest = view(0)
    floor = bins[-1].floor_bytes if bins else None
    missing = _missing(bins, now_seconds, ready_seconds, settings)
    is_warming = missing is not None and missing[0] is Gap.WARMING_UP
    if ready_seconds is not None and (missing is None or is_warming) and (far := overrun(newest)):
        return rising(far, newest, limit_is_node)
    if missing is None:
        seen = look(newest)
        if seen is not None and _again(view, settings):
            return rising(seen, newest, limit_is_node)
        missing = _too_little(newest, is_seen=seen is not None)
        if missing is None:
            return flat(newest, seen)
    gap, sentence = missing
    return Finding(trend=Trend.UNKNOWN, gap=gap, sentence=sentence, floor_bytes=floor)


def _again(view: Callable[[int], View], settings: SlopeSettings) -> bool:
    """Whether the looks before the newest saw growth too."""
    return all(look(view(back)) is not None for back in range(1, settings.looks))


LAST_BINS: Final = 16
"""Enough to see the last hour of looks and the hole before it."""
Missing = tuple[Gap, str]


def _missing(
    bins: Sequence[FloorBin], now: float, ready: float | None, settings: SlopeSettings
) -> Missing | None:
    """Why nothing can be said, as far as the data's times tell."""
    hour = settings.hour_seconds
    if not bins:
        return Gap.NO_DATA, "No memory has been seen for ten minutes together."
    if ready is None:
        return Gap.WARMING_UP, "It is not Ready yet."
    age = (now - bins[-1].at_seconds) / hour
    if age < -settings.skew_hours:
        return (
            Gap.CLOCK_SKEW,
            f"The newest memory is stamped {-age * hour:.0f} s ahead of our clock.",
        )
    if age > settings.bin_hours + settings.stale_hours:
        return Gap.STALE, f"Memory was last seen whole {age * hour / 60:.0f} min ago."
    if now < ready:
        return Gap.WARMING_UP, "It is not Ready yet."
    if (now - ready) / hour < settings.warm_up_hours:
        return Gap.WARMING_UP, (
            f"It is Ready for {(now - ready) / 60:.0f} min; the first "
            f"{settings.warm_up_hours * hour / 60:.0f} are warming up."
        )
    since = now - (settings.looks - 1) * settings.look_hours * hour
    holes = (
        (after.at_seconds - before.at_seconds) / hour
        for before, after in pairwise(bins[-LAST_BINS:])
        if after.at_seconds > since
    )
    if any(hours > settings.gap_hours for hours in holes):
        return Gap.INTERRUPTED, "Memory was not seen for hours until a short while ago."
    return None


def _too_little(view: View, *, is_seen: bool) -> Missing | None:
    """Whether what is there is enough to call it flat."""
    settings = view.settings
    shortest = min(horizon.hours for horizon in settings.horizons)
    young = min(2.0, shortest / 2)
    if view.age < young or len(view.line.times) < 3:
        return Gap.TOO_YOUNG, (
            f"It has been warm for {view.age:.1f} h; {young:g} h are needed to say anything."
        )
    if not view.covers(min(view.age, shortest)):
        return Gap.TOO_FEW_BINS, (
            f"Of the last {min(view.age, shortest):.0f} h too much was not seen: "
            f"{settings.coverage:.0%} is needed."
        )
    if not view.has_enough:
        return Gap.TOO_YOUNG, (
            f"It has been warm for {view.age:.1f} h, and was read {len(view.line.times)} times since: too "
            "few to tell growth."
        )
    until = shortest + settings.seen_hours
    if view.age < until and (is_seen or _rises(view, young, shortest)):
        return Gap.TOO_YOUNG, (
            f"It rises, and has been warm for {view.age:.1f} h only; what goes on for {until:g} h is growth "
            "rather than the end of a warm-up."
        )
    return None


def _rises(view: View, hours: float, shortest: float) -> bool:
    """Whether the newest hours rise, by a good part of what the shortest horizon would demand."""
    line = view.free or view.line
    slope = theil_sen(line.since(line.times[-1] - hours - 1e-9))
    least = min(each.growth_bytes for each in view.settings.horizons if each.hours == shortest)
    surely = slope.lower if math.isfinite(slope.lower) else slope.middle
    return surely * shortest > view.settings.flat_share * least
