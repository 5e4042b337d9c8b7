"""What vLLM tells of its work, on the address of every fake pod, with figures that a story writes.

    with FakeEngines(cluster, behave) as engines: ...

`behave` says how the engine of a pod does at that moment. Counters
and the histogram of first tokens are those that such an engine would have, in vLLM's names.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controlplane.cluster import ControlPlane
from stand_ins.pod_addresses import PodPages

PORT: Final = 8000
BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
TOKENS: Final = 50
"""In each answer."""


@dataclass(frozen=True)
class Behaviour:
    """How an engine does."""

    running: float = 2.0
    waiting: float = 0.0
    requests_per_second: float = 20.0
    ttft_seconds: float = 0.2
    kv_used: float = 0.2
    preemptions_per_second: float = 0.0
    cache_config: Mapping[str, str] = field(default_factory=dict)
    """Labels of `vllm:cache_config_info`; without any the page has no such line."""


@dataclass
class Counters:
    """What one engine has done since it was first asked."""

    at_seconds: float = field(default_factory=time.monotonic)
    requests: float = 0.0
    preemptions: float = 0.0
    buckets: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS) + 1))

    def go_on(self, does: Behaviour) -> None:
        """Up to now it did like this."""
        now = time.monotonic()
        done = does.requests_per_second * (now - self.at_seconds)
        self.requests += done
        self.preemptions += does.preemptions_per_second * (now - self.at_seconds)
        for place, bound in enumerate((*BOUNDS, float("inf"))):
            if does.ttft_seconds <= bound:
                self.buckets[place] += done
        self.at_seconds = now


class FakeEngines(PodPages):
    """The engines of all fake pods of one control plane."""

    def __init__(
        self, cluster: ControlPlane, behave: Callable[[Mapping[str, Any]], Behaviour | None]
    ) -> None:
        """`behave` gives None for a pod whose engine does not answer."""
        super().__init__("engines", cluster, port=PORT, path="/metrics")
        self._behave = behave
        self._counters: dict[str, Counters] = {}

    def said(self, pod: Mapping[str, Any]) -> str | None:
        """What its engine tells at this moment."""
        does = self._behave(pod)
        if does is None:
            return None
        counters = self._counters.setdefault(pod["metadata"]["uid"], Counters())
        counters.go_on(does)
        return page(does, counters)


def page(does: Behaviour, counters: Counters) -> str:
    """In the names of vLLM 0.22 (vllm/v1/metrics/loggers.py)."""
    label = '{engine="0",model_name="m"}'
    done = counters.requests
    lines = [
        f"vllm:num_requests_running{label} {does.running}",
        f"vllm:num_requests_waiting{label} {does.waiting}",
        f'vllm:num_requests_waiting_by_reason{{engine="0",reason="capacity"}} {does.waiting}',
        f"vllm:num_preemptions_total{label} {counters.preemptions:.0f}",
        f"vllm:kv_cache_usage_perc{label} {does.kv_used}",
        f"vllm:prompt_tokens_total{label} {done * TOKENS:.0f}",
        f"vllm:generation_tokens_total{label} {done * TOKENS:.0f}",
        f"vllm:request_success_total{label} {done:.0f}",
    ]
    if does.cache_config:
        labels = ",".join(f'{name}="{value}"' for name, value in does.cache_config.items())
        lines.append(f'vllm:cache_config_info{{engine="0",{labels}}} 1.0')
    for bound, count in zip((*BOUNDS, "+Inf"), counters.buckets, strict=True):
        lines.append(f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {count:.3f}')
    return "\n".join(lines) + "\n"


def age_seconds(pod: Mapping[str, Any]) -> float:
    """Since the pod started."""
    started = pod["status"].get("startTime")
    if started is None:
        return 0.0
    began = datetime.datetime.fromisoformat(started).timestamp()
    return max(0.0, time.time() - began)
