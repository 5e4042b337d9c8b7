"""How are floors written down, so that days of them fit into one ConfigMap?

Columns of whole numbers (KiB, milliseconds, hundredths of requests) as differences, as JSON, packed by
zlib: about 6 bytes a bin. When that is too much, only the newer half is kept, and half of that again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from plimsoll.facts.series import FloorBin, LatencyBin
from plimsoll.facts.watched import PastLife
from plimsoll.units import KIB

FORMAT: Final = 1
LEAST_BYTES_OF_A_BIN: Final = 2
"""Packed, of a worker that does next to nothing."""
MOST_BYTES: Final = 384 * KIB
"""Packed; base64 makes 512 KiB of it, half of what etcd takes."""
MOST_UNPACKED_BYTES: Final = 64 << 20
MOST_ROWS: Final = 100_000
_FLOOR_STEPS: Final = (float(KIB), 0.01, 0.01, 1.0)
_LATENCY_STEPS: Final = (1.0, 0.001, 0.001)
"""By column after the time: what one of the whole numbers is worth. That of the time is a bin."""


def pack(lives: Sequence[PastLife], *, bin_seconds: float, most_bytes: int = MOST_BYTES) -> bytes:
    """Equal lives give equal bytes. Never more than `most_bytes`: the oldest bins go first."""
    newest = max((life.bins[-1].at_seconds for life in lives if life.bins), default=0.0)
    oldest = min((life.bins[0].at_seconds for life in lives if life.bins), default=0.0)
    rows = sum(len(life.bins) for life in lives)
    # begin near the end of it: packing a million bins over and over takes minutes
    span = (newest - oldest) * min(1.0, most_bytes / (rows * LEAST_BYTES_OF_A_BIN or 1))
    while True:
        packed = _packed(lives, newest - span, bin_seconds)
        if len(packed) <= most_bytes:
            return packed
        if span < bin_seconds:
            return _packed((), 0.0, bin_seconds)
        span /= 2


def unpack(packed: bytes) -> tuple[PastLife, ...]:
    """What `pack` wrote. Raises ValueError, with what is wrong, for anything else."""
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, MOST_UNPACKED_BYTES)
        if not unpacker.eof:
            raise ValueError("it is cut off, or far too large")
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r} is not {FORMAT}, the one known here")
        size = float(document["binSeconds"])
        if not 0 < size < 1e9:  # 30 years
            raise ValueError(f"binSeconds {size:g} is no length of a bin")
        return tuple(_life(each, size) for each in document["lives"])
    except (
        zlib.error,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _packed(lives: Sequence[PastLife], since_seconds: float, bin_seconds: float) -> bytes:
    document = {
        "format": FORMAT,
        "binSeconds": bin_seconds,
        "lives": [_written(life, since_seconds, bin_seconds) for life in lives],
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), level=6)


def _written(life: PastLife, since_seconds: float, size: float) -> dict[str, Any]:
    bins = [each for each in life.bins if each.at_seconds >= since_seconds]
    latencies = [each for each in life.latencies if each.at_seconds >= since_seconds]
    return {
        "pod": life.pod_uid,
        "container": life.container,
        "started": life.started_seconds,
        "bins": _columns(bins, len(FloorBin._fields), (size, *_FLOOR_STEPS)),
        "latencies": _columns(latencies, len(LatencyBin._fields), (size, *_LATENCY_STEPS)),
    }


def _columns(
    rows: Iterable[tuple[float | None, ...]], width: int, steps: Sequence[float]
) -> list[list[int | None]]:
    columns: list[list[int | None]] = [[] for _ in range(width)]
    before = [0] * width
    for row in rows:
        for place, (value, step) in enumerate(zip(row, steps, strict=True)):
            if value is None:
                columns[place].append(None)
                continue
            whole = round(value / step)
            columns[place].append(whole - before[place])
            before[place] = whole
    return columns


def _life(written: Any, size: float) -> PastLife:
    pod, container, started = written["pod"], written["container"], written["started"]
    if not (isinstance(pod, str) and isinstance(container, str)):
        raise ValueError("a life has no pod or no container")
    bins = _rows(written["bins"], len(FloorBin._fields), (size, *_FLOOR_STEPS))
    latencies = _rows(written["latencies"], len(LatencyBin._fields), (size, *_LATENCY_STEPS))
    return PastLife(
        pod,
        container,
        float(started),
        tuple(FloorBin(_known(r[0]), round(_known(r[1])), *r[2:]) for r in bins),
        tuple(LatencyBin(_known(r[0]), round(_known(r[1])), *r[2:]) for r in latencies),
    )


def _rows(columns: Any, width: int, steps: Sequence[float]) -> list[tuple[float | None, ...]]:
    if len(columns) != width or len({len(column) for column in columns}) != 1:
        raise ValueError("columns of unequal length")
    if len(columns[0]) > MOST_ROWS:
        raise ValueError(f"{len(columns[0])} bins are more than days can have")
    read: list[list[float | None]] = []
    for column, step in zip(columns, steps, strict=True):
        at = 0
        values: list[float | None] = []
        for change in column:
            if change is None:
                values.append(None)
                continue
            if type(change) is not int:
                raise ValueError(f"{change!r} is no whole number")
            at += change
            if at < 0:
                raise ValueError(f"{at} is less than nothing")
            values.append(at * step)
        read.append(values)
    times = read[0]
    if any(b is None or a is None or b <= a for a, b in pairwise(times)):
        raise ValueError("bins are not in the order of time")
    return list(zip(*read, strict=True))


def _known(value: float | None) -> float:
    if value is None:
        raise ValueError("a bin without time or floor")
    return value
