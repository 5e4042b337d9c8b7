"""`plimsoll top`: which workers grow, how fast, and what is done about it?"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.cli.text import Column, Page, Tone, page_of, table
from plimsoll.cli.watched import (
    Row,
    add_cluster_arguments,
    look,
    rows_of,
    with_client,
)
from plimsoll.units import MIB, gib, parse_seconds

EPILOG: Final = """\
examples:
  plimsoll top                     everyone, again every five seconds until Ctrl-C
  plimsoll top -n inference --once
  plimsoll top -o json | jq '.workers[] | select(.verdict == "Growth")'

SLOPE is resident memory per hour, with the bounds between which it lies. Figures are those of the status:
they are written anew after ten minutes, or when a verdict changes. In a pipe it looks once.

exit codes:
  0  done
  2  bad input, or the cluster does not answer
"""
CLEAR: Final = "\x1b[H\x1b[2J"
COLUMNS: Final = (
    Column("WORKER"),
    Column("POOL"),
    Column("MEMORY", right=True),
    Column("LIMIT", right=True),
    Column("SLOPE", right=True),
    Column("TO LIMIT", right=True),
    Column("TTFT P95", right=True),
    Column("KV", right=True),
    Column("VERDICT"),
    Column("HOLD"),
)
UNKNOWN: Final = "-"
BAD: Final = ("Growth", "QuietGrowth", "Hung")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to look, how often, and how to show it."""
    add_cluster_arguments(parser)
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument(
        "--every", metavar="TIME", default="5s", help="between two looks, e.g. 5s or 1m; default 5s"
    )
    add_output(parser, says="table (default), or json or yaml for programs")


def run(arguments: argparse.Namespace) -> int:
    """Look and show, until told to stop or once."""
    try:
        every_seconds = max(1, parse_seconds(arguments.every))
    except ValueError as error:
        raise BadInputError(f"--every: {error}") from error
    form = Form(arguments.output)
    is_live = form is Form.TABLE and not arguments.once and sys.stdout.isatty()
    page = page_of(sys.stdout, no_colour=bool(os.environ.get("NO_COLOR")))
    while True:
        rows = rows_of(
            with_client(arguments.kubeconfig, lambda client: look(client, arguments.namespace))
        )
        if form is not Form.TABLE:
            sys.stdout.write(as_text({"workers": [as_data(row) for row in rows]}, form))
            return Exit.FITS
        text = "\n".join(shown(rows, page)) + "\n"
        sys.stdout.write(CLEAR + text if is_live else text)
        sys.stdout.flush()
        if not is_live:
            return Exit.FITS
        time.sleep(every_seconds)


def as_data(row: Row) -> dict[str, Any]:
    """One worker as the status has it, with where it belongs."""
    where = {"namespace": row.seen.namespace, "deployment": row.seen.name}
    return where | row.worker.to_json()


def shown(rows: Sequence[Row], page: Page) -> list[str]:
    """One table for each InferenceDeployment."""
    if not rows:
        return [
            "No workers whose memory is told. Does the operator run, and does it look after them?"
        ]
    lines: list[str] = []
    for seen in dict.fromkeys(row.seen for row in rows):
        mine = [row for row in rows if row.seen is seen]
        lines += [""] if lines else []
        lines.append(page.ink(f"{seen.namespace}/{seen.name}", Tone.TITLE) + f"  {_headline(mine)}")
        told = table(COLUMNS, [_cells(row) for row in mine], page=page)
        lines += [page.ink(line, Tone.BAD) if _is_bad(line) else line for line in told]
    return lines


def _headline(rows: Sequence[Row]) -> str:
    seen = rows[0].seen
    words = [seen.status.trend]
    recycling = seen.status.recycling
    if recycling is not None:
        left = "" if recycling.budget_left is None else f", {recycling.budget_left} left today"
        words.append(f"recycled {recycling.total}{left}")
        under_way = [e for e in recycling.history if e.phase and e.ended_at is None]
        words += [f"{under_way[0].pod}: {under_way[0].phase}"] if under_way else []
    return "; ".join((*words, f"mode {seen.mode}"))


def _is_bad(line: str) -> bool:
    return any(f" {word} " in f"{line} " for word in BAD)


def _cells(row: Row) -> list[str]:
    worker = row.worker
    return [
        worker.pod,
        worker.pool,
        UNKNOWN if worker.resident_bytes is None else gib(worker.resident_bytes),
        UNKNOWN if worker.limit_bytes is None else gib(worker.limit_bytes),
        slope_words(
            worker.bytes_per_hour, worker.lower_bytes_per_hour, worker.upper_bytes_per_hour
        ),
        UNKNOWN if worker.hours_to_limit is None else time_words(worker.hours_to_limit),
        UNKNOWN if worker.ttft_p95_seconds is None else f"{worker.ttft_p95_seconds:.2f} s",
        UNKNOWN if worker.kv_used is None else f"{worker.kv_used:.0%}",
        worker.verdict,
        "" if worker.hold in ("", worker.verdict) else worker.hold,
    ]


def slope_words(middle: int | None, lower: int | None, upper: int | None) -> str:
    """MiB per hour, with its bounds: "+210 (190..230) MiB/h"."""
    if middle is None:
        return UNKNOWN
    bounds = ""
    if lower is not None and upper is not None:
        bounds = f" ({lower / MIB:,.0f}..{upper / MIB:,.0f})"
    return f"{middle / MIB:+,.0f}{bounds} MiB/h"


def time_words(hours: float) -> str:
    """Hours for people: "40 min", "6.5 h", "4 d"."""
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:.0f} d"
