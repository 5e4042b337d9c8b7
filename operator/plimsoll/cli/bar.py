"""How does a card look in a terminal: a bar of letters, wide as the bytes are many?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from plimsoll.cli.answers import Answer
from plimsoll.cli.card import LOOKS, cells, ticks
from plimsoll.cli.text import Page, paragraph
from plimsoll.plan.records import Plan, Refusal
from plimsoll.units import GIB, gib

if TYPE_CHECKING:
    from rich.console import Console

BAR_HEIGHT = 3
"""Lines of the bar: enough for the eye to weigh areas."""
MARGIN = 2
"""Columns left and right of it."""


def draw(answers: Sequence[Answer], console: Console) -> None:
    """Each plan as a bar with its legend, each refusal as its sentence."""
    for at, answer in enumerate(answers):
        if at:
            console.print()
        console.print(Text(f"{answer.deployment}, pool {answer.pool}", style="bold"))
        match answer.outcome:
            case Plan() as plan:
                _draw_plan(plan, console)
            case Refusal() as refusal:
                console.print(Text(f"  Refused: {refusal.reason.value}", style="bold red"))
                _say(refusal.message, console)
                for offer in refusal.offers:
                    _say(f"- {offer.sentence}", console)


def _draw_plan(plan: Plan, console: Console) -> None:
    width = console.width - 2 * MARGIN
    margin = " " * MARGIN
    each = f"one of {plan.cards}" if plan.cards > 1 else "one"
    console.print(f"{margin}{each} {plan.gpu_product}, {gib(plan.card_bytes)}")
    console.print()
    bar = Text(margin)
    for line, share in zip(plan.ledger, cells([x.bytes for x in plan.ledger], width), strict=True):
        look = LOOKS[line.owner]
        bar.append(look.letter * share, style=f"{look.ink} on {look.fill}")
    for _ in range(BAR_HEIGHT):
        console.print(bar, no_wrap=True, crop=True)
    console.print(Text(margin + _scale(plan.card_bytes, width)), no_wrap=True)
    console.print()
    console.print(_legend(plan))
    console.print()
    _say(plan.explanation, console)


def _legend(plan: Plan) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column()
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    grid.add_column()
    for line in plan.ledger:
        look = LOOKS[line.owner]
        swatch = Text(" " * MARGIN).append(f" {look.letter} ", style=f"{look.ink} on {look.fill}")
        share = f"{100 * line.bytes / plan.card_bytes:.1f} %"
        size = f"{line.bytes / GIB:,.2f} GiB"
        grid.add_row(swatch, look.words, size, share, line.confidence.value)
    return grid


def _scale(card_bytes: int, width: int) -> str:
    """Numbers below the bar, each with its first digit where its GiB begins."""
    line = [" "] * width
    for mark in ticks(card_bytes, GIB):
        at = mark * GIB * width // card_bytes
        label = f"{mark} GiB" if mark == 0 else str(mark)
        if at + len(label) <= width:
            line[at : at + len(label)] = label
    return "".join(line).rstrip()


def _say(sentence: str, console: Console) -> None:
    page = Page(width=console.width - MARGIN, colour=False)
    for line in paragraph(sentence, page=page, indent=MARGIN):
        console.print(Text(line), no_wrap=True)
