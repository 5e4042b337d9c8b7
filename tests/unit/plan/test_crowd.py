"""Is the chance that a sum exceeds a level summed as it is?"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.plan.crowd import Load, chance_above, exceeded_with, is_rarer

CELLS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=1, max_size=10)


def load(chances: list[float], unit: float = 1.0) -> Load:
    total = sum(chances)
    shares = tuple(chance / total for chance in chances)
    mean = unit * sum(cells * share for cells, share in enumerate(shares))
    second, third = (
        sum((unit * cells - mean) ** power * share for cells, share in enumerate(shares))
        for power in (2, 3)
    )
    deviation = math.sqrt(second)
    skew = third / deviation**3 if deviation else 0.0
    return Load(unit=unit, chances=shares, mean=mean, deviation=deviation, skew=skew)


def one_by_one(load: Load, sequences: int, room: int) -> float:
    """The same chance by adding one sequence after the other."""
    sums = [1.0]
    for _ in range(sequences):
        longer = [0.0] * (len(sums) + len(load.chances) - 1)
        for at, one in enumerate(sums):
            for more, other in enumerate(load.chances):
                longer[at + more] += one * other
        sums = longer
    return sum(sums[room + 1 :])


@settings(deadline=None, max_examples=150)
@given(CELLS, st.integers(1, 12), st.data())
def test_the_chance_is_never_understated(chances: list[float], n: int, data: st.DataObject) -> None:
    one = load([*chances, 0.05])
    room = data.draw(st.integers(0, n * len(chances)))
    exact = one_by_one(one, n, room)
    found = chance_above(one, n, room)
    assert found >= exact * (1 - 1e-6) - 1e-12
    if 1e-9 < exact and n * one.mean < 0.9 * room:
        assert found == pytest.approx(exact, rel=0.01)


def test_hundreds_of_sequences_of_two_sizes_are_summed_exactly() -> None:
    """Chat of one or two cells beside a few of 200: the sum comes in steps, not as a bell."""
    chances = [0.0] * 201
    chances[1], chances[2], chances[200] = 0.6, 0.39, 0.01
    mixed = load(chances)
    for room in (1000, 1200, 1500, 1700):
        exact = sum(
            _exactly(large, of=200, chance=0.01)
            * _at_least(room + 1 - 200 * large - (200 - large), of=200 - large, chance=0.39 / 0.99)
            for large in range(201)
        )
        assert chance_above(mixed, 200, room) == pytest.approx(exact, rel=0.01), room


def _exactly(hits: int, *, of: int, chance: float) -> float:
    return math.comb(of, hits) * chance**hits * (1 - chance) ** (of - hits)


def _at_least(hits: int, *, of: int, chance: float) -> float:
    return sum(_exactly(each, of=of, chance=chance) for each in range(max(0, hits), of + 1))


def test_it_agrees_with_drawing() -> None:
    rng = random.Random(20261129)
    one = load([rng.random() for _ in range(60)])
    draws = [
        sum(rng.choices(range(60), one.chances, k=40)) for _ in range(20_000)
    ]  # fmt: skip
    room = sorted(draws)[int(0.98 * len(draws))]
    measured = sum(each > room for each in draws) / len(draws)
    assert chance_above(one, 40, room) == pytest.approx(measured, rel=0.15)


def test_what_always_fits_has_no_risk_and_what_never_does_is_certain() -> None:
    one = load([0.2, 0.5, 0.3])
    assert chance_above(one, 10, 20) == 0.0
    assert chance_above(one, 10, 10) == 1.0
    assert is_rarer(one, 10, 20, 0.0)
    assert not is_rarer(one, 10, 10, 0.4)


@pytest.mark.parametrize(
    "chances", [[0.1, 0.2, 0.4, 0.2, 0.1], [0.9, 0.05] + [0.0] * 40 + [0.05], [0.5, 0.5]]
)
def test_the_level_that_is_seldom_exceeded_is_the_least_one(chances: list[float]) -> None:
    one = load(chances, unit=2.5)
    level = exceeded_with(one, 30, 0.001)
    assert chance_above(one, 30, level) <= 0.001
    assert chance_above(one, 30, level - one.unit) > 0.001


def test_levels_are_found_where_nothing_or_next_to_nothing_varies() -> None:
    for chances in ([0.0, 0.0, 1.0], [0.0, 1e-9, 1.0], [0.999_999, 1e-6], [1e-6, 0.999_999]):
        one = load(chances)
        for n in (1, 7, 300):
            assert chance_above(one, n, exceeded_with(one, n, 0.001)) <= 0.001


def test_equal_sequences_are_counted_without_a_spread() -> None:
    one = load([0.0, 0.0, 1.0])
    assert chance_above(one, 7, 14) == 0.0
    assert chance_above(one, 7, 13) == 1.0
