"""What does an engine's page of metrics say, whichever engine and release it is?

A table of names for each engine; the first name that the page has counts. Label sets (engines of data
parallel ranks, reasons) are added up, shares are averaged. llama-server exports no time to first token,
and begins its averages anew at every scrape, so none of them is read.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.facts.series import EngineSample
from plimsoll.facts.watched import Bucket, Buckets, EngineReading, WatchedWorker
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.source import NoHistory, Reason, Rounds, ScrapeError, Seen, Tally

SOURCE: Final = "engine"
IN_FLIGHT: Final = 64
VLLM: Final = "vllm"
LLAMA_CPP: Final = "llama.cpp"
TTFT: Final = "vllm:time_to_first_token_seconds_bucket"
"""All releases; buckets are read, since they can be set from 0.30 on."""


class Fold(StrEnum):
    """What several label sets of one name make."""

    SUM = "sum"
    MEAN = "mean"


class Row(NamedTuple):
    """Where one field of EngineSample is found."""

    field: str
    names: tuple[str, ...]
    """Newest first."""
    fold: Fold = Fold.SUM
    label: tuple[str, str] | None = None
    """Only label sets with this value."""
    source: str = "all releases"


ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    # Names in vLLM 0.8 to 0.33: vllm/v1/metrics/loggers.py of each.
    VLLM: (
        Row("running", ("vllm:num_requests_running",)),
        Row("waiting", ("vllm:num_requests_waiting",)),
        Row(
            "waiting_for_capacity",
            ("vllm:num_requests_waiting_by_reason",),
            label=("reason", "capacity"),
            source="from 0.20",
        ),
        Row("preemptions", ("vllm:num_preemptions_total",)),
        Row(
            "kv_used",
            ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            fold=Fold.MEAN,
            source="from 0.9; the older name until 0.11.2",
        ),
        Row("prompt_tokens", ("vllm:prompt_tokens_total",)),
        Row("generated_tokens", ("vllm:generation_tokens_total",)),
        Row("requests", ("vllm:request_success_total",)),
        Row(
            "prefix_queries",
            ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            source="from 0.9; the older name until 0.11.2",
        ),
        Row(
            "prefix_hits",
            ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            source="from 0.9; the older name until 0.11.2",
        ),
    ),
    # Names in llama.cpp: tools/server/README.md, "GET /metrics".
    LLAMA_CPP: (
        Row("running", ("llamacpp:requests_processing",)),
        Row("waiting", ("llamacpp:requests_deferred",)),
        # a request is deferred because no slot is free
        Row("waiting_for_capacity", ("llamacpp:requests_deferred",)),
        Row("prompt_tokens", ("llamacpp:prompt_tokens_total",)),
        Row("generated_tokens", ("llamacpp:tokens_predicted_total",)),
    ),
}
WANTED: Final[Mapping[str, frozenset[str]]] = {
    engine: frozenset(name for row in rows for name in row.names)
    | ({TTFT} if engine == VLLM else frozenset())
    for engine, rows in ROWS.items()
}
_PREFIXES: Final = {
    engine: tuple(name.encode() for name in sorted(names)) for engine, names in WANTED.items()
}


class Figure(NamedTuple):
    """One line of a page, or one element of an answer of Prometheus."""

    name: str
    labels: Mapping[str, str]
    value: float


class EngineSource(NoHistory):
    """The engines' own pages."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        rounds: Rounds,
        tally: Tally,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._fetcher = fetcher
        self._rounds = rounds
        self._tally = tally
        self._clock = clock
        self._wall_clock = wall_clock

    async def read(self, workers: Sequence[WatchedWorker]) -> Seen:
        """One scrape of each engine that has started."""
        by_uid = {w.pod_uid: w for w in workers if w.address and w.engine in ROWS}
        found: list[EngineReading] = []

        async def ask(pod_uid: str) -> bool:
            worker = by_uid[pod_uid]
            started = self._clock()
            try:
                reading = await self._ask(worker)
            except ScrapeError as error:
                self._tally.missed(SOURCE, error.reason)
                return False
            self._tally.scraped(SOURCE, self._clock() - started)
            found.append(reading)
            return True

        await self._rounds.ask(by_uid, ask)
        return Seen(engines=tuple(found))

    async def _ask(self, worker: WatchedWorker) -> EngineReading:
        page = await self._fetcher.get(f"http://{worker.address}/metrics")
        at_seconds = self._wall_clock()
        sample, ttft = fold(worker.engine, figures(worker.engine, page), at_seconds)
        if worker.engine == LLAMA_CPP:
            sample = sample._replace(kv_used=await self._slots_used(worker))
        return EngineReading(worker.pod_uid, sample._replace(healthy=worker.is_healthy), ttft)

    async def _slots_used(self, worker: WatchedWorker) -> float | None:
        """llama-server's page has no such gauge since 2025; its slots say it."""
        try:
            return slots_used(await self._fetcher.get(f"http://{worker.address}/slots"))
        except ScrapeError:
            return None


def figures(engine: str, page: bytes) -> tuple[Figure, ...]:
    """The wanted lines of a page. Raises ScrapeError when it is none, or is cut off.

    Only wanted lines reach the parser: a page of vLLM has 600, of which we read 40.
    """
    if not page.endswith(b"\n"):
        raise ScrapeError(
            Reason.MALFORMED, "the page does not end with a line's end: it is cut off"
        )
    kept = b"\n".join(line for line in page.split(b"\n") if line.startswith(_PREFIXES[engine]))
    try:
        return tuple(
            Figure(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(kept.decode() + "\n")
            for sample in family.samples
            if sample.name in WANTED[engine]
        )
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(Reason.MALFORMED, f"no page of metrics: {error}") from error


def fold(engine: str, found: Iterable[Figure], at_seconds: float) -> tuple[EngineSample, Buckets]:
    """The figures as one sample and one histogram. Raises ScrapeError when there are none of ours."""
    by_name: dict[str, list[Figure]] = defaultdict(list)
    for figure in found:
        by_name[figure.name].append(figure)
    if not by_name:
        raise ScrapeError(Reason.ABSENT, f"no metrics of {engine} on the page")
    fields: dict[str, Any] = {}
    for row in ROWS[engine]:
        named = next((by_name[name] for name in row.names if name in by_name), [])
        values = [
            figure.value
            for figure in named
            if row.label is None or figure.labels.get(row.label[0]) == row.label[1]
        ]
        fields[row.field] = _together(values, row.fold)
    return EngineSample(at_seconds=at_seconds, **fields), _buckets(by_name.get(TTFT, ()))


def slots_used(body: bytes) -> float | None:
    """Part of all slots' cells that hold tokens of requests in progress, 0 to 1. None when it cannot be
    told: the form of /slots is llama.cpp's own affair and has changed before."""
    try:
        slots = json.loads(body)
        room = sum(slot["n_ctx"] for slot in slots)
        used = sum(
            min(slot["n_ctx"], slot["n_prompt_tokens_cache"] + slot["n_prompt_tokens_processed"]
                + slot["next_token"][0]["n_decoded"])
            for slot in slots
            if slot["is_processing"]
        )  # fmt: skip
        return used / room if room > 0 and 0 <= used <= room else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _together(values: Sequence[float], how: Fold) -> float | None:
    """None where a value is missing, negative or no number."""
    if not values or any(not math.isfinite(value) or value < 0 for value in values):
        return None
    total = math.fsum(values)
    return total / len(values) if how is Fold.MEAN else total


def _buckets(found: Iterable[Figure]) -> Buckets:
    """Label sets added up; empty when a bound or a count makes no sense."""
    counts: dict[float, float] = defaultdict(float)
    for figure in found:
        try:
            bound = float(figure.labels["le"])
        except (KeyError, ValueError):
            return ()
        if math.isnan(bound) or not math.isfinite(figure.value) or figure.value < 0:
            return ()
        counts[bound] += figure.value
    buckets = tuple(Bucket(bound, counts[bound]) for bound in sorted(counts))
    if not buckets or not math.isinf(buckets[-1].bound):
        return ()
    is_rising = all(a.total <= b.total for a, b in pairwise(buckets))
    return buckets if is_rising else ()
