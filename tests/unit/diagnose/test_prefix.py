"""What do an engine's counters say of its prefix cache?"""

from __future__ import annotations

import pytest

from plimsoll.diagnose.prefix import (
    LEAST_TOKENS,
    PrefixUse,
    PrefixVerdict,
    prefix_verdict,
    together,
    use_of,
)
from plimsoll.facts.series import EngineSample


def samples(*counters: tuple[float | None, float | None]) -> tuple[EngineSample, ...]:
    """One a minute, as (tokens asked, tokens found) since the start."""
    return tuple(
        EngineSample(60.0 * at, prefix_queries=asked, prefix_hits=found)
        for at, (asked, found) in enumerate(counters)
    )


def test_what_was_gained_counts_and_not_what_was_there_before() -> None:
    found = use_of(samples((1e6, 5e5), (1.2e6, 5e5), (1.5e6, 5.1e5)))
    assert PrefixUse(5e5, 1e4) == found
    assert found is not None
    assert 0.02 == pytest.approx(found.share)


def test_a_restart_begins_at_zero() -> None:
    assert PrefixUse(3e5, 2e4) == use_of(samples((1e6, 5e5), (2e5, 1e4), (3e5, 2e4)))


@pytest.mark.parametrize(
    "counters",
    [
        (),
        ((1e6, 1e5),),
        ((None, None), (None, None)),
        ((1e6, None), (2e6, None)),
        ((0.0, 0.0), (1e5, 2e5)),
    ],
    ids=["nothing", "one scrape", "no counters", "half of them", "more found than asked"],
)
def test_what_makes_no_sense_says_nothing(counters: tuple[tuple[float, float], ...]) -> None:
    assert use_of(samples(*counters)) is None


def test_a_scrape_without_counters_is_left_out() -> None:
    assert PrefixUse(1e6, 1e4) == use_of(samples((1e6, 0.0), (None, None), (2e6, 1e4)))


def test_workers_are_added_up_and_silent_ones_left_out() -> None:
    assert PrefixUse(3e5, 3e3) == together((PrefixUse(1e5, 1e3), None, PrefixUse(2e5, 2e3)))
    assert together((None, None)) is None
    assert together(()) is None


@pytest.mark.parametrize(
    ("asked", "share", "verdict"),
    [
        (LEAST_TOKENS / 2 - 1, 0.0, PrefixVerdict.UNKNOWN),
        (LEAST_TOKENS / 2, 0.0, PrefixVerdict.BETWEEN),
        (LEAST_TOKENS - 1, 0.5, PrefixVerdict.BETWEEN),
        (LEAST_TOKENS, 0.0, PrefixVerdict.LITTLE),
        (LEAST_TOKENS, 0.02, PrefixVerdict.LITTLE),
        (LEAST_TOKENS, 0.03, PrefixVerdict.BETWEEN),
        (LEAST_TOKENS, 0.05, PrefixVerdict.USED),
        (LEAST_TOKENS, 0.9, PrefixVerdict.USED),
    ],
)
def test_enough_must_be_asked_and_little_found(
    asked: float, share: float, verdict: PrefixVerdict
) -> None:
    assert verdict == prefix_verdict(PrefixUse(asked, asked * share))


def test_without_counters_there_is_no_verdict() -> None:
    assert PrefixVerdict.UNKNOWN == prefix_verdict(None)
