"""`plimsoll why`: what is said of one worker, on what evidence, and what holds a recycle back?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.curve import svg_curve, terminal_curve
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.cli.text import Page, Tone, page_of, paragraph
from plimsoll.cli.top import as_data, slope_words, time_words
from plimsoll.cli.watched import Row, add_cluster_arguments, look, rows_of, with_client
from plimsoll.diagnose import recycle
from plimsoll.diagnose.recycle import CHECKS, Check, HoldReason
from plimsoll.facts.series import FloorBin
from plimsoll.units import gib

EPILOG: Final = """\
examples:
  plimsoll why chat-h100-7d9f8-x2x4k
  plimsoll why chat-h100-7d9f8-x2x4k --svg memory.svg

The curve is of the floors that the operator keeps in a ConfigMap every half hour; without the right to
read ConfigMaps there is none.

exit codes:
  0  done
  2  bad input, no such worker, or the cluster does not answer
"""

CHAIN: Final[dict[Check, tuple[frozenset[HoldReason], str]]] = {
    recycle.mode_is_off: (frozenset({HoldReason.OFF}), "recycling is on"),
    recycle.nothing_is_known: (frozenset({HoldReason.NO_DATA}), "its memory is known"),
    recycle.data_are_stale: (frozenset({HoldReason.STALE_DATA}), "what is known is fresh"),
    recycle.is_warming_up: (frozenset({HoldReason.WARMING_UP}), "it is warm"),
    recycle.recycling_is_no_cure: (
        frozenset({HoldReason.STEADY, HoldReason.PRESSURE, HoldReason.HUNG_IS_LEFT}),
        "it has what a recycle cures",
    ),
    recycle.is_leaving: (frozenset({HoldReason.LEAVING}), "it is not on its way out"),
    recycle.operator_just_started: (
        frozenset({HoldReason.OPERATOR_JUST_STARTED}),
        "the operator has looked at everyone",
    ),
    recycle.limit_is_unknown: (
        frozenset({HoldReason.NO_LIMIT}),
        "there is a limit to come near",
    ),
    recycle.growth_is_in_doubt: (
        frozenset({HoldReason.MAY_BE_FILLING, HoldReason.EARLY, HoldReason.LOAD_UNKNOWN}),
        "its growth can be nothing else",
    ),
    recycle.limit_is_far: (
        frozenset({HoldReason.LIMIT_IS_FAR}),
        "it matters soon",
    ),
    recycle.recycles_do_not_help: (frozenset({HoldReason.STALLED}), "recycles have helped"),
    recycle.most_peers_rise_too: (
        frozenset({HoldReason.CANARY_AWAITED, HoldReason.COMMON_CAUSE}),
        "it is this worker's own",
    ),
    recycle.is_rolling_out: (frozenset({HoldReason.ROLLING_OUT}), "the pool stands still"),
    recycle.node_is_draining: (frozenset({HoldReason.NODE_IS_DRAINING}), "its node stays"),
    recycle.another_is_in_flight: (
        frozenset({HoldReason.RECYCLE_IN_FLIGHT}),
        "no other recycle is under way",
    ),
    recycle.a_peer_is_down: (frozenset({HoldReason.PEER_IS_DOWN}), "every peer is Ready"),
    recycle.is_cooling_down: (frozenset({HoldReason.COOLING_DOWN}), "it was not recycled lately"),
    recycle.budget_is_spent: (frozenset({HoldReason.BUDGET_IS_SPENT}), "today's budget has room"),
    recycle.eviction_is_blocked: (frozenset({HoldReason.BLOCKED}), "its eviction is allowed"),
    recycle.nobody_else_serves: (frozenset({HoldReason.LAST_REPLICA}), "somebody else serves"),
    recycle.window_is_closed: (frozenset({HoldReason.OUTSIDE_WINDOW}), "a window is open"),
    recycle.we_only_watch: (frozenset({HoldReason.OBSERVING}), "the mode is Auto"),
}
"""What each check finds when it does not hold, in the order in which they are asked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which worker, and how to show it."""
    parser.add_argument("pod", metavar="POD", help="name of the worker's pod")
    add_cluster_arguments(parser)
    parser.add_argument("--svg", metavar="FILE", help="draw its memory into this file")
    add_output(parser, says="text for people (default), or json or yaml for programs")


def run(arguments: argparse.Namespace) -> int:
    """Find the worker and tell."""
    row, bins = with_client(arguments.kubeconfig, lambda client: _found(client, arguments))
    if arguments.svg is not None:
        title = f"Resident memory of {row.worker.pod}"
        drawn = svg_curve(bins, title=title, limit_bytes=row.worker.limit_bytes)
        try:
            Path(arguments.svg).write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"--svg {arguments.svg}: {error.strerror}") from error
    form = Form(arguments.output)
    if form is not Form.TABLE:
        data = as_data(row) | {"chain": list(chain_data(row))}
        sys.stdout.write(as_text(data, form))
        return Exit.FITS
    page = page_of(sys.stdout, no_colour=bool(os.environ.get("NO_COLOR")))
    sys.stdout.write("\n".join(told(row, bins, page)) + "\n")
    return Exit.FITS


async def _found(client: Any, arguments: argparse.Namespace) -> tuple[Row, tuple[FloorBin, ...]]:
    rows = [
        row
        for row in rows_of(await look(client, arguments.namespace))
        if row.worker.pod == arguments.pod
    ]
    if not rows:
        raise BadInputError(
            f"{arguments.pod!r} is no worker of an InferenceDeployment in reach; "
            "`plimsoll top --once` lists them"
        )
    if len(rows) > 1:
        where = " and ".join(row.seen.namespace for row in rows)
        raise BadInputError(f"{arguments.pod!r} is in {where}; say which with --namespace")
    return rows[0], await _floors(client, rows[0])


async def _floors(client: Any, row: Row) -> tuple[FloorBin, ...]:
    """What the operator has kept; none where it may not be read."""
    from plimsoll.cluster.errors import ApiError  # noqa: PLC0415 - a second to import
    from plimsoll.cluster.floors import read_floors  # noqa: PLC0415
    from plimsoll.controller.kept import unpack  # noqa: PLC0415
    from plimsoll.decide import Key  # noqa: PLC0415

    key = Key(namespace=row.seen.namespace, name=row.seen.name)
    try:
        kept = await read_floors(client, key, row.seen.uid)
        lives = unpack(kept) if kept else ()
    except (ApiError, ValueError):
        return ()
    return next((life.bins for life in lives if life.pod_uid == row.worker.uid), ())


def told(row: Row, bins: Sequence[FloorBin], page: Page) -> list[str]:
    """The worker's page."""
    worker, seen = row.worker, row.seen
    tone = Tone.GOOD if worker.verdict in ("Steady", "WarmingUp") else Tone.BAD
    lines = [
        page.ink(worker.pod, Tone.TITLE) + f"  {seen.namespace}/{seen.name}, pool {worker.pool}",
        "",
        page.ink(worker.verdict, tone),
        *paragraph(worker.message, page=page),
        "",
        *(f"  {name:<12}{value}" for name, value in _evidence(row)),
    ]
    if curve := terminal_curve(bins, width=page.width - 4):
        lines += ["", *(f"  {line}" for line in curve)]
    lines += ["", page.ink("Would it be recycled?", Tone.TITLE), *_chain(row, page)]
    if past := list(_past(row)):
        lines += ["", page.ink("Recycles so far", Tone.TITLE), *past]
    return lines


def _evidence(row: Row) -> Iterator[tuple[str, str]]:
    worker = row.worker
    if worker.resident_bytes is not None:
        limit = "" if worker.limit_bytes is None else f" of {gib(worker.limit_bytes)}"
        yield "memory", gib(worker.resident_bytes) + limit
    yield (
        "slope",
        slope_words(
            worker.bytes_per_hour, worker.lower_bytes_per_hour, worker.upper_bytes_per_hour
        ),
    )
    if worker.hours_to_limit is not None:
        yield "to limit", time_words(worker.hours_to_limit)
    if worker.ttft_p95_seconds is not None:
        yield "TTFT p95", f"{worker.ttft_p95_seconds:.2f} s"
    if worker.kv_used is not None:
        yield "KV in use", f"{worker.kv_used:.0%}"
    pool = row.seen.status.pool(worker.pool)
    if pool is not None and pool.prefix_caching is not None:
        prefix = pool.prefix_caching
        yield "prefixes", prefix.message or f"little is found since {prefix.since}"


def chain_data(row: Row) -> Iterator[dict[str, str]]:
    """The checks in order up to the one that holds."""
    for check in CHECKS:
        reasons, words = CHAIN[check]
        if row.worker.hold in {reason.value for reason in reasons}:
            yield {"check": check.__name__, "holds": row.worker.hold, "message": _hold(row)}
            return
        yield {"check": check.__name__, "finds": words}


def _chain(row: Row, page: Page) -> Iterator[str]:
    if not row.worker.hold:
        yield "  It is being recycled, or was judged a moment ago: look again."
        return
    for link in chain_data(row):
        if "holds" not in link:
            yield page.ink(f"  yes  {link['finds']}", Tone.QUIET)
            continue
        yield page.ink(f"  no   {link['holds']}", Tone.BAD)
        yield from paragraph(link["message"], page=page, indent=7)


def _hold(row: Row) -> str:
    """A hold that says nothing beyond the verdict has its sentence."""
    return row.worker.hold_message or row.worker.message


def _past(row: Row) -> Iterator[str]:
    recycling = row.seen.status.recycling
    for entry in recycling.history[:5] if recycling is not None else ():
        helped = {True: "helped", False: "did not help", None: entry.phase}[entry.helped]
        yield f"  {entry.at}  {entry.pod}  {entry.reason}  {helped}"
