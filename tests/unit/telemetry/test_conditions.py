"""What Prometheus is told of conditions and pools."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from plimsoll.decide import Key
from plimsoll.telemetry.conditions import ConditionMetrics

KEY = Key(namespace="team", name="chat")
POOL = 'deployment="chat",namespace="team",pool="a"'
STATUS = {
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "WaitingForCards"},
        {"type": "Planned", "status": "True", "reason": "PlanAccepted"},
    ],
    "pools": [
        {
            "name": "a",
            "replicas": 3,
            "readyReplicas": 2,
            "plan": {
                "ledger": [{"owner": "Weights", "bytes": 9}, {"owner": "Headroom", "bytes": 7}]
            },
            "verified": {"plannedTokens": 100, "reportedTokens": 90},
        },
        {"name": "refused", "replicas": 0},
    ],
}


def samples(*told: dict[str, object] | None) -> set[str]:
    """What is exported after these statuses of one object."""
    metrics = ConditionMetrics(registry := CollectorRegistry())
    for status in told:
        metrics.told(KEY, status)
    lines = generate_latest(registry).decode().splitlines()
    return {line for line in lines if not line.startswith("#")}


def test_a_condition_is_one_line_with_status_and_reason() -> None:
    where = 'deployment="chat",namespace="team"'
    expected = {
        f'plimsoll_condition{{{where},reason="WaitingForCards",status="False",type="Ready"}} 1.0',
        f'plimsoll_condition{{{where},reason="PlanAccepted",status="True",type="Planned"}} 1.0',
    }
    assert expected == {line for line in samples(STATUS) if line.startswith("plimsoll_condition")}


def test_a_pool_tells_its_workers_its_headroom_and_both_counts_of_tokens() -> None:
    expected = {
        f"plimsoll_workers{{{POOL}}} 3.0",
        f"plimsoll_ready_workers{{{POOL}}} 2.0",
        f"plimsoll_headroom_bytes{{{POOL}}} 7.0",
        f"plimsoll_planned_tokens{{{POOL}}} 100.0",
        f"plimsoll_reported_tokens{{{POOL}}} 90.0",
    }
    assert expected == {line for line in samples(STATUS) if 'pool="a"' in line}


def test_what_is_not_known_has_no_line() -> None:
    refused = {line.partition("{")[0] for line in samples(STATUS) if 'pool="refused"' in line}
    assert {"plimsoll_workers"} == refused
    assert samples({"conditions": None, "pools": [{"name": "b", "verified": None}]}) == set()


def test_an_object_that_is_gone_takes_its_lines_with_it() -> None:
    assert samples(STATUS, None) == set()
    assert samples(STATUS, {}) == set()
