"""How many sequences fit at once, and with which promise?

Worst case: every sequence may use its whole length. Expected: the chance that the live tokens of n
sequences exceed the pool stays below an accepted risk, from the quantiles of the traffic.

A live sequence holds its prompt and the part of its answer that is written. Seen at a random moment,
long answers are met more often than short ones (length bias), and are half written on average.
Lengths are log-normal, fitted through p50 and p99, and cut at the longest allowed sequence. The sum
over n sequences is bounded by its mean, deviation and skew (Cornish-Fisher).
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

from plimsoll.plan.records import Lane, TokenQuantiles

_NORMAL: Final = NormalDist()
_Z99: Final = _NORMAL.inv_cdf(0.99)
_PROMPT_POINTS: Final = 48
_OUTPUT_POINTS: Final = 24
_PROGRESS_POINTS: Final = 8
"""Points per axis of the grid: 9,216 live lengths; finer grids move the answer by less than 1 %."""

CostOfTokens = Callable[[int], int]
"""What a live sequence of so many tokens takes from the pool (blocks or tokens)."""


class Load(NamedTuple):
    """What one live sequence takes from the pool, as a distribution."""

    mean: float
    deviation: float
    skew: float


def expected_sequences(load: Load, room: int, *, risk: float, at_most: int = 4096) -> int:
    """The most sequences whose live tokens exceed `room` with a chance below `risk`.

    `room` is in the unit of the load's cost: blocks or tokens. 0 when not even one fits.
    """
    z = _NORMAL.inv_cdf(1 - risk)
    return largest(lambda n: _bound(load, n, z) <= room, at_most=at_most)


def load_of(lanes: Sequence[Lane], *, longest: int, cost: CostOfTokens, step: int = 1) -> Load:
    """Mean, deviation and skew of what one live sequence of this traffic takes.

    `cost` must be the same for all lengths between two multiples of `step` tokens: whole blocks.
    """
    chances: dict[int, float] = defaultdict(float)
    for lane in lanes:
        live = sorted(_live_tokens(lane))
        uncut = bisect_right(live, longest)
        # a lane's share is of tokens; how often one of its sequences is met follows from its length
        tokens_held = sum(map(math.ceil, live[:uncut])) + longest * (len(live) - uncut)
        weight = lane.share / tokens_held
        counted = 0
        for tokens in range(step, longest, step):
            reached = bisect_right(live, tokens, lo=counted)
            if reached > counted:
                chances[cost(tokens)] += weight * (reached - counted)
                counted = reached
        chances[cost(longest)] += weight * (len(live) - counted)
    total = sum(chances.values())
    mean = sum(chance * taken for taken, chance in chances.items()) / total
    second = sum(chance * (taken - mean) ** 2 for taken, chance in chances.items()) / total
    third = sum(chance * (taken - mean) ** 3 for taken, chance in chances.items()) / total
    deviation = math.sqrt(second)
    return Load(mean=mean, deviation=deviation, skew=third / deviation**3 if deviation > 0 else 0.0)


def _bound(load: Load, n: int, z: float) -> float:
    """The level that n sequences exceed with the chance that belongs to z (Cornish-Fisher)."""
    skew_part = load.deviation * load.skew * (z * z - 1) / 6
    return n * load.mean + z * math.sqrt(n) * load.deviation + skew_part


def _live_tokens(lane: Lane) -> list[float]:
    """What a sequence of the lane holds: its prompt, and an answer that is part written."""
    prompts = _log_normal_points(lane.prompt_tokens, _PROMPT_POINTS, length_biased=False)
    outputs = _log_normal_points(lane.output_tokens, _OUTPUT_POINTS, length_biased=True)
    steps = [(step + 0.5) / _PROGRESS_POINTS for step in range(_PROGRESS_POINTS)]
    written = [output * step for output in outputs for step in steps]
    return [prompt + part for prompt in prompts for part in written]


def _log_normal_points(lengths: TokenQuantiles, points: int, *, length_biased: bool) -> list[float]:
    """Lengths at evenly spaced probabilities. Length bias moves the mean of the log by sigma squared."""
    sigma = math.log(lengths.p99 / lengths.p50) / _Z99
    mu = math.log(lengths.p50) + (sigma**2 if length_biased else 0.0)
    return [
        math.exp(mu + sigma * _NORMAL.inv_cdf((index + 0.5) / points)) for index in range(points)
    ]


def largest(holds: Callable[[int], bool], *, at_most: int) -> int:
    """The largest n in 0..at_most for which `holds`, where it holds up to some n and not beyond."""
    low, high = 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
