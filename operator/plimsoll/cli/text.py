"""How do words and numbers stand in columns, with colour where a terminal can show it?

Plain strings and no library: `plimsoll plan` should answer before a person looks up.
"""

import os
import textwrap
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TextIO

PIPE_WIDTH: Final = 100
"""Columns where the output is a file or a pipe, so that its text depends on the plan alone."""
NARROWEST: Final = 60
"""Columns below which we stop squeezing and let the terminal break lines."""


class Tone(StrEnum):
    """What a piece of text means; the terminal's own palette says how that looks."""

    PLAIN = ""
    TITLE = "1"
    GOOD = "32"
    BAD = "31"
    QUIET = "2"


class Page(NamedTuple):
    """Where text goes: how wide it is, and whether it shows colour."""

    width: int
    """Columns."""
    colour: bool
    """Whether SGR sequences are wanted."""

    def ink(self, text: str, tone: Tone) -> str:
        """The text in a tone, or as it is on a page without colour."""
        if not self.colour or not tone or not text:
            return text
        return f"\x1b[{tone.value}m{text}\x1b[0m"


def page_of(stream: TextIO, *, no_colour: bool = False) -> Page:
    """The page that a stream offers; `no_colour` is the person's wish (NO_COLOR, see no-color.org)."""
    if not stream.isatty():
        return Page(width=PIPE_WIDTH, colour=False)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # a terminal that does not say
        columns = 0
    return Page(width=max(NARROWEST, columns or PIPE_WIDTH), colour=not no_colour)


class Column(NamedTuple):
    """One column of a table."""

    title: str
    """Its heading."""
    right: bool = False
    """Whether it holds numbers, which stand to the right."""


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, page: Page, indent: int = 2
) -> list[str]:
    """Rows under headings; the last column takes what is left of the width and wraps within it.

    A first cell that is wider than half the page stands on a line of its own.
    """
    last = len(columns) - 1
    widths = [
        max([len(column.title), *(len(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]
    half = page.width // 2
    widths[0] = max(len(columns[0].title), *(len(r[0]) for r in rows if len(r[0]) <= half), 0)
    start = indent + sum(width + 2 for width in widths[:last])
    room = max(20, page.width - start)
    widths[last] = min(widths[last], room)

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        ]
        return (" " * indent + "  ".join(placed)).rstrip()

    lines = [page.ink(line([column.title for column in columns]), Tone.QUIET)]
    for row in rows:
        first, *middle = row[:last]
        if len(first) > widths[0]:
            lines.append(" " * indent + first)
            first = ""
        parts = _wrapped(row[last], room)
        lines.append(line([first, *middle, parts[0]]))
        lines.extend(" " * start + part for part in parts[1:])
    return lines


def paragraph(
    text: str, *, page: Page, indent: int = 2, hanging: int = 0, lead: str = ""
) -> list[str]:
    """A sentence broken at the page's width; `lead` stands in front of its first line."""
    return textwrap.wrap(
        text,
        width=page.width,
        initial_indent=" " * indent + lead,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [(" " * indent + lead).rstrip()]


def bullets(items: Sequence[str], *, page: Page, indent: int = 2) -> list[str]:
    """One item a line, each with a dash in front."""
    return [
        line
        for item in items
        for line in paragraph(item, page=page, indent=indent, hanging=2, lead="- ")
    ]


def _wrapped(text: str, room: int) -> list[str]:
    if len(text) <= room:
        return [text]
    return textwrap.wrap(text, room, break_on_hyphens=False)
