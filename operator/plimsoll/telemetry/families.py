"""Which metrics does the operator export, before there is anything to count?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from plimsoll.telemetry.export import Metrics
from plimsoll.telemetry.workers import WorkerMetrics


class Family(NamedTuple):
    """One metric, as Prometheus sees it."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


def families() -> tuple[Family, ...]:
    """All that the operator's registry would answer, by name. The library keeps label names to itself, so they
    are read where it keeps them: in the collector, or in the family that a collector of ours makes."""
    metrics = Metrics()
    WorkerMetrics(metrics.registry)
    return tuple(sorted(_families(metrics.registry)))


def _families(registry: Any) -> Iterator[Family]:
    for collector in registry._collector_to_names:
        for each in collector.collect():
            labels: tuple[str, ...] = tuple(
                getattr(each, "_labelnames", ()) or getattr(collector, "_labelnames", ())
            )
            name = f"{each.name}_total" if each.type == "counter" else each.name
            yield Family(name, each.type, labels, each.documentation)
