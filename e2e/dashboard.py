"""What does the dashboard show? Its JSON, asked of a real Prometheus, drawn as one picture.

The past is told by the operator's own exporter: a day of two InferenceDeployments in which a worker grows and is
recycled. What engines and the gate export is written beside it. All of it is made up and the same each time.
"""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from xml.sax.saxutils import escape

from prometheus_client import CollectorRegistry

from installation import CHART, REPOSITORY
from patience import Patience
from plimsoll.decide import Key
from plimsoll.facts.watched import WatchedWorker, WorkerNow
from plimsoll.telemetry.export import Metrics
from plimsoll.telemetry.workers import WorkerMetrics

PICTURE: Final = REPOSITORY / "docs" / "dashboard.svg"
END_SECONDS: Final = 1_796_000_000
HOURS: Final = 24
STEP_SECONDS: Final = 60
DRAWN_SECONDS: Final = 900
GIB: Final = 1 << 30
CHAT, EDGE = Key(namespace="team", name="chat"), Key(namespace="plant", name="assistant")
GROWS_AT_HOUR, RECYCLED_AT_HOUR = 12.0, 17.0

COLUMN, ROW, GAP = 50, 26, 8
COLOURS: Final = ("#3b6ea5", "#c8553d", "#4f8a5b", "#8d6a9f", "#b8860b", "#5f6b6d")


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
    families: dict[str, list[str]] = {}
    start = END_SECONDS - HOURS * 3600
    for step in range(HOURS * 3600 // STEP_SECONDS + 1):
        at, hour = start + step * STEP_SECONDS, step * STEP_SECONDS / 3600
        _live(metrics, workers, step, hour, at)
        for each in (metrics.registry, registry):
            for family in each.collect():
                lines = families.setdefault(f"# TYPE {family.name} {family.type}", [])
                lines += [_sample(s.name, s.labels, s.value, at) for s in family.samples]
        for name, kind, labels, value in _others(step, hour):
            base = name.removesuffix("_total").removesuffix("_bucket")
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


def _others(step: int, hour: float) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """What engines and the gate say."""
    load = 1 + math.sin(2 * math.pi * (hour - 9) / 24)
    for number in range(2):
        where = {
            "namespace": "team",
            "deployment": "chat",
            "pool": "h100",
            "pod": f"chat-h100-{number}",
        }
        yield "vllm:num_requests_running", "gauge", where, round(40 * load)
        yield "vllm:num_requests_waiting", "gauge", where, max(0, round(40 * load - 72))
    where = {
        "namespace": "plant",
        "deployment": "assistant",
        "pool": "gpu",
        "pod": "assistant-gpu-0",
    }
    yield "llamacpp:requests_processing", "gauge", where, round(3 * load)
    yield "llamacpp:requests_deferred", "gauge", where, 0
    for lane, slots, share in (("chat", 120, 1.0), ("batch", 40, 0.6)):
        labels = {"lane": lane}
        yield "plimsoll_gate_slots", "gauge", {**labels, "pod": "chat-h100-0"}, slots
        busy = min(slots, round(slots * load * share * 0.55))
        yield "plimsoll_gate_in_flight", "gauge", {**labels, "pod": "chat-h100-0"}, busy
        yield "plimsoll_gate_queued", "gauge", labels, max(0, round(60 * load * share - 100))
        for status, reason, pace in (("200", "", 300), ("429", "queue_full", 3)):
            told = {**labels, "status": status, "reason": reason}
            yield "plimsoll_gate_requests_total", "counter", told, round(pace * share) * step
        for bound, part in (("0.1", 0.7), ("1", 0.95), ("+Inf", 1.0)):
            count = round(300 * share * step * part)
            yield "plimsoll_gate_wait_seconds_bucket", "histogram", {**labels, "le": bound}, count


def asked(port: int) -> tuple[Panel, ...]:
    """Every panel with what Prometheus on that port answers."""
    found = json.loads((CHART / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    return tuple(
        Panel(
            panel["title"],
            panel["type"],
            panel.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
            panel["gridPos"],
            tuple(_lines(port, target) for target in panel.get("targets", ())),
        )
        for panel in found
    )


def _lines(port: int, target: dict[str, str]) -> tuple[Line, ...]:
    query = target["expr"].replace("$namespace", ".*").replace("$deployment", ".*")
    times = {"start": END_SECONDS - HOURS * 3600, "end": END_SECONDS, "step": DRAWN_SECONDS}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=Patience.HTTP_ANSWER)
    try:
        connection.request("GET", f"/api/v1/query_range?{urlencode({'query': query, **times})}")
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert answer["status"] == "success", f"{query}: {answer}"
    lines = [
        Line(
            _legend(target["legendFormat"], each["metric"]),
            tuple((at, float(value)) for at, value in each["values"]),
        )
        for each in answer["data"]["result"]
    ]
    return tuple(sorted(lines))


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def drawn(panels: tuple[Panel, ...]) -> str:
    """The picture."""
    height = max(p.place["y"] + p.place["h"] for p in panels) * ROW + GAP
    width = 24 * COLUMN + GAP
    body = "".join(_panel(panel) for panel in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10">\n'
        "<title>The dashboard, over a day that was made up</title>\n"
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>\n{body}</svg>\n'
    )


def _panel(panel: Panel) -> str:
    place = panel.place
    x, y = place["x"] * COLUMN + GAP, place["y"] * ROW + GAP
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    title = f'<text x="{x + 8}" y="{y + 15}" font-weight="bold">{escape(panel.title)}</text>\n'
    if panel.kind == "row":
        return title
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#fff" stroke="#ddd"/>\n'
    lines = [line for lines in panel.lines for line in lines]
    if panel.kind == "stat":
        value = lines[0].points[-1][1] if lines else math.nan
        return f'{box}{title}<text x="{x + 8}" y="{y + 60}" font-size="32">{value:g}</text>\n'
    known = [value for line in lines for _, value in line.points if not math.isnan(value)]
    top = max(known, default=1.0) or 1.0
    left, right, above, below = x + 52, x + width - 8, y + 26, y + height - 34

    def at(point: tuple[float, float]) -> str:
        across = (point[0] - END_SECONDS) / (HOURS * 3600) + 1
        up = point[1] / top
        return f"{left + across * (right - left):.0f},{below - up * (below - above):.0f}"

    parts = [box, title]
    for share in (0.0, 0.5, 1.0):
        level = below - share * (below - above)
        parts.append(f'<path d="M{left} {level:.0f}H{right}" stroke="#eee"/>')
        label = escape(_amount(top * share, panel.unit))
        parts.append(f'<text x="{left - 4}" y="{level + 3:.0f}" text-anchor="end">{label}</text>\n')
    where = x + 8
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(at(point) for point in line.points if not math.isnan(point[1]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>\n')
        name = line.name.strip()
        if where + 6 * len(name) < x + width:
            parts.append(
                f'<text x="{where}" y="{y + height - 8}" fill="{colour}">{escape(name)}</text>\n'
            )
            where += 6 * len(name) + 8
    return "".join(parts)


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / GIB:.1f} GiB"
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value / 3600:.0f} h" if value >= 7200 else f"{value:.2g} s"
    return f"{value:.3g}" if value < 1000 else f"{value / 1000:.0f}k"
