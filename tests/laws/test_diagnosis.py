"""What holds for every series of memory, whatever it looks like."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.diagnose.records import Trend
from plimsoll.diagnose.slope import growth
from plimsoll.facts.series import FloorBin
from plimsoll.units import GIB, MIB

START = 1_780_000_200.0

pieces = st.lists(
    st.tuples(
        st.integers(6, 60), st.floats(-200 * MIB, 200 * MIB), st.floats(0, 40)
    ),  # bins, bytes a bin, load
    min_size=1,
    max_size=6,
)


def bins_of(shape: list[tuple[int, float, float]]) -> tuple[FloorBin, ...]:
    level, peak = 8.0 * GIB, 0.0
    bins: list[FloorBin] = []
    for count, slope, load in shape:
        for _ in range(count):
            level = max(1.0 * GIB, level + slope)
            peak = max(peak, load)
            at = START + 600 * (len(bins) + 1)
            bins.append(FloorBin(at, round(level), load=load, peak_load=peak))
    return tuple(bins)


@given(pieces)
@settings(max_examples=60, deadline=None)
def test_the_same_bins_give_the_same_finding(shape: list[tuple[int, float, float]]) -> None:
    bins = bins_of(shape)
    now = bins[-1].at_seconds
    first = growth(bins, now_seconds=now, ready_seconds=START)
    assert first == growth(bins, now_seconds=now, ready_seconds=START)


@given(pieces, st.integers(-100, 100))
@settings(max_examples=60, deadline=None)
def test_another_week_changes_nothing(shape: list[tuple[int, float, float]], weeks: int) -> None:
    later = 604_800.0 * weeks
    bins = bins_of(shape)
    moved = tuple(b._replace(at_seconds=b.at_seconds + later) for b in bins)
    now = bins[-1].at_seconds
    here = growth(bins, now_seconds=now, ready_seconds=START)
    there = growth(moved, now_seconds=now + later, ready_seconds=START + later)
    assert here == there


@given(pieces, st.integers(1, 64))
@settings(max_examples=60, deadline=None)
def test_more_memory_all_along_changes_no_trend(
    shape: list[tuple[int, float, float]], gibibytes: int
) -> None:
    bins = bins_of(shape)
    more = tuple(b._replace(floor_bytes=b.floor_bytes + gibibytes * GIB) for b in bins)
    now = bins[-1].at_seconds
    here = growth(bins, now_seconds=now, ready_seconds=START)
    there = growth(more, now_seconds=now, ready_seconds=START)
    assert (here.trend, here.rule, here.doubt) == (there.trend, there.rule, there.doubt)


@given(st.integers(13, 432), st.integers(1, 64), st.floats(0, 64))
@settings(max_examples=60, deadline=None)
def test_a_level_line_never_rises(count: int, gibibytes: int, load: float) -> None:
    bins = tuple(
        FloorBin(START + 600 * at, gibibytes * GIB, load=load, peak_load=load)
        for at in range(1, count + 1)
    )
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert Trend.RISING is not found.trend


@given(pieces, st.floats(1300, 1e6))
@settings(max_examples=60, deadline=None)
def test_old_data_never_rise(shape: list[tuple[int, float, float]], later: float) -> None:
    bins = bins_of(shape)
    found = growth(bins, now_seconds=bins[-1].at_seconds + later, ready_seconds=START)
    assert Trend.UNKNOWN is found.trend


@given(pieces)
@settings(max_examples=60, deadline=None)
def test_memory_that_only_falls_never_rises(shape: list[tuple[int, float, float]]) -> None:
    falling = [(count, -abs(slope), load) for count, slope, load in shape]
    bins = bins_of(falling)
    found = growth(bins, now_seconds=bins[-1].at_seconds, ready_seconds=START)
    assert Trend.RISING is not found.trend
