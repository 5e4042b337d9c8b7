"""Does a worker's memory grow, how fast, and when does that end?

What is looked at is the floor (floors.py) after the first hour, without what the load explains (load.py)
and without steps that are over (robust.py), over several horizons: each demands a growth rather than a
slope, so that a big leak is found soon and a small one with patience. Growth must have a lower bound that
holds, go on in each third of the window, stand well above its own scatter, and be seen in three looks.
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
from plimsoll.diagnose.robust import Slope, theil_sen
from plimsoll.diagnose.settings import DEFAULT, SlopeSettings
from plimsoll.diagnose.shapes import overrun
from plimsoll.diagnose.view import Bounds, Seen, View
from plimsoll.facts.series import FloorBin
from plimsoll.units import MIB, gib


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
        return _rising(far, newest, limit_is_node)
    if missing is None:
        seen = look(newest)
        if seen is not None and _again(view, settings):
            return _rising(seen, newest, limit_is_node)
        missing = _too_little(newest)
        if missing is None:
            return _flat(newest, seen)
    gap, sentence = missing
    return Finding(trend=Trend.UNKNOWN, gap=gap, sentence=sentence, floor_bytes=floor)


def _again(view: Callable[[int], View], settings: SlopeSettings) -> bool:
    """Whether the looks before the newest saw growth too."""
    return all(look(view(back)) is not None for back in range(1, settings.looks))


def _rising(seen: Seen, view: View, limit_is_node: bool) -> Finding:
    per_hour = 3600 / view.settings.hour_seconds
    hours = view.settings.hour_seconds / 3600
    until = view.hours_to_limit(seen.slope) * hours
    slope = Slope(*(each * per_hour for each in seen.slope))
    words = f"Memory grew {gib(round(seen.grown_bytes))} in {seen.hours * hours:.3g} h, about "
    words += f"{gib(round(slope.middle))} an hour"
    if math.isfinite(slope.lower) and math.isfinite(slope.upper):
        words += f" ({gib(round(slope.lower))} to {gib(round(slope.upper))})"
    if seen.bytes_per_work is not None:
        words += f", {_small(seen.bytes_per_work)} for each unit of work done"
    if math.isfinite(until):
        whose = "the node's allocatable memory" if limit_is_node else "its limit"
        words += f"; at this pace it reaches {whose} in {until:.3g} h"
    return Finding(
        trend=Trend.RISING,
        rule=seen.rule,
        sentence=words + ".",
        floor_bytes=view.bins[-1].floor_bytes,
        grown_bytes=round(seen.grown_bytes),
        bytes_per_hour=round(slope.middle),
        lower_bytes_per_hour=_whole(slope.lower),
        upper_bytes_per_hour=_whole(slope.upper),
        horizon_hours=round(seen.hours * hours, 3),
        bytes_per_work=seen.bytes_per_work,
        since_start=seen.since_start,
        doubt=seen.doubt,
        hours_to_limit=until if math.isfinite(until) else None,
        limit_is_node=limit_is_node,
    )


def _flat(view: View, seen: Seen | None) -> Finding:
    """What is there of a slope over the longest horizon, without calling it growth."""
    longest = max(horizon.hours for horizon in view.settings.horizons)
    line = view.line.since(view.line.times[-1] - longest - 1e-9)
    if len(view.hourly.times) > 2:
        line = view.hourly.since(view.hourly.times[-1] - longest - 1e-9)
    per_hour = 3600 / view.settings.hour_seconds
    slope = Slope(*(each * per_hour for each in theil_sen(line)))
    hours = (line.times[-1] - line.times[0]) / per_hour
    words = (
        "A rise shows and is not confirmed yet."
        if seen is not None
        else f"Memory is flat at {gib(view.bins[-1].floor_bytes)}: "
        f"{round(slope.middle / MIB):+,} MiB an hour over {hours:.3g} h."
    )
    return Finding(
        trend=Trend.FLAT,
        sentence=words,
        floor_bytes=view.bins[-1].floor_bytes,
        bytes_per_hour=round(slope.middle),
        lower_bytes_per_hour=_whole(slope.lower),
        upper_bytes_per_hour=_whole(slope.upper),
        horizon_hours=round(hours, 3),
    )


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


def _too_little(view: View) -> Missing | None:
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
    if view.age >= shortest:
        return None
    slope = theil_sen(view.line.since(view.line.times[-1] - young - 1e-9)).middle
    least = min(horizon.growth_bytes for horizon in settings.horizons if horizon.hours == shortest)
    if slope * shortest > settings.flat_share * least:
        return Gap.TOO_YOUNG, (
            f"It rises, and has been warm for {view.age:.1f} h only; {shortest:g} h are needed to tell "
            "growth from the end of a warm-up."
        )
    return None


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None


def _small(size_bytes: float) -> str:
    """Bytes of one token: "90 bytes", "3.1 MiB"."""
    return f"{size_bytes / MIB:.2g} MiB" if size_bytes >= MIB / 10 else f"{size_bytes:,.0f} bytes"
