"""What is a worker, as the cluster shows it?"""

from __future__ import annotations

from plimsoll.facts.record import Record


class WorkerFacts(Record):
    """One pod of a pool."""

    name: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    pool: str
    """Name of the pool it belongs to."""
    node: str | None = None
    """The node it runs on; None while it waits for one."""
    phase: str = "Unknown"
    """Pod phase."""
    is_ready: bool = False
    """Whether the pod is Ready."""
    template_hash: str = ""
    """The pod-template-hash label: which revision of the pool it runs."""
    is_terminating: bool = False
    """Whether it is being deleted."""
    created_seconds: float | None = None
    """When the pod was made, epoch seconds of the API server."""
    is_in_service: bool = True
    """Whether the Service picks it; false from the moment it is drained."""
    message: str = ""
    """Why it is not running, as the scheduler or the container says."""
    container: str = ""
    """The engine's container; empty in pods that are not of our making."""
    engine: str = ""
    """Which engine it runs: vllm, llama.cpp."""
    address: str | None = None
    """Host and port of the engine; None until its container has started."""
    started_seconds: float | None = None
    """Start of the engine's container, epoch seconds; None while it does not run."""
    ready_seconds: float | None = None
    """Since when the pod is Ready, epoch seconds; None while it is not."""
    memory_limit_bytes: int | None = None
    """Memory limit of the engine's container; None without one."""
    cache_cap_bytes: int = 0
    """Declared caps of the engine's caches in host memory."""
    is_healthy: bool | None = None
    """What the kubelet's readiness probe of the engine says; None until it has started."""
