"""How do the dashboard's panels look together? One SVG, laid out as Grafana would."""

from __future__ import annotations

import math
from typing import Final
from xml.sax.saxutils import escape

from dashboard import END_SECONDS, GIB, HOURS, Panel
from installation import REPOSITORY

PICTURE: Final = REPOSITORY / "docs" / "dashboard.svg"
COLUMN, ROW, GAP = 50, 26, 8
COLOURS: Final = ("#3b6ea5", "#c8553d", "#4f8a5b", "#8d6a9f", "#b8860b", "#5f6b6d")


def drawn(panels: tuple[Panel, ...]) -> str:
    """The picture."""
    height = max(p.place["y"] + p.place["h"] for p in panels) * ROW + GAP
    width = 24 * COLUMN + GAP
    body = "".join(_panel(panel) for panel in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10">\n'
        "<title>The dashboard, over a day that was made up</title>\n"
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>\n{body}</svg>\n'
    )


def _panel(panel: Panel) -> str:
    place = panel.place
    x, y = place["x"] * COLUMN + GAP, place["y"] * ROW + GAP
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    title = f'<text x="{x + 8}" y="{y + 15}" font-weight="bold">{escape(panel.title)}</text>\n'
    if panel.kind == "row":
        return title
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#fff" stroke="#ddd"/>\n'
    lines = [line for lines in panel.lines for line in lines]
    if panel.kind == "stat":
        value = lines[0].points[-1][1] if lines else math.nan
        return f'{box}{title}<text x="{x + 8}" y="{y + 60}" font-size="32">{value:g}</text>\n'
    known = [value for line in lines for _, value in line.points if not math.isnan(value)]
    top = max(known, default=1.0) or 1.0
    left, right, above, below = x + 52, x + width - 8, y + 26, y + height - 34

    def at(point: tuple[float, float]) -> str:
        across = (point[0] - END_SECONDS) / (HOURS * 3600) + 1
        up = point[1] / top
        return f"{left + across * (right - left):.0f},{below - up * (below - above):.0f}"

    parts = [box, title]
    for share in (0.0, 0.5, 1.0):
        level = below - share * (below - above)
        parts.append(f'<path d="M{left} {level:.0f}H{right}" stroke="#eee"/>')
        label = escape(_amount(top * share, panel.unit))
        parts.append(f'<text x="{left - 4}" y="{level + 3:.0f}" text-anchor="end">{label}</text>\n')
    where = x + 8
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(at(point) for point in line.points if not math.isnan(point[1]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>\n')
        name = line.name.strip()
        if where + 6 * len(name) < x + width:
            parts.append(
                f'<text x="{where}" y="{y + height - 8}" fill="{colour}">{escape(name)}</text>\n'
            )
            where += 6 * len(name) + 8
    return "".join(parts)


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / GIB:.1f} GiB"
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value / 3600:.0f} h" if value >= 7200 else f"{value:.2g} s"
    return f"{value:.3g}" if value < 1000 else f"{value / 1000:.0f}k"
