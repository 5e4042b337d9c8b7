"""What is the floor of a worker's memory, ten minutes at a time?

The 10th percentile of a bin leaves spikes out, and a bin of too few samples is none: a hole stays a hole.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from plimsoll.facts.series import FloorBin, Sample, Series

BIN_SECONDS: Final = 600.0
LEAST_SAMPLES: Final = 5
"""Of the 20 that a bin has at a sample each 30 s; fewer say too little of a sawtooth's floor."""
MOST_SKEW_SECONDS: Final = 120.0
"""A stamp farther ahead of our clock than this is no time at all."""


def floors(
    memory: Series,
    *,
    load: Series = (),
    work: Series = (),
    now_seconds: float,
    started_seconds: float = -math.inf,
    bin_seconds: float = BIN_SECONDS,
    least_samples: int = LEAST_SAMPLES,
) -> tuple[FloorBin, ...]:
    """The bins of one container's life that have ended by now, oldest first.

    `memory` is resident bytes (anonymous and swap), `load` requests in flight, `work` a counter of
    tokens or requests done. Bins end at whole multiples of `bin_seconds`, so that the same samples
    give the same bins whenever they are asked for. What is not finite, negative, from before the
    start, ahead of our clock or stamped earlier than what came before it is left out.
    """
    bounds = (started_seconds, now_seconds)
    resident = _by_bin(clean(memory, *bounds), bin_seconds)
    loads = _by_bin(clean(load, *bounds), bin_seconds)
    works = _by_bin(_until_reset(clean(work, *bounds)), bin_seconds)
    bins, peak = [], None
    for end in sorted(resident.keys() | loads.keys()):
        if end > now_seconds:
            break
        mean = _mean(loads.get(end, ()))
        if mean is not None:
            peak = mean if peak is None else max(peak, mean)
        values = resident.get(end, ())
        if len(values) < least_samples:
            continue
        done = works.get(end)
        bins.append(
            FloorBin(
                at_seconds=end,
                floor_bytes=round(percentile(sorted(values), 0.1)),
                load=mean,
                peak_load=peak,
                work=done[-1] if done else None,
            )
        )
    return tuple(bins)


def clean(series: Iterable[Sample], since_seconds: float, now_seconds: float) -> Series:
    """Samples that can be believed, in the order of time."""
    kept: list[Sample] = []
    for sample in series:
        at, value = sample
        if not (math.isfinite(at) and math.isfinite(value) and value >= 0):
            continue
        if at < since_seconds or at > now_seconds + MOST_SKEW_SECONDS:
            continue
        if kept and at <= kept[-1].at_seconds:
            continue
        kept.append(sample)
    return tuple(kept)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of values in rising order, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _until_reset(counter: Series) -> Series:
    """A counter that falls belongs to another process from there on."""
    for at, (before, after) in enumerate(pairwise(counter), start=1):
        if after.value < before.value:
            return counter[:at]
    return counter


def _by_bin(series: Series, bin_seconds: float) -> dict[float, list[float]]:
    """Values by the end of their bin; a sample on the border belongs to the bin that ends there."""
    found: dict[float, list[float]] = {}
    for at, value in series:
        found.setdefault(math.ceil(at / bin_seconds) * bin_seconds, []).append(value)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
