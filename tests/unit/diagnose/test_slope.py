from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from plimsoll.diagnose.records import Doubt, Gap, Rule, Trend
from plimsoll.diagnose.settings import DEFAULT, SlopeSettings
from plimsoll.diagnose.slope import growth
from plimsoll.facts.series import FloorBin
from plimsoll.units import GIB, MIB

HOUR = 3600.0
START = 1_780_000_200.0
Curve = Callable[[float], float]


def bins_of(
    curve: Curve, hours: float, *, noise: float = 5 * MIB, load: float | None = 8.0
) -> tuple[FloorBin, ...]:
    """A floor each ten minutes; the curve takes hours and gives bytes above 8 GiB."""
    draw = random.Random(3)
    return tuple(
        FloorBin(
            START + at * 600,
            round(8 * GIB + curve(at / 6) + draw.gauss(0, noise)),
            load=load,
            peak_load=load,
        )
        for at in range(1, round(hours * 6) + 1)
    )


def leak(per_hour: float, onset: float = 0.0) -> Curve:
    return lambda hour: per_hour * MIB * max(0.0, hour - onset)


def step_at(onset: float) -> Curve:
    return lambda hour: 3.0 * GIB if hour > onset else 0.0


def test_a_leak_after_a_flat_stretch_is_growth_without_a_doubt() -> None:
    bins = bins_of(leak(100, onset=15), 27)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.RISING, None, False) == (found.trend, found.doubt, found.since_start)
    assert Rule.SLOPE == found.rule
    assert found.bytes_per_hour is not None
    assert abs(found.bytes_per_hour / MIB - 100) < 20


def test_a_flat_series_is_flat() -> None:
    bins = bins_of(lambda _: 0.0, 48)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert Trend.FLAT == found.trend
    assert "flat" in found.sentence


def test_a_bigger_leak_is_seen_sooner() -> None:
    def first_seen(per_hour: float) -> int:
        bins = bins_of(leak(per_hour, onset=15), 80)
        for hour in range(16, 80):
            now = START + hour * HOUR
            seen = tuple(b for b in bins if b.at_seconds <= now)
            found = growth(seen, now_seconds=now, ready_seconds=START)
            if found.trend is Trend.RISING and found.rule is Rule.SLOPE:
                return hour - 15
        raise AssertionError(per_hour)

    delays = [first_seen(rate) for rate in (500, 200, 100, 50, 25)]
    assert sorted(delays) == delays
    assert delays[0] <= 6


def test_a_rise_since_the_start_may_be_a_cache_that_fills() -> None:
    bins = bins_of(leak(150), 20)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.RISING, True, Doubt.MAY_BE_FILLING) == (
        found.trend,
        found.since_start,
        found.doubt,
    )


def test_a_rise_beyond_any_cache_is_no_filling() -> None:
    bins = bins_of(leak(800), 20)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.RISING, None) == (found.trend, found.doubt)


def test_a_rise_beyond_its_declared_cap_is_no_filling() -> None:
    bins = bins_of(leak(150), 20)
    now = bins[-1].at_seconds
    found = growth(bins, now_seconds=now, ready_seconds=START, allowance_bytes=GIB)
    assert None is found.doubt
    within = growth(bins, now_seconds=now, ready_seconds=START, allowance_bytes=4 * GIB)
    assert Doubt.MAY_BE_FILLING == within.doubt


def test_a_near_limit_settles_the_doubt() -> None:
    bins = bins_of(leak(150), 20)
    now = bins[-1].at_seconds
    limit = bins[-1].floor_bytes + 700 * MIB
    found = growth(bins, now_seconds=now, ready_seconds=START, limit_bytes=limit)
    assert None is found.doubt
    assert found.hours_to_limit is not None
    assert 4 < found.hours_to_limit < 6


def test_a_rise_that_has_gone_on_for_days_is_no_cache() -> None:
    bins = bins_of(leak(30), 70)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.RISING, True, None) == (found.trend, found.since_start, found.doubt)


def test_a_step_is_no_growth() -> None:
    for at in (10.0, 30.0, 40.0):
        bins = bins_of(step_at(at), 48)
        for hour in range(8, 49):
            now = START + hour * HOUR
            seen = tuple(b for b in bins if b.at_seconds <= now)
            found = growth(seen, now_seconds=now, ready_seconds=START)
            assert Trend.RISING is not found.trend, (at, hour)


def test_a_tide_of_known_load_is_no_growth() -> None:
    def tide(hour: float) -> float:
        return 16 - 12 * math.cos(2 * math.pi * hour / 24)

    plain = bins_of(lambda hour: 60 * MIB * tide(hour), 72)
    peak, bins = 0.0, []
    for each in plain:
        load = tide((each.at_seconds - START) / HOUR)
        peak = max(peak, load)
        bins.append(each._replace(load=load, peak_load=peak))
    for hour in range(30, 73):
        now = START + hour * HOUR
        seen = tuple(b for b in bins if b.at_seconds <= now)
        found = growth(seen, now_seconds=now, ready_seconds=START)
        assert not (found.trend is Trend.RISING and found.doubt is None), hour


def test_with_an_unknown_load_a_short_rise_carries_that_doubt() -> None:
    bins = bins_of(leak(200, onset=12), 24, load=None)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.RISING, Doubt.LOAD_UNKNOWN) == (found.trend, found.doubt)


def test_with_an_unknown_load_days_are_compared() -> None:
    bins = bins_of(leak(60, onset=12), 66, load=None)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.RISING, None) == (found.trend, found.doubt)


GAPS = [
    (Gap.NO_DATA, (), 0.0, START),
    (Gap.WARMING_UP, bins_of(leak(0), 0.5), 0.0, START),
    (Gap.WARMING_UP, bins_of(leak(0), 20), 0.0, None),
    (Gap.TOO_YOUNG, bins_of(leak(0), 2), 0.0, START),
    (Gap.STALE, bins_of(leak(0), 20), 900.0, START),
    (Gap.CLOCK_SKEW, bins_of(leak(0), 20), -900.0, START),
    (Gap.TOO_FEW_BINS, bins_of(leak(0), 20)[::3], 0.0, START),
    (
        Gap.INTERRUPTED,
        tuple(b for b in bins_of(leak(200), 20) if not 17 < (b.at_seconds - START) / HOUR < 19.6),
        0.0,
        START,
    ),
]


@pytest.mark.parametrize(("gap", "bins", "later", "ready"), GAPS)
def test_what_is_not_known_is_said_to_be_unknown(
    gap: Gap, bins: tuple[FloorBin, ...], later: float, ready: float | None
) -> None:
    now = (bins[-1].at_seconds if bins else START) + later
    found = growth(bins, now_seconds=now, ready_seconds=ready)
    assert (Trend.UNKNOWN, gap) == (found.trend, found.gap)
    assert found.sentence


def first_told(bins: tuple[FloorBin, ...], settings: SlopeSettings = DEFAULT) -> float:
    """Hours after the start at which growth is told first."""
    for step in range(6, len(bins) + 1):
        now = START + step * 600
        seen = tuple(b for b in bins if b.at_seconds <= now)
        found = growth(seen, now_seconds=now, ready_seconds=START, settings=settings)
        if found.trend is Trend.RISING:
            return (now - START) / HOUR
    raise AssertionError("never")


def test_four_looks_over_an_hour_must_agree() -> None:
    """The first moment at which growth is told lies an hour after the first look that sees it."""
    bins = bins_of(leak(500, onset=15), 30)
    alone = DEFAULT._replace(looks=1)
    assert 4 == DEFAULT.looks
    assert 1.0 == round(first_told(bins) - first_told(bins, alone), 6)


def test_a_rise_that_not_every_look_has_seen_is_no_flat_line() -> None:
    """Until two hours after the shortest horizon it is too young to tell; then it says that it begins."""
    bins = bins_of(leak(500), 7)
    unseen = DEFAULT._replace(looks=20)
    for hour in (3.5, 5.2, 6.0, 6.8):
        now = START + hour * HOUR
        seen = tuple(b for b in bins if b.at_seconds <= now)
        found = growth(seen, now_seconds=now, ready_seconds=START, settings=unseen)
        assert (Trend.UNKNOWN, Gap.TOO_YOUNG) == (found.trend, found.gap), hour
        assert "rises" in found.sentence
    now = bins[-1].at_seconds
    found = growth(bins, now_seconds=now, ready_seconds=START, settings=unseen)
    assert Trend.FLAT == found.trend
    assert "begins to rise" in found.sentence


def test_a_rise_that_no_look_has_seen_is_too_young_as_well() -> None:
    bins = bins_of(leak(800), 5, noise=300 * MIB)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert (Trend.UNKNOWN, Gap.TOO_YOUNG) == (found.trend, found.gap)


def test_a_young_flat_line_is_flat() -> None:
    bins = bins_of(leak(0), 5)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert Trend.FLAT == found.trend


def under_a_tide(curve: Curve, hours: float) -> tuple[FloorBin, ...]:
    """Bins whose load comes and goes by the day, 60 MiB for each request."""
    peak, made = 0.0, []
    for each in bins_of(curve, hours):
        load = 16 - 12 * math.cos(2 * math.pi * (each.at_seconds - START) / HOUR / 24)
        peak = max(peak, load)
        held = each.floor_bytes + round(60 * MIB * load)
        made.append(each._replace(floor_bytes=held, load=load, peak_load=peak))
    return tuple(made)


def test_a_leak_under_a_tide_is_growth() -> None:
    bins = under_a_tide(leak(100, onset=54), 75)
    now = bins[-1].at_seconds
    seen = tuple(b for b in bins if now - 72 * HOUR < b.at_seconds)
    found = growth(seen, now_seconds=now, ready_seconds=START)
    assert (Trend.RISING, None) == (found.trend, found.doubt)


def test_what_comes_back_is_no_growth_where_the_load_is_unknown() -> None:
    """A sawtooth with a period of four hours has a clean slope for three of them."""
    bins = bins_of(lambda hour: 500 * MIB * (hour % 4), 30, load=None)
    for hour in range(5, 31):
        now = START + hour * HOUR
        seen = tuple(b for b in bins if b.at_seconds <= now)
        found = growth(seen, now_seconds=now, ready_seconds=START)
        assert Trend.RISING is not found.trend, hour


SENTENCES: list[tuple[Curve, str]] = [
    (lambda _: 0.0, "Memory is flat at 8.0 GiB: "),
    (lambda hour: 500 * MIB * min(hour, 10.0), "Memory is flat at 12.9 GiB now; over"),
    (lambda hour: -100 * MIB * hour, "Memory falls: by"),
    (lambda hour: 7 * MIB * hour, "less than the 10 that count"),
]


@pytest.mark.parametrize(("curve", "words"), SENTENCES)
def test_what_is_no_growth_is_told_as_what_it_is(curve: Curve, words: str) -> None:
    bins = bins_of(curve, 30)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert Trend.FLAT == found.trend
    assert words in found.sentence


def test_an_overrun_of_its_caps_needs_no_window() -> None:
    bins = bins_of(leak(60_000), 0.9)
    now = bins[-1].at_seconds
    found = growth(bins, now_seconds=now, ready_seconds=START, allowance_bytes=8 * GIB)
    assert (Trend.RISING, Rule.OVERRUN) == (found.trend, found.rule)


def test_shorter_hours_give_the_same_answer() -> None:
    settings = DEFAULT.shortened(36.0, 0.01)
    bins = bins_of(leak(100, onset=15), 27)
    short = tuple(
        b._replace(
            at_seconds=START + (b.at_seconds - START) / 100,
            floor_bytes=round(b.floor_bytes / 100),
        )
        for b in bins
    )
    now = short[-1].at_seconds
    found = growth(
        short,
        now_seconds=now,
        ready_seconds=START,
        settings=settings._replace(slope_bytes_per_hour=10 * MIB),
    )
    assert (Trend.RISING, Rule.SLOPE, None) == (found.trend, found.rule, found.doubt)


def test_a_slope_below_what_is_asked_for_is_not_growth() -> None:
    bins = bins_of(leak(50, onset=15), 40)
    settings = DEFAULT._replace(slope_bytes_per_hour=200 * MIB)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START, settings=settings)
    assert Trend.FLAT == found.trend
