"""How does a worker's memory look over time, in a terminal and in a file?"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from plimsoll.facts.series import FloorBin
from plimsoll.units import GIB, gib

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
HEIGHT: Final = 8
"""Lines of a curve in a terminal."""
LABEL: Final = 10
"""Columns of the figures beside it."""
SVG_WIDTH: Final = 960
SVG_HEIGHT: Final = 320
MARGIN: Final = 64


def terminal_curve(bins: Sequence[FloorBin], *, width: int, height: int = HEIGHT) -> list[str]:
    """Floors as columns of blocks, the time of each column the same; gaps stay empty."""
    if not bins:
        return []
    columns = _columns(bins, max(8, width - LABEL))
    known = [value for value in columns if value is not None]
    low, high = _bounds(known)
    lines = []
    for row in range(height):
        floor = height - 1 - row
        cells = "".join(_cell(value, low, high, floor, height) for value in columns)
        label = gib(round(high)) if row == 0 else gib(round(low)) if row == height - 1 else ""
        lines.append(f"{label:>{LABEL - 1}} {cells}".rstrip())
    hours = (bins[-1].at_seconds - bins[0].at_seconds) / 3600
    lines.append(" " * LABEL + f"the last {hours:.1f} h")
    return lines


def svg_curve(bins: Sequence[FloorBin], *, title: str, limit_bytes: int | None = None) -> str:
    """The same as a drawing; equal floors give equal bytes. Ends with a newline."""
    known = [float(each.floor_bytes) for each in bins]
    low, high = _bounds(known) if known else (0.0, 1.0)
    is_near = limit_bytes is not None and limit_bytes <= 2 * high - low
    high = max(high, float(limit_bytes)) if is_near and limit_bytes is not None else high
    begin, end = (bins[0].at_seconds, bins[-1].at_seconds) if bins else (0.0, 1.0)

    def x(seconds: float) -> float:
        return MARGIN + (SVG_WIDTH - 2 * MARGIN) * (seconds - begin) / max(1.0, end - begin)

    def y(value: float) -> float:
        return SVG_HEIGHT - MARGIN - (SVG_HEIGHT - 2 * MARGIN) * (value - low) / (high - low)

    points = " ".join(f"{x(b.at_seconds):.1f},{y(b.floor_bytes):.1f}" for b in bins)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SVG_WIDTH}" height="{SVG_HEIGHT}" '
        f'viewBox="0 0 {SVG_WIDTH} {SVG_HEIGHT}" role="img" font-family="system-ui, sans-serif" '
        'font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{SVG_WIDTH}" height="{SVG_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="28" font-size="16">{escape(title)}</text>',
        f'<text x="{MARGIN - 6}" y="{y(low):.1f}" text-anchor="end">{gib(round(low))}</text>',
        f'<text x="{MARGIN - 6}" y="{y(high):.1f}" text-anchor="end">{gib(round(high))}</text>',
        f'<text x="{SVG_WIDTH - MARGIN}" y="{SVG_HEIGHT - 24}" text-anchor="end">'
        f"{(end - begin) / 3600:.1f} h</text>",
    ]
    if is_near and limit_bytes is not None:
        lines.append(
            f'<line x1="{MARGIN}" y1="{y(limit_bytes):.1f}" x2="{SVG_WIDTH - MARGIN}" '
            f'y2="{y(limit_bytes):.1f}" stroke="#b91c1c" stroke-dasharray="6 4"/>'
        )
    lines.append(f'<polyline points="{points}" fill="none" stroke="#1d4ed8" stroke-width="2"/>')
    return "\n".join([*lines, "</svg>", ""])


def _columns(bins: Sequence[FloorBin], width: int) -> list[float | None]:
    """The lowest floor in each column; None where there is none."""
    begin, end = bins[0].at_seconds, bins[-1].at_seconds
    width = min(width, max(8, len(bins)))
    columns: list[float | None] = [None] * width
    for each in bins:
        at = min(width - 1, int(width * (each.at_seconds - begin) / max(1.0, end - begin)))
        seen = columns[at]
        columns[at] = each.floor_bytes if seen is None else min(seen, each.floor_bytes)
    return columns


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest, never nearer than a sixteenth of a GiB, so that noise looks like noise."""
    low, high = min(values), max(values)
    room = max(0.0, GIB / 16 - (high - low)) / 2
    return max(0.0, low - room), high + room


def _cell(value: float | None, low: float, high: float, floor: int, height: int) -> str:
    if value is None:
        return " "
    filled = (value - low) / (high - low) * (height * 8 - 1) + 1 - floor * 8
    return BLOCKS[max(0, min(8, round(filled)))]
