"""Is the ratio learnt from enough traffic, on the safe side, and within bounds?"""

from __future__ import annotations

from plimsoll.gate.learn import (
    DEFAULT_HUNDREDTHS,
    HIGHEST_HUNDREDTHS,
    LOWEST_HUNDREDTHS,
    Seen,
    hundredths_per_token,
)


def test_little_traffic_teaches_nothing() -> None:
    assert DEFAULT_HUNDREDTHS == hundredths_per_token(Seen(1_000_000, 199_999))
    assert 410 == hundredths_per_token(Seen(0, 0), now=410)


def test_what_was_seen_is_used_on_the_safe_side() -> None:
    assert 408 == hundredths_per_token(Seen(4_800_000, 1_000_000))


def test_small_moves_are_not_worth_a_command() -> None:
    assert 400 == hundredths_per_token(Seen(4_800_000, 1_000_000), now=400)


def test_the_ratio_keeps_to_its_bounds() -> None:
    assert HIGHEST_HUNDREDTHS == hundredths_per_token(Seen(15_000_000, 1_000_000))
    assert LOWEST_HUNDREDTHS == hundredths_per_token(Seen(1_000_000, 1_000_000))
