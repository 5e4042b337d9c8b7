"""How do 2,000 workers' days fit into some megabytes?

A table of numbers as one array for each column: 8 bytes a figure instead of the 32 that an object takes.
None is kept as NaN, which no source is let deliver.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Columns:
    """Rows of numbers by time; the first column is the time."""

    def __init__(self, width: int) -> None:
        self._columns = tuple(array("d") for _ in range(width))

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, row: Sequence[float | None]) -> None:
        """One more row at the end."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(math.nan if value is None else value)

    def replace_last(self, row: Sequence[float | None]) -> None:
        """This row instead of the last one."""
        for column, value in zip(self._columns, row, strict=True):
            column[-1] = math.nan if value is None else value

    def drop_before(self, at_seconds: float) -> None:
        """Forget rows that are older."""
        first = bisect_left(self._columns[0], at_seconds)
        if first:
            for column in self._columns:
                del column[:first]

    def last(self, back: int = 1) -> tuple[float | None, ...] | None:
        """The last row, or one before it; None when there are not so many."""
        if len(self) < back:
            return None
        return tuple(_read(column[-back]) for column in self._columns)

    def rows(self, newest: int | None = None) -> Iterator[tuple[float | None, ...]]:
        """All rows, or so many of the newest; oldest first."""
        first = 0 if newest is None else max(0, len(self) - newest)
        for row in zip(*(column[first:] for column in self._columns), strict=True):
            yield tuple(_read(value) for value in row)


def _read(value: float) -> float | None:
    return None if math.isnan(value) else value
