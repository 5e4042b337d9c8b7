"""What is a worker, as the cluster shows it?"""

from __future__ import annotations

from plimsoll.facts.record import Record


class ContainerEnd(Record):
    """How a worker's container ended, or why it cannot begin, as the pod's status tells it."""

    life: int = 0
    """Which life of the container ended, counted from 0: its restarts before that."""
    exit_code: int | None = None
    """Exit code; None where no process ran."""
    signal: int = 0
    """Signal that ended it, where the runtime tells one; 0 otherwise."""
    reason: str = ""
    """The kubelet's word for it: OOMKilled, Error, Completed, or why it waits, e.g. ErrImagePull."""
    message: str = ""
    """Its last words: the termination message, or the end of its log (2048 bytes or 80 lines at most)."""
    pod_reason: str = ""
    """Why the pod as a whole ended, e.g. Evicted; empty while it lives."""
    pod_message: str = ""
    """The same as a sentence."""
    started_seconds: float | None = None
    """Start of that life, epoch seconds."""
    finished_seconds: float | None = None
    """Its end, epoch seconds."""
    was_ready: bool | None = None
    """Whether it was Ready in that life; None where that can no longer be told."""
    unready_seconds: float | None = None
    """How long before its end it stopped being Ready; about 0 when it died while it served, None when it
    was never Ready or that cannot be told."""
    engine: str = ""
    """Which engine: vllm, llama.cpp; empty when not known."""

    @property
    def lived_seconds(self) -> float | None:
        """How long it ran."""
        if self.started_seconds is None or self.finished_seconds is None:
            return None
        return self.finished_seconds - self.started_seconds


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
    plan_id: str = ""
    """Digest of the plan it runs, as its annotation says; empty where there is none."""
    restarts: int = 0
    """How often its engine's container was started anew."""
    end: ContainerEnd | None = None
    """The newest end of its engine's container; None while it has had none."""
