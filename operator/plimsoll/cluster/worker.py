"""What does a worker's pod say of its engine: where it answers, since when, and what memory it may take?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from plimsoll.decide import Manifest
from plimsoll.render.labels import NAME_LABEL
from plimsoll.render.pod import CONTAINER_NAME, PORT_NAME
from plimsoll.units import GIB, MIB, parse_bytes

CACHE_FLAGS: Final = {
    "--cache-ram": ("--cache-ram", MIB),
    "-cram": ("--cache-ram", MIB),
    "--mm-processor-cache-gb": ("--mm-processor-cache-gb", GIB),
}
"""Flags that cap a cache in host memory, their long name and bytes of their unit: ggml-org/llama.cpp#16391; vLLM 0.33.0
vllm/config/multimodal.py."""
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
    }


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
