"""How does a card look in a document: the same bar as an SVG file, equal bytes for equal plans?"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from plimsoll.cli.answers import Answer
from plimsoll.cli.card import LOOKS, ticks
from plimsoll.plan.records import Plan, Refusal
from plimsoll.units import GIB, gib

WIDTH: Final = 960
MARGIN: Final = 24
BAR_WIDTH: Final = WIDTH - 2 * MARGIN
BAR_HEIGHT: Final = 64
LINE: Final = 20
"""Pixels from one line of text to the next."""
TEXT_COLUMNS: Final = 130
"""Characters that BAR_WIDTH takes at 13 px; 7 px a character on average."""
LEGEND_COLUMNS: Final = 3
BLOCK_GAP: Final = 36

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not admit, even escaped (https://www.w3.org/TR/xml/#charsets)."""


def svg(answers: Sequence[Answer]) -> str:
    """One drawing of all answers, one below the other, with a title and a description for readers
    who do not see it. Ends with a newline."""
    drawn: list[str] = []
    y = MARGIN
    for answer in answers:
        lines, height = _block(answer, y)
        drawn.extend(lines)
        y += height + BLOCK_GAP
    height = y - BLOCK_GAP + MARGIN
    title = "Where the bytes of a card go: " + ", ".join(
        f"{answer.deployment} pool {answer.pool}" for answer in answers
    )
    description = " ".join(_described(answer) for answer in answers)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title description" '
            'font-family="system-ui, sans-serif" font-size="13">',
            f'<title id="title">{_xml(title)}</title>',
            f'<desc id="description">{_xml(description)}</desc>',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _described(answer: Answer) -> str:
    where = f"{answer.deployment}, pool {answer.pool}"
    match answer.outcome:
        case Plan() as plan:
            parts = ", ".join(
                f"{LOOKS[line.owner].words} {line.bytes / GIB:.2f} GiB" for line in plan.ledger
            )
            return f"{where}, {plan.gpu_product} of {gib(plan.card_bytes)}: {parts}."
        case Refusal() as refusal:
            return f"{where} is refused: {refusal.message}"


def _block(answer: Answer, y: int) -> tuple[list[str], int]:
    """The elements of one answer from `y` on, and its height in pixels."""
    heading = _text(MARGIN, y + 16, f"{answer.deployment}, pool {answer.pool}", size=18, bold=True)
    match answer.outcome:
        case Plan() as plan:
            lines, end = _card(plan, y + 16 + LINE + 4)
        case Refusal() as refusal:
            said = [f"Refused: {refusal.reason.value}. {refusal.message}"]
            said += [f"- {offer.sentence}" for offer in refusal.offers]
            lines, end = _sentences(said, y + 16 + LINE + 4)
    return [heading, *lines], end - y


def _card(plan: Plan, y: int) -> tuple[list[str], int]:
    each = f"one of {plan.cards} " if plan.cards > 1 else ""
    lines = [_text(MARGIN, y, f"{each}{plan.gpu_product}, {gib(plan.card_bytes)}")]
    top = y + 12
    lines.extend(_bar(plan, top))
    below = top + BAR_HEIGHT
    for mark in ticks(plan.card_bytes, GIB):
        x = MARGIN + BAR_WIDTH * mark * GIB / plan.card_bytes
        lines.append(
            f'<line x1="{x:.2f}" y1="{below}" x2="{x:.2f}" y2="{below + 5}" stroke="#6b7280"/>'
        )
        label = "0 GiB" if mark == 0 else str(mark)
        anchor = "start" if mark == 0 else "middle"
        lines.append(_text(x, below + 18, label, size=11, anchor=anchor))
    legend, end = _legend(plan, below + 44)
    explained, end = _sentences([plan.explanation], end + 8)
    return [*lines, *legend, *explained], end


def _bar(plan: Plan, top: int) -> Iterator[str]:
    before = 0
    for line in plan.ledger:
        look = LOOKS[line.owner]
        x = MARGIN + BAR_WIDTH * before / plan.card_bytes
        width = BAR_WIDTH * line.bytes / plan.card_bytes
        before += line.bytes
        hover = f"{look.words}: {line.bytes / GIB:.2f} GiB. {line.source}"
        yield (
            f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{BAR_HEIGHT}" '
            f'fill="{look.fill}"><title>{_xml(hover)}</title></rect>'
        )
        label = next((s for s in (look.words, look.letter) if 8 * len(s) + 6 <= width), "")
        if label:
            yield _text(
                x + width / 2, top + BAR_HEIGHT / 2 + 5, label, anchor="middle", fill=look.ink
            )


def _legend(plan: Plan, y: int) -> tuple[list[str], int]:
    lines: list[str] = []
    step = BAR_WIDTH / LEGEND_COLUMNS
    for at, line in enumerate(plan.ledger):
        look = LOOKS[line.owner]
        x = MARGIN + step * (at % LEGEND_COLUMNS)
        base = y + LINE * (at // LEGEND_COLUMNS)
        share = 100 * line.bytes / plan.card_bytes
        lines.append(
            f'<rect x="{x:.2f}" y="{base - 11}" width="14" height="14" fill="{look.fill}" '
            'stroke="#6b7280" stroke-width="0.5"/>'
        )
        said = f"{look.letter}  {look.words}: {line.bytes / GIB:.2f} GiB, {share:.1f} %"
        lines.append(_text(x + 22, base, said))
    rows = -(-len(plan.ledger) // LEGEND_COLUMNS)
    return lines, y + LINE * rows


def _sentences(sentences: Sequence[str], y: int) -> tuple[list[str], int]:
    lines = [
        part
        for sentence in sentences
        for part in textwrap.wrap(sentence, TEXT_COLUMNS, break_on_hyphens=False)
    ]
    drawn = [_text(MARGIN, y + LINE * at, line) for at, line in enumerate(lines)]
    return drawn, y + LINE * max(0, len(lines) - 1)


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int | None = None,
    bold: bool = False,
    anchor: str | None = None,
    fill: str = "#111827",
) -> str:
    more = f' font-size="{size}"' if size else ""
    more += ' font-weight="bold"' if bold else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.2f}" y="{y:.2f}" fill="{fill}"{more}>{_xml(words)}</text>'


def _xml(words: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", words))
