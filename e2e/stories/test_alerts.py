"""Does each alert fire when it should, and stay silent when all is well? Prometheus' own test of rules judges."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from controlplane.fetch import prometheus_programs
from installation import CHART
from prometheus_server import why_not

DEPLOYMENT: Final = 'namespace="team",deployment="chat"'
WORKER: Final = f'{DEPLOYMENT},pool="h100",pod="chat-h100-0"'
HOUR: Final = 60


class Story(NamedTuple):
    """Series in promtool's words, one value a minute: those of trouble, and those of a good day."""

    alert: str
    after_minutes: int
    """By when it must fire."""
    trouble: dict[str, str]
    well: dict[str, str]


def condition(kind: str, status: str, reason: str) -> str:
    return f'plimsoll_condition{{{DEPLOYMENT},type="{kind}",status="{status}",reason="{reason}"}}'


def visits(result: str) -> str:
    return f'plimsoll_reconciles_total{{result="{result}"}}'


def answers(status: str) -> str:
    return f'plimsoll_api_requests_total{{verb="patch",status="{status}"}}'


def gate(status: str) -> str:
    return f'plimsoll_gate_requests_total{{lane="chat",status="{status}"}}'


ON: Final = "1x1600"
STORIES: Final = (
    Story("PlimsollDown", 12, {}, {"plimsoll_build_info": ON}),
    Story(
        "PlimsollNobodyLeads", 8, {"plimsoll_leading": "0x1600"},
        {'plimsoll_leading{pod="a"}': ON, 'plimsoll_leading{pod="b"}': "0x1600"},
    ),
    Story(
        "PlimsollResyncOverdue", 40,
        {"plimsoll_last_resync_timestamp_seconds": "0x1600", "plimsoll_leading": ON},
        {"plimsoll_last_resync_timestamp_seconds": "0+60x1600", "plimsoll_leading": ON},
    ),
    Story(
        "PlimsollVisitsFail", 40, {visits("error"): "0+3x1600", visits("unchanged"): "0+7x1600"},
        {visits("error"): "0+1x1600", visits("unchanged"): "0+9x1600"},
    ),
    Story(
        "PlimsollSlow", 40,
        {
            'plimsoll_reconcile_seconds_bucket{le="30"}': "0+1x1600",
            'plimsoll_reconcile_seconds_bucket{le="60"}': "0+9x1600",
            'plimsoll_reconcile_seconds_bucket{le="+Inf"}': "0+9x1600",
        },
        {
            'plimsoll_reconcile_seconds_bucket{le="1"}': "0+9x1600",
            'plimsoll_reconcile_seconds_bucket{le="60"}': "0+9x1600",
            'plimsoll_reconcile_seconds_bucket{le="+Inf"}': "0+9x1600",
        },
    ),
    Story("PlimsollForbidden", 20, {answers("403"): "0+1x1600"}, {answers("409"): "0+1x1600"}),
    Story(
        "PlimsollApiErrors", 40, {answers("0"): "0+1x1600", answers("200"): "0+4x1600"},
        {answers("404"): "0+4x1600", answers("200"): "0+4x1600"},
    ),
    Story(
        "PlimsollNotPlanned", 20, {condition("Planned", "False", "KvBudgetExceeded"): ON},
        {condition("Planned", "True", "PlanAccepted"): ON},
    ),
    Story(
        "PlimsollNotAvailable", 20,
        {
            # the reason changes on the way, and the clock goes on
            condition("Available", "False", "WarmingUp"): "1x8 _x1600",
            condition("Available", "False", "WorkersFail"): "_x8 1x1600",
        },
        {condition("Available", "False", "ScaledToZero"): ON},
    ),
    Story(
        "PlimsollNotReady", 70, {condition("Ready", "False", "WaitingForCards"): ON},
        {condition("Ready", "False", "WarmingUp"): "1x30 _x1600"},
    ),
    Story(
        "PlimsollStalled", 5, {condition("Stalled", "True", "OutOfSteps"): ON},
        {condition("Ready", "True", "AllWorkersReady"): ON},
    ),
    Story(
        "PlimsollHoldsLess", 20, {condition("PlanVerified", "False", "HoldsLess"): ON},
        {condition("PlanVerified", "Unknown", "NotVerifiedYet"): ON},
    ),
    Story(
        "PlimsollWorkerNearItsLimit", 20,
        {f"plimsoll_worker_time_to_limit_seconds{{{WORKER}}}": "7200x1600"},
        {f"plimsoll_worker_time_to_limit_seconds{{{WORKER}}}": "86400x1600"},
    ),
    Story(
        "PlimsollWorkerHangs", 20, {f'plimsoll_worker_verdict{{{WORKER},verdict="Hung"}}': ON},
        {f'plimsoll_worker_verdict{{{WORKER},verdict="Pressure"}}': ON},
    ),
    Story(
        "PlimsollWorkersUnseen", 70, {f'plimsoll_worker_verdict{{{WORKER},verdict="Unknown"}}': ON},
        {
            f'plimsoll_worker_verdict{{{WORKER},verdict="Unknown"}}': ON,
            f'plimsoll_worker_verdict{{{WORKER},verdict="Steady"}}': ON,
        },
    ),
    Story(
        "PlimsollRecycleHeldBack", 7 * HOUR,
        {f'plimsoll_recycle_hold{{{DEPLOYMENT},reason="RecycleBlocked"}}': ON},
        {f'plimsoll_recycle_hold{{{DEPLOYMENT},reason="LimitIsFar"}}': ON},
    ),
    Story(
        "PlimsollOftenRecycled", 24 * HOUR,
        {f'plimsoll_recycles_total{{{DEPLOYMENT},reason="Growth"}}': "0+0.005x1600"},
        {f'plimsoll_recycles_total{{{DEPLOYMENT},reason="Growth"}}': "0x700 1x900"},
    ),
    Story(
        "PlimsollGateRefuses", 40, {gate("429"): "0+1x1600", gate("200"): "0+9x1600"},
        {gate("429"): "0+1x1600", gate("200"): "0+99x1600"},
    ),
    Story("PlimsollGateSilent", 8, {"plimsoll_gate_answers": "0x1600"}, {"plimsoll_gate_answers": ON}),
)  # fmt: skip


def rule_test(story: Story, series: dict[str, str], firing: int) -> dict[str, Any]:
    """One test in promtool's form: how often does the alert fire then?"""
    counted = f'count(ALERTS{{alertname="{story.alert}",alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{story.alert}: {firing}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": counted,
                "eval_time": f"{story.after_minutes}m",
                "exp_samples": [{"labels": "{}", "value": firing}],
            }
        ],
    }


def test_every_alert_has_its_story() -> None:
    groups = yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    assert names == [story.alert for story in STORIES]


def test_alerts_fire_in_trouble_and_on_no_good_day(tmp_path: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    tests = [rule_test(story, story.trouble, 1) for story in STORIES]
    tests += [rule_test(story, story.well, 0) for story in STORIES]
    path = tmp_path / "tests.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(CHART / "alerts.yaml")],
                "evaluation_interval": "1m",
                "tests": tests,
            }
        )
    )
    said = subprocess.run(
        [prometheus_programs() / "promtool", "test", "rules", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
