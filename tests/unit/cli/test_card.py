"""Letters, colours and cells of a bar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cli.card import LOOKS, cells, ticks
from plimsoll.engines.base import ByteOwner
from plimsoll.units import GIB


def test_every_owner_has_its_own_letter_and_colour() -> None:
    assert set(ByteOwner) == set(LOOKS)
    assert len(LOOKS) == len({look.letter for look in LOOKS.values()})
    assert len(LOOKS) == len({look.fill for look in LOOKS.values()})


@pytest.mark.parametrize("owner", ByteOwner)
def test_text_on_an_area_can_be_read(owner: ByteOwner) -> None:
    """WCAG 2.2, contrast (minimum): 4.5 to 1."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(LOOKS[owner].ink), luminance(LOOKS[owner].fill)))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_cells_are_in_proportion() -> None:
    assert cells((1000, 3000, 4000), 80) == (10, 30, 40)


def test_a_small_owner_keeps_a_cell() -> None:
    assert cells((1, 0, 10**9), 80) == (1, 0, 79)


@given(st.lists(st.integers(0, 2**38), min_size=1, max_size=9), st.integers(9, 300))
def test_cells_fill_the_bar_and_lose_nobody(sizes: list[int], width: int) -> None:
    given_cells = cells(sizes, width)
    assert (width if sum(sizes) else 0) == sum(given_cells)
    assert [size > 0 for size in sizes] == [cell > 0 for cell in given_cells]


def test_more_parts_than_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="3 parts do not fit in a bar of 2 cells"):
        cells((1, 1, 1), 2)


@given(st.integers(1, 2000))
def test_a_scale_has_at_most_nine_marks_from_zero(card_gib: int) -> None:
    marks = ticks(card_gib * GIB, GIB)
    assert marks[0] == 0
    assert len(marks) <= 9
    assert marks[-1] <= card_gib
