"""What Prometheus is told of gates."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from plimsoll.api.status_types import GatewayStatus
from plimsoll.decide import Key
from plimsoll.telemetry.gates import GateMetrics

KEY = Key(namespace="team", name="chat")
WHERE = 'deployment="chat",namespace="team"'


def samples(*told: dict[str, object] | None) -> set[str]:
    """What is exported after these statuses of one object."""
    metrics = GateMetrics(registry := CollectorRegistry())
    for status in told:
        metrics.told(KEY, status)
    lines = generate_latest(registry).decode().splitlines()
    return {line for line in lines if not line.startswith("#")}


def test_a_gate_that_is_the_door_is_told_as_the_status_has_it() -> None:
    gateway = GatewayStatus(gates=2, ready_gates=1, is_door=True, name="chat-gate")
    assert {
        f"plimsoll_gates{{{WHERE}}} 2.0",
        f"plimsoll_ready_gates{{{WHERE}}} 1.0",
        f"plimsoll_gate_leads{{{WHERE}}} 1.0",
    } == samples({"gateway": gateway.to_json()})


def test_what_the_status_leaves_out_is_none_there() -> None:
    """A status without its zeros, as the API server may give it."""
    assert f"plimsoll_ready_gates{{{WHERE}}} 0.0" in samples({"gateway": {"gates": 1}})


def test_a_deployment_without_a_gate_has_no_line() -> None:
    asked: dict[str, object] = {"gateway": {"gates": 1}}
    assert samples({"pools": []}) == set()
    assert samples(asked, {"gateway": None}) == set()
    assert samples(asked, None) == set()
