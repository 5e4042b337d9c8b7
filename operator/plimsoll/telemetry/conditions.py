"""What do we tell Prometheus of conditions, plans and what the engines made of them?

The newest status of each InferenceDeployment says it all; what is not known has no line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.decide import Key

_POOL: Final = ("namespace", "deployment", "pool")
_HEADROOM: Final = "Headroom"
"""Owner of what is left of a card: the last line of a plan's ledger."""
_GAUGES: Final = (
    ("plimsoll_workers", "Workers of the pool that are there.", ("replicas",)),
    ("plimsoll_ready_workers", "Workers of the pool that serve.", ("readyReplicas",)),
    (
        "plimsoll_planned_tokens",
        "Tokens of whole sequences that the plan promised of one worker.",
        ("verified", "plannedTokens"),
    ),
    (
        "plimsoll_reported_tokens",
        "Tokens that the engine said it holds; of the worker that holds least.",
        ("verified", "reportedTokens"),
    ),
)
"""Name, text, and where the status of a pool has it."""


class ConditionMetrics(Collector):
    """Conditions and pools of everyone, as last written."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._statuses: dict[Key, dict[str, Any]] = {}
        registry.register(self)

    def told(self, key: Key, status: dict[str, Any] | None) -> None:
        """What the status of one object says now; None when the object is gone."""
        others = {each: seen for each, seen in self._statuses.items() if each != key}
        if status is not None:
            others[key] = {name: status.get(name) or () for name in ("conditions", "pools")}
        self._statuses = others

    def collect(self) -> Iterator[Metric]:
        """For the registry, from whichever thread it asks."""
        statuses = self._statuses
        conditions = GaugeMetricFamily(
            "plimsoll_condition",
            "1, with a condition's status and reason.",
            labels=("namespace", "deployment", "type", "status", "reason"),
        )
        for key, status in statuses.items():
            for each in status["conditions"]:
                words = (each.get(name, "") for name in ("type", "status", "reason"))
                conditions.add_metric((key.namespace, key.name, *words), 1)
        yield conditions
        pools = [
            ((key.namespace, key.name, pool.get("name", "")), pool)
            for key, status in statuses.items()
            for pool in status["pools"]
        ]
        for name, text, path in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=_POOL)
            for labels, pool in pools:
                if (value := _found(pool, path)) is not None:
                    family.add_metric(labels, value)
            yield family
        headroom = GaugeMetricFamily(
            "plimsoll_headroom_bytes", "Bytes of each card that the plan leaves.", labels=_POOL
        )
        for labels, pool in pools:
            for line in (pool.get("plan") or {}).get("ledger") or ():
                if line.get("owner") == _HEADROOM:
                    headroom.add_metric(labels, line["bytes"])
        yield headroom


def _found(pool: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = pool
    for name in path:
        value = (value or {}).get(name)
    return value if isinstance(value, int | float) else None
