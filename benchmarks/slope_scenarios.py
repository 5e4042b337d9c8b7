"""What does a worker's memory look like over a week, when all is well and when it leaks?

A week of samples each 30 s, in MiB and hours, made from a seed: quiet kinds that must not be taken for
a leak, and leaks that begin at 30 h on top of warm-up, sawtooth, daily load, steps, lost samples and
gaps. The same seed gives the same week on any machine.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

STEP_HOURS: Final = 30 / 3600
WEEK_HOURS: Final = 168
SAMPLES: Final = round(WEEK_HOURS / STEP_HOURS)
TIMES: Final = tuple(at * STEP_HOURS for at in range(SAMPLES))
ONSET_HOURS: Final = 30.0
"""When leaks begin."""
QUIET: Final = (
    "plateau",
    "warmup",
    "sawtooth",
    "steps",
    "diurnal",
    "ratchet",
    "cachefill",
    "restarts",
    "mix",
)
LEAKS: Final = ("leak", "leak_load")
RATES: Final = (20, 50, 100, 200, 500)
"""MiB per hour."""

Values = list[float]


class Life(NamedTuple):
    """One container, from its start to the next."""

    started_hours: float
    ends_hours: float


class Week(NamedTuple):
    """What one worker did."""

    memory: Values
    """MiB at each of TIMES."""
    load: Values
    """Requests in flight, as measured."""
    seen: list[bool]
    """Whether the sample arrived."""
    lives: tuple[Life, ...]


def week(kind: str, seed: int, rate: float = 0.0) -> Week:
    """One worker's week. `rate` is the leak, in MiB an hour."""
    draw = random.Random(f"{kind}/{rate:g}/{seed}")
    is_mixed = kind in ("mix", *LEAKS)
    load = _load(draw, with_days=kind in ("diurnal", "ratchet") or is_mixed)
    wander = _held(_wander(draw, SAMPLES // 4 + 1, 0.97, draw.uniform(10, 60)), 4)
    level = draw.uniform(6000, 20000)
    memory = [level + slow + draw.gauss(0, 8) for slow in wander]
    starts = _starts(draw, kind, is_mixed, rate)
    for part in _parts(draw, kind, is_mixed, load, starts):
        memory = [a + b for a, b in zip(memory, part, strict=True)]
    if rate:
        memory = [m + rate * g for m, g in zip(memory, _leaked(kind, load), strict=True)]
    seen = [True] * SAMPLES
    if kind == "restarts" or is_mixed:
        seen = _losses(draw)
    ends = (*starts[1:], float(WEEK_HOURS))
    return Week(
        memory=memory,
        load=[value * (1 + draw.gauss(0, 0.1)) for value in load],
        seen=seen,
        lives=tuple(Life(start, end) for start, end in zip(starts, ends, strict=True)),
    )


def _starts(draw: random.Random, kind: str, is_mixed: bool, rate: float) -> tuple[float, ...]:
    if kind == "restarts" or (is_mixed and not rate):
        again = draw.randint(1, 3)
        return (0.0, *sorted(draw.uniform(6, WEEK_HOURS) for _ in range(again)))
    if is_mixed and draw.random() < 0.5:
        return (0.0, draw.uniform(2, ONSET_HOURS - 12))
    return (0.0,)


def _parts(
    draw: random.Random, kind: str, is_mixed: bool, load: Values, starts: tuple[float, ...]
) -> list[Values]:
    """What stands on the level, one by one."""
    parts = []
    ages = [time - starts[bisect_right(starts, time) - 1] for time in TIMES]
    if kind == "warmup":
        parts.append(_warm_up(draw, ages, (2000, 8000), (0.2, 6.0)))
    elif kind == "restarts" or is_mixed:
        parts.append(_warm_up(draw, ages, (500, 6000), (0.1, 2.0)))
    if kind in ("sawtooth", "restarts") or is_mixed:
        parts.append(_sawtooth(draw, 0.4 if is_mixed else 1.0))
    if kind == "steps":
        parts.append(_steps(draw, draw.randint(1, 3)))
    elif is_mixed:
        parts.append(_steps(draw, draw.randint(0, 2)))
    if kind == "diurnal" or is_mixed:
        per_request = draw.uniform(500, 3000) / 32 * (0.5 if is_mixed else 1.0)
        held = _low_pass(load, draw.uniform(0.02, 0.3))
        parts.append([per_request * value for value in held])
    if kind == "ratchet":  # an allocator's high-water mark is never given back
        per_request = draw.uniform(1000, 4000) / 32
        parts.append([per_request * value for value in accumulate(_low_pass(load, 0.1), max)])
    if kind == "cachefill":  # a cache with a cap that fills evenly, then stops
        cap, hours = draw.uniform(4000, 8000), draw.uniform(4, 48)
        parts.append([min(cap, cap * time / hours) for time in TIMES])
    return parts


def _leaked(kind: str, load: Values) -> Values:
    """Hours of leaking up to each time; by the load for `leak_load`."""
    if kind != "leak_load":
        return [max(0.0, time - ONSET_HOURS) for time in TIMES]
    mean = math.fsum(load) / len(load)
    shares = (
        (value / mean if time >= ONSET_HOURS else 0.0)
        for time, value in zip(TIMES, load, strict=True)
    )
    return [STEP_HOURS * total for total in accumulate(shares)]


def _wander(draw: random.Random, count: int, keeps: float, sigma: float) -> Values:
    """An autoregressive walk around 0 that forgets at 1 - `keeps` a step."""
    fresh = sigma * math.sqrt(1 - keeps * keeps)
    level, found = draw.gauss(0, sigma), []
    for _ in range(count):
        level = keeps * level + draw.gauss(0, fresh)
        found.append(level)
    return found


def _held(values: Values, times: int) -> Values:
    return [value for value in values for _ in range(times)][:SAMPLES]


def _load(draw: random.Random, *, with_days: bool) -> Values:
    """Requests in flight: the shape of a week, bursts, never negative."""
    phase = draw.uniform(0, 24)
    weekend = draw.uniform(0.4, 1.0)  # the same share for all quiet days of the week
    bursts = _held(_wander(draw, SAMPLES // 20 + 1, 0.9, 1.0), 20)
    found = []
    for time, burst in zip(TIMES, bursts, strict=True):
        day = 0.5 + 0.5 * math.sin(2 * math.pi * (time - phase) / 24)
        week_share = weekend if (time // 24) % 7 >= 5 else 1.0
        base = 4 + (28 * day * week_share if with_days else 8)
        found.append(base * math.exp(0.25 * burst))
    return found


def _low_pass(values: Values, hours: float) -> Values:
    share, level, found = STEP_HOURS / (hours + STEP_HOURS), values[0], []
    for value in values:
        level += share * (value - level)
        found.append(level)
    return found


def _warm_up(
    draw: random.Random, ages: Values, most: tuple[float, float], hours: tuple[float, float]
) -> Values:
    height = draw.uniform(*most)
    tau = math.exp(draw.uniform(math.log(hours[0]), math.log(hours[1])))
    return [height * (1 - math.exp(-age / tau)) for age in ages]


def _sawtooth(draw: random.Random, share: float) -> Values:
    period, height, phase = draw.uniform(0.1, 1.5), draw.uniform(200, 2000), draw.random()
    return [share * height * ((time / period + phase) % 1.0) for time in TIMES]


def _steps(draw: random.Random, count: int) -> Values:
    found = [0.0] * SAMPLES
    for _ in range(count):
        at, width = draw.uniform(2, WEEK_HOURS - 4), draw.uniform(0.05, 0.5)
        height = draw.uniform(500, 4000)
        for place, time in enumerate(TIMES):
            z = max(-60.0, min(60.0, (time - at) / width))
            found[place] += height / (1 + math.exp(-z))
    return found


def _losses(draw: random.Random) -> list[bool]:
    """Up to one sample in ten is lost, and one to three gaps last up to two hours."""
    lost = draw.uniform(0.0, 0.1)
    seen = [draw.random() > lost for _ in TIMES]
    for _ in range(draw.randint(1, 3)):
        first = draw.uniform(0, WEEK_HOURS)
        last = first + draw.uniform(0.2, 2.0)
        for place in range(
            min(SAMPLES, math.ceil(first / STEP_HOURS)), min(SAMPLES, math.ceil(last / STEP_HOURS))
        ):
            seen[place] = False
    return seen
