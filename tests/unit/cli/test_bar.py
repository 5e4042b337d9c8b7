"""The card in a terminal."""

from __future__ import annotations

import io
import re
from collections import Counter

from rich.console import Console

from plimsoll.cli.answers import Answer
from plimsoll.cli.bar import draw


def drawn(answers: tuple[Answer, ...], *, colour: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=80, force_terminal=colour, color_system="truecolor" if colour else None
    )
    draw(answers, console)
    return out.getvalue()


def test_the_bar_is_76_letters_wide_at_80_columns(answers: tuple[Answer, ...]) -> None:
    bars = re.findall(r"^  ([A-Z]{40,})$", drawn(answers, colour=False), re.MULTILINE)
    assert len(bars) == 3
    assert len(set(bars)) == 1
    counted = Counter(bars[0])
    assert counted.total() == 76
    # 15,317 of 24,564 MiB are weights: 47.4 of 76 cells
    assert (counted["W"], counted["K"]) == (47, 18)


def test_no_line_is_wider_than_the_page(answers: tuple[Answer, ...]) -> None:
    assert max(map(len, drawn(answers, colour=False).splitlines())) <= 80


def test_without_colour_there_is_no_escape(answers: tuple[Answer, ...]) -> None:
    assert "\x1b" not in drawn(answers, colour=False)


def test_colour_changes_no_letter(answers: tuple[Answer, ...]) -> None:
    escapes = re.compile("\x1b\\[[0-9;]*m")
    assert drawn(answers, colour=False) == escapes.sub("", drawn(answers, colour=True))


def test_every_line_of_the_ledger_is_in_the_legend(answers: tuple[Answer, ...]) -> None:
    text = drawn(answers, colour=False)
    assert re.search(r"W +Weights +14\.96 GiB +62\.4 % +Exact", text)
    assert re.search(r"H +Headroom +0\.90 GiB +3\.7 % +Exact", text)


def test_a_refusal_is_drawn_as_its_sentence(answers: tuple[Answer, ...]) -> None:
    text = drawn(answers[1:], colour=False)
    assert "Refused: KvBudgetExceeded" in text
    assert "- 5 sequences of 8,192 tokens" in text
