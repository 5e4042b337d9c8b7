"""What Prometheus reads."""

from __future__ import annotations

import socket
import urllib.request

from prometheus_client import generate_latest

from plimsoll import __version__
from plimsoll.decide import Key
from plimsoll.telemetry.export import Metrics, budgets_of, serve

KEY = Key(namespace="team", name="chat")
STATUS = {
    "pools": [
        {"name": "a", "plan": {"kv": {"poolBytesPerCard": 10}, "concurrency": {"maxNumSeqs": 3}}},
        {"name": "refused"},
    ]
}


def text(metrics: Metrics) -> list[str]:
    """All samples."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_a_pool_with_a_plan_has_a_budget_and_one_without_has_no_numbers() -> None:
    assert {"a": (10, 3)} == budgets_of(STATUS)
    metrics = Metrics()
    metrics.planned(KEY, STATUS)
    samples = text(metrics)
    where = 'deployment="chat",namespace="team",pool="a"'
    assert f"plimsoll_kv_budget_bytes{{{where}}} 10.0" in samples
    assert f"plimsoll_planned_sequences{{{where}}} 3.0" in samples
    assert not any("refused" in sample for sample in samples)


def test_pools_and_objects_that_go_take_their_numbers_with_them() -> None:
    metrics = Metrics()
    metrics.planned(KEY, STATUS)
    metrics.planned(KEY, {"pools": []})
    assert not any("chat" in sample for sample in text(metrics))
    metrics.planned(KEY, STATUS)
    metrics.planned(KEY, None)
    metrics.planned(KEY, None)
    assert not any("chat" in sample for sample in text(metrics))


def test_only_writes_that_were_accepted_count_as_writes() -> None:
    metrics = Metrics(queue_keys=lambda: 7.0)
    metrics.called("patch", "Deployment", 200)
    metrics.called("patch", "Deployment", 409)
    metrics.called("list", "Pod", 200)
    metrics.visited("written", 0.1)
    metrics.resynced(1_795_970_000.0, 5)
    metrics.leads(True)
    samples = text(metrics)
    for expected in (
        'plimsoll_api_writes_total{kind="Deployment",verb="patch"} 1.0',
        'plimsoll_api_requests_total{status="409",verb="patch"} 1.0',
        'plimsoll_reconciles_total{result="written"} 1.0',
        "plimsoll_reconcile_seconds_count 1.0",
        "plimsoll_resyncs_total 1.0",
        "plimsoll_last_resync_timestamp_seconds 1.79597e+09",
        "plimsoll_deployments 5.0",
        "plimsoll_queue_keys 7.0",
        "plimsoll_leading 1.0",
        f'plimsoll_build_info{{version="{__version__}"}} 1.0',
    ):
        assert expected in samples
    assert not any("_created" in sample for sample in samples)


def test_they_are_served_and_the_port_is_given_back() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        stop = serve(Metrics(), "127.0.0.1", port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"plimsoll_build_info" in answer.read()
        stop()
