"""What Prometheus is told of workers: what is known now, and nothing else."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from plimsoll.facts.watched import WatchedWorker, WorkerNow
from plimsoll.telemetry.workers import WorkerMetrics


def lines(registry: CollectorRegistry, *beginnings: str) -> list[str]:
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if line.startswith(beginnings)]


def test_a_figure_is_there_while_it_is_known(worker: WatchedWorker) -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    labels = '{deployment="chat",namespace="team",pod="chat-h100-1",pool="h100"}'
    metrics.watched([WorkerNow(worker, 3 << 30, None, 0.5)], 1.5)
    assert [
        f"plimsoll_worker_resident_bytes{labels} 3.221225472e+09",
        f"plimsoll_worker_kv_used_ratio{labels} 0.5",
    ] == lines(registry, "plimsoll_worker_")
    metrics.watched([WorkerNow(worker, None, 0.25, None)], 1.5)
    assert [f"plimsoll_worker_ttft_p95_seconds{labels} 0.25"] == lines(registry, "plimsoll_worker_")
    metrics.watched([], 0.5)
    assert [] == lines(registry, "plimsoll_worker_")


def test_zero_is_a_figure_too(worker: WatchedWorker) -> None:
    registry = CollectorRegistry()
    WorkerMetrics(registry).watched([WorkerNow(worker, kv_used=0.0)], 0.1)
    assert 1 == len(lines(registry, "plimsoll_worker_kv_used_ratio{"))


def test_scrapes_are_counted_by_source_and_reason() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    metrics.scraped("kubelet", 0.02)
    metrics.missed("kubelet", "timeout")
    metrics.missed("engine", "absent", 3)
    metrics.watched((), 2.5)
    assert [
        'plimsoll_scrape_failures_total{reason="timeout",source="kubelet"} 1.0',
        'plimsoll_scrape_failures_total{reason="absent",source="engine"} 3.0',
    ] == lines(registry, "plimsoll_scrape_failures_total")
    assert ['plimsoll_scrape_seconds_count{source="kubelet"} 1.0'] == lines(
        registry, "plimsoll_scrape_seconds_count"
    )
    assert ["plimsoll_watched_workers 0.0", "plimsoll_watch_round_seconds 2.5"] == lines(
        registry, "plimsoll_watch"
    )
