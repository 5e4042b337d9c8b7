"""What does a worker's pod say of its engine: where it answers, since when, and what memory it may take?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from plimsoll.decide import Manifest
from plimsoll.facts.worker import ContainerEnd
from plimsoll.render.labels import NAME_LABEL, PLAN_ANNOTATION
from plimsoll.render.pod import CONTAINER_NAME, PORT_NAME
from plimsoll.units import GIB, MIB, parse_bytes

CACHE_FLAGS: Final = {
    "--cache-ram": ("--cache-ram", MIB),
    "-cram": ("--cache-ram", MIB),
    "--mm-processor-cache-gb": ("--mm-processor-cache-gb", GIB),
}
"""Flags that cap a cache in host memory, their long name and bytes of their unit: ggml-org/llama.cpp#16391; vLLM 0.33.0
vllm/config/multimodal.py."""
CANNOT_BEGIN: Final = frozenset({
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip
"""Why a container waits that will not run by itself (Kubernetes 1.37, pkg/kubelet/images/types.go and
kuberuntime/kuberuntime_container.go)."""
_KEPT_OF_CONTAINER: Final = ("name", "args", "ports", "resources")


def engine_facts(pod: Manifest) -> dict[str, Any]:
    """The fields of WorkerFacts that concern the engine's container; none for a pod without one."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    spec = pod.get("spec") or {}
    container = _named(spec.get("containers"), CONTAINER_NAME)
    if container is None:
        return {}
    seen = _named(status.get("containerStatuses"), CONTAINER_NAME) or {}
    has_started = seen.get("started") is True
    running = (seen.get("state") or {}).get("running") or {}
    host, port = status.get("podIP"), _port(container)
    host = f"[{host}]" if host and ":" in host else host
    return {
        "container": CONTAINER_NAME,
        "engine": (metadata.get("labels") or {}).get(NAME_LABEL, ""),
        "address": f"{host}:{port}" if host and port and has_started else None,
        "started_seconds": seconds_of(running.get("startedAt")),
        "ready_seconds": _ready_seconds(status),
        "memory_limit_bytes": _memory_limit(container),
        "cache_cap_bytes": cache_cap_bytes(container.get("args") or ()),
        "is_healthy": bool(seen.get("ready")) if has_started else None,
        "plan_id": (metadata.get("annotations") or {}).get(PLAN_ANNOTATION, ""),
        "restarts": seen.get("restartCount") or 0,
        "end": container_end(pod),
    }


def container_end(pod: Manifest) -> ContainerEnd | None:
    """How the engine's container ended last, or why it cannot begin; None while it has had no end."""
    status = pod.get("status") or {}
    seen = _named(status.get("containerStatuses"), CONTAINER_NAME) or {}
    state, before = seen.get("state") or {}, seen.get("lastState") or {}
    restarts = int(seen.get("restartCount") or 0)
    pod_reason = str(status.get("reason") or "") if status.get("phase") == "Failed" else ""
    waiting = state.get("waiting") or {}
    now, last = state.get("terminated"), before.get("terminated")
    ended = now or last or {}
    # restartCount counts the lives before the newest container, dead or alive
    life = max(0, restarts - 1) if last and state.get("running") else restarts
    if not ended and not pod_reason and waiting.get("reason") not in CANNOT_BEGIN:
        return None
    is_stuck = waiting.get("reason") in CANNOT_BEGIN
    told = waiting if is_stuck else ended
    started, finished = seconds_of(ended.get("startedAt")), seconds_of(ended.get("finishedAt"))
    now_running = seconds_of((state.get("running") or {}).get("startedAt"))
    was_ready, unready = _readiness(status, started, finished, now_running)
    return ContainerEnd(
        life=life,
        exit_code=None if is_stuck else ended.get("exitCode"),
        signal=0 if is_stuck else ended.get("signal") or 0,
        reason=str(told.get("reason") or ""),
        message=str(told.get("message") or ""),
        pod_reason=pod_reason,
        pod_message=str(status.get("message") or "") if pod_reason else "",
        started_seconds=None if is_stuck else started,
        finished_seconds=None if is_stuck else finished,
        was_ready=None if is_stuck else was_ready,
        unready_seconds=None if is_stuck else unready,
        engine=(pod["metadata"].get("labels") or {}).get(NAME_LABEL, ""),
    )


def _readiness(
    status: Mapping[str, Any],
    started: float | None,
    finished: float | None,
    next_started: float | None,
) -> tuple[bool | None, float | None]:
    """Whether the life between these times was ever Ready, and how long before its end that was over.

    The pod's condition remembers one change only. Not Ready since before this life began: it never was.
    Not Ready since later than that: it was. A change in the next life has covered it up.
    """
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    changed = seconds_of((ready or {}).get("lastTransitionTime"))
    if ready is None or changed is None or started is None or finished is None:
        return None, None
    if next_started is not None and changed >= next_started:
        return None, None
    if changed <= started:
        return (None, None) if ready.get("status") == "True" else (False, None)
    # still Ready: seen between its end and the kubelet's next look
    is_seen_early = ready.get("status") == "True"
    return True, 0.0 if is_seen_early else max(0.0, finished - changed)


def essence_of_containers(pod: Manifest) -> list[Manifest]:
    """Only what `engine_facts` reads."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    return [{key: each[key] for key in _KEPT_OF_CONTAINER if key in each} for each in containers]


def cache_cap_bytes(args: Any) -> int:
    """Caps of caches in host memory that the arguments declare; the last of a flag counts."""
    caps: dict[str, int] = {}
    words = [str(word) for word in args]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name not in CACHE_FLAGS:
            continue
        try:
            amount = float(value if equals else following)
        except ValueError:
            continue
        if math.isfinite(amount) and amount >= 0:
            long_name, unit_bytes = CACHE_FLAGS[name]
            caps[long_name] = int(amount * unit_bytes)
    return sum(caps.values())


def seconds_of(stamp: object) -> float | None:
    """A time as the API server writes it, in epoch seconds."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else None
    except ValueError:
        return None


def _ready_seconds(status: Mapping[str, Any]) -> float | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return seconds_of(condition.get("lastTransitionTime"))
    return None


def _memory_limit(container: Mapping[str, Any]) -> int | None:
    limits = (container.get("resources") or {}).get("limits") or {}
    try:
        return parse_bytes(limits["memory"])
    except (KeyError, ValueError, AttributeError):
        return None


def _port(container: Mapping[str, Any]) -> int | None:
    port = (_named(container.get("ports"), PORT_NAME) or {}).get("containerPort")
    return port if isinstance(port, int) else None


def _named(things: Any, name: str) -> Any:
    return next((each for each in things or () if each.get("name") == name), None)
