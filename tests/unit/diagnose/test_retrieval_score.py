"""Passed is shown, not guessed: a cache that loses as much as is tolerated passes one time in twenty at most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from plimsoll.diagnose.retrieval import needles, sheet_of
from plimsoll.diagnose.retrieval_score import (
    TOLERANCE,
    judge,
    loss_at_most,
    number_in,
    trials_needed,
)
from plimsoll.facts.retrieval import (
    Answers,
    RetrievalReport,
    RetrievalVerdict,
    Sheet,
    read_retrieval,
)

PASSED, FAILED = RetrievalVerdict.PASSED, RetrievalVerdict.FAILED
INCONCLUSIVE = RetrievalVerdict.INCONCLUSIVE
TEN = tuple(step / 9 for step in range(10))


def sheet(contexts: int = 20) -> Sheet:
    """Half of the contexts are long."""
    lengths = (1000,) * (contexts // 2) + (2000,) * (contexts - contexts // 2)
    return sheet_of(lengths, (10,) * contexts, depths=TEN, seed=1, digits=6)


def answers(asked: Sheet, wrong: Sequence[int] = (), *, is_chat: bool = False) -> Answers:
    """Every number right but those at these places of all trials."""
    said: list[tuple[str, ...]] = []
    for at in range(len(asked.contexts)):
        row = []
        for place, needle in enumerate(needles(asked, at)):
            number = needle.number
            if at * len(TEN) + place in wrong:
                number = number[:-1] + str((int(number[-1]) + 1) % 10)
            row.append(f" {number}.")
        said.append(tuple(row))
    return Answers(sheet=asked, model="m", is_chat=is_chat, answers=tuple(said))


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (" 482190.", "482190"),
        ("The number is 482,190, I think.", "482190"),
        ("482190 or 111111", "482190"),
        ("no idea", ""),
        ("", ""),
    ],
)
def test_the_first_number_counts(answer: str, number: str) -> None:
    assert number == number_in(answer)


def test_a_wrong_last_digit_is_not_exact_and_five_digits_are_right() -> None:
    asked = sheet(2)
    report = judge(answers(asked, [0]))
    assert (19, 20) == (report.exact, report.trials)
    assert round(1 - 1 / 120, 4) == report.digits_right


def test_none_lost_is_bounded_as_the_formula_says() -> None:
    z_squared = 1.6448536**2
    for trials in (20, 100, 200):
        assert loss_at_most(trials, 0, 0) == pytest.approx(z_squared / (trials + z_squared))
    assert 1.0 == loss_at_most(0, 0, 0)


def test_more_losses_mean_a_higher_bound_and_more_trials_a_lower_one() -> None:
    bounds = [loss_at_most(200, lost, 0) for lost in range(20)]
    assert bounds == sorted(bounds)
    assert loss_at_most(400, 4, 0) < loss_at_most(200, 2, 0)


@pytest.mark.parametrize("trials", [60, 100, 200])
@pytest.mark.parametrize("won_rate", [0.0, 0.01, 0.05])
def test_a_loss_as_large_as_tolerated_passes_seldom(trials: int, won_rate: float) -> None:
    """Summed exactly over everything that may happen: the chance to pass with a loss of the tolerance."""
    lost_rate = TOLERANCE + won_rate
    passes = 0.0
    for lost in range(min(trials, 40)):
        for won in range(min(trials - lost, 40)):
            if loss_at_most(trials, lost, won) <= TOLERANCE:
                passes += _chance(trials, lost, won, lost_rate, won_rate)
    assert passes <= 0.06


def _chance(trials: int, lost: int, won: int, lost_rate: float, won_rate: float) -> float:
    neither = 1 - lost_rate - won_rate
    ways = math.comb(trials, lost) * math.comb(trials - lost, won)
    return float(ways * lost_rate**lost * won_rate**won * neither ** (trials - lost - won))


def test_a_sound_cache_passes() -> None:
    asked = sheet()
    report = judge(answers(asked, [3]), answers(asked, [7]))
    assert PASSED is report.verdict
    assert (1, 1) == (report.lost, report.won)
    assert report.loss_at_most is not None
    assert report.loss_at_most <= TOLERANCE


def test_one_that_loses_a_tenth_fails() -> None:
    asked = sheet()
    report = judge(answers(asked, range(0, 200, 10)), answers(asked))
    assert FAILED is report.verdict
    assert "20 lost, 0 won" in report.sentence


def test_a_loss_that_is_only_at_the_longest_does_not_hide() -> None:
    asked = sheet()
    everywhere, only_there = range(0, 200, 50), range(100, 200, 25)
    assert PASSED is judge(answers(asked, everywhere), answers(asked)).verdict
    report = judge(answers(asked, only_there), answers(asked))
    assert INCONCLUSIVE is report.verdict
    assert "at 2,000 tokens" in report.sentence


def test_too_few_trials_tell_nothing() -> None:
    asked = sheet(4)
    report = judge(answers(asked), answers(asked))
    assert INCONCLUSIVE is report.verdict
    assert f"at least {trials_needed(TOLERANCE)} trials" in report.sentence
    enough = sheet(8)
    assert enough.trials > trials_needed(TOLERANCE)
    assert PASSED is judge(answers(enough), answers(enough)).verdict


def test_a_model_that_finds_little_at_16_bit_is_no_judge_of_the_cache() -> None:
    asked = sheet()
    blind = answers(asked, range(199))
    assert INCONCLUSIVE is judge(blind, blind).verdict
    blind_when_long = answers(asked, range(100, 190))
    report = judge(blind_when_long, blind_when_long)
    assert INCONCLUSIVE is report.verdict
    assert "10 of 100 numbers at 2,000 tokens" in report.sentence


def test_a_length_that_does_not_fit_is_not_passed() -> None:
    asked = sheet()
    report = judge(answers(asked), answers(asked), skipped_tokens=(4000,))
    assert INCONCLUSIVE is report.verdict
    assert "contexts of 4,000 tokens do not fit" in report.sentence


def test_alone_nine_in_ten_must_come_back() -> None:
    asked = sheet()
    assert PASSED is judge(answers(asked, range(20))).verdict
    assert FAILED is judge(answers(asked, range(21))).verdict


def test_another_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="asked something else"):
        judge(answers(sheet()), answers(sheet(4)))
    with pytest.raises(ValueError, match="asked something else"):
        judge(answers(sheet()), answers(sheet(), is_chat=True))


def test_a_report_survives_a_termination_message() -> None:
    asked = sheet()
    report = judge(answers(asked, [3]), answers(asked))
    assert report == read_retrieval(report.to_message())
    wordy = report.model_copy(update={"sentence": "ä" * 9000})
    message = wordy.to_message()
    assert len(message.encode()) <= 4096
    again = read_retrieval(message)
    assert isinstance(again, RetrievalReport)
    assert report.exact == again.exact
    assert read_retrieval("Killed") is None
