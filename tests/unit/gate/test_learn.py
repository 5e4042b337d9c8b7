"""Is the ratio learnt from enough traffic, on the safe side, and within bounds?"""

from __future__ import annotations

import pytest

from plimsoll.gate.learn import (
    DEFAULT_HUNDREDTHS,
    HIGHEST_HUNDREDTHS,
    LOWEST_HUNDREDTHS,
    Learnt,
    Look,
    Seen,
    hundredths_per_token,
    prompt_tokens,
    ratios,
)
from plimsoll.gate.records import LaneRoom


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


def after(*looks: Look | None) -> Learnt:
    learnt = Learnt()
    for look in looks:
        learnt = learnt.after(look)
    return learnt


def test_it_is_learnt_from_what_grew_between_looks() -> None:
    first = Look(1_000_000, {"a": 7_000_000, "b": 100})
    assert 408 == after(first, Look(5_800_000, {"a": 7_600_000, "b": 400_100})).hundredths


def test_little_by_little_is_enough_too() -> None:
    looks = [Look(480_000 * turn, {"a": 100_000 * turn}) for turn in range(4)]
    assert DEFAULT_HUNDREDTHS == after(*looks[:2]).hundredths
    assert 408 == after(*looks).hundredths


@pytest.mark.parametrize(
    "between",
    [
        None,
        Look(5_800_000, {"a": 1_000_000, "b": 0}),
        Look(5_800_000, {"a": 3}),
        Look(3, {"a": 1_000_000}),
    ],
)
def test_what_was_not_seen_as_a_whole_teaches_nothing(between: Look | None) -> None:
    """An engine was silent, another one is there, one began anew, or the gate's own count did."""
    first = Look(1_000_000, {"a": 10})
    assert DEFAULT_HUNDREDTHS == after(first, between).hundredths
    assert Seen(0, 0) == after(first, between).seen


def test_old_traffic_fades() -> None:
    english = [Look(4_800_000 * turn, {"a": 1_000_000 * turn}) for turn in range(3)]
    base = english[-1]
    telemetry = [
        Look(base.body_bytes + 1_800_000 * turn, {"a": base.prompt_tokens["a"] + 1_000_000 * turn})
        for turn in range(1, 6)
    ]
    assert 408 == after(*english).hundredths
    assert after(*english, *telemetry).hundredths < 180


def test_the_users_word_goes_before() -> None:
    lanes = (
        LaneRoom(name="a", tokens=1),
        LaneRoom(name="b", tokens=1, bytes_per_token_hundredths=180),
    )
    assert {"a": 408, "b": 180} == ratios(lanes, 408)


def test_an_engines_page_is_read() -> None:
    page = (
        "# TYPE vllm:prompt_tokens_total counter\n"
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+06\n'
        'vllm:prompt_tokens_total{engine="1",model_name="m"} 20\n'
        "vllm:prompt_tokens_total_more 9\n"
    )
    assert 1_500_020 == prompt_tokens(page)
    assert prompt_tokens("llamacpp:prompt_tokens_total 5\n") is None
