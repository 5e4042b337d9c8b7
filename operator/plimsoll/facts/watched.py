"""Which workers are watched, and what does one look at them give?

Time stamps are epoch seconds: of the source where it has its own, of the answer where it has none.
"""

import math
from typing import NamedTuple

from plimsoll.facts.series import EngineSample, FloorBin, LatencyBin


class WatchedWorker(NamedTuple):
    """One worker: whom to ask about it, and what its history needs beside the figures."""

    namespace: str
    deployment: str
    pool: str
    pod: str
    pod_uid: str
    container: str
    """The container whose memory counts."""
    engine: str
    """As in the app.kubernetes.io/name label: vllm, llama.cpp."""
    node: str = ""
    kubelet: str = ""
    """Host and port of its node's kubelet; empty where there is none to ask."""
    address: str = ""
    """Host and port of its engine; empty until it has started."""
    started_seconds: float | None = None
    """Start of the container, as the pod's status says."""
    ready_seconds: float | None = None
    """Since when it is Ready."""
    limit_bytes: int | None = None
    """Memory limit of the container; the node's allocatable where it has none."""
    limit_is_node: bool = False
    cache_cap_bytes: int = 0
    """Declared caps of caches in host memory."""
    is_healthy: bool | None = None
    """What the kubelet's readiness probe of the engine's /health says."""


class MemorySample(NamedTuple):
    """Resident memory of one container at one time."""

    pod_uid: str
    container: str
    started_seconds: float
    """Start of the container, as the source says."""
    at_seconds: float
    resident_bytes: int
    """Anonymous memory and swap."""


class Bucket(NamedTuple):
    """One bucket of a histogram, as Prometheus counts: everything up to its bound."""

    bound: float
    """Upper bound, infinity in the last one."""
    total: float
    """Observations up to it."""


Buckets = tuple[Bucket, ...]
"""By rising bound."""


class EngineReading(NamedTuple):
    """One scrape of one worker's engine."""

    pod_uid: str
    sample: EngineSample
    ttft: Buckets = ()
    """Times to first token in seconds since the engine started; empty where it does not say."""


class PastLife(NamedTuple):
    """What was kept of one container's life, here or in Prometheus."""

    pod_uid: str
    container: str
    started_seconds: float
    """As the memory source says."""
    bins: tuple[FloorBin, ...] = ()
    latencies: tuple[LatencyBin, ...] = ()


class WorkerNow(NamedTuple):
    """One worker's newest figures; None where they are not known, or no longer."""

    worker: WatchedWorker
    resident_bytes: int | None = None
    ttft_p95_seconds: float | None = None
    kv_used: float | None = None


def gained(before: Buckets, after: Buckets) -> Buckets:
    """What a histogram gained between two scrapes; empty when it cannot be told: other buckets, or a
    count that fell because the engine began anew."""
    if not before or [b.bound for b in before] != [b.bound for b in after]:
        return ()
    gain = tuple(
        Bucket(now.bound, now.total - then.total) for then, now in zip(before, after, strict=True)
    )
    return () if any(bucket.total < 0 for bucket in gain) else gain


def added(one: Buckets, other: Buckets) -> Buckets:
    """Both together; where their buckets differ, the newer alone."""
    if [b.bound for b in one] != [b.bound for b in other]:
        return other
    return tuple(Bucket(a.bound, a.total + b.total) for a, b in zip(one, other, strict=True))


def quantile(buckets: Buckets, share: float) -> float | None:
    """The value below which this share lies, straight within its bucket, as histogram_quantile of
    Prometheus has it: in the last bucket the highest finite bound, a lower bound of the truth.

    None without observations, or without a finite bucket.
    """
    if len(buckets) < 2 or not math.isinf(buckets[-1].bound) or buckets[-1].total <= 0:
        return None
    rank = share * buckets[-1].total
    below = Bucket(0.0, 0.0)
    for bucket in buckets:
        if bucket.total >= rank:
            if math.isinf(bucket.bound):
                return below.bound
            inside = bucket.total - below.total
            part = (rank - below.total) / inside if inside > 0 else 1.0
            return below.bound + (bucket.bound - below.bound) * part
        below = bucket
    return None
