"""What a worker's pod says of its engine."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cluster.observe import worker_of
from plimsoll.cluster.worker import cache_cap_bytes, seconds_of

NOON = "2026-11-29T12:00:00Z"
NOON_SECONDS = 1_795_953_600.0
GIB, MIB = 1 << 30, 1 << 20


def pod(*, status: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """A worker as we render it, running for a while."""
    engine = {
        "name": "engine",
        "args": ["--cache-ram", "2048"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"memory": "64Gi"}},
    } | container
    seen = {
        "phase": "Running",
        "podIP": "10.1.0.7",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOON}],
        "containerStatuses": [
            {
                "name": "engine", "ready": True, "started": True,
                "state": {"running": {"startedAt": "2026-11-29T11:50:00Z"}},
            }
        ],
    }  # fmt: skip
    labels = {"plimsoll.dev/pool": "h100", "app.kubernetes.io/name": "vllm"}
    return {
        "metadata": {"name": "w", "uid": "u", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "proxy"}, engine]},
        "status": seen | (status or {}),
    }


def test_a_running_worker_is_known_with_all_that_watching_needs() -> None:
    seen = worker_of(pod())
    assert ("engine", "vllm", "10.1.0.7:8000") == (seen.container, seen.engine, seen.address)
    assert (NOON_SECONDS - 600, NOON_SECONDS) == (seen.started_seconds, seen.ready_seconds)
    assert (64 * GIB, 2 * GIB, True) == (
        seen.memory_limit_bytes, seen.cache_cap_bytes, seen.is_healthy,
    )  # fmt: skip


def test_an_engine_that_has_not_started_has_no_address_and_no_health() -> None:
    loading = {"name": "engine", "ready": False, "started": False, "state": {"running": {}}}
    seen = worker_of(pod(status={"containerStatuses": [loading]}))
    assert (None, None, None) == (seen.address, seen.is_healthy, seen.started_seconds)


def test_an_engine_that_fails_its_probe_is_not_healthy_and_still_asked() -> None:
    sick = {"name": "engine", "ready": False, "started": True, "state": {"running": {}}}
    seen = worker_of(pod(status={"containerStatuses": [sick], "conditions": []}))
    assert ("10.1.0.7:8000", False, None) == (seen.address, seen.is_healthy, seen.ready_seconds)


def test_an_address_of_the_sixth_version_has_brackets() -> None:
    assert "[fd00::7]:8000" == worker_of(pod(status={"podIP": "fd00::7"})).address


def test_what_is_missing_is_not_known() -> None:
    bare = worker_of(pod(args=[], ports=[], resources={}))
    assert (None, None, 0) == (bare.address, bare.memory_limit_bytes, bare.cache_cap_bytes)
    stranger = worker_of({"metadata": {"name": "w", "uid": "u"}, "spec": {}})
    assert ("", None) == (stranger.container, stranger.address)


@pytest.mark.parametrize(
    ("args", "expected_bytes"),
    [
        (["--cache-ram", "2048"], 2048 * MIB),
        (["--cache-ram=512"], 512 * MIB),
        (["-cram", "1", "--cache-ram", "2048"], 2048 * MIB),
        (["--mm-processor-cache-gb", "0.5"], GIB // 2),
        (["--cache-ram", "1024", "--mm-processor-cache-gb=1"], 2 * GIB),
        (["--cache-ram", "-1"], 0),
        (["--cache-ram"], 0),
        (["--cache-ram", "lots"], 0),
        (["--model", "--cache-ram"], 0),
        ([], 0),
    ],
)
def test_declared_caches_are_added_up(args: list[str], expected_bytes: int) -> None:
    assert expected_bytes == cache_cap_bytes(args)


def test_what_is_no_time_is_none() -> None:
    assert NOON_SECONDS == seconds_of(NOON)
    assert [None, None, None] == [seconds_of(each) for each in ("noon", None, 7)]
