"""How much of a worker's memory does its load explain, so that a day's tide is no leak?

Three things may explain memory: requests in flight, the same with a lag of some minutes, and the
highest load so far (allocators keep the high-water mark). Their coefficients are never negative, and
are kept only where they explain something, because a coefficient that noise has made can turn a flat
line into a rise.
"""

import math
from collections.abc import Sequence
from typing import Final

LAG_HOURS: Final = 0.3
"""Time constant of memory behind load: buffers are given back some minutes after the requests."""
KNOT_HOURS: Final = 24.0
"""Growth of its own may bend once a day, so that a leak that begins is not laid on the load."""
EXPLAINS: Final = 0.2
"""Least part of the squares that an explanation must take away."""
LEVEL_HOURS: Final = 24.0
"""With less than a day, load and time are not to be told apart by levels, only by changes."""

STEP_PLACES: Final = 9
"""Where a step is tried, evenly over the window."""

Column = Sequence[float]


def of_load(times: Column, values: Column, load: Column, peak: Column) -> list[float] | None:
    """Bytes at each time that the load explains; None when there is too little to say.

    Times in hours, rising; values in bytes; load and its peak so far in requests.
    """
    columns = (load, lagged(times, load, LAG_HOURS), peak)
    if times[-1] - times[0] >= LEVEL_HOURS - 1e-9:
        weights = _weights(_trend(times), columns, values)
    else:
        pairs = _an_hour_apart(times)
        if len(pairs) < 12:
            return None
        weights = _weights(
            [[1.0] * len(pairs)],
            [[column[b] - column[a] for a, b in pairs] for column in columns],
            [values[b] - values[a] for a, b in pairs],
        )
    if weights is None:
        return None
    return [
        math.fsum(weight * value for weight, value in zip(weights, row, strict=True) if weight)
        for row in zip(*columns, strict=True)
    ]


def of_load_alone(times: Column, values: Column, load: Column, peak: Column) -> list[float]:
    """Bytes at each time that the load would explain if nothing grew by itself.

    Here the load has the benefit of every doubt: a trend in time that it can imitate, as a new high-water
    mark does, is laid on it.
    """
    columns = (load, lagged(times, load, LAG_HOURS), peak)
    sums = _Sums(([1.0] * len(times), *columns), values)
    places = sums.not_negative((0,), (1, 2, 3))
    found = sums.fit(places)
    if found is None:
        return [0.0] * len(times)
    explained = [0.0] * len(times)
    for at, weight in zip(places[1:], found[0][1:], strict=True):
        explained = [e + weight * v for e, v in zip(explained, columns[at - 1], strict=True)]
    return explained


def step_explains_as_well(times: Column, values: Column, load: Column, peak: Column) -> bool:
    """Whether the load and one step explain these values as well as the load and a steady rise do.

    Both are fitted alike, the step at the best of STEP_PLACES: the one that leaves less of the squares is
    believed. A step alone leaves a quarter of a rise's squares, and a rise a quarter of a step's.
    """
    columns = (load, lagged(times, load, LAG_HOURS), peak)
    middle = math.fsum(times) / len(times)

    def left(shape: Column) -> float:
        sums = _Sums(([1.0] * len(times), shape, *columns), values)
        found = sums.fit(sums.not_negative((0, 1), (2, 3, 4)))
        return found[1] if found is not None and found[0][1] > 0 else math.inf

    rise = left([time - middle for time in times])
    places = (len(times) * part // (STEP_PLACES + 1) for part in range(1, STEP_PLACES + 1))
    steps = (left([0.0] * at + [1.0] * (len(times) - at)) for at in places if at)
    return math.isinf(rise) or min(steps, default=math.inf) < rise


def lagged(times: Column, values: Column, hours: float) -> list[float]:
    """Exponential mean with this time constant."""
    level, before, found = values[0], times[0], []
    for time, value in zip(times, values, strict=True):
        level += (1 - math.exp(-(time - before) / hours)) * (value - level)
        before = time
        found.append(level)
    return found


def _an_hour_apart(times: Column) -> list[tuple[int, int]]:
    """Pairs of places whose times lie an hour apart, within three minutes."""
    pairs, first = [], 0
    for last, time in enumerate(times):
        while times[first] < time - 1.05:
            first += 1
        if abs(time - times[first] - 1) < 0.05:
            pairs.append((first, last))
    return pairs


def _trend(times: Column) -> list[list[float]]:
    """A constant, a slope, and a bend each KNOT_HOURS back from the end."""
    middle = math.fsum(times) / len(times)
    columns = [[1.0] * len(times), [time - middle for time in times]]
    knot = times[-1] - KNOT_HOURS
    while knot > times[0] + KNOT_HOURS / 2:
        columns.append([max(0.0, time - knot) for time in times])
        knot -= KNOT_HOURS
    return columns


def _weights(
    trend: Sequence[Column], columns: Sequence[Column], values: Column
) -> list[float] | None:
    """Coefficients of load, lagged load and peak: what moves first, then the high-water mark."""
    sums = _Sums((*trend, *columns), values)
    base = tuple(range(len(trend)))
    moving = tuple(len(trend) + at for at in range(len(columns) - 1))
    mark = len(trend) + len(columns) - 1
    plain = sums.fit(base)
    if plain is None:
        return None
    best, kept = plain[1], base
    for more in (moving, (mark,)):
        candidates = more if kept == base else (*moving, *more)
        places = sums.not_negative(base, candidates)
        found = sums.fit(places)
        if places != base and found is not None and found[1] < (1 - EXPLAINS) * best:
            best, kept = found[1], places
    fitted = sums.fit(kept)
    if fitted is None:
        return None
    by_place = dict(zip(kept, fitted[0], strict=True))
    return [by_place.get(len(trend) + at, 0.0) for at in range(len(columns))]


class _Sums:
    """Products of all columns, taken once, for least squares over any of them."""

    def __init__(self, columns: Sequence[Column], values: Column) -> None:
        middle = math.fsum(values) / len(values)
        centred = [value - middle for value in values]
        self._squares = _dot(centred, centred)
        self._with_values = [_dot(column, centred) for column in columns]
        self._products = [[0.0] * len(columns) for _ in columns]
        for a, first in enumerate(columns):
            for b in range(a, len(columns)):
                self._products[a][b] = self._products[b][a] = _dot(first, columns[b])

    def fit(self, places: Sequence[int]) -> tuple[list[float], float] | None:
        """Coefficients of these columns and what is left of the squares; None when singular."""
        matrix = [[self._products[a][b] for b in places] for a in places]
        for at, row in enumerate(matrix):
            row[at] = row[at] * (1 + 1e-9) + 1e-9  # a column that never moves weighs nothing
        right = [self._with_values[a] for a in places]
        found = _solved(matrix, right)
        if found is None:
            return None
        explained = math.fsum(c * r for c, r in zip(found, right, strict=True))
        return found, max(0.0, self._squares - explained)

    def not_negative(self, base: tuple[int, ...], candidates: tuple[int, ...]) -> tuple[int, ...]:
        """The base with those candidates whose coefficients are positive together."""
        kept = list(candidates)
        while kept:
            found = self.fit((*base, *kept))
            if found is None:
                return base
            weights = found[0][len(base) :]
            least = min(range(len(kept)), key=weights.__getitem__)
            if weights[least] > 0:
                break
            del kept[least]
        return (*base, *kept)


def _dot(first: Column, second: Column) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _solved(matrix: list[list[float]], right: Sequence[float]) -> list[float] | None:
    """Gauss with pivots; None when a pivot vanishes."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at in range(size):
        best = max(range(at, size), key=lambda r: abs(rows[r][at]))
        if abs(rows[best][at]) < 1e-12:
            return None
        rows[at], rows[best] = rows[best], rows[at]
        for below in rows[at + 1 :]:
            factor = below[at] / rows[at][at]
            if factor:
                for column in range(at, size + 1):
                    below[column] -= factor * rows[at][column]
    found = [0.0] * size
    for at in reversed(range(size)):
        known = math.fsum(rows[at][c] * found[c] for c in range(at + 1, size))
        found[at] = (rows[at][size] - known) / rows[at][at]
    return found
