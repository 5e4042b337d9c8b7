"""What do we tell Prometheus of gates: those that are asked for, those that serve, and whether they are the door?

The newest status of each InferenceDeployment says it all; one without a gate has no line. What goes through a
gate its own keeper tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.decide import Key

_DEPLOYMENT: Final = ("namespace", "deployment")
_GAUGES: Final = (
    ("plimsoll_gates", "Gates that are asked for.", "gates"),
    ("plimsoll_ready_gates", "Gates that are ready and know their workers.", "readyGates"),
    ("plimsoll_gate_leads", "1 while the Service leads to the gates.", "isDoor"),
)
"""Name, text, and what `status.gateway` calls it."""


class GateMetrics(Collector):
    """Gates of everyone, as last written."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gateways: dict[Key, dict[str, Any]] = {}
        registry.register(self)

    def told(self, key: Key, status: dict[str, Any] | None) -> None:
        """What the status of one object says now; None when the object is gone."""
        others = {each: seen for each, seen in self._gateways.items() if each != key}
        if gateway := (status or {}).get("gateway"):
            others[key] = gateway
        self._gateways = others

    def collect(self) -> Iterator[Metric]:
        """For the registry, from whichever thread it asks."""
        gateways = self._gateways
        for name, text, field in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=_DEPLOYMENT)
            for key, gateway in gateways.items():
                family.add_metric((key.namespace, key.name), float(gateway.get(field) or 0))
            yield family
