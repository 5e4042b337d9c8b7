"""How does a person see that work goes on, without a word of it in the output?

On stderr: a bar where it is a terminal, else a line for each tenth.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """A context manager around some work; `step` is called as it goes on."""

    def __init__(self, title: str, *, is_shown: bool = True) -> None:
        self._title = title
        self._is_shown = is_shown
        self._bar: Any = None
        self._task: Any = None
        self._tenths = 0

    def __enter__(self) -> Self:
        if self._is_shown and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where something is drawn
            from rich.progress import (  # noqa: PLC0415
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar  # noqa: PLC0415

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, done: int, of: int) -> None:
        """So many of so many are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=of)
        elif self._is_shown and done * 10 // of > self._tenths:
            self._tenths = done * 10 // of
            print(f"{self._title}: {done} of {of}", file=sys.stderr, flush=True)
