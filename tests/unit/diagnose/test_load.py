from __future__ import annotations

import math
import random

from plimsoll.diagnose.load import lagged, of_load, of_load_alone, step_explains_as_well

MIB = 2.0**20
TIMES = [at / 6 for at in range(48 * 6)]
DAY = [16 + 12 * math.sin(2 * math.pi * t / 24) for t in TIMES]
PEAK = [max(DAY[: at + 1]) for at in range(len(DAY))]


def noisy(values: list[float]) -> list[float]:
    draw = random.Random(1)
    return [value + draw.gauss(0, 5 * MIB) for value in values]


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / MIB


def test_a_tide_that_follows_the_load_is_explained() -> None:
    memory = noisy([9000 * MIB + 60 * MIB * load for load in DAY])
    explained = of_load(TIMES, memory, DAY, PEAK)
    assert explained is not None
    rest = [m - e for m, e in zip(memory, explained, strict=True)]
    assert spread(memory) > 1400
    assert spread(rest) < 60


def test_a_high_water_mark_is_explained_too() -> None:
    memory = noisy([9000 * MIB + 80 * MIB * peak for peak in PEAK])
    explained = of_load(TIMES, memory, DAY, PEAK)
    assert explained is not None
    assert spread([m - e for m, e in zip(memory, explained, strict=True)]) < 200


def test_growth_is_not_laid_on_the_load() -> None:
    memory = noisy([9000 * MIB + 100 * MIB * max(0.0, t - 20) for t in TIMES])
    explained = of_load(TIMES, memory, DAY, PEAK)
    assert explained is not None
    assert spread(explained) < 300


def test_what_explains_nothing_weighs_nothing() -> None:
    explained = of_load(TIMES, noisy([9000 * MIB] * len(TIMES)), DAY, PEAK)
    assert [0.0] * len(TIMES) == explained


def test_memory_that_falls_with_load_is_not_explained_by_it() -> None:
    memory = noisy([9000 * MIB - 60 * MIB * load for load in DAY])
    explained = of_load(TIMES, memory, DAY, [1.0] * len(DAY))
    assert [0.0] * len(TIMES) == explained


def test_with_less_than_a_day_changes_are_compared() -> None:
    short = slice(0, 12 * 6)
    draw = random.Random(2)
    load = [draw.uniform(4, 30) for _ in TIMES[short]]
    memory = [9000 * MIB + 50 * MIB * value for value in load]
    peak = [max(load[: at + 1]) for at in range(len(load))]
    explained = of_load(TIMES[short], memory, load, peak)
    assert explained is not None
    assert spread([m - e for m, e in zip(memory, explained, strict=True)]) < 100


def test_too_little_says_nothing() -> None:
    assert None is of_load(TIMES[:12], [1.0] * 12, DAY[:12], PEAK[:12])


def test_a_lagged_load_comes_after_it() -> None:
    stepped = [0.0] * 6 + [10.0] * 6
    after = lagged([at / 6 for at in range(12)], stepped, 0.3)
    assert 0.0 == after[5]
    assert 0 < after[6] < 10
    assert after[-1] > 9


def test_alone_the_load_explains_all_that_it_can() -> None:
    """A mark that rises in steps with the load is a mark, not growth; what rises evenly is left."""
    mark = noisy([9000 * MIB + 80 * MIB * peak for peak in PEAK])
    rest = [m - e for m, e in zip(mark, of_load_alone(TIMES, mark, DAY, PEAK), strict=True)]
    assert spread(rest) < 60
    leak = noisy([9000 * MIB + 100 * MIB * t for t in TIMES])
    left = [m - e for m, e in zip(leak, of_load_alone(TIMES, leak, DAY, PEAK), strict=True)]
    assert left[-1] - left[len(left) // 2] > 0.8 * 100 * MIB * 24


def test_a_step_under_a_tide_is_told_from_a_rise() -> None:
    for at in (10.0, 24.0, 40.0):
        step = noisy(
            [
                9000 * MIB + 60 * MIB * v + (1200 * MIB if t > at else 0)
                for t, v in zip(TIMES, DAY, strict=True)
            ]
        )
        assert step_explains_as_well(TIMES, step, DAY, PEAK), at
    rise = noisy(
        [9000 * MIB + 60 * MIB * v + 25 * MIB * t for t, v in zip(TIMES, DAY, strict=True)]
    )
    assert not step_explains_as_well(TIMES, rise, DAY, PEAK)


def test_memory_that_does_not_rise_is_no_rise() -> None:
    falling = noisy([9000 * MIB - 25 * MIB * t for t in TIMES])
    assert step_explains_as_well(TIMES, falling, DAY, PEAK)
