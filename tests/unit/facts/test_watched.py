"""Histograms between two scrapes, and what can be read from them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.facts.watched import Bucket, Buckets, added, gained, quantile


def buckets(*totals: float) -> Buckets:
    """Up to 0.1, 1 and 10 s, and beyond."""
    return tuple(
        Bucket(bound, total)
        for bound, total in zip((0.1, 1.0, 10.0, math.inf), totals, strict=True)
    )


def test_what_was_gained_is_the_difference() -> None:
    assert buckets(1, 3, 3, 4) == gained(buckets(1, 2, 3, 3), buckets(2, 5, 6, 7))


def test_a_count_that_fell_or_other_buckets_say_nothing() -> None:
    assert () == gained(buckets(1, 2, 3, 3), buckets(0, 1, 1, 1))
    assert () == gained(buckets(1, 2, 3, 3), buckets(2, 5, 6, 7)[1:])
    assert () == gained((), buckets(2, 5, 6, 7))
    assert () == gained(buckets(2, 5, 6, 7), ())


def test_both_together_and_the_newer_where_buckets_differ() -> None:
    assert buckets(2, 4, 6, 8) == added(buckets(1, 2, 3, 4), buckets(1, 2, 3, 4))
    assert buckets(1, 2, 3, 4)[1:] == added(buckets(1, 2, 3, 4), buckets(1, 2, 3, 4)[1:])


def test_a_quantile_lies_straight_within_its_bucket() -> None:
    assert 0.55 == quantile(buckets(0, 10, 10, 10), 0.5)
    assert 0.05 == quantile(buckets(10, 10, 10, 10), 0.5)


def test_beyond_the_last_bound_that_bound_is_the_least_it_can_be() -> None:
    assert 10.0 == quantile(buckets(0, 0, 0, 10), 0.95)


def test_without_observations_there_is_no_quantile() -> None:
    assert quantile(buckets(0, 0, 0, 0), 0.5) is None
    assert quantile((), 0.5) is None
    assert quantile(buckets(0, 10, 10, 10)[:3], 0.5) is None
    assert quantile((Bucket(math.inf, 3.0),), 0.5) is None


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_higher_share_is_never_quicker(counts: list[int], one: float, other: float) -> None:
    totals = [sum(counts[: i + 1]) for i in range(4)]
    low, high = sorted((one, other))
    first, second = quantile(buckets(*totals), low), quantile(buckets(*totals), high)
    if first is None or second is None:
        assert 0 == totals[-1]
    else:
        assert first <= second + 1e-9
