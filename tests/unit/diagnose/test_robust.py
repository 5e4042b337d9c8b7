from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.diagnose.robust import (
    Line,
    interpolated,
    median,
    rolling_minima,
    step_heights,
    theil_sen,
    without_steps,
)

# scipy 1.17.1, scipy.stats.theilslopes(values, times, alpha=0.9): slope, lower and upper bound
ORACLE = [0.379, 6.5, -0.726, 8.47, 4.963, 6.454, 16.599, 11.13, 11.828, 16.418, 19.507, 16.377]
ORACLE_SAYS = (3.207286, 1.97675, 4.7424)
MIB = 2.0**20


def test_slope_and_bounds_are_scipys() -> None:
    slope = theil_sen(Line([at * 0.5 for at in range(12)], ORACLE))
    assert pytest.approx(ORACLE_SAYS, abs=1e-6) == slope


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30))
def test_the_slope_is_the_median_over_all_pairs(values: list[float]) -> None:
    times = [float(at) for at in range(len(values))]
    pairs = [
        (values[b] - values[a]) / (times[b] - times[a])
        for a, b in combinations(range(len(values)), 2)
    ]
    slope = theil_sen(Line(times, values))
    assert pytest.approx(median(pairs)) == slope.middle
    assert slope.lower <= slope.middle <= slope.upper


def test_too_few_points_have_no_bounds() -> None:
    slope = theil_sen(Line([0.0, 1.0], [0.0, 5.0]))
    assert (5.0, -math.inf, math.inf) == slope


def test_a_fifth_of_wild_points_changes_nothing_much() -> None:
    values = [10.0 * at for at in range(20)]
    wild = [v + (1e6 if at % 5 == 2 else 0) for at, v in enumerate(values)]
    times = [float(at) for at in range(20)]
    assert abs(theil_sen(Line(times, wild)).middle - 10) < 10


def test_minima_of_two_hours_see_the_floor_of_a_sawtooth() -> None:
    times = [at / 6 for at in range(60)]
    line = Line(times, [1000 + 500 * ((at / 6 / 1.4) % 1) for at in range(60)])
    floor = rolling_minima(line, width=2, step=0.5, least=6)
    assert max(floor.values) - min(floor.values) < 70
    assert line.times[-1] == floor.times[-1]


def test_a_place_with_too_few_points_is_left_out() -> None:
    times = [at / 6 for at in range(12)] + [6.0 + at / 6 for at in range(12)]
    floor = rolling_minima(Line(times, [1.0] * 24), width=2, step=1, least=6)
    hours_back = [round(times[-1] - at) for at in floor.times]
    assert [5, 1, 0] == hours_back  # what lies between sees fewer than six points


def noisy(values: list[float]) -> Line:
    """Half an hour between points, and a little up and down."""
    return Line(
        [at * 0.5 for at in range(len(values))],
        [v + (at % 3) * MIB for at, v in enumerate(values)],
    )


STEPS = {"lag": 2.0, "sigmas": 3.5, "noise": 40 * MIB, "longest": 4.0}


def test_a_step_that_is_over_is_taken_away() -> None:
    line = noisy([0.0] * 12 + [2000 * MIB] * 12)
    rest, height = without_steps(line, **STEPS)
    assert abs(rest.values[-1]) < 50 * MIB
    assert abs(height - 2000 * MIB) < 50 * MIB
    assert abs(step_heights(line, **STEPS)[-1] - 2000 * MIB) < 50 * MIB


def test_a_rise_that_goes_on_is_no_step() -> None:
    line = noisy([0.0] * 16 + [100 * MIB * at for at in range(8)])
    assert line.values[-1] - line.values[0] == without_steps(line, **STEPS)[0].values[-1]


def test_a_steady_rise_has_no_steps() -> None:
    line = noisy([50 * MIB * at for at in range(24)])
    assert [0.0] * 24 == step_heights(line, **STEPS)


def test_beyond_its_ends_a_line_is_level() -> None:
    line = Line([1.0, 2.0], [10.0, 20.0])
    assert [10.0, 10.0, 15.0, 20.0, 20.0] == interpolated(line, [0, 1, 1.5, 2, 3])
