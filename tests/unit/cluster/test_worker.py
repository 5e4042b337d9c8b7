"""What a worker's pod says of its engine."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cluster.observe import _worker_manifest, worker_of
from plimsoll.cluster.worker import cache_cap_bytes, seconds_of
from plimsoll.facts.worker import ContainerEnd

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


def ended(
    *,
    state: dict[str, Any],
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    ready: tuple[str, str] = ("False", NOON),
    **status: Any,
) -> dict[str, Any]:
    """A worker whose engine has ended."""
    seen = {
        "name": "engine", "ready": False, "started": False, "restartCount": restarts, "state": state,
    }  # fmt: skip
    if last is not None:
        seen["lastState"] = {"terminated": last}
    told = {"type": "Ready", "status": ready[0], "lastTransitionTime": ready[1]}
    return pod(status={"containerStatuses": [seen], "conditions": [told], **status})


KILLED = {
    "exitCode": 137, "reason": "OOMKilled", "message": "last words", "signal": 9,
    "startedAt": "2026-11-29T12:10:00Z", "finishedAt": "2026-11-29T12:20:00Z",
}  # fmt: skip
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


def end_of(manifest: dict[str, Any]) -> ContainerEnd:
    end = worker_of(manifest).end
    assert end is not None
    return end


def test_a_running_worker_has_had_no_end() -> None:
    assert worker_of(pod()).end is None


@pytest.mark.parametrize(
    ("state", "last", "restarts", "life"),
    [
        ({"terminated": KILLED}, None, 0, 0),
        (BACK_OFF, KILLED, 0, 0),
        ({"running": {"startedAt": "2026-11-29T12:20:10Z"}}, KILLED, 1, 0),
        ({"terminated": KILLED}, KILLED, 3, 3),
    ],
)
def test_an_end_is_read_from_wherever_the_kubelet_keeps_it(
    state: dict[str, Any], last: dict[str, Any] | None, restarts: int, life: int
) -> None:
    end = end_of(ended(state=state, last=last, restarts=restarts))
    assert (137, "OOMKilled", 9, "last words", life) == (
        end.exit_code, end.reason, end.signal, end.message, end.life,
    )  # fmt: skip
    assert ("vllm", 600.0) == (end.engine, end.lived_seconds)


@pytest.mark.parametrize(
    ("ready", "was_ready", "unready"),
    [
        (("False", "2026-11-29T12:00:00Z"), False, None),
        (("False", "2026-11-29T12:10:00Z"), False, None),
        (("False", "2026-11-29T12:20:01Z"), True, 0.0),
        (("False", "2026-11-29T12:17:30Z"), True, 150.0),
        (("True", "2026-11-29T12:12:00Z"), True, 0.0),
    ],
)
def test_whether_it_was_ready_is_told_by_the_one_change_that_is_kept(
    ready: tuple[str, str], was_ready: bool, unready: float | None
) -> None:
    end = end_of(ended(state=BACK_OFF, last=KILLED, ready=ready))
    assert (was_ready, unready) == (end.was_ready, end.unready_seconds)


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_change_in_the_next_life_covers_up_what_was(ready: str) -> None:
    running = {"running": {"startedAt": "2026-11-29T12:21:00Z"}}
    now = ended(state=running, last=KILLED, restarts=1, ready=(ready, "2026-11-29T12:25:00Z"))
    assert (None, None) == (end_of(now).was_ready, end_of(now).unready_seconds)


def test_an_evicted_pod_says_so_even_without_a_container() -> None:
    gone = pod(
        status={
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low",
            "containerStatuses": [],
        }
    )
    end = end_of(gone)
    assert ("Evicted", "The node was low", None) == (end.pod_reason, end.pod_message, end.exit_code)


def test_an_image_that_cannot_be_had_is_an_end_before_the_beginning() -> None:
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    end = end_of(ended(state=waits))
    assert (None, "ImagePullBackOff", "not found", None) == (
        end.exit_code, end.reason, end.message, end.finished_seconds,
    )  # fmt: skip
    assert worker_of(ended(state={"waiting": {"reason": "ContainerCreating"}})).end is None


def test_the_plan_it_runs_is_kept_of_its_annotations_and_nothing_else() -> None:
    manifest = pod()
    manifest["metadata"]["annotations"] = {"plimsoll.dev/plan": "sha256:1", "other": "x"}
    assert "sha256:1" == worker_of(manifest).plan_id
    kept = _worker_manifest(manifest)
    assert kept is not None
    assert {"plimsoll.dev/plan": "sha256:1"} == kept["metadata"]["annotations"]
