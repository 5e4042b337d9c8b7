"""What does the dashboard show? Its JSON, asked of a real Prometheus; dashboard_picture.py draws it.

The past is told by the operator's own exporter and by a keeper's own page: a day of two InferenceDeployments in which
a worker grows and is recycled, and in which chat borrows from a batch. What engines export is written beside it. All
of it is made up and the same each time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from dashboard_gate import GateDay
from installation import CHART
from plimsoll.decide import Key
from plimsoll.facts.watched import WatchedWorker, WorkerNow
from plimsoll.telemetry.export import Metrics
from plimsoll.telemetry.workers import WorkerMetrics
from prometheus_server import asked as asked_of

END_SECONDS: Final = 1_796_000_000
HOURS: Final = 24
STEP_SECONDS: Final = 60
DRAWN_SECONDS: Final = 900
GIB: Final = 1 << 30
WORKERS: Final = ("chat-h100-0", "chat-h100-1")
CHAT, EDGE = Key(namespace="team", name="chat"), Key(namespace="plant", name="assistant")
GROWS_AT_HOUR, RECYCLED_AT_HOUR = 12.0, 17.0

BASE: Final = re.compile(r"_(total|bucket|count|sum)$")
ALL: Final[Mapping[str, str]] = {"namespace": ".*", "deployment": ".*"}
"""The dashboard's variables when nothing is picked: Grafana puts their `allValue` into the query."""


class Line(NamedTuple):
    """One series of a panel: its name, and its points as (seconds, value)."""

    name: str
    points: tuple[tuple[float, float], ...]


class Panel(NamedTuple):
    """A panel with what its queries gave, one tuple of lines for each query."""

    title: str
    kind: str
    unit: str
    place: dict[str, int]
    lines: tuple[tuple[Line, ...], ...]


def past() -> str:
    """A day of metrics in OpenMetrics' text."""
    metrics = Metrics(queue_keys=lambda: 1.0)
    workers = WorkerMetrics(registry := CollectorRegistry())
    gate, families = GateDay(WORKERS), dict[str, list[str]]()
    start = END_SECONDS - HOURS * 3600
    for step in range(HOURS * 3600 // STEP_SECONDS + 1):
        at, hour = start + step * STEP_SECONDS, step * STEP_SECONDS / 3600
        _live(metrics, workers, step, hour, at)
        gate.minute(hour)
        for each in (metrics.registry, registry):
            for family in each.collect():
                lines = families.setdefault(f"# TYPE {family.name} {family.type}", [])
                lines += [_sample(s.name, s.labels, s.value, at) for s in family.samples]
        for name, kind, labels, value in (*_engines(gate, step, hour), *_of_gate(gate)):
            base = name if kind == "gauge" else BASE.sub("", name)
            lines = families.setdefault(f"# TYPE {base} {kind}", [])
            lines.append(_sample(name, labels, value, at))
    text = [line for head, body in families.items() for line in (head, *body)]
    return "\n".join([*text, "# EOF", ""])


def _sample(name: str, labels: dict[str, str], value: float, at: int) -> str:
    pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value:g} {at}"


def _live(metrics: Metrics, workers: WorkerMetrics, step: int, hour: float, at: int) -> None:
    """What the operator does within one step."""
    if step == 0:
        metrics.leads(True)
    if step % 10 == 0:
        metrics.resynced(at, 2)
    for result, seconds in (("unchanged", 0.04), ("unchanged", 0.09), ("written", 0.4)):
        if result == "unchanged" or step % 15 == 0:
            metrics.visited(result, seconds)
    metrics.called("get", "InferenceDeployment", 200)
    metrics.called("list", "Pod", 200)
    if step % 15 == 0:
        metrics.called("patch", "InferenceDeployment", 200)
    if step % 240 == 0:
        metrics.called("patch", "InferenceDeployment", 409)
        workers.missed("kubelet", "Timeout")
    metrics.planned(CHAT, _chat(hour))
    metrics.planned(EDGE, _edge())
    load = 1 + math.sin(2 * math.pi * (hour - 9) / 24)
    everyone = [("chat", "h100", f"chat-h100-{n}", "vllm", _resident(n, hour)) for n in range(2)]
    everyone.append(("assistant", "gpu", "assistant-gpu-0", "llama.cpp", 3.1 * GIB))
    workers.watched(
        [
            WorkerNow(
                WatchedWorker(
                    _namespace(name), name, pool, pod, pod, "engine", engine, is_healthy=True
                ),
                resident_bytes=int(resident),
                ttft_p95_seconds=0.25 + 0.2 * load + 0.1 * max(0.0, resident / GIB - 11),
                kv_used=0.15 + 0.3 * load,
            )
            for name, pool, pod, engine, resident in everyone
        ],
        0.3,
    )


def _namespace(name: str) -> str:
    return CHAT.namespace if name == CHAT.name else EDGE.namespace


def _resident(number: int, hour: float) -> float:
    """The first worker grows by 0.5 GiB an hour from the twelfth on, until another is in its place."""
    if number or hour < GROWS_AT_HOUR or hour >= RECYCLED_AT_HOUR:
        return 11 * GIB
    return (11 + 0.5 * (hour - GROWS_AT_HOUR)) * GIB


def _chat(hour: float) -> dict[str, Any]:
    is_replaced = RECYCLED_AT_HOUR <= hour < RECYCLED_AT_HOUR + 0.2
    grows = GROWS_AT_HOUR + 3 <= hour < RECYCLED_AT_HOUR
    first: dict[str, Any] = {"pod": "chat-h100-0", "pool": "h100", "verdict": "Steady"}
    if grows:
        left = (20 * GIB - _resident(0, hour)) / (0.5 * GIB)
        slope = {"bytesPerHour": GIB // 2, "lowerBytesPerHour": int(0.45 * GIB)}
        slope["upperBytesPerHour"] = int(0.55 * GIB)
        first |= {"verdict": "Growth", "hoursToLimit": left, **slope}
    phase = "Done" if hour >= RECYCLED_AT_HOUR else "Draining"
    begun = hour >= RECYCLED_AT_HOUR - 0.2
    history = [{"uid": "a", "reason": "Growth", "phase": phase}] if begun else []
    hold = {"reason": "LimitIsFar"} if GROWS_AT_HOUR + 3 <= hour < RECYCLED_AT_HOUR - 1 else None
    ready = ("False", "WarmingUp") if is_replaced else ("True", "AllWorkersReady")
    return {
        "gateway": {"gates": 1, "readyGates": 1, "isDoor": True},
        "conditions": [{"type": "Ready", "status": ready[0], "reason": ready[1]}],
        "workers": [first, {"pod": "chat-h100-1", "pool": "h100", "verdict": "Steady"}],
        "recycling": {"history": history, "hold": hold},
        "pools": [
            _pool(
                "h100",
                2,
                1 if is_replaced else 2,
                kv=38.2,
                left=3.9,
                seqs=90,
                tokens=(250496, 249300),
            )
        ],
    }


def _edge() -> dict[str, Any]:
    waits = {"type": "Stalled", "status": "True", "reason": "OutOfSteps"}
    return {
        "conditions": [{"type": "Ready", "status": "True", "reason": "AllWorkersReady"}, waits],
        "workers": [{"pod": "assistant-gpu-0", "pool": "gpu", "verdict": "WarmingUp"}],
        "recycling": {},
        "pools": [_pool("gpu", 1, 1, kv=9.4, left=1.2, seqs=8, tokens=(65536, 65536))],
    }


def _pool(
    name: str, there: int, ready: int, *, kv: float, left: float, seqs: int, tokens: tuple[int, int]
) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": there,
        "readyReplicas": ready,
        "plan": {
            "kv": {"poolBytesPerCard": int(kv * GIB)},
            "concurrency": {"maxNumSeqs": seqs},
            "ledger": [{"owner": "Headroom", "bytes": int(left * GIB)}],
        },
        "verified": {"plannedTokens": tokens[0], "reportedTokens": tokens[1]},
    }


def _engines(
    gate: GateDay, step: int, hour: float
) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """What engines say: those behind the gate compute what it handed out, and seldom let it wait."""
    load = 1 + math.sin(2 * math.pi * (hour - 9) / 24)
    chat = {"namespace": CHAT.namespace, "deployment": CHAT.name, "pool": "h100"}
    for pod, running in zip(WORKERS, gate.running(), strict=True):
        yield "vllm:num_requests_running", "gauge", {**chat, "pod": pod}, running
        yield "vllm:num_requests_waiting", "gauge", {**chat, "pod": pod}, int(step % 240 == 7)
    edge = {"namespace": EDGE.namespace, "deployment": EDGE.name, "pool": "gpu"}
    where = {**edge, "pod": "assistant-gpu-0"}
    yield "llamacpp:requests_processing", "gauge", where, round(3 * load)
    yield "llamacpp:requests_deferred", "gauge", where, 0


def _of_gate(gate: GateDay) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """The keeper's page, with the labels that the chart's PodMonitor puts on it."""
    target = {"namespace": CHAT.namespace, "deployment": CHAT.name, "pod": "chat-gate-0"}
    for name, kind, labels, value in gate.samples():
        yield name, kind, target | labels, value


def asked(port: int, chosen: Mapping[str, str] = ALL) -> tuple[Panel, ...]:
    """Every panel with what Prometheus on that port answers, for the variables as they are chosen."""
    return tuple(
        Panel(
            panel["title"],
            panel["type"],
            panel.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
            panel["gridPos"],
            tuple(_lines(port, target, chosen) for target in panel.get("targets", ())),
        )
        for panel in _dashboard()["panels"]
    )


def choices(port: int, chosen: Mapping[str, str] = ALL) -> dict[str, tuple[str, ...]]:
    """What each of the dashboard's variables offers, by its own query: `label_values(selector, label)`."""
    found = {}
    for variable in _dashboard()["templating"]["list"]:
        if variable["type"] != "query":
            continue
        said = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert said is not None, variable
        path, words = f"/api/v1/label/{said[2]}/values", {"match[]": filled(said[1], chosen)}
        times = {"start": END_SECONDS - HOURS * 3600, "end": END_SECONDS}
        found[variable["name"]] = tuple(asked_of(port, path, words | times))
    return found


def filled(expression: str, chosen: Mapping[str, str]) -> str:
    """The query as Grafana sends it."""
    text = re.sub(r"\$(\w+)", lambda found: chosen[found[1]], expression)
    assert "$" not in text, text
    return text


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "dashboard.json").read_text(encoding="utf-8"))
    return found


def _lines(port: int, target: dict[str, str], chosen: Mapping[str, str]) -> tuple[Line, ...]:
    times = {"start": END_SECONDS - HOURS * 3600, "end": END_SECONDS, "step": DRAWN_SECONDS}
    query = {"query": filled(target["expr"], chosen)}
    lines = [
        Line(
            _legend(target["legendFormat"], each["metric"]),
            tuple((at, float(value)) for at, value in each["values"]),
        )
        for each in asked_of(port, "/api/v1/query_range", query | times)["result"]
    ]
    return tuple(sorted(lines))


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)
