"""How do a gate's figures stand on a page, and as data?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from plimsoll.api.status_types import GatewayStatus
from plimsoll.cli.text import Column, Page, Tone, bullets, paragraph, table
from plimsoll.gate.figures import GateFigures, LaneFigures, WorkerFigures

LANES: Final = (
    Column("LANE"),
    Column("PLANNED", right=True),
    Column("SLOTS", right=True),
    Column("LENT", right=True),
    Column("RUNNING", right=True),
    Column("QUEUED", right=True),
    Column("ENDED", right=True),
    Column("5XX", right=True),
    Column("WAIT P95", right=True),
    Column("429", right=True),
    Column("FOR"),
)
WORKERS: Final = (
    Column("WORKER"),
    Column("KV TOKENS", right=True),
    Column("PROMISED", right=True),
    Column("REQUESTS", right=True),
    Column("PROMISED", right=True),
    Column(""),
)
UNKNOWN: Final = "-"


class Seen(NamedTuple):
    """All that is known of one deployment's gates."""

    figures: GateFigures
    where: str = ""
    """namespace/name; empty where pages were given."""
    status: GatewayStatus | None = None
    """What the operator says; None where it was not asked or says nothing."""
    over_seconds: int = 0
    """Time of the counts; 0 for all since each keeper's start."""
    problems: Mapping[str, str] = {}
    """By gate: why its page could not be read."""


def as_data(seen: Seen) -> dict[str, Any]:
    """For programs; what is not known is left out."""
    data: dict[str, Any] = {}
    if seen.where:
        data["namespace"], _, data["deployment"] = seen.where.partition("/")
    if seen.status is not None:
        data["gateway"] = seen.status.to_json()
    if seen.over_seconds:
        data["overSeconds"] = seen.over_seconds
    return data | seen.figures.to_json() | {"unread": dict(seen.problems)}


def told(seen: Seen, page: Page) -> list[str]:
    """For people."""
    figures = seen.figures
    lines = [page.ink(seen.where or "the gate", Tone.TITLE) + f"  {_headline(seen)}"]
    if seen.status is not None and seen.status.message:
        lines += paragraph(seen.status.message, page=page)
    if figures.lanes:
        lines += ["", *table(LANES, [_lane(each) for each in figures.lanes], page=page)]
    if figures.workers:
        rows = table(WORKERS, [_worker(each) for each in figures.workers], page=page)
        over = {each.name for each in figures.workers if each.is_over}
        lines += [""]
        lines += [page.ink(row, Tone.BAD) if _names(row, over) else row for row in rows]
    if remarks := list(_remarks(seen)):
        lines += ["", *bullets(remarks, page=page)]
    return lines


def _headline(seen: Seen) -> str:
    status, count = seen.status, seen.figures.gates
    if status is None:
        return f"{count} {'page' if count == 1 else 'pages'}"
    leads = "leads to them" if status.is_door else "leads to the workers"
    return f"{status.ready_gates} of {status.gates} gates ready; the Service {leads}"


def _lane(lane: LaneFigures) -> list[str]:
    total = sum(lane.refused.values())
    return [
        lane.name,
        str(lane.planned_slots),
        str(lane.slots),
        " ".join([f"+{lane.borrowed}"] * bool(lane.borrowed) + [f"-{lane.lent}"] * bool(lane.lent)),
        str(lane.in_flight),
        str(lane.queued),
        f"{lane.requests:,}",
        f"{lane.failed:,}",
        _wait(lane),
        f"{total / lane.requests:.1%}" if lane.requests else UNKNOWN,
        ", ".join(f"{reason} {count:,}" for reason, count in sorted(lane.refused.items())),
    ]


def _wait(lane: LaneFigures) -> str:
    if not lane.waits:
        return UNKNOWN
    return "more" if lane.wait_p95_seconds is None else f"{lane.wait_p95_seconds:g} s"


def _worker(worker: WorkerFigures) -> list[str]:
    return [
        worker.name,
        f"{worker.kv_tokens:,}",
        f"{worker.promised_tokens:,}",
        str(worker.sequences),
        str(worker.promised_sequences),
        "more than it holds" if worker.is_over else "",
    ]


def _names(row: str, names: set[str]) -> bool:
    return any(word in names for word in row.split())


def _remarks(seen: Seen) -> Iterator[str]:
    figures = seen.figures
    if figures.silent:
        yield f"{figures.silent} of {figures.gates} HAProxy do not answer their keeper: limits stay as they are."
    if figures.unseated_workers:
        yield f"{figures.unseated_workers} ready workers have no place at a gate and get no requests from it."
    if figures.commands_refused:
        yield f"HAProxy refused {figures.commands_refused} commands of the keeper; its log has them."
    if figures.gates and not figures.workers:
        yield "No worker is known to the gate."
    for gate, problem in seen.problems.items():
        yield f"{gate} is not counted: {problem}"
    if seen.problems and seen.where:
        yield "Another way to a page: `plimsoll gate --help`."
    if figures.lanes:
        yield (
            f"Counts are of {seen.over_seconds} s."
            if seen.over_seconds
            else "Counts are since each keeper's start; --over 30s counts anew."
        )
