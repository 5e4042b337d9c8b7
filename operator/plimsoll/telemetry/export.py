"""What do we tell Prometheus about ourselves?

An own registry, so that nothing comes in by itself, and an own thread, so that numbers can be read
while the loop is busy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)

from plimsoll import __version__
from plimsoll.decide import Key
from plimsoll.telemetry.conditions import ConditionMetrics
from plimsoll.telemetry.gates import GateMetrics
from plimsoll.telemetry.verdicts import VerdictMetrics

_without_created: Any = disable_created_metrics  # it has no types
# A visit takes some requests and, the first time, a plan: milliseconds to a few seconds.
VISIT_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_POOL: Final = ("namespace", "deployment", "pool")


class Metrics:
    """Our numbers. Names end in a base unit; the text beside each says what it counts."""

    def __init__(self, *, queue_keys: Callable[[], float] = lambda: 0.0) -> None:
        _without_created()  # a second series for every counter, which says little
        self.registry = CollectorRegistry()
        registry = self.registry
        self._visits = Counter(
            "plimsoll_reconciles",
            "Visits to one InferenceDeployment, by what came of them.",
            ("result",),
            registry=registry,
        )
        self._visit_seconds = Histogram(
            "plimsoll_reconcile_seconds",
            "How long a visit took.",
            buckets=VISIT_BUCKETS,
            registry=registry,
        )
        Gauge(
            "plimsoll_queue_keys",
            "InferenceDeployments that wait for a visit or are being visited.",
            registry=registry,
        ).set_function(queue_keys)
        self._writes = Counter(
            "plimsoll_api_writes",
            "Writes that the API server accepted.",
            ("verb", "kind"),
            registry=registry,
        )
        self._requests = Counter(
            "plimsoll_api_requests",
            "Requests to the API server by verb and HTTP status; 0 is no answer.",
            ("verb", "status"),
            registry=registry,
        )
        self._kv_budget_bytes = Gauge(
            "plimsoll_kv_budget_bytes",
            "Bytes of each card that the plan gives to the KV cache.",
            _POOL,
            registry=registry,
        )
        self._planned_sequences = Gauge(
            "plimsoll_planned_sequences",
            "Sequences at once that one worker of the pool is planned for.",
            _POOL,
            registry=registry,
        )
        self._resyncs = Counter(
            "plimsoll_resyncs", "Times that everyone was listed.", registry=registry
        )
        self._resync_at = Gauge(
            "plimsoll_last_resync_timestamp_seconds",
            "When everyone was listed last, in seconds since 1970.",
            registry=registry,
        )
        self._objects = Gauge(
            "plimsoll_deployments", "InferenceDeployments at the last listing.", registry=registry
        )
        self._leading = Gauge(
            "plimsoll_leading", "1 while this operator holds the Lease.", registry=registry
        )
        Gauge(
            "plimsoll_build_info", "1, with our version.", ("version",), registry=registry
        ).labels(version=__version__).set(1)
        self._pools: dict[Key, set[str]] = {}
        self._verdicts = VerdictMetrics(registry)
        self._conditions = ConditionMetrics(registry)
        self._gates = GateMetrics(registry)

    def visited(self, result: str, seconds: float) -> None:
        """A visit ended like this."""
        self._visits.labels(result=result).inc()
        self._visit_seconds.observe(seconds)

    def resynced(self, now_seconds: float, objects: int) -> None:
        """Everyone was listed."""
        self._resyncs.inc()
        self._resync_at.set(now_seconds)
        self._objects.set(objects)

    def called(self, verb: str, kind: str, status: int) -> None:
        """The API server answered; status 0 is no answer."""
        self._requests.labels(verb=verb, status=str(status)).inc()
        if verb not in ("get", "list") and 200 <= status < 300:
            self._writes.labels(verb=verb, kind=kind).inc()

    def leads(self, is_so: bool) -> None:
        """Whether we hold the Lease."""
        self._leading.set(int(is_so))

    def planned(self, key: Key, status: dict[str, Any] | None) -> None:
        """What the status of one object says of its pools; None when the object is gone.

        A pool without a plan has no numbers rather than a zero.
        """
        self._verdicts.told(key, status)
        self._conditions.told(key, status)
        self._gates.told(key, status)
        budgets = {} if status is None else budgets_of(status)
        for pool in self._pools.pop(key, set()) - budgets.keys():
            for gauge in (self._kv_budget_bytes, self._planned_sequences):
                gauge.remove(key.namespace, key.name, pool)
        for pool, (kv_bytes, sequences) in budgets.items():
            self._kv_budget_bytes.labels(key.namespace, key.name, pool).set(kv_bytes)
            self._planned_sequences.labels(key.namespace, key.name, pool).set(sequences)
        if budgets:
            self._pools[key] = set(budgets)


def budgets_of(status: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """For each pool with a plan: bytes of a card for the KV cache, and sequences at once."""
    budgets: dict[str, tuple[int, int]] = {}
    for pool in status.get("pools") or ():
        plan = pool.get("plan") or {}
        kv_bytes = (plan.get("kv") or {}).get("poolBytesPerCard")
        sequences = (plan.get("concurrency") or {}).get("maxNumSeqs")
        if isinstance(kv_bytes, int) and isinstance(sequences, int):
            budgets[pool["name"]] = (kv_bytes, sequences)
    return budgets


def serve(metrics: Metrics, host: str, port: int) -> Callable[[], None]:
    """Answer /metrics from a thread of its own; gives the way to stop it."""
    server, thread = start_http_server(port, addr=host, registry=metrics.registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=2)

    return stop
