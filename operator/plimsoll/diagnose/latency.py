"""Has the time to first token risen, at a load like before?

Under more load requests wait longer, and that is no sign of a sick worker: the last hour is compared with
hours that had as many requests in flight.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from plimsoll.diagnose.floors import percentile
from plimsoll.diagnose.robust import median
from plimsoll.facts.series import FloorBin, LatencyBin

RISEN: Final = 1.5
"""Times the level before; a public case's step was threefold (vllm-project/vllm#44175), another's twofold
(Blaizzy/mlx-vlm#1393), and ten-minute p95s of a healthy worker wander by a fifth."""
RISEN_WITH_LOAD: Final = 3.0
"""Times the level before, at any load: requests wait for want of room. Less is a day's tide."""
LEAST_SECONDS: Final = 0.02
"""Below this a difference is the clock's."""
ALIKE: Final = 0.25
"""Loads that differ by no more than this part, or by one request, are alike."""
LEAST_BINS: Final = 3
"""On each side."""
FIRST_BINS: Final = 3
"""The first half hour's level is a good one too: latency may step up soon after the start."""


class Latency(NamedTuple):
    """Levels of the time to first token, in seconds."""

    now: float | None = None
    """Of the last hour."""
    before: float | None = None
    """A good level of the hours before, at a load alike."""
    at_any_load: float | None = None
    """A good level of the hours before, whatever the load was."""

    @property
    def is_up(self) -> bool | None:
        """None where there is nothing to compare."""
        if self.now is None or self.before is None:
            return None
        return self.now >= RISEN * self.before and self.now - self.before >= LEAST_SECONDS

    @property
    def rose_with_load(self) -> bool:
        """Whether requests wait far longer than they did, and the load may be why."""
        if self.now is None or self.at_any_load is None or self.is_up:
            return False
        return self.now >= RISEN_WITH_LOAD * self.at_any_load + LEAST_SECONDS


def latency_of(
    latencies: Sequence[LatencyBin],
    bins: Sequence[FloorBin],
    *,
    now_seconds: float,
    since_seconds: float,
    hour_seconds: float = 3600.0,
) -> Latency:
    """The last hour beside the hours since `since_seconds`, when it was Ready."""
    seen = [
        (each.at_seconds, value)
        for each in latencies
        if since_seconds < each.at_seconds <= now_seconds and (value := _level(each)) is not None
    ]
    recent = [(at, value) for at, value in seen if at > now_seconds - hour_seconds]
    earlier = [(at, value) for at, value in seen if at <= now_seconds - hour_seconds]
    if len(recent) < LEAST_BINS:
        return Latency()
    now = median([value for _, value in recent])
    any_load = _good(earlier)
    loads = {each.at_seconds: each.load for each in bins if each.load is not None}
    stood = [load for at, _ in recent if (load := loads.get(at)) is not None]
    if stood:
        under = median(stood)
        margin = max(1.0, ALIKE * under)
        earlier = [
            (at, value)
            for at, value in earlier
            if (load := loads.get(at)) is not None and abs(load - under) <= margin
        ]
    return Latency(now, _good(earlier), any_load)


def _good(seen: Sequence[tuple[float, float]]) -> float | None:
    """A level that the worker has shown it can hold; None where it was not seen for long enough."""
    if len(seen) < LEAST_BINS:
        return None
    values = [value for _, value in seen]
    return min(percentile(sorted(values), 0.25), median(values[:FIRST_BINS]))


def _level(each: LatencyBin) -> float | None:
    """p95; the median where the histogram is too coarse for it."""
    if each.requests <= 0:
        return None
    return each.ttft_p95_seconds if each.ttft_p95_seconds is not None else each.ttft_p50_seconds
