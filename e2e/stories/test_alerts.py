"""Does each alert fire when it should, and stay silent when all is well? Prometheus' own test of rules judges."""

from __future__ import annotations

import asyncio
import http.client
import re
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from controlplane.fetch import prometheus_programs
from controlplane.haproxy import SUITES
from gate_box import GateBox, free_port
from installation import CHART
from patience import Patience
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from prometheus_server import why_not
from stand_ins.batching import Engine, Pinned

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


GATE: Final = f'{DEPLOYMENT},pod="chat-gate-0"'


def gate(status: str, reason: str = "") -> str:
    told = f'lane="chat",status="{status}",reason="{reason}"'
    return f"plimsoll_gate_requests_total{{{GATE},{told}}}"


def promised(what: str, gates: int = 0) -> str:
    return f'plimsoll_gate_{what}{{{DEPLOYMENT},pod="chat-gate-{gates}",worker="chat-h100-0"}}'


def servers(deployment: str = DEPLOYMENT) -> str:
    return f'haproxy_backend_active_servers{{{deployment},pod="chat-gate-0",proxy="pool"}}'


def waiting(name: str) -> str:
    return f"{name}{{{WORKER}}}"


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
        "PlimsollGateDown", 8,
        {f"plimsoll_ready_gates{{{DEPLOYMENT}}}": "0x1600", f"plimsoll_gate_leads{{{DEPLOYMENT}}}": ON},
        # being made, or replaced within the time that streams get
        {
            f"plimsoll_ready_gates{{{DEPLOYMENT}}}": "0x4 1x1600",
            f"plimsoll_gate_leads{{{DEPLOYMENT}}}": "0x2 1x1600",
        },
    ),
    Story(
        "PlimsollGateNotReady", 20,
        {f"plimsoll_gates{{{DEPLOYMENT}}}": "2x1600", f"plimsoll_ready_gates{{{DEPLOYMENT}}}": ON},
        {f"plimsoll_gates{{{DEPLOYMENT}}}": "0x1600", f"plimsoll_ready_gates{{{DEPLOYMENT}}}": ON},
    ),
    Story(
        "PlimsollGateWithoutWorker", 8,
        {servers(): "0x1600", f'plimsoll_ready_workers{{{DEPLOYMENT},pool="h100"}}': ON},
        # scaled to zero, and somebody else's HAProxy
        {
            servers(): "0x1600",
            f'plimsoll_ready_workers{{{DEPLOYMENT},pool="h100"}}': "0x1600",
            servers('namespace="web"'): "0x1600",
        },
    ),
    Story(
        "PlimsollGateHasNoPlace", 12, {f"plimsoll_gate_unseated_workers{{{GATE}}}": ON},
        {f"plimsoll_gate_unseated_workers{{{GATE}}}": "1x5 0x1600"},
    ),
    Story(
        "PlimsollGateOverPlan", 8,
        {
            promised("promised_tokens"): "30000x1600",
            promised("promised_tokens", 1): "20000x1600",
            promised("kv_tokens"): "40000x1600",
            promised("kv_tokens", 1): "40000x1600",
        },
        {
            promised("promised_tokens"): "20000x1600",
            promised("promised_tokens", 1): "20000x1600",
            promised("kv_tokens"): "40000x1600",
            promised("kv_tokens", 1): "40000x1600",
            promised("promised_sequences"): "64x1600",
            promised("sequences"): "64x1600",
        },
    ),
    Story(
        "PlimsollGateOverPlan", 8,
        {promised("promised_sequences"): "65x1600", promised("sequences"): "64x1600"},
        {promised("promised_sequences"): "65x4 64x1600", promised("sequences"): "64x1600"},
    ),
    Story(
        "PlimsollGateSilent", 8, {f"plimsoll_gate_answers{{{GATE}}}": "0x1600"},
        {f"plimsoll_gate_answers{{{GATE}}}": ON},
    ),
    Story(
        "PlimsollGateKeeperGone", 8,
        {f"haproxy_process_uptime_seconds{{{GATE}}}": "0+60x1600"},
        {
            f"haproxy_process_uptime_seconds{{{GATE}}}": "0+60x1600",
            f"plimsoll_gate_answers{{{GATE}}}": "_x3 0x1600",
            'haproxy_process_uptime_seconds{namespace="web",pod="ingress-0"}': "0+60x1600",
        },
    ),
    Story(
        "PlimsollGateRefuses", 40,
        {
            # 4 % and 1.5 %: together too many, and told of the one that counts
            gate("429", "queue_full"): "0+8x1600",
            gate("429", "queue_wait"): "0+3x1600",
            gate("200"): "0+189x1600",
        },
        {
            gate("429", "queue_full"): "0+2x1600",
            gate("429", "queue_wait"): "0+2x1600",
            gate("200"): "0+96x1600",
            gate("503", "no_worker"): "0+20x1600",
        },
    ),
    Story(
        "PlimsollEngineQueues", 12,
        {waiting("vllm:num_requests_waiting"): "3x1600", f"plimsoll_gate_leads{{{DEPLOYMENT}}}": ON},
        # now and then, and where no gate stands before it
        {
            waiting("vllm:num_requests_waiting"): "3x7 0x1 3x7 0x1600",
            f"plimsoll_gate_leads{{{DEPLOYMENT}}}": ON,
            'llamacpp:requests_deferred{namespace="plant",deployment="edge",pod="edge-0"}': "3x1600",
        },
    ),
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
    assert names == list(dict.fromkeys(story.alert for story in STORIES))


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


def told_by(port: int) -> dict[str, float]:
    """What HAProxy's exporter on that port says, by series."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=Patience.HTTP_ANSWER)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


@pytest.mark.parametrize("suite", SUITES)
def test_a_real_haproxy_tells_what_the_alerts_ask_of_it(tmp_path: Path, suite: str) -> None:
    """With a worker and without one, in the product's own text."""
    rules = (CHART / "alerts.yaml").read_text()
    assert {"haproxy_backend_active_servers", "haproxy_process_uptime_seconds"} == set(
        re.findall(r"haproxy_\w+", rules)
    )
    text = GateText(
        lanes=(GateLane(name="chat", most_tokens=4096, answer_tokens=1024),),
        servers=(
            GateServer(name="s0", address=f"127.0.0.1:{free_port()}", slots=(8,)),
            GateServer(name="spare"),
        ),
        port=free_port(),
        metrics_port=free_port(),
    )
    engine = Engine("w0", Pinned(kv_tokens=40_000, max_num_seqs=8), lane_tokens={"chat": 4096})

    async def seen() -> dict[str, float]:
        return await asyncio.to_thread(told_by, text.metrics_port)

    async def story() -> None:
        async with GateBox(tmp_path, text, [engine], suite=suite) as box:
            found = await seen()
            assert found['haproxy_backend_active_servers{proxy="pool"}'] == 1
            assert "haproxy_process_uptime_seconds" in found
            await box.runtime.tell(["disable server pool/s0"])
            assert (await seen())['haproxy_backend_active_servers{proxy="pool"}'] == 0

    asyncio.run(story())
