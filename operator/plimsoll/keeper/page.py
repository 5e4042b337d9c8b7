"""What does the keeper tell of the gate: to Prometheus, to the kubelet, and to another gate's keeper?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from plimsoll.gate.elders import may_hold
from plimsoll.gate.records import promise
from plimsoll.gate.step import WorkerSeen, held
from plimsoll.gate.tally import WAIT_BOUNDS_SECONDS, Tally
from plimsoll.keeper.loop import Told

HELP: Final = {
    "plimsoll_gate_slots": ("gauge", "Requests that a lane may have on a worker at once."),
    "plimsoll_gate_planned_slots": ("gauge", "The same as planned, before anything is lent."),
    "plimsoll_gate_in_flight": ("gauge", "Requests that a lane has on a worker."),
    "plimsoll_gate_promised_tokens": ("gauge", "KV tokens that limits and requests may take."),
    "plimsoll_gate_kv_tokens": ("gauge", "KV tokens that a worker holds, for all gates together."),
    "plimsoll_gate_promised_sequences": ("gauge", "Requests that limits allow, or that run."),
    "plimsoll_gate_sequences": ("gauge", "Requests that a worker computes at once, for all gates."),
    "plimsoll_gate_queued": ("gauge", "Requests of a lane that wait for a slot."),
    "plimsoll_gate_requests_total": ("counter", "Requests that ended, by lane, status and reason."),
    "plimsoll_gate_wait_seconds": ("histogram", "How long requests waited for a slot."),
    "plimsoll_gate_limits_set_total": ("counter", "Limits that were set since the start."),
    "plimsoll_gate_commands_refused_total": ("counter", "Commands that HAProxy refused."),
    "plimsoll_gate_answers": ("gauge", "1 while HAProxy answers its keeper."),
    "plimsoll_gate_unseated_workers": ("gauge", "Ready workers without a server."),
    "plimsoll_gate_bytes_per_token": ("gauge", "Bytes of a body that count as one token."),
}

_SHOWN: Final = ("gates", "place", "is_retiring")


def metrics_text(told: Told, tally: Tally, lanes: tuple[str, ...]) -> str:
    """The page for Prometheus, in its text form."""
    rows: dict[str, list[str]] = {name: [] for name in HELP}
    for name, labels, value in _samples(told, tally, lanes):
        family = name if name in rows else name.rsplit("_", 1)[0]
        pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
        rows[family].append(f"{name}{{{pairs}}} {value:g}" if pairs else f"{name} {value:g}")
    return "".join(
        f"# HELP {name} {HELP[name][1]}\n# TYPE {name} {HELP[name][0]}\n" + "\n".join(lines) + "\n"
        for name, lines in rows.items()
        if lines
    )


def state_json(told: Told, lanes: tuple[str, ...], name: str = "") -> str:
    """What another gate's keeper must know before it promises anything: who holds what, by address. `name` is
    the host's, so that nobody takes one gate for another that had its address before."""
    standing = told.standing
    found: dict[str, Any] = {
        "name": name,
        "lanes": lanes,
        "standing": None
        if standing is None
        else {each: getattr(standing, each) for each in _SHOWN},
        "since": -1 if standing is None else standing.since,
        "isLeaving": told.acting.is_leaving,
        "held": {},
        "may": {},
        "drained": sorted(told.drained),
        "bytesPerToken": {lane: value / 100 for lane, value in told.bytes_per_token.items()},
    }
    if told.visit is not None and told.seen is not None:
        address = {server.name: server.address for server in told.seen.servers}
        found["held"] = {
            address[worker.name]: held(worker._replace(elsewhere=()))
            for worker in told.visit.workers
        }
        found["may"] = {
            address[worker.name]: may_hold(worker, told.acting) for worker in told.visit.workers
        }
    return json.dumps(found)


def _samples(
    told: Told, tally: Tally, lanes: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "plimsoll_gate_answers", {}, float(not told.problem and told.seen is not None)
    yield "plimsoll_gate_limits_set_total", {}, told.changes
    yield "plimsoll_gate_commands_refused_total", {}, told.failures
    for lane, hundredths in sorted(told.bytes_per_token.items()):
        yield "plimsoll_gate_bytes_per_token", {"lane": lane}, hundredths / 100
    if told.visit is not None:
        yield "plimsoll_gate_unseated_workers", {}, len(told.visit.roster.unseated)
        for worker in told.visit.workers:
            pod = told.visit.roster.seated[worker.name].name
            yield from _promised(worker, pod)
            for lane, seen, planned in zip(lanes, worker.lanes, worker.part.planned, strict=True):
                labels = {"lane": lane, "worker": pod}
                yield "plimsoll_gate_slots", labels, seen.limit
                yield "plimsoll_gate_planned_slots", labels, planned
                yield "plimsoll_gate_in_flight", labels, seen.in_flight
    if told.seen is not None:
        for lane, queued in zip(lanes, told.seen.queued, strict=True):
            yield "plimsoll_gate_queued", {"lane": lane}, queued
    for (lane, status, reason), count in sorted(tally.requests.items()):
        labels = {"lane": lane, "status": str(status), "reason": reason}
        yield "plimsoll_gate_requests_total", labels, count
    for lane, counts in sorted(tally.waits.items()):
        total = 0
        for bound, count in zip((*WAIT_BOUNDS_SECONDS, float("inf")), counts, strict=True):
            total += count
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield "plimsoll_gate_wait_seconds_bucket", {"lane": lane, "le": edge}, total
        yield "plimsoll_gate_wait_seconds_sum", {"lane": lane}, tally.wait_seconds[lane] / 1000
        yield "plimsoll_gate_wait_seconds_count", {"lane": lane}, total


def _promised(worker: WorkerSeen, pod: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """What this gate may hand out of a worker, beside what the worker has for all gates."""
    labels, whole = {"worker": pod}, worker.whole or worker.part
    promised = promise(worker.part, held(worker._replace(elsewhere=())))
    yield "plimsoll_gate_promised_tokens", labels, promised.tokens
    yield "plimsoll_gate_kv_tokens", labels, whole.kv_tokens
    yield "plimsoll_gate_promised_sequences", labels, promised.sequences
    yield "plimsoll_gate_sequences", labels, whole.sequences
