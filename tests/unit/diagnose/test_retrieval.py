"""Every number stands where its depth says, once, and equal sheets are equal texts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.diagnose.retrieval import (
    contexts_of,
    default_depths,
    default_lengths,
    needles,
    prompt,
    register,
    sheet_of,
)
from plimsoll.facts.retrieval import Sheet

QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def sheet(*, seed: int = 1) -> Sheet:
    """Two contexts of as many sentences."""
    return sheet_of((4000, 4000), (200, 200), depths=QUARTERS, seed=seed, digits=6)


def test_each_number_stands_at_its_depth() -> None:
    asked = sheet()
    text = register(asked, 0)
    for needle in needles(asked, 0):
        at = text.index(f"The number of the {needle.name} locker is {needle.number}.")
        assert abs(at / len(text) - needle.depth) < 0.05


@given(seed=st.integers(0, 2**32), depths=st.integers(2, 64), digits=st.integers(2, 18))
def test_names_and_numbers_are_told_once(seed: int, depths: int, digits: int) -> None:
    asked = sheet_of((4000,), (20,), depths=default_depths(depths), seed=seed, digits=digits)
    text = register(asked, 0)
    hidden = needles(asked, 0)
    assert len({needle.name for needle in hidden}) == depths
    for needle in hidden:
        assert len(needle.number) == digits
        assert text.count(f"the {needle.name} locker") == 1


def test_there_are_no_other_digits_in_a_register() -> None:
    asked = sheet()
    found = sorted(re.findall(r"\d+", register(asked, 1)))
    assert sorted(needle.number for needle in needles(asked, 1)) == found


def test_equal_sheets_are_equal_texts_and_others_differ() -> None:
    assert register(sheet(), 0) == register(sheet(), 0)
    assert register(sheet(), 0) != register(sheet(), 1)
    assert register(sheet(), 0) != register(sheet(seed=2), 0)


def test_the_words_are_the_same_in_every_python() -> None:
    """A baseline that was kept must fit the prompts of the next run."""
    first = needles(sheet(), 0)[0]
    assert ("pearl tapir", "440419") == (first.name, first.number)


def test_all_questions_of_a_context_begin_alike() -> None:
    asked = sheet()
    text = register(asked, 0)
    for is_chat in (False, True):
        for needle in needles(asked, 0):
            whole = prompt(text, needle.name, is_chat=is_chat)
            assert whole.startswith(text)
            assert needle.name in whole[len(text) :]
            assert needle.number not in whole[len(text) :]


@pytest.mark.parametrize(
    ("lengths", "contexts", "expected"),
    [
        ((8192,), 4, (8192,) * 4),
        ((2048, 4096, 8192), 8, (2048, 2048, 4096, 4096, 8192, 8192, 8192, 8192)),
        ((2048, 4096, 8192), 1, (2048, 4096, 8192)),
        ((8192, 4096), 5, (4096, 4096, 8192, 8192, 8192)),
    ],
)
def test_half_of_the_contexts_are_the_longest(
    lengths: tuple[int, ...], contexts: int, expected: tuple[int, ...]
) -> None:
    assert expected == contexts_of(lengths, contexts=contexts)


def test_lengths_and_depths_when_nobody_says() -> None:
    assert (8192, 16384, 32768) == default_lengths(32768)
    assert (0.0, 0.5, 1.0) == default_depths(3)
