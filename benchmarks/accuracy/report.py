"""How does the accuracy report look as a page, as text and as JSON?

Everything on the page follows from the files of the cases and the recorded answers of the peers: no clock, no
machine, no order of a run, so the committed page can be compared line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.accuracy.cases import Compared, Source, with_peers
from benchmarks.accuracy.peers import PEERS
from benchmarks.accuracy.peers.peer import PRINTED, Quantity, Silent
from benchmarks.accuracy.peers.recorded import read
from benchmarks.accuracy.row import MET, Row, Verdict
from benchmarks.accuracy.summary import Against, Group, Summary, percent

PAGE: Final = "docs/measured/accuracy.md"
PLOT: Final = "docs/measured/accuracy.svg"
ENDS: Final = {True: "reached", False: "NOT reached", None: "nothing to compare"}
LONGEST_REASON: Final = 300
"""Characters of a reason in a table."""


def as_json(rows: Sequence[Row], told: Summary) -> str:
    """One object: `rows` and `summary`."""
    return json.dumps(
        {"rows": [row.as_dict() for row in rows], "summary": told.as_dict()}, indent=1
    )


def as_text(rows: Sequence[Row], told: Summary) -> str:
    """For a terminal: the summary, then what is not met."""
    lines: list[str] = []
    for title, cells in _tables(told):
        lines += [title, *_aligned(cells), ""]
    unmet = _unmet_cells(rows)
    lines += ["Not met", *(_aligned(unmet) if len(unmet) > 1 else ["nothing"])]
    return "\n".join(lines)


def as_markdown(
    figures: Sequence[Compared], told: Summary, sources: Sequence[tuple[Source, str]]
) -> str:
    """The page of docs/measured; `sources` come with the name of their file."""
    rows = with_peers(figures)
    lines = [
        "# Planned against reported",
        "",
        "Every case whose figures an engine or its own code reported, planned again by Plimsoll, and by the",
        "peers that can be asked the same. Written by `make accuracy`; CI plans all of it again and fails on",
        "a line that differs. The figures are arithmetic, so they do not depend on the machine; the peers'",
        "are recorded, with version and day, in tests/data/peers (`make accuracy-record`).",
        "",
        *_what_was_compared(rows, sources),
        "",
        "![planned against reported](accuracy.svg)",
        "",
        *HOW_TO_READ,
        "",
    ]
    for title, cells in _tables(told):
        lines += [f"## {title}", "", *_before(title), *_table(cells), ""]
    lines += ["## Where a peer is nearer", "", *_nearer(figures), ""]
    lines += ["## What peers do not plan", "", *_silences(figures), ""]
    unmet = _unmet_cells(rows)
    lines += [
        "## Not met, one by one",
        "",
        *(_table(unmet) if len(unmet) > 1 else ["Every figure that is compared is met."]),
        "",
        "## Not planned",
        "",
        "Cases and figures that are left out, by reason.",
        "",
        *_table(_not_planned_cells(rows)),
        "",
    ]
    return "\n".join(lines)


HOW_TO_READ: Final = (
    "Each dot is a figure: what was planned against what was reported, both logarithmic, so a dot on the",
    "diagonal is exact. Left are bytes (KV pools, requests, buffers), right are tokens and sequences. Colours",
    "tell engine and figure apart, grey rings are the peers. Below, the same dots as errors: the band goes from",
    "8 % too little to 1 % too much; what lies beyond the edge is drawn on it. For a pool, tokens and",
    "sequences, above is a promise that would break; for bytes that are needed, below is.",
)


def _what_was_compared(rows: Sequence[Row], sources: Sequence[tuple[Source, str]]) -> list[str]:
    engines = sorted({row.engine for row in rows if row.engine})
    told = [f"- {source.words}: `{name}`" for source, name in sources]
    told.append(f"- engines: {', '.join(engines)}")
    for peer in PEERS:
        day = read(peer.name).get("date")
        told.append(f"- {peer.name} {peer.version}: {peer.how}{f', {day}' if day else ''}")
    return [*told, "- command: `make accuracy`"]


def _tables(told: Summary) -> Iterable[tuple[str, list[list[str]]]]:
    yield "Per engine", _group_cells(told.engines)
    yield "Per figure", _group_cells(told.checks)
    yield "Per card", _group_cells(told.cards)
    yield "Per architecture", _group_cells(told.architectures)
    yield "Peers on the same rows", _peer_cells(told.peers)
    targets = [[each.what, ENDS[each.reached], each.figures] for each in told.targets]
    yield "Targets against peers", [["<target", "<", "<figures"], *targets]


def _before(title: str) -> list[str]:
    if title != "Peers on the same rows":
        return []
    return [
        "A peer gets the same inputs: config, card, total, utilization, stated weights, cards, lengths. Counted",
        "are rows where peer, Plimsoll and engine have a figure; the medians of both are over the same rows. An",
        "over-promise is more than 1 % too much pool, half a percent too many tokens or sequences, too few bytes",
        "that are needed, or a start where the engine refused. An error that the rounding of a printed KV memory",
        "or concurrency explains counts as none, for all.",
        "",
    ]


def _group_cells(groups: Sequence[Group]) -> list[list[str]]:
    head = [
        "<",
        "figures",
        "met",
        "over-promised",
        "not planned",
        "median error",
        "worst",
        "<where",
    ]
    return [
        head,
        *(
            [
                each.name,
                str(each.count),
                str(each.met),
                str(each.over_promises),
                str(each.not_planned),
                percent(each.median_error),
                percent(each.worst_error, signed=True),
                each.worst_id if each.worst_error and abs(each.worst_error) >= PRINTED else "",
            ]
            for each in groups
        ),
    ]


def _peer_cells(peers: Sequence[Against]) -> list[list[str]]:
    head = ["<figure", "<peer", "rows", "silent", "median error", "over-promised"]
    head += ["Plimsoll's median", "Plimsoll over-promised", "peer nearer"]
    return [
        head,
        *(
            [
                each.quantity,
                each.peer,
                str(each.count),
                str(each.silent),
                percent(each.median_error),
                str(each.over_promises),
                percent(each.plimsoll_median_error),
                str(each.plimsoll_over_promises),
                str(each.nearer),
            ]
            for each in peers
        ),
    ]


def _nearer(figures: Sequence[Compared]) -> list[str]:
    """Rows on which a peer's figure is nearer than ours, all of them."""
    cells = [["<case", "<figure", "<peer", "its error", "Plimsoll's error"]]
    for each in figures:
        ours, reported = each.check.error, each.check.reported
        if ours is None or not reported:
            continue
        for name, says in each.peers.items():
            if isinstance(says, Silent):
                continue
            theirs = says / reported - 1
            if abs(theirs) < abs(ours) - PRINTED and abs(ours) > each.printed:
                row = [each.row.id, each.check.what, name]
                cells.append([*row, percent(theirs, signed=True), percent(ours, signed=True)])
    return _table(cells) if len(cells) > 1 else ["On no row."]


def _silences(figures: Sequence[Compared]) -> list[str]:
    count: dict[tuple[str, str, str], int] = {}
    for each in figures:
        for name, says in each.peers.items():
            if isinstance(says, Silent) and each.quantity is not None:
                key = (name, each.quantity.value, says.reason)
                count[key] = count.get(key, 0) + 1
    order = {peer.name: at for at, peer in enumerate(PEERS)}
    kinds = {quantity.value: at for at, quantity in enumerate(Quantity)}
    keys = sorted(count, key=lambda key: (order[key[0]], kinds[key[1]], key[2]))
    cells = [["<peer", "<figure", "rows", "<why"]]
    return _table([*cells, *([key[0], key[1], str(count[key]), key[2]] for key in keys)])


def _unmet_cells(rows: Sequence[Row]) -> list[list[str]]:
    cells = [
        ["<case", "<model", "<card", "<figure", "planned", "reported", "error", "<verdict", "<why"]
    ]
    for row in rows:
        for check in row.checks:
            if check.verdict in MET or check.verdict is Verdict.NOT_PLANNED:
                continue
            cells.append(
                [
                    row.id,
                    row.model,
                    row.card,
                    check.what,
                    figure(check.planned),
                    figure(check.reported),
                    percent(check.error, signed=True),
                    check.verdict.value,
                    check.reason or row.reason,
                ]
            )
    return cells


def _not_planned_cells(rows: Sequence[Row]) -> list[list[str]]:
    cases: dict[str, list[str]] = {}
    for row in rows:
        reasons = [each.reason for each in row.checks if each.verdict is Verdict.NOT_PLANNED]
        if not row.checks:
            reasons = [row.reason]
        for reason in dict.fromkeys(reasons):
            cases.setdefault(reason or "no reason is given", []).append(row.id)
    cells = [["cases", "<why", "<which"]]
    for reason, ids in sorted(cases.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(ids[:8]) + (", ..." if len(ids) > 8 else "")
        cells.append([str(len(ids)), reason, shown])
    return cells


def figure(number: float | None) -> str:
    """Whole numbers in full, others to six digits; nothing where there is none."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if number == int(number) else f"{number:,.6g}"


def _table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Markdown; a heading that begins with < is of words, others are of numbers."""
    head, *body = cells
    return [
        _line(name.removeprefix("<") for name in head),
        _line("---" if name.startswith("<") else "---:" for name in head),
        *(_line(row) for row in body),
    ]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_cell(each) for each in cells) + " |"


def _cell(words: str) -> str:
    said = " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")
    return said if len(said) <= LONGEST_REASON else said[: LONGEST_REASON - 4] + " ..."


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """For a terminal; words to the left, numbers to the right."""
    head, *body = cells
    left = [name.startswith("<") for name in head]
    shown = [[name.removeprefix("<") for name in head], *([*row] for row in body)]
    wide = [min(60, max(len(row[at]) for row in shown)) for at in range(len(head))]
    return [
        "  ".join(
            f"{cell:<{width}}" if to_left else f"{cell:>{width}}"
            for cell, width, to_left in zip(row, wide, left, strict=True)
        ).rstrip()
        for row in shown
    ]
