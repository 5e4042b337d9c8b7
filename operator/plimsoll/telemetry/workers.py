"""What do we tell Prometheus about workers, and about our asking?

A worker's figure is there while it is known and not a moment longer: the newest figures replace all
that were told before, so what is unknown or gone has no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.facts.watched import WorkerNow

# A kubelet answers in milliseconds; the time-outs are 5 s, of Prometheus 20 s.
SCRAPE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
_LABELS: Final = ("namespace", "deployment", "pool", "pod")
_GAUGES: Final[tuple[tuple[str, str, Callable[[WorkerNow], float | None]], ...]] = (
    (
        "plimsoll_worker_resident_bytes",
        "Anonymous memory and swap of the worker's engine container.",
        lambda now: now.resident_bytes,
    ),
    (
        "plimsoll_worker_ttft_p95_seconds",
        "95th percentile of the time to first token over the last ten to twenty minutes.",
        lambda now: now.ttft_p95_seconds,
    ),
    (
        "plimsoll_worker_kv_used_ratio",
        "Part of the worker's KV cache in use.",
        lambda now: now.kv_used,
    ),
)


class WorkerMetrics(Collector):
    """Figures of workers, and counts of scrapes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._now: Sequence[WorkerNow] = ()
        self._seconds = Histogram(
            "plimsoll_scrape_seconds",
            "How long a scrape took that was answered, by source.",
            ("source",),
            buckets=SCRAPE_BUCKETS,
            registry=registry,
        )
        self._failures = Counter(
            "plimsoll_scrape_failures",
            "Scrapes, or workers within one, that gave nothing, by source and reason.",
            ("source", "reason"),
            registry=registry,
        )
        self._watched = Gauge(
            "plimsoll_watched_workers", "Workers that are asked about.", registry=registry
        )
        self._round = Gauge(
            "plimsoll_watch_round_seconds",
            "How long the last round of scrapes took; more than PLIMSOLL_WATCH_SECONDS falls behind.",
            registry=registry,
        )
        registry.register(self)

    def scraped(self, source: str, seconds: float) -> None:
        """One was answered."""
        self._seconds.labels(source=source).observe(seconds)

    def missed(self, source: str, reason: str, count: int = 1) -> None:
        """One, or one worker in it, gave nothing."""
        self._failures.labels(source=source, reason=reason).inc(count)

    def watched(self, now: Sequence[WorkerNow], round_seconds: float) -> None:
        """A round is over, and this is known now."""
        self._now = tuple(now)
        self._watched.set(len(now))
        self._round.set(round_seconds)

    def collect(self) -> Iterator[Metric]:
        """For the registry, from whichever thread it asks."""
        everyone = self._now
        for name, text, read in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=_LABELS)
            for now in everyone:
                value = read(now)
                if value is not None:
                    worker = now.worker
                    labels = (worker.namespace, worker.deployment, worker.pool, worker.pod)
                    family.add_metric(labels, value)
            yield family
