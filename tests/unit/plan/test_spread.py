"""Are lengths spread as their quantiles or their histogram say?"""

from __future__ import annotations

import math
import random

import pytest

from plimsoll.facts.lengths import LengthHistogram
from plimsoll.plan.records import TokenQuantiles
from plimsoll.plan.spread import Spread, spread_of

LENGTHS = LengthHistogram(
    bounds=(100, 200, 500, 1000, 2000), counts=(10, 20, 40, 20, 8, 2), total_tokens=48_000
)
"""100 requests of 480 tokens on average."""


def mean_up_to(spread: Spread, most: float) -> float:
    below = spread.below(most)
    return below.first + most * (1 - below.chance)


def test_a_log_normal_goes_through_both_quantiles() -> None:
    spread = spread_of(TokenQuantiles(p50=1800, p99=11_000), 16_384)
    assert spread.below(1800).chance == pytest.approx(0.5)
    assert spread.below(11_000).chance == pytest.approx(0.99)


def test_its_moments_are_those_of_draws() -> None:
    spread = spread_of(TokenQuantiles(p50=400, p99=4000), 10_000)
    rng = random.Random(20261129)
    draws = [rng.lognormvariate(math.log(400), math.log(10) / 2.326347874) for _ in range(100_000)]
    for most in (300, 1500, 6000):
        short = [each for each in draws if each < most]
        below = spread.below(most)
        assert below.chance == pytest.approx(len(short) / len(draws), rel=0.02)
        assert below.first == pytest.approx(sum(short) / len(draws), rel=0.02)
        assert below.second == pytest.approx(sum(x * x for x in short) / len(draws), rel=0.03)


def test_equal_quantiles_are_one_length() -> None:
    spread = spread_of(TokenQuantiles(p50=1000, p99=1000), 4096)
    assert spread.below(990).chance == 0.0
    assert mean_up_to(spread, 4096) == pytest.approx(1000, rel=1e-3)


def test_a_histogram_keeps_its_mean() -> None:
    assert mean_up_to(spread_of(LENGTHS, 4096), 4096) == pytest.approx(480)


def test_a_histogram_keeps_its_counts() -> None:
    """At a bucket's middle everything below it is below, with a part of the bucket itself."""
    spread = spread_of(LENGTHS, 4096)
    for middle, lower, upper in ((150, 0.1, 0.3), (700, 0.7, 0.9), (3000, 0.98, 1.0)):
        assert lower <= spread.below(middle).chance <= upper


def test_no_spread_inside_the_buckets_is_wider() -> None:
    """Whatever requests the buckets hold, with these means: their squares are no larger."""
    rng = random.Random(20261129)
    lower, upper = (1, *LENGTHS.bounds), (*LENGTHS.bounds, 4096)
    for _ in range(50):
        at = rng.random()
        requests = [
            low + (at + side * rng.random() * min(at, 1 - at)) * (high - low)
            for low, high, count in zip(lower, upper, LENGTHS.counts, strict=True)
            for side in [-1, 1] * (count // 2)
        ]
        same = LENGTHS._replace(total_tokens=round(sum(requests)))
        widest = spread_of(same, 4096).below(5000).second
        assert sum(each * each for each in requests) / 100 <= widest * 1.02


def test_a_sum_that_contradicts_the_buckets_is_bounded_by_them() -> None:
    too_long = LENGTHS._replace(total_tokens=10_000_000)
    ends = (100 * 10 + 200 * 20 + 500 * 40 + 1000 * 20 + 2000 * 8 + 4096 * 2) / 100
    assert mean_up_to(spread_of(too_long, 4096), 4096) == pytest.approx(ends)
