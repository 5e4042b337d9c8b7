"""What does a Prometheus server know of our workers, now and of the days before?

Memory is cAdvisor's container_memory_rss and container_memory_swap, with cAdvisor's own stamps; engines
are the pages that Prometheus scraped from them, under the labels `namespace` and `pod`. It also keeps
what was before our own start. What it has no engine figures for is asked of the engine itself.
"""

from __future__ import annotations

import json
import logging
import math
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from plimsoll.facts.series import FloorBin, LatencyBin
from plimsoll.facts.watched import (
    EngineReading,
    MemorySample,
    PastLife,
    WatchedWorker,
)
from plimsoll.telemetry.engines import ROWS, WANTED, Figure, fold
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.source import (
    Freshness,
    Reason,
    ScrapeError,
    Seen,
    SeriesSource,
    Tally,
)

log = logging.getLogger(__name__)

SOURCE: Final = "prometheus"
TIMEOUT_SECONDS: Final = 20.0
MOST_BYTES: Final = 256 << 20
"""10,000 vLLM workers with 40 series of 250 bytes each are 100 MB."""
PODS_PER_QUERY: Final = 50
LEAST_SAMPLES: Final = 5
_PLACE: Final = ("namespace", "pod", "container")
_STAMPED_BY: Final = ("vllm:num_requests_running", "llamacpp:requests_processing")

Place = tuple[str, str, str]
"""Namespace, pod, container."""


class Server(NamedTuple):
    """Where the HTTP API is, and as whom we ask."""

    url: str
    """Without /api/v1, for example http://prometheus.monitoring:9090."""
    token: Callable[[], str | None] = lambda: None
    """Bearer token, read at each look; a file may be replaced meanwhile."""
    tls: ssl.SSLContext | bool = True


class Series(NamedTuple):
    """One element of an answer."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """(seconds, value); one for an instant query."""


class PrometheusSource:
    """One Prometheus server."""

    def __init__(
        self,
        fetcher: Fetcher,
        server: Server,
        *,
        tally: Tally,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        freshness: Freshness = Freshness(),  # noqa: B008 - a frozen record
        engines: SeriesSource | None = None,
    ) -> None:
        """`engines` is asked about workers whose engine Prometheus does not scrape."""
        self._fetcher = fetcher
        self._server = server
        self._tally = tally
        self._clock = clock
        self._wall_clock = wall_clock
        self._freshness = freshness
        self._engines = engines
        self._is_silent = False

    async def read(self, workers: Sequence[WatchedWorker]) -> Seen:
        """All workers in a few queries."""
        if not workers:
            return Seen()
        started = self._clock()
        try:
            memory = await self._memory(workers)
            engines = await self._read_engines(workers)
        except ScrapeError as error:
            self._tally.missed(SOURCE, error.reason)
            if not self._is_silent:
                log.warning(
                    "prometheus tells nothing",
                    extra={"reason": error.reason, "error": error.message},
                )
            self._is_silent = True
            return Seen()
        self._is_silent = False
        self._tally.scraped(SOURCE, self._clock() - started)
        if self._engines is not None:
            told = {reading.pod_uid for reading in engines}
            rest = await self._engines.read([w for w in workers if w.pod_uid not in told])
            engines += rest.engines
        return Seen(memory, engines)

    async def history(
        self, workers: Sequence[WatchedWorker], *, since_seconds: float, until_seconds: float
    ) -> tuple[PastLife, ...]:
        """Floors and latencies of the containers that run now, as far back as it has them.

        Bins of ten minutes, their floors taken by Prometheus itself. Raises nothing: without an answer
        there is no history.
        """
        by_namespace: dict[str, list[WatchedWorker]] = defaultdict(list)
        for worker in workers:
            by_namespace[worker.namespace].append(worker)
        found: list[PastLife] = []
        for namespace, those in by_namespace.items():
            for at in range(0, len(those), PODS_PER_QUERY):
                part = those[at : at + PODS_PER_QUERY]
                try:
                    found += await self._past(part, since_seconds, until_seconds)
                except ScrapeError as error:
                    self._tally.missed(SOURCE, error.reason)
                    log.warning(
                        "prometheus has no history",
                        extra={"namespace": namespace, "error": error.message},
                    )
        return tuple(found)

    async def _memory(self, workers: Sequence[WatchedWorker]) -> tuple[MemorySample, ...]:
        now = self._wall_clock()
        where = _selector(workers)
        resident = await self._instant(f"container_memory_rss{where}", now)
        stamps = await self._instant(f"timestamp(container_memory_rss{where})", now)
        swap = await self._instant(f"container_memory_swap{where}", now)
        starts = await self._instant(f"container_start_time_seconds{where}", now)
        at, swapped, started = (_by_labels(each) for each in (stamps, swap, starts))
        newest: dict[Place, MemorySample] = {}
        for series in resident:
            labels = _plain(series.labels)
            value, stamp, start = series.points[-1][1], at.get(labels), started.get(labels)
            if stamp is None or start is None or not 0 < value < math.inf:
                continue
            place = _place(series.labels)
            held = round(value + (swapped.get(labels) or 0.0))
            # after a restart the old container lingers for minutes: the newest start counts
            if place not in newest or start > newest[place].started_seconds:
                newest[place] = MemorySample("", place[2], start, stamp, held)
        found: list[MemorySample] = []
        for worker in workers:
            sample = newest.get((worker.namespace, worker.pod, worker.container))
            flaw = Reason.ABSENT if sample is None else self._freshness.flaw(sample.at_seconds, now)
            if sample is None or flaw is not None:
                self._tally.missed(SOURCE, flaw or Reason.ABSENT)
            else:
                found.append(sample._replace(pod_uid=worker.pod_uid))
        return tuple(found)

    async def _read_engines(self, workers: Sequence[WatchedWorker]) -> tuple[EngineReading, ...]:
        now = self._wall_clock()
        where = _matchers(workers)
        names = "|".join(sorted(name for wanted in WANTED.values() for name in wanted))
        figures = await self._instant(f'{{__name__=~"{names}",{where}}}', now)
        stamps = " or ".join(f"timestamp({name}{{{where}}})" for name in _STAMPED_BY)
        at = {
            _place(series.labels)[:2]: series.points[-1][1]
            for series in await self._instant(stamps, now)
        }
        by_pod: dict[tuple[str, str], list[Figure]] = defaultdict(list)
        for series in figures:
            name = series.labels.get("__name__", "")
            figure = Figure(name, series.labels, series.points[-1][1])
            by_pod[_place(series.labels)[:2]].append(figure)
        found: list[EngineReading] = []
        for worker in workers:
            pod = (worker.namespace, worker.pod)
            if worker.engine not in ROWS or pod not in by_pod or pod not in at:
                continue
            if (flaw := self._freshness.flaw(at[pod], now)) is not None:
                self._tally.missed(SOURCE, flaw)
                continue
            try:
                sample, ttft = fold(worker.engine, by_pod[pod], at[pod])
            except ScrapeError as error:
                self._tally.missed(SOURCE, error.reason)
                continue
            sample = sample._replace(healthy=worker.is_healthy)
            found.append(EngineReading(worker.pod_uid, sample, ttft))
        return tuple(found)

    async def _past(
        self,
        workers: Sequence[WatchedWorker],
        since_seconds: float,
        until_seconds: float,
    ) -> list[PastLife]:
        where, by = _selector(workers), f"by ({', '.join(_PLACE)})"
        span = (since_seconds, until_seconds)
        bare = where[1:-1]
        pods = ",".join(part for part in bare.split(",") if not part.startswith("container"))
        rss, swap = (f"max {by} (container_memory_{kind}{where})" for kind in ("rss", "swap"))
        both = f"({rss} + {swap} or {rss})"
        floors = await self._range(f"quantile_over_time(0.1, {both}[10m:30s])", *span)
        enough = await self._range(
            f"max {by} (count_over_time(container_memory_rss{where}[10m])) >= {LEAST_SAMPLES}",
            *span,
        )
        starts = await self._instant(
            f"max {by} (container_start_time_seconds{where})", until_seconds
        )
        pod = "by (namespace, pod)"
        load = await self._engine_range(
            "running", pods, "sum {by} (avg_over_time({name}[10m]))", span
        )
        work = await self._engine_range("generated_tokens", pods, "sum {by} ({name})", span)
        gain = f"increase(vllm:time_to_first_token_seconds_bucket{{{pods}}}[10m])"
        by_le = "by (namespace, pod, le)"
        p50, p95 = [
            await self._range(f"histogram_quantile({share}, sum {by_le} ({gain}))", *span)
            for share in (0.5, 0.95)
        ]
        count = f"increase(vllm:time_to_first_token_seconds_count{{{pods}}}[10m])"
        requests = await self._range(f"sum {pod} ({count})", *span)
        tables = [_by_place(each) for each in (floors, enough)]
        of_pod = [_by_pod(each) for each in (load, work, requests, p50, p95)]
        lives: list[PastLife] = []
        for worker in workers:
            place = (worker.namespace, worker.pod, worker.container)
            start = _by_place(starts).get(place)
            if not start:
                continue
            started = next(iter(start.values()))
            floor, counted = (table.get(place, {}) for table in tables)
            engine = [table.get(place[:2], {}) for table in of_pod]
            lives.append(
                PastLife(
                    worker.pod_uid,
                    worker.container,
                    started,
                    _bins(started, floor, counted, engine[0], engine[1]),
                    _latencies(started, engine[2], engine[3], engine[4]),
                )
            )
        return lives

    async def _engine_range(
        self, field: str, pods: str, form: str, span: tuple[float, float]
    ) -> tuple[Series, ...]:
        """A field of EngineSample over time, whichever engine has it."""
        names = [row.names[0] for rows in ROWS.values() for row in rows if row.field == field]
        parts = (form.format(by="by (namespace, pod)", name=f"{name}{{{pods}}}") for name in names)
        return await self._range(" or ".join(parts), *span)

    async def _instant(self, query: str, at_seconds: float) -> tuple[Series, ...]:
        return await self._ask("query", {"query": query, "time": f"{at_seconds:.3f}"})

    async def _range(self, query: str, since: float, until: float) -> tuple[Series, ...]:
        span = {"start": f"{since:.3f}", "end": f"{until:.3f}", "step": "600"}
        return await self._ask("query_range", {"query": query} | span)

    async def _ask(self, what: str, query: dict[str, str]) -> tuple[Series, ...]:
        token = self._server.token()
        body = await self._fetcher.get(
            f"{self._server.url.rstrip('/')}/api/v1/{what}?{urlencode(query)}",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            tls=self._server.tls,
            most_bytes=MOST_BYTES,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        return read_answer(body)


def read_answer(body: bytes) -> tuple[Series, ...]:
    """The result of a query. Raises ScrapeError when it is none; points that are no number are left out."""
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            raise ScrapeError(Reason.STATUS, str(answer.get("error", "no success")))
        return tuple(
            Series(element["metric"], points)
            for element in answer["data"]["result"]
            if (points := _points(element))
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ScrapeError(Reason.MALFORMED, f"no answer of Prometheus: {error}") from error


def _points(element: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    pairs = element["values"] if "values" in element else [element["value"]]
    points = ((float(at), float(value)) for at, value in pairs)
    return tuple((at, value) for at, value in points if math.isfinite(value))


def _selector(workers: Sequence[WatchedWorker]) -> str:
    containers = "|".join(sorted({worker.container for worker in workers}))
    return f'{{container=~"{containers}",{_matchers(workers)}}}'


def _matchers(workers: Sequence[WatchedWorker]) -> str:
    """Few workers by name, many by namespace alone: a query has its length."""
    namespaces = "|".join(sorted({worker.namespace for worker in workers}))
    pods = "|".join(sorted(worker.pod for worker in workers))
    named = f'pod=~"{pods}"' if len(workers) <= PODS_PER_QUERY else 'pod!=""'
    return f'namespace=~"{namespaces}",{named}'


def _place(labels: Mapping[str, str]) -> Place:
    return labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", "")


def _plain(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """All labels but the name: the same for all figures of one container."""
    return frozenset(item for item in labels.items() if item[0] != "__name__")


def _by_labels(found: Iterable[Series]) -> dict[frozenset[tuple[str, str]], float]:
    return {_plain(series.labels): series.points[-1][1] for series in found}


def _by_place(found: Iterable[Series]) -> dict[Place, dict[float, float]]:
    return {_place(series.labels): dict(series.points) for series in found}


def _by_pod(found: Iterable[Series]) -> dict[tuple[str, str], dict[float, float]]:
    return {_place(series.labels)[:2]: dict(series.points) for series in found}


def _bins(
    started_seconds: float,
    floor: Mapping[float, float],
    counted: Mapping[float, float],
    load: Mapping[float, float],
    work: Mapping[float, float],
) -> tuple[FloorBin, ...]:
    """Bins that lie wholly in the life of the container and have enough samples of its own."""
    bins: list[FloorBin] = []
    peak: float | None = None
    for end in sorted(floor):
        if end - 600 < started_seconds or end not in counted or floor[end] <= 0:
            continue
        mean = load.get(end)
        if mean is not None:
            peak = mean if peak is None else max(peak, mean)
        bins.append(FloorBin(end, round(floor[end]), mean, peak, work.get(end)))
    return tuple(bins)


def _latencies(
    started_seconds: float,
    requests: Mapping[float, float],
    p50: Mapping[float, float],
    p95: Mapping[float, float],
) -> tuple[LatencyBin, ...]:
    return tuple(
        LatencyBin(end, round(requests[end]), p50.get(end), p95.get(end))
        for end in sorted(requests)
        if end - 600 >= started_seconds and round(requests[end]) > 0
    )
