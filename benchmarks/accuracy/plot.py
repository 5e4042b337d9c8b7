"""How does planned against reported look as a drawing: two panels of dots, and their errors below?

Written by hand like the command line's drawings: equal figures give equal bytes. Colours follow the
reader's light or dark setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from benchmarks.accuracy.cases import Compared
from benchmarks.accuracy.peers.peer import Quantity, Silent
from benchmarks.accuracy.summary import check_name

WIDTH: Final = 960
LEFT: Final = 64
GAP: Final = 72
PANEL_WIDTH: Final = (WIDTH - LEFT - GAP - 24) / 2
SCATTER_HEIGHT: Final = 380.0
ERRORS_HEIGHT: Final = 170.0
SCATTER_TOP: Final = 56.0
ERRORS_TOP: Final = SCATTER_TOP + SCATTER_HEIGHT + 52
LEGEND_TOP: Final = ERRORS_TOP + ERRORS_HEIGHT + 40
LEGEND_COLUMNS: Final = 3
LINE: Final = 20
UNDER: Final = -0.08
OVER: Final = 0.01
"""The band: 8 % too little to 1 % too much."""
EDGE: Final = 0.25
"""Errors beyond it are drawn on it."""
COUNTS: Final = frozenset({Quantity.TOKENS, Quantity.CONCURRENCY})
COLOURS: Final = (  # light, dark; eight hues that colour-blind readers tell apart
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8c42"),
    ("#009e73", "#2fd3a4"),
    ("#a3478f", "#e08fca"),
    ("#8a6d00", "#f0d04a"),
    ("#5b3fa8", "#a995f0"),
    ("#b01030", "#ff7088"),
    ("#3d6b1f", "#9acd5a"),
)
STYLE: Final = (
    "<style>"
    ".p{fill:#ffffff}.t{fill:#111827}.m{fill:#4b5563}.g{stroke:#d1d5db}.d{stroke:#4b5563}"
    ".b{fill:#009e73;fill-opacity:.16}.q{fill:none;stroke:#9ca3af}"
    + "".join(f".k{at}{{fill:{light}}}" for at, (light, _) in enumerate(COLOURS))
    + "@media (prefers-color-scheme:dark){"
    ".p{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9aa4b2}.g{stroke:#30363d}.d{stroke:#9aa4b2}"
    ".b{fill:#2fd3a4;fill-opacity:.18}.q{stroke:#6b7280}"
    + "".join(f".k{at}{{fill:{dark}}}" for at, (_, dark) in enumerate(COLOURS))
    + "}</style>"
)


@dataclass(frozen=True)
class Dot:
    """One figure."""

    planned: float
    reported: float
    kind: str
    """As in the table of figures; empty for a peer's."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes with a scatter above and the errors below."""

    title: str
    x: float
    first: int
    """Powers of ten at both ends."""
    last: int

    def across(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return self.x + PANEL_WIDTH * share

    def up(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return SCATTER_TOP + SCATTER_HEIGHT * (1 - min(max(share, 0.0), 1.0))


def svg(figures: Sequence[Compared]) -> str:
    """The whole drawing, with a title and a description for readers who do not see it."""
    kinds = sorted({check_name(each) for each in figures if _is_drawn(each)}, key=str.lower)
    drawn: list[str] = []
    counted = 0
    for title, x, is_here in (
        ("bytes", float(LEFT), _is_bytes),
        ("tokens and sequences", LEFT + PANEL_WIDTH + GAP, _is_count),
    ):
        dots = [dot for each in figures if _is_drawn(each) and is_here(each) for dot in _dots(each)]
        if dots:
            counted += sum(bool(dot.kind) for dot in dots)
            drawn += _panel(_panel_of(title, x, dots), dots, kinds)
    height = LEGEND_TOP + LINE * (len(kinds) // LEGEND_COLUMNS + 1)
    said = (
        f"{counted} figures, planned against reported, on logarithmic axes, one colour an engine and "
        "figure; below them the errors in per cent with a band from 8 % too little to 1 % too much."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="title description" '
            'font-family="system-ui, sans-serif" font-size="13">',
            '<title id="title">Planned against reported</title>',
            f'<desc id="description">{escape(said)}</desc>',
            STYLE,
            f'<rect width="{WIDTH}" height="{height:.0f}" class="p"/>',
            *drawn,
            *_legend(kinds),
            "</svg>",
            "",
        ]
    )


def _is_drawn(each: Compared) -> bool:
    planned, reported = each.check.planned, each.check.reported
    return (
        bool(planned and planned > 0 and reported and reported > 0)
        and each.quantity is not Quantity.STARTS
        and (_is_bytes(each) or _is_count(each))
    )


def _is_bytes(each: Compared) -> bool:
    return each.quantity not in COUNTS and "byte" in check_name(each).lower()


def _is_count(each: Compared) -> bool:
    return each.quantity in COUNTS


def _dots(each: Compared) -> Iterator[Dot]:
    reported = each.check.reported or 0.0
    for says in each.peers.values():
        if not isinstance(says, Silent) and says > 0:
            yield Dot(says, reported, "")
    yield Dot(each.check.planned or 0.0, reported, check_name(each))


def _panel_of(title: str, x: float, dots: Iterable[Dot]) -> Panel:
    values = [value for dot in dots if dot.kind for value in (dot.planned, dot.reported)]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Panel(title, x, first, max(last, first + 1))


def _panel(panel: Panel, dots: Sequence[Dot], kinds: Sequence[str]) -> list[str]:
    right, bottom = panel.x + PANEL_WIDTH, SCATTER_TOP + SCATTER_HEIGHT
    low, high = 10.0**panel.first, 10.0**panel.last
    lines = [_text(panel.x, SCATTER_TOP - 14, f"{panel.title}: planned over reported", bold=True)]
    for power in range(panel.first, panel.last + 1):
        at, level = panel.across(10.0**power), panel.up(10.0**power)
        lines += [
            _stroke(at, SCATTER_TOP, at, bottom),
            _stroke(at, ERRORS_TOP, at, ERRORS_TOP + ERRORS_HEIGHT),
            _stroke(panel.x, level, right, level),
            _text(panel.x - 6, level + 4, _power(power), anchor="end", muted=True),
            _text(at, bottom + 18, _power(power), anchor="middle", muted=True),
        ]
    corners = [
        (panel.across(low), panel.up(low * (1 + UNDER))),
        (panel.across(high), panel.up(high * (1 + UNDER))),
        (panel.across(high), panel.up(high * (1 + OVER))),
        (panel.across(low), panel.up(low * (1 + OVER))),
    ]
    band = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    lines += [
        f'<polygon points="{band}" class="b"/>',
        _stroke(panel.x, bottom, right, SCATTER_TOP, "d"),
        f'<rect x="{panel.x:.1f}" y="{_level(OVER):.1f}" width="{PANEL_WIDTH:.1f}" '
        f'height="{_level(UNDER) - _level(OVER):.1f}" class="b"/>',
    ]
    for error in (-0.25, -0.08, 0.0, 0.01, 0.25):
        is_axis = error == 0.0
        label = "" if is_axis else f"{error:+.0%}"
        lines.append(_stroke(panel.x, _level(error), right, _level(error), "d" if is_axis else "g"))
        shift = 9 if is_axis else 4 if error < 0 else 1
        lines.append(
            _text(panel.x - 6, _level(error) + shift, label or "0", anchor="end", muted=True)
        )
    lines.append(_text(panel.x, ERRORS_TOP - 8, "error, over what was reported", muted=True))
    lines += _marks(dots, kinds, lambda dot: (panel.across(dot.reported), panel.up(dot.planned)))
    lines += _marks(
        dots,
        kinds,
        lambda dot: (panel.across(dot.reported), _level(dot.planned / dot.reported - 1)),
    )
    return lines


def _level(error: float) -> float:
    share = (min(max(error, -EDGE), EDGE) + EDGE) / (2 * EDGE)
    return ERRORS_TOP + ERRORS_HEIGHT * (1 - share)


def _marks(
    dots: Iterable[Dot], kinds: Sequence[str], place: Callable[[Dot], tuple[float, float]]
) -> Iterator[str]:
    """Peers' rings first, then our dots; one mark a place and kind."""
    seen: dict[tuple[str, str, str], str] = {}
    for dot in sorted(dots, key=lambda dot: bool(dot.kind)):
        x, y = place(dot)
        if not (0 <= x <= WIDTH):
            continue
        key = (f"{x:.0f}", f"{y:.0f}", dot.kind)
        if dot.kind:
            colour = kinds.index(dot.kind) % len(COLOURS)
            seen[key] = f'<circle cx="{key[0]}" cy="{key[1]}" r="3" class="k{colour}"/>'
        else:
            seen[key] = f'<circle cx="{key[0]}" cy="{key[1]}" r="4" class="q"/>'
    yield from seen.values()


def _legend(kinds: Sequence[str]) -> Iterator[str]:
    step = (WIDTH - LEFT - 24) / LEGEND_COLUMNS
    for at, kind in enumerate([*kinds, ""]):
        x, y = LEFT + step * (at % LEGEND_COLUMNS), LEGEND_TOP + LINE * (at // LEGEND_COLUMNS)
        if kind:
            colour = at % len(COLOURS)
            yield f'<circle cx="{x:.0f}" cy="{y - 4:.0f}" r="5" class="k{colour}"/>'
        else:
            yield f'<circle cx="{x:.0f}" cy="{y - 4:.0f}" r="4" class="q"/>'
        yield _text(x + 12, y, kind or "peers, all figures")


def _power(power: int) -> str:
    words = {-2: "0.01", -1: "0.1", 0: "1", 1: "10", 2: "100", 3: "1 k", 4: "10 k", 5: "100 k"}
    for least, letter in ((12, "T"), (9, "G"), (6, "M")):
        if power >= least:
            return f"{10 ** (power - least)} {letter}"
    return words.get(power, f"1e{power}")


def _stroke(x1: float, y1: float, x2: float, y2: float, look: str = "g") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{look}"/>'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    bold: bool = False,
    muted: bool = False,
    anchor: str | None = None,
) -> str:
    more = ' font-weight="bold"' if bold else ""
    more += ' font-size="11"' if muted else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    look = "m" if muted else "t"
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{look}"{more}>{escape(words)}</text>'
