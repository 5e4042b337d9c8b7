"""With which chance do n sequences together take more than there is?

The sequences are alike and independent, and what one takes stands on a lattice of cells. The chance is
read from the generating function of the sum, on a circle through the saddle point (Daniels 1954,
"Saddlepoint approximations in statistics"), summed over enough points that only an excess is left: what
the finite sum adds is never below zero, so the chance is not understated.
"""

import cmath
import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Final, NamedTuple

_WIDTHS: Final = 8.0
"""Deviations of the sum that one turn of the circle holds; outside them lies less than 1e-14."""
_DECAY: Final = 10.0
"""Powers of e by which the sum's copy below has decayed: it adds at most 5e-5 of the chance."""
_NEGLIGIBLE: Final = 1e-7
"""Part of the first point's value below which a point no longer matters."""
_UNSEEN: Final = 1e-15
"""Chance of a cell, under the tilt, below which it is left out."""
_NEAR_THE_MEAN: Final = 0.02
"""Deviations above the mean below which the chance is taken as certain: it is about one half."""
_FAR_ABOVE: Final = 8.0
"""Times the risk, by the saddle point alone, from which it is exceeded without a doubt."""
_STEPS: Final = 40
"""Newton steps at most; six do."""


class Load(NamedTuple):
    """What one live sequence takes from the pool, as a distribution."""

    unit: float
    """What one cell is, in the cost's own unit: blocks or tokens."""
    chances: tuple[float, ...]
    """The chance that a sequence takes so many cells, from 0."""
    mean: float
    """In the cost's own unit."""
    deviation: float
    """In the cost's own unit."""
    skew: float
    """Third central moment over the cube of the deviation; 0 without a deviation."""

    @property
    def most(self) -> float:
        """What the largest sequence takes, in the cost's own unit."""
        return self.unit * (len(self.chances) - 1)


class _Tilted(NamedTuple):
    """The distribution under exp(tilt x cells), which moves its mean."""

    tilt: float
    downwards: list[float]
    """Chances of the cells, from the highest down."""
    mean: float
    variance: float
    log_scale: float
    """Log of the generating function at the tilt."""

    def is_off_the_mean(self, sequences: int) -> bool:
        """Whether the tilt moves the sum far enough for the circle to close."""
        return self.tilt * math.sqrt(sequences * self.variance) >= _NEAR_THE_MEAN

    def log_bound(self, sequences: int, level: int) -> float:
        """Log of Chernoff's bound for the chance that the sum reaches the level."""
        return sequences * self.log_scale - self.tilt * level


def chance_above(load: Load, sequences: int, room: float) -> float:
    """The chance that so many sequences take more than `room`, in the cost's own unit.

    1.0 where their mean is that large already.
    """
    level = _level(load, room)
    if (sure := _sure(load, sequences, level)) is not None:
        return sure
    at = _saddle(load.chances, level / sequences)
    bound = math.exp(min(0.0, at.log_bound(sequences, level)))
    return min(bound, _summed(at, sequences, level))


def is_rarer(load: Load, sequences: int, room: float, risk: float) -> bool:
    """Whether so many sequences take more than `room` with a chance of at most `risk`.

    Where the saddle point alone leaves no doubt, the sum is spared.
    """
    level = _level(load, room)
    if (sure := _sure(load, sequences, level)) is not None:
        return sure <= risk
    at = _saddle(load.chances, level / sequences)
    bound = math.exp(min(0.0, at.log_bound(sequences, level)))  # Chernoff's, never too low
    if bound <= risk:
        return True
    width = at.tilt * math.sqrt(sequences * at.variance)
    if bound > _FAR_ABOVE * risk * (1 + math.sqrt(2 * math.pi) * width):
        return False
    return _summed(at, sequences, level) <= risk


def _level(load: Load, room: float) -> int:
    """The first number of cells that is too many."""
    return math.floor(room / load.unit + 1e-9) + 1


def _sure(load: Load, sequences: int, level: int) -> float | None:
    """0 where even the largest sequences have room, 1 where the mean has none."""
    if sequences * (len(load.chances) - 1) < level:
        return 0.0
    return 1.0 if sequences * load.mean >= level * load.unit else None


def exceeded_with(load: Load, sequences: int, risk: float) -> float:
    """The level that so many sequences exceed with a chance of at most `risk`, on the safe side."""
    lowest, highest = (
        math.floor(sequences * each / load.unit) for each in (load.mean, load.most + load.unit / 2)
    )
    guess = min(highest, max(lowest, round(level_about(load, sequences, risk) / load.unit)))
    if (guess + 1) * load.unit <= sequences * load.mean or guess >= highest:
        return highest * load.unit
    at = _saddle(load.chances, (guess + 1) / sequences)
    wave = _Wave.of(at, sequences) if at.is_off_the_mean(sequences) else None
    low, high = lowest, highest
    while low < high:
        middle = (low + high) // 2
        if (
            wave.chance(middle + 1) <= risk
            if wave
            else is_rarer(load, sequences, middle * load.unit, risk)
        ):
            high = middle
        else:
            low = middle + 1
    while low < highest and not is_rarer(load, sequences, low * load.unit, risk):
        low += 1
    return low * load.unit


def level_about(load: Load, sequences: int, risk: float) -> float:
    """About the same by mean, deviation and skew alone (Cornish-Fisher): where to look first."""
    z = _deviations(risk)
    skewed = load.deviation * load.skew * (z * z - 1) / 6
    return sequences * load.mean + z * math.sqrt(sequences) * load.deviation + skewed


def sequences_about(load: Load, room: float, risk: float) -> int:
    """About how many sequences exceed the room with that chance: where to look first."""
    z = _deviations(risk)
    spread = z * load.deviation
    left = room - load.deviation * load.skew * (z * z - 1) / 6
    if left <= 0:
        return 0
    root = (math.sqrt(spread * spread + 4 * load.mean * left) - spread) / (2 * load.mean)
    return int(root * root)


@lru_cache(maxsize=64)
def _deviations(risk: float) -> float:
    return NormalDist().inv_cdf(1 - risk)


def _saddle(chances: Sequence[float], wanted: float) -> _Tilted:
    """The tilt under which one sequence takes `wanted` cells on average (Newton, kept in a bracket)."""
    low, high = 0.0, math.inf
    at = _tilted(chances, 0.0)
    for _ in range(_STEPS):
        if abs(at.mean - wanted) <= max(1e-3 * math.sqrt(at.variance), 1e-9):
            break
        if at.mean < wanted:
            low = at.tilt
        else:
            high = at.tilt
        step = at.tilt + (wanted - at.mean) / max(at.variance, 1e-12)
        if not low < step < high:
            step = (low + high) / 2 if math.isfinite(high) else 2 * low + 1.0
        at = _tilted(chances, step)
    return at


def _tilted(chances: Sequence[float], tilt: float) -> _Tilted:
    top = len(chances) - 1
    fall, factor = math.exp(-tilt), 1.0
    weights = []
    total = first = second = 0.0
    for below_top, chance in enumerate(reversed(chances)):
        weight = chance * factor
        weights.append(weight)
        total += weight
        first += weight * below_top
        second += weight * below_top * below_top
        factor *= fall
    mean = first / total
    return _Tilted(
        tilt=tilt,
        downwards=[weight / total for weight in weights],
        mean=top - mean,
        variance=max(0.0, second / total - mean * mean),
        log_scale=math.log(total) + tilt * top,
    )


def _summed(at: _Tilted, sequences: int, level: int) -> float:
    return _Wave.of(at, sequences).chance(level) if at.is_off_the_mean(sequences) else 1.0


class _Wave(NamedTuple):
    """The generating function of the sum at the points of one turn, in pairs that mirror each other."""

    at: _Tilted
    sequences: int
    points: int
    lowest: int
    """Cells of the smallest sequence that is seen under the tilt."""
    values: list[complex]
    """By point, from 0; those beyond the last are as good as zero."""

    @classmethod
    def of(cls, at: _Tilted, sequences: int) -> "_Wave":
        """The points that matter for levels near the tilted mean."""
        deviation = math.sqrt(sequences * at.variance)
        pairs = math.ceil(max(_WIDTHS * deviation, _DECAY / at.tilt, 1.0) / 2)
        points = 2 * pairs + 1
        there = [at_ for at_, chance in enumerate(at.downwards) if chance > _UNSEEN]
        downwards = at.downwards[there[0] : there[-1] + 1]
        first = 1 / -math.expm1(-at.tilt)
        values, matters_until = [complex(first)], 0
        # two sizes d cells apart return at points / d: looked for up to a quarter of all cells
        least = 4 * points / len(at.downwards)
        for index in range(1, pairs + 1):
            turn = cmath.exp(2j * math.pi * index / points)
            value = 0j
            for chance in downwards:
                value = value * turn + chance
            value = value**sequences / (1 - math.exp(-at.tilt) / turn)
            values.append(value)
            if abs(value) > _NEGLIGIBLE * first:
                matters_until = index
            if index > 2 * matters_until and index > least:
                break
        return cls(
            at=at,
            sequences=sequences,
            points=points,
            lowest=len(at.downwards) - 1 - there[-1],
            values=values,
        )

    def chance(self, level: int) -> float:
        """The chance that the sum reaches the level."""
        back = cmath.exp(-2j * math.pi * (level - self.sequences * self.lowest) / self.points)
        value = 0j
        for each in reversed(self.values):
            value = value * back + each
        total = 2 * value.real - self.values[0].real
        return math.exp(min(700.0, self.at.log_bound(self.sequences, level))) * total / self.points
