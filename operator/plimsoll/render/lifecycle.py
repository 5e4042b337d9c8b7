"""How long may a worker take to load, and how long to stop?"""

from __future__ import annotations

from typing import Final

from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.plan.records import Plan
from plimsoll.units import ceil_div, round_up

SLOW_DISK_BYTES_PER_SECOND: Final = 100 * 10**6
"""A gp3 volume gives 125 MiB/s unless paid for more (docs.aws.amazon.com/ebs, general-purpose); a
little under that, so that the slowest disk in common use still loads in time."""
ZEROED_BYTES_PER_SECOND: Final = 2**30
"""Host memory for KV blocks is filled before the engine is Ready: near 10 GiB/s for one file on a large
server (vLLM 0.33.0, v1/kv_offload/cpu/shared_offload_region.py); a tenth of that, for small ones."""
START_SECONDS: Final = 600
"""For everything but reading weights: imports, compilation and graph capture in vLLM take minutes
with an empty cache; nothing is killed for being a slow machine."""
IMAGE_PULL_SECONDS: Final = 1800
"""An engine image is 10 GB and more; before the rollout is called stuck it may be pulled."""
PROBE_PERIOD_SECONDS: Final = 10

PRE_STOP_SECONDS: Final = 10
"""Readiness does not flip on SIGTERM: vLLM answers new requests with 500 while it drains, llama.cpp
cuts running ones (measured on vLLM 0.32.0 and llama.cpp b11549). So the endpoint must be gone from
every proxy before the signal; ten seconds is what proxies are commonly given."""
TEARDOWN_SECONDS: Final = 15
"""After its drain vLLM gives workers 5 s and 5 s more (vllm/v1/executor, 0.32.0; measured: exit 6 s
after a drain of 60 s)."""
SHORTEST_GRACE_SECONDS: Final = 30
"""Kubernetes' own default."""
LIVENESS_GRACE_SECONDS: Final = 30
"""An engine that failed its liveness probe finishes no request; the drain's time would be lost."""

SHUTDOWN_TIMEOUT_FLAG: Final = "--shutdown-timeout"
"""vLLM from 0.18: seconds for requests in flight after SIGTERM; older releases abort at once."""


def startup_seconds(plan: Plan) -> int:
    """How long a worker may load before it is restarted: all weights from a slow disk, and more.

    In steps of five minutes, so that a slightly better known size of the weights moves no pods.
    """
    bytes_to_read = plan.line(ByteOwner.WEIGHTS) * plan.cards
    if plan.engine is EngineName.LLAMA_CPP:
        bytes_to_read += plan.host_memory_bytes  # layers that stay in host memory are read as well
    offloaded = plan.kv_offload.host_bytes if plan.kv_offload else 0
    seconds = ceil_div(bytes_to_read, SLOW_DISK_BYTES_PER_SECOND)
    return round_up(START_SECONDS + seconds + ceil_div(offloaded, ZEROED_BYTES_PER_SECOND), 300)


def startup_failures(plan: Plan) -> int:
    """The same as failures of a probe."""
    return ceil_div(startup_seconds(plan), PROBE_PERIOD_SECONDS)


def progress_deadline_seconds(plan: Plan) -> int:
    """After how long without a new available worker the Deployment says that it is stuck."""
    return startup_seconds(plan) + IMAGE_PULL_SECONDS


def shutdown_timeout_seconds(plan: Plan) -> int:
    """Seconds that the engine gives requests in flight after SIGTERM; 0 where it aborts them."""
    values = [flag.value for flag in plan.flags if flag.name == SHUTDOWN_TIMEOUT_FLAG]
    return int(values[-1] or 0) if values else 0


def grace_period_seconds(plan: Plan) -> int:
    """Between the wish to stop and SIGKILL: leave the endpoints, drain, tear down."""
    needed = PRE_STOP_SECONDS + shutdown_timeout_seconds(plan) + TEARDOWN_SECONDS
    return max(SHORTEST_GRACE_SECONDS, needed)
