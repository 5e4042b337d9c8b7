"""How is a trend told: what was seen, over how long, and where it ends?"""

import math
from typing import Final

from plimsoll.diagnose.records import Finding, Trend
from plimsoll.diagnose.robust import Line, Slope, theil_sen
from plimsoll.diagnose.settings import SlopeSettings
from plimsoll.diagnose.view import Seen, View
from plimsoll.units import MIB, gib

NOTABLE: Final = 0.02
"""Part of the memory that a change must make to be worth a word."""


def rising(seen: Seen, view: View, limit_is_node: bool) -> Finding:
    """Growth that was seen in every look."""
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


def flat(view: View, seen: Seen | None) -> Finding:
    """What is there of a slope over the longest horizon, without calling it growth."""
    longest = max(horizon.hours for horizon in view.settings.horizons)
    line = view.line.since(view.line.times[-1] - longest - 1e-9)
    if len(view.hourly.times) > 2:
        line = view.hourly.since(view.hourly.times[-1] - longest - 1e-9)
    per_hour = 3600 / view.settings.hour_seconds
    slope = Slope(*(each * per_hour for each in theil_sen(line)))
    hours = (line.times[-1] - line.times[0]) / per_hour
    is_over = _newest(view, line) * per_hour < view.settings.flat_share * slope.middle
    return Finding(
        trend=Trend.FLAT,
        sentence=_shows(seen, view.settings)
        if seen is not None
        else _level(view, slope, hours, is_over),
        floor_bytes=view.bins[-1].floor_bytes,
        bytes_per_hour=round(slope.middle),
        lower_bytes_per_hour=_whole(slope.lower),
        upper_bytes_per_hour=_whole(slope.upper),
        horizon_hours=round(hours, 3),
    )


def _level(view: View, slope: Slope, hours: float, is_over: bool) -> str:
    """What a line does that no rule calls growth."""
    counts = view.settings.slope_bytes_per_hour
    now, change = gib(view.bins[-1].floor_bytes), gib(round(abs(slope.middle) * hours))
    is_much = abs(slope.middle) * hours > NOTABLE * view.bins[-1].floor_bytes
    if slope.middle > counts and is_over and (is_much or slope.lower > counts):
        return f"Memory is flat at {now} now; over {hours:.3g} h it rose by {change}."
    if slope.lower > counts:
        return (
            f"Memory rose by {change} in {hours:.3g} h, to {now}: too little or too unevenly to be called "
            "growth."
        )
    if slope.upper < -counts:
        return f"Memory falls: by {change} in {hours:.3g} h, to {now}."
    words = (
        f"Memory is flat at {now}: {round(slope.middle / MIB):+,} MiB an hour over {hours:.3g} h"
    )
    if slope.lower > counts / 2 and not is_over:
        words += f", less than the {counts / MIB:.3g} that count"
    return f"{words}."


def _newest(view: View, line: Line) -> float:
    """Slope of the newest stretch, or of the newest half of a line that is no longer than two of them."""
    half = (line.times[-1] - line.times[0]) / 2
    part = line.since(line.times[-1] - min(view.settings.flat_hours, half) - 1e-9)
    return theil_sen(part).middle if len(part.times) > 1 else 0.0


def _shows(seen: Seen, settings: SlopeSettings) -> str:
    """A rise that the newest look sees and not yet all of them."""
    seconds = (settings.looks - 1) * settings.look_hours * settings.hour_seconds
    return (
        f"Memory begins to rise, by {gib(round(seen.grown_bytes))} so far; it is called growth when every look "
        f"over {_time(seconds)} has seen that."
    )


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None


def _time(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def _small(size_bytes: float) -> str:
    """Bytes of one token: "90 bytes", "3.1 MiB"."""
    return f"{size_bytes / MIB:.2g} MiB" if size_bytes >= MIB / 10 else f"{size_bytes:,.0f} bytes"
