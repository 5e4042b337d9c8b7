"""What do the pages of one deployment's keepers add up to: its lanes, its workers, and who was refused?

One page is one gate's metrics, as samples. Gates share the plan, so their slots and requests are added up; what a
worker holds is said by each of them for all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.facts.record import Record

NO_LANE: Final = "-"
REFUSED: Final = "429"
COUNTED: Final = ("requests_total", "wait_seconds_bucket", "commands_refused_total")
"""What grows from the start of a keeper on; all else is of now."""
PREFIX: Final = "plimsoll_gate_"
LABELS: Final[Mapping[str, frozenset[str]]] = {
    PREFIX + name: frozenset(labels)
    for name, labels in (
        ("slots", ("lane", "worker")),
        ("planned_slots", ("lane", "worker")),
        ("in_flight", ("lane", "worker")),
        ("queued", ("lane",)),
        ("requests_total", ("lane", "status", "reason")),
        ("wait_seconds_bucket", ("lane", "le")),
        ("promised_tokens", ("worker",)),
        ("kv_tokens", ("worker",)),
        ("promised_sequences", ("worker",)),
        ("sequences", ("worker",)),
    )
}
"""Labels without which a line cannot be counted."""


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


Page = Sequence[Sample]
"""What one keeper says."""


class LaneFigures(Record):
    """One lane, over all gates and workers."""

    name: str
    """Its name."""
    planned_slots: int
    """Requests at once, as planned."""
    slots: int
    """Requests that it may have at once now."""
    borrowed: int
    """Slots above its own, of what others leave idle."""
    lent: int
    """Own slots that it does not have now."""
    in_flight: int
    """Requests that it has."""
    queued: int
    """Requests that wait for a slot."""
    requests: int
    """Requests that ended."""
    refused: dict[str, int]
    """Of them those answered with 429, by reason."""
    failed: int
    """Of them those answered with a server error."""
    waits: int
    """Of them those that came to the queue, however shortly they stayed."""
    wait_p95_seconds: float | None = None
    """Bound below which 95 in a hundred of those waits lie; none without waits, or above the largest bound."""


class WorkerFigures(Record):
    """One worker, for all lanes and gates."""

    name: str
    """Name of its pod."""
    promised_tokens: int
    """KV tokens that limits and requests may take."""
    kv_tokens: int
    """KV tokens that it holds."""
    promised_sequences: int
    """Requests that limits allow, or that run."""
    sequences: int
    """Requests that it computes at once."""

    @property
    def is_over(self) -> bool:
        """Whether more is promised of it than it holds. It should never be."""
        return self.promised_tokens > self.kv_tokens or self.promised_sequences > self.sequences


class GateFigures(Record):
    """The gates of one deployment."""

    gates: int
    """Pages that were read."""
    silent: int
    """Gates whose HAProxy does not answer its keeper."""
    unseated_workers: int
    """Ready workers for which a gate has no place; the most that one gate says."""
    commands_refused: int
    """Commands that HAProxy refused."""
    lanes: tuple[LaneFigures, ...]
    """In the order of the plan."""
    workers: tuple[WorkerFigures, ...]
    """By name."""


def figures_of(pages: Sequence[Page], before: Sequence[Page] | None = None) -> GateFigures:
    """What the pages add up to. With those of the same gates from `before`, counters say what came since; one that
    fell began anew, and counts from there."""
    if before is not None:
        pages = [_since(page, earlier) for page, earlier in zip(pages, before, strict=True)]
    samples = [sample for page in pages for sample in page]
    names = dict.fromkeys(
        sample.labels["lane"]
        for sample in samples
        if sample.labels.get("lane", NO_LANE) != NO_LANE
        and sample.name in (f"{PREFIX}planned_slots", f"{PREFIX}queued")
    )
    workers = sorted({sample.labels["worker"] for sample in samples if "worker" in sample.labels})
    return GateFigures(
        gates=len(pages),
        silent=sum(not _sum(page, "answers") for page in pages),
        unseated_workers=max((_sum(page, "unseated_workers") for page in pages), default=0),
        commands_refused=_sum(samples, "commands_refused_total"),
        lanes=tuple(_lane(samples, name) for name in names),
        workers=tuple(_worker(samples, name) for name in workers),
    )


def _lane(samples: Page, name: str) -> LaneFigures:
    mine = [sample for sample in samples if sample.labels.get("lane") == name]
    slots, planned = _by_worker(mine, "slots"), _by_worker(mine, "planned_slots")
    ended = [sample for sample in mine if sample.name == f"{PREFIX}requests_total"]
    refused: dict[str, int] = {}
    for sample in ended:
        if sample.labels["status"] == REFUSED and sample.value:
            reason = sample.labels["reason"]
            refused[reason] = refused.get(reason, 0) + int(sample.value)
    waits = _waits(mine)
    return LaneFigures(
        name=name,
        planned_slots=sum(planned.values()),
        slots=sum(slots.values()),
        borrowed=sum(max(0, slots.get(each, 0) - own) for each, own in planned.items()),
        lent=sum(max(0, own - slots.get(each, 0)) for each, own in planned.items()),
        in_flight=_sum(mine, "in_flight"),
        queued=_sum(mine, "queued"),
        requests=sum(int(sample.value) for sample in ended),
        refused=refused,
        failed=sum(int(each.value) for each in ended if each.labels["status"].startswith("5")),
        waits=int(max(waits.values(), default=0)),
        wait_p95_seconds=_p95(waits),
    )


def _worker(samples: Page, name: str) -> WorkerFigures:
    mine = [sample for sample in samples if sample.labels.get("worker") == name]
    return WorkerFigures(
        name=name,
        promised_tokens=_sum(mine, "promised_tokens"),
        kv_tokens=_most(mine, "kv_tokens"),
        promised_sequences=_sum(mine, "promised_sequences"),
        sequences=_most(mine, "sequences"),
    )


def _since(page: Page, earlier: Page) -> Page:
    was = {_place(sample): sample.value for sample in earlier}
    counted = {PREFIX + name for name in COUNTED}

    def grown(sample: Sample) -> Sample:
        before = was.get(_place(sample), 0.0)
        if sample.name not in counted or before > sample.value:
            return sample
        return sample._replace(value=sample.value - before)

    return [grown(sample) for sample in page]


def _place(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


def _by_worker(samples: Page, name: str) -> dict[str, int]:
    """Over all gates, so that what one lends and another borrows is not counted twice."""
    found: dict[str, int] = {}
    for sample in samples:
        if sample.name == PREFIX + name:
            worker = sample.labels["worker"]
            found[worker] = found.get(worker, 0) + int(sample.value)
    return found


def _waits(samples: Page) -> dict[float, float]:
    """By bound: how many waited no longer."""
    found: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{PREFIX}wait_seconds_bucket":
            bound = float(sample.labels["le"])
            found[bound] = found.get(bound, 0.0) + sample.value
    return found


def _p95(counts: Mapping[float, float]) -> float | None:
    total = max(counts.values(), default=0.0)
    bounds = (bound for bound, count in sorted(counts.items()) if count >= 0.95 * total)
    found = next(bounds, float("inf"))
    return found if total and found != float("inf") else None


def _values(samples: Iterable[Sample], name: str) -> list[float]:
    return [sample.value for sample in samples if sample.name == PREFIX + name]


def _sum(samples: Iterable[Sample], name: str) -> int:
    return int(sum(_values(samples, name)))


def _most(samples: Iterable[Sample], name: str) -> int:
    return int(max(_values(samples, name), default=0))
