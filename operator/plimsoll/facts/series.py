"""What has been seen of a worker over time?

Seconds are epoch seconds of the source's own time stamps. What was not seen, is stale or makes no sense
is None: never zero.
"""

from typing import NamedTuple


class Sample(NamedTuple):
    """One value at one time."""

    at_seconds: float
    value: float


Series = tuple[Sample, ...]
"""Samples in the order of time."""


class FloorBin(NamedTuple):
    """Ten minutes of one container: the floor of its memory and the load it stood under."""

    at_seconds: float
    """End of the bin."""
    floor_bytes: int
    """10th percentile of the resident bytes (anonymous and swap); a bin of fewer than 5 samples is none."""
    load: float | None = None
    """Mean requests in flight."""
    peak_load: float | None = None
    """Highest bin mean of the load since the container started, this bin included."""
    work: float | None = None
    """Tokens (or requests, where the engine counts no tokens) done since the container started."""


class LatencyBin(NamedTuple):
    """Ten minutes of an engine's time to first token, from what its histogram gained."""

    at_seconds: float
    """End of the bin."""
    requests: int
    """First tokens in the bin."""
    ttft_p50_seconds: float | None = None
    ttft_p95_seconds: float | None = None


class EngineSample(NamedTuple):
    """One scrape of an engine, whichever it is."""

    at_seconds: float
    running: float | None = None
    """Requests in flight."""
    waiting: float | None = None
    """Requests that wait."""
    waiting_for_capacity: float | None = None
    """Those of them that wait for KV room or a slot."""
    preemptions: float | None = None
    """Preempted requests since the start (counter)."""
    kv_used: float | None = None
    """Part of the KV pool in use, 0 to 1."""
    prompt_tokens: float | None = None
    """Prompt tokens done since the start (counter)."""
    generated_tokens: float | None = None
    """Generated tokens since the start (counter)."""
    requests: float | None = None
    """Finished requests since the start (counter)."""
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    """Tokens asked of and found in the prefix cache since the start (counters)."""
    healthy: bool | None = None
    """What the engine's own health endpoint says."""


class ContainerLife(NamedTuple):
    """One start of one container: a restart is another life and another series."""

    pod_uid: str
    container: str
    started_seconds: float


class WorkerHistory(NamedTuple):
    """All that is known of one worker's memory, latency and engine."""

    life: ContainerLife
    pod: str
    pool: str = ""
    node: str = ""
    ready_seconds: float | None = None
    """Since when it is Ready; None when it is not, or unknown."""
    limit_bytes: int | None = None
    """Memory limit of the container; the node's allocatable where it has none."""
    limit_is_node: bool = False
    """Whether the limit is the node's."""
    cache_cap_bytes: int = 0
    """Declared caps of caches in host memory that may still fill (llama.cpp's --cache-ram and the like)."""
    bins: tuple[FloorBin, ...] = ()
    """At most 72 hours, oldest first."""
    latencies: tuple[LatencyBin, ...] = ()
    """As far back as the bins."""
    engine: tuple[EngineSample, ...] = ()
    """The last two hours."""
    resident: Series = ()
    """Resident bytes of the last hour, as sampled."""
    newest_seconds: float | None = None
    """When memory was last seen; None when never."""
