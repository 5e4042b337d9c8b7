"""What Prometheus is told of verdicts and recycles."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from plimsoll.decide import Key
from plimsoll.telemetry.verdicts import VerdictMetrics

KEY = Key(namespace="team", name="chat")
WORKER = 'deployment="chat",namespace="team",pod="chat-a",pool="h100"'


def status(*phases: str, **worker: Any) -> dict[str, Any]:
    return {
        "workers": [{"pod": "chat-a", "pool": "h100", "verdict": "Growth"} | worker],
        "recycling": {
            "hold": {"pod": "chat-a", "reason": "CoolingDown"},
            "history": [
                {"uid": f"uid-{number}", "reason": "Growth", "phase": phase}
                for number, phase in enumerate(phases)
            ],
        },
    }


def text(*statuses: dict[str, Any] | None) -> str:
    registry = CollectorRegistry()
    metrics = VerdictMetrics(registry)
    for each in statuses:
        metrics.told(KEY, each)
    return generate_latest(registry).decode()


def test_slope_and_time_to_the_limit_are_in_base_units() -> None:
    told = text(status(bytesPerHour=1000, lowerBytesPerHour=900, hoursToLimit=2.5))
    assert f"plimsoll_worker_slope_bytes_per_hour{{{WORKER}}} 1000.0" in told
    assert f"plimsoll_worker_slope_bytes_per_hour_lower{{{WORKER}}} 900.0" in told
    assert f"plimsoll_worker_time_to_limit_seconds{{{WORKER}}} 9000.0" in told


def test_what_is_not_known_has_no_line() -> None:
    told = text(status())
    assert "plimsoll_worker_slope_bytes_per_hour{" not in told
    assert f'plimsoll_worker_verdict{{{WORKER},verdict="Growth"}} 1.0' in told


def test_an_eviction_is_counted_once_and_an_intent_is_a_zero() -> None:
    """Prometheus sees no growth in a series that begins with one."""
    counted = 'plimsoll_recycles_total{deployment="chat",namespace="team",reason="Growth"}'
    assert f"{counted} 0.0" in text(status("Draining"))
    assert f"{counted} 1.0" in text(status("Draining"), status("Replacing"), status("Done"))
    assert f"{counted} 2.0" in text(status("Replacing"), status("Replacing", "Done"))


def test_the_hold_is_told_by_its_reason() -> None:
    told = text(status())
    assert (
        'plimsoll_recycle_hold{deployment="chat",namespace="team",reason="CoolingDown"} 1.0' in told
    )


def test_of_what_is_gone_nothing_is_left() -> None:
    assert 'deployment="chat"' not in text(status("Done", bytesPerHour=1), None)
