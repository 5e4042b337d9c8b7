"""Columns, wrapping and colour."""

from __future__ import annotations

import io

from plimsoll.cli.text import PIPE_WIDTH, Column, Page, Tone, bullets, page_of, table
from plimsoll.units import counted

PLAIN = Page(width=40, colour=False)
COLUMNS = (Column("name"), Column("GiB", right=True), Column("from"))


def test_a_pipe_has_a_fixed_width_and_no_colour() -> None:
    assert Page(width=PIPE_WIDTH, colour=False) == page_of(io.StringIO())


def test_a_terminal_gets_colour_unless_the_person_says_no() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            raise OSError

    assert page_of(Terminal()).colour
    assert not page_of(Terminal(), no_colour=True).colour


def test_ink_is_nothing_on_a_page_without_colour() -> None:
    assert PLAIN.ink("fits", Tone.GOOD) == "fits"
    assert Page(40, colour=True).ink("fits", Tone.GOOD) == "\x1b[32mfits\x1b[0m"


def test_numbers_stand_to_the_right_and_the_last_column_wraps() -> None:
    rows = (("Weights", "14.96", "eight billion weights of two bytes"), ("KV", "5.86", "blocks"))
    assert table(COLUMNS, rows, page=PLAIN) == [
        "  name       GiB  from",
        "  Weights  14.96  eight billion weights",
        "                  of two bytes",
        "  KV        5.86  blocks",
    ]


def test_a_first_cell_wider_than_half_the_page_has_its_own_line() -> None:
    rows = (("--compilation-config {}", "why it is so"), ("--short 1", "because"))
    assert table((Column("flag"), Column("because")), rows, page=PLAIN) == [
        "  flag       because",
        "  --compilation-config {}",
        "             why it is so",
        "  --short 1  because",
    ]


def test_a_table_of_long_first_cells_only_still_stands() -> None:
    rows = (("--compilation-config {}", "why"),)
    lines = table((Column("flag"), Column("because")), rows, page=PLAIN)
    assert lines == ["  flag  because", "  --compilation-config {}", "        why"]


def test_a_bullet_hangs_below_its_dash() -> None:
    assert bullets(["one two"], page=Page(width=8, colour=False)) == ["  - one", "    two"]


def test_one_pool_and_two_pools() -> None:
    assert [
        counted(1, "pool"),
        counted(2, "pool"),
        counted(1200, "entry", "entries"),
    ] == ["1 pool", "2 pools", "1,200 entries"]
