"""How does a program that takes minutes say what it is doing?

A line for each step with the time so far, what was found below it, and at the end how long each took.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Final

INDENT: Final = " " * 11
NARROWEST: Final = 60
WIDEST: Final = 118
BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"


class Teller:
    """Tells on stdout. `started_seconds`, of the machine's monotonic clock, is when the process before
    this one began the same story."""

    def __init__(self, started_seconds: float | None = None) -> None:
        self.started_seconds = time.monotonic() if started_seconds is None else started_seconds
        self.took = [("Programs and parts", self.elapsed_seconds)] if started_seconds else []
        self._step: tuple[str, float] | None = None
        self._is_colourful = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        columns = shutil.get_terminal_size((100, 24)).columns
        self._width = min(max(columns, NARROWEST), WIDEST) - len(INDENT)

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.started_seconds

    @property
    def at(self) -> str:
        """The step that is being done."""
        return self._step[0] if self._step is not None else "the beginning"

    def step(self, title: str) -> None:
        """The step before is done, this one begins."""
        self.done()
        self._step = (title, time.monotonic())
        marked = f"{BOLD}{title}{PLAIN}" if self._is_colourful else title
        self._print(f"\n[{self.elapsed_seconds:6.1f} s] {marked}")

    def done(self) -> None:
        """The step that is being done has ended."""
        if self._step is not None:
            title, began = self._step
            self.took.append((title, time.monotonic() - began))
            self._step = None

    def say(self, text: str = "") -> None:
        """A sentence or more, broken into lines."""
        self._lines(textwrap.wrap(text, self._width) or [""])

    def named(self, name: str, text: str) -> None:
        """A name with a longer text beside it."""
        beside = max(12, len(name) + 2)
        lines = textwrap.wrap(
            text, self._width - beside, break_on_hyphens=False, break_long_words=False
        )
        first, *others = lines or [""]
        self._lines([f"{name:{beside}}{first}", *(" " * beside + line for line in others)])

    def shell(self, command: str, output: str) -> None:
        """A command as one types it, and what it printed."""
        self._lines([f"$ {command}", *output.rstrip().splitlines()])

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns as wide as they must be."""
        lines = [tuple(heads), *map(tuple, rows)]
        widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
        self._lines(
            "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def times(self) -> None:
        """How long each step took."""
        self.done()
        for title, seconds in self.took:
            self._print(f"{seconds:9.1f} s  {title}")
        self._print(f"{self.elapsed_seconds:9.1f} s  in all")

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._print(f"{INDENT}{line}".rstrip())

    @staticmethod
    def _print(line: str) -> None:
        print(line, flush=True)
