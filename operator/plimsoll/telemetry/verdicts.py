"""What do we tell Prometheus of verdicts and recycles?

The newest status of each InferenceDeployment says it all, so whoever scrapes us sees what kubectl shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.decide import Key

_WORKER: Final = ("namespace", "deployment", "pool", "pod")
_DEPLOYMENT: Final = ("namespace", "deployment")
_SLOPE: Final = "plimsoll_worker_slope_bytes_per_hour"
_GAUGES: Final = (
    (_SLOPE, "Growth of the worker's resident memory.", "bytesPerHour", 1.0),
    (f"{_SLOPE}_lower", "Lower bound of that growth.", "lowerBytesPerHour", 1.0),
    (f"{_SLOPE}_upper", "Upper bound of that growth.", "upperBytesPerHour", 1.0),
    (
        "plimsoll_worker_time_to_limit_seconds",
        "Until the worker's memory limit at its growth.",
        "hoursToLimit",
        3600.0,
    ),
)
"""Name, text, key in the status and factor; what is not known has no line."""


class VerdictMetrics(Collector):
    """Verdicts, holds and recycles of everyone, as last written."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._statuses: dict[Key, dict[str, Any]] = {}
        self._counts: dict[tuple[str, str, str], int] = {}
        self._counted: dict[Key, frozenset[tuple[str, str]]] = {}
        registry.register(self)

    def told(self, key: Key, status: dict[str, Any] | None) -> None:
        """What the status of one object says now; None when the object is gone."""
        if status is None:
            self._statuses.pop(key, None)
            self._counted.pop(key, None)
            for labels in [each for each in self._counts if each[:2] == (key.namespace, key.name)]:
                del self._counts[labels]
            return
        self._count(key, status)
        self._statuses = self._statuses | {
            key: {name: status.get(name) for name in ("workers", "recycling")}
        }

    def _count(self, key: Key, status: dict[str, Any]) -> None:
        """Evictions by reason. Those before our start are in the status and count from the first look; one that
        is only intended is a zero, for Prometheus sees no growth in a series that begins with one."""
        history = (status.get("recycling") or {}).get("history") or ()
        intended = {(key.namespace, key.name, str(entry.get("reason"))) for entry in history}
        self._counts = dict.fromkeys(intended, 0) | self._counts
        evicted = {
            (str(entry.get("uid")), str(entry.get("reason")))
            for entry in history
            if entry.get("phase") in ("Replacing", "Done", "GivenUp")
        }
        for _, reason in sorted(evicted - self._counted.get(key, frozenset())):
            labels = (key.namespace, key.name, reason)
            self._counts = self._counts | {labels: self._counts.get(labels, 0) + 1}
        self._counted[key] = frozenset(evicted)

    def collect(self) -> Iterator[Metric]:
        """For the registry, from whichever thread it asks."""
        statuses, counts = self._statuses, self._counts
        workers = [
            ((key.namespace, key.name, each.get("pool", ""), each.get("pod", "")), each)
            for key, status in statuses.items()
            for each in status["workers"] or ()
        ]
        for name, text, field, factor in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=_WORKER)
            for labels, worker in workers:
                if worker.get(field) is not None:
                    family.add_metric(labels, worker[field] * factor)
            yield family
        verdicts = GaugeMetricFamily(
            "plimsoll_worker_verdict",
            "1, with what is said of the worker.",
            labels=(*_WORKER, "verdict"),
        )
        for labels, worker in workers:
            verdicts.add_metric((*labels, worker.get("verdict", "")), 1)
        yield verdicts
        holds = GaugeMetricFamily(
            "plimsoll_recycle_hold",
            "1, with why the worker that needs it most is not recycled.",
            labels=(*_DEPLOYMENT, "reason"),
        )
        for key, status in statuses.items():
            hold = (status["recycling"] or {}).get("hold")
            if hold:
                holds.add_metric((key.namespace, key.name, hold.get("reason", "")), 1)
        yield holds
        recycles = CounterMetricFamily(
            "plimsoll_recycles",
            "Workers that were evicted, by what was said of them.",
            labels=(*_DEPLOYMENT, "reason"),
        )
        for counted, count in sorted(counts.items()):
            recycles.add_metric(counted, count)
        yield recycles
