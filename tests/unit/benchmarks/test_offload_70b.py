"""Is the table of a 70B on a 48 GB card what the code says, and what llama.cpp's own --fit says?"""

from __future__ import annotations

import pytest
from benchmarks import offload_70b

ROWS = tuple(offload_70b.rows())


def test_the_page_is_what_the_code_writes() -> None:
    assert offload_70b.PAGE.read_text() == offload_70b.page()


def test_fits_own_choice_is_met() -> None:
    compared = [row for row in ROWS if row.fit is not None]
    assert 12 == len(compared)
    assert [row.fit for row in compared] == [row.in_fits_terms for row in compared]


@pytest.mark.parametrize(
    ("quantization", "length", "card", "sixty", "eighty"),
    [
        ("Q4_K_M", 16384, 48540, "holds", "holds"),
        ("Q5_K_M", 4096, 48540, "holds", "loads, no reserve"),
        ("Q6_K", 16384, 48540, "holds", "no"),
        ("Q6_K", 16384, 45000, "no", "no"),
        ("Q8_0", 4096, 48540, "no", "no"),
    ],
)
def test_sixty_and_eighty(
    quantization: str, length: int, card: int, sixty: str, eighty: str
) -> None:
    (row,) = [row for row in ROWS if (quantization, length, card) == row[:3]]
    assert (sixty, eighty) == (row.says(60), row.says(80))


def test_longer_prompts_and_smaller_cards_never_hold_more() -> None:
    by_key = {row[:3]: row.planned for row in ROWS}
    for (quantization, length, card), most in by_key.items():
        assert most <= by_key[quantization, offload_70b.LENGTHS[0], card]
        assert most <= by_key[quantization, length, offload_70b.CARDS[0]]


def test_without_an_argument_the_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == offload_70b.main([])
    assert offload_70b.page() == capsys.readouterr().out
