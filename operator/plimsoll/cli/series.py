"""How is a series read from a file: `seconds,value` lines, or what Prometheus gives for a range?"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.exits import BadInputError
from plimsoll.facts.series import Sample, Series
from plimsoll.units import GIB, MIB

LEAST_BYTES: Final = 16 * MIB
"""Less than an interpreter with an engine in it holds; kibibytes taken for bytes end below this."""
MOST_EPOCH_SECONDS: Final = 1e11
"""The year 5138; larger stamps are milliseconds or less."""
MOST_BYTES: Final = 64 * 1024 * GIB
"""More memory than any node has."""
MOST_SHARE: Final = 1.05
MOST_SECONDS: Final = 3600.0
"""No first token is waited for longer."""
_HEADERS: Final = frozenset({"seconds", "time", "timestamp", "ts", "t", "at_seconds"})


def read_memory(path: str, swap: str | None = None) -> Series:
    """Resident bytes, with those swapped out where they stand in a file apart.

    Raises BadInputError where the figures cannot be bytes.
    """
    series = read_series("--memory", path)
    if swap is not None:
        series = with_swap(series, read_series("--swap", swap))
    if not series:
        raise BadInputError(f"--memory {path}: no sample in it; write lines of seconds,value")
    middle = statistics.median(sample.value for sample in series)
    if middle < LEAST_BYTES:
        raise BadInputError(
            f"--memory {path}: the median is {middle:,.4g}, which is no worker's memory in bytes; give bytes "
            "(KiB times 1024, MiB times 1048576, GiB times 1073741824)"
        )
    if middle > MOST_BYTES:
        raise BadInputError(
            f"--memory {path}: the median is {middle:,.4g} bytes, more than any node has; give bytes"
        )
    return series


def with_swap(memory: Series, swap: Series) -> Series:
    """Resident bytes with what is swapped out at the time: the newest figure by then, or the first."""
    if not swap:
        return memory
    found, at = [], 0
    for seconds, value in memory:
        while at + 1 < len(swap) and swap[at + 1].at_seconds <= seconds:
            at += 1
        found.append(Sample(seconds, value + swap[at].value))
    return tuple(found)


def read_share(option: str, path: str) -> Series:
    """Parts of a whole. Raises BadInputError for percentages."""
    series = read_series(option, path)
    if series and max(sample.value for sample in series) > MOST_SHARE:
        raise BadInputError(f"{option} {path}: give a part from 0 to 1 (percentages by 100)")
    return series


def read_latency(path: str) -> Series:
    """Seconds to the first token. Raises BadInputError where the figures cannot be seconds."""
    series = read_series("--ttft", path)
    if series and statistics.median(sample.value for sample in series) > MOST_SECONDS:
        raise BadInputError(
            f"--ttft {path}: the median is above an hour; give seconds (milliseconds by 1000)"
        )
    return series


def read_series(option: str, path: str) -> Series:
    """Samples in the order of time; what is no number (NaN, empty) is left out, for it was not seen.

    Raises BadInputError with the file and the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInputError(f"{option} {path}: {why}") from error
    where = f"{option} {path}"
    pairs = _of_json(where, text) if text.lstrip()[:1] in ("{", "[") else _of_lines(where, text)
    if pairs and max(at for at, _ in pairs) > MOST_EPOCH_SECONDS:
        raise BadInputError(
            f"{where}: {max(at for at, _ in pairs):.0f} is no time in seconds; stamps in milliseconds are "
            "divided by 1000"
        )
    kept = [Sample(at, value) for at, value in pairs if math.isfinite(value) and value >= 0]
    kept.sort()
    return tuple(kept)


def _of_lines(where: str, text: str) -> list[tuple[float, float]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if number == 1 and cells[0].lower() in _HEADERS:
            _check_header(where, cells)
            continue
        if len(cells) < 2:
            raise BadInputError(f"{where}:{number}: {line!r} is not seconds,value")
        try:
            at = float(cells[0])
            value = float(cells[1]) if cells[1] else math.nan
        except ValueError as error:
            raise BadInputError(
                f"{where}:{number}: {line!r} is not seconds,value: two numbers with a comma between, "
                "under a first line that may say seconds,value"
            ) from error
        if not math.isfinite(at):
            raise BadInputError(f"{where}:{number}: {cells[0]!r} is no time in seconds")
        found.append((at, value))
    return found


def _check_header(where: str, cells: list[str]) -> None:
    named = cells[1].lower() if len(cells) > 1 else ""
    for unit in ("mib", "gib", "kib", "_mb", "_gb", "_ms", "millis"):
        if unit in named or named == unit.strip("_"):
            raise BadInputError(
                f"{where}:1: the column is named {cells[1]!r}; give bytes for memory and seconds for latency"
            )


def _of_json(where: str, text: str) -> list[tuple[float, float]]:
    """A range as /api/v1/query_range answers it, or its `data`, or its `result`."""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where}: neither seconds,value lines nor JSON: {error}") from error
    for key in ("data", "result"):
        if isinstance(document, dict) and key in document:
            document = document[key]
    rows = document if isinstance(document, list) else [document]
    if rows and all(isinstance(row, dict) for row in rows):
        if len(rows) > 1:
            raise BadInputError(
                f"{where}: {len(rows)} series in it; narrow the query to one container's"
            )
        rows = rows[0].get("values", [])
    try:
        return [(float(at), float(value)) for at, value in rows]
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f'{where}: not a range as Prometheus gives it: values must be [seconds, "number"] pairs'
        ) from error
