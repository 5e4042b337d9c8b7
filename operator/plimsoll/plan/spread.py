"""How are the lengths of requests spread?

Two quantiles are a log-normal, in closed form. A histogram is taken apart so that it is never too kind:
each bucket's requests stand at its two ends, in the proportion that gives the mean that was counted. No
other spread inside the buckets with these means is wider.
"""

import math
from bisect import bisect_left
from itertools import accumulate
from statistics import NormalDist
from typing import Final, NamedTuple, Protocol

from plimsoll.facts.lengths import LengthHistogram
from plimsoll.plan.records import TokenQuantiles

_Z99: Final = NormalDist().inv_cdf(0.99)
_NARROWEST: Final = 1e-4
"""Deviation of the log where both quantiles are equal: as good as none."""


class Below(NamedTuple):
    """What lies below a length."""

    chance: float
    """Part of the requests."""
    first: float
    """Their mean times their part, in tokens."""
    second: float
    """The mean of their squares times their part."""


class Spread(Protocol):
    """Lengths, as a distribution."""

    def below(self, tokens: float) -> Below:
        """Chance and moments of what is shorter than `tokens`."""
        ...


class LogNormal(NamedTuple):
    """Lengths whose logarithm is normal."""

    mu: float
    sigma: float

    def below(self, tokens: float) -> Below:
        """Chance and moments of what is shorter than `tokens`."""
        if tokens <= 0:
            return Below(0.0, 0.0, 0.0)
        z = (math.log(tokens) - self.mu) / self.sigma
        variance = self.sigma**2
        return Below(
            _normal(z),
            math.exp(self.mu + variance / 2) * _normal(z - self.sigma),
            math.exp(2 * self.mu + 2 * variance) * _normal(z - 2 * self.sigma),
        )


class Counted(NamedTuple):
    """Lengths that stand at a few places."""

    places: tuple[float, ...]
    """In tokens, rising."""
    sums: tuple[Below, ...]
    """What lies below each place, and last of all everything."""

    def below(self, tokens: float) -> Below:
        """Chance and moments of what is shorter than `tokens`."""
        return self.sums[bisect_left(self.places, tokens)]


def spread_of(lengths: TokenQuantiles | LengthHistogram, longest: int) -> Spread:
    """The distribution of lengths of which none is to exceed `longest` tokens."""
    if isinstance(lengths, LengthHistogram):
        return _counted(lengths, longest)
    sigma = math.log(lengths.p99 / lengths.p50) / _Z99
    return LogNormal(mu=math.log(lengths.p50), sigma=max(sigma, _NARROWEST))


def _counted(histogram: LengthHistogram, longest: int) -> Counted:
    bounds = histogram.bounds
    lower = (1, *bounds)
    upper = (*bounds, max(longest, bounds[-1]))
    requests = histogram.requests
    least = sum(map(int.__mul__, histogram.counts, lower))
    most = sum(map(int.__mul__, histogram.counts, upper))
    high = (histogram.total_tokens - least) / (most - least) if most > least else 1.0
    high = min(1.0, max(0.0, high))
    chances: dict[float, float] = {}
    for low_end, high_end, count in zip(lower, upper, histogram.counts, strict=True):
        for place, part in ((low_end, 1 - high), (high_end, high)):
            chances[place] = chances.get(place, 0.0) + part * count / requests
    places = sorted(place for place, chance in chances.items() if chance > 0)
    moments = [
        list(accumulate((chances[place] * place**power for place in places), initial=0.0))
        for power in range(3)
    ]
    return Counted(
        places=tuple(places), sums=tuple(Below(*each) for each in zip(*moments, strict=True))
    )


def _normal(z: float) -> float:
    """The standard normal distribution, exact in its lower tail too."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
