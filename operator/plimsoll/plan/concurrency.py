"""How many sequences fit at once, and with which promise?

Worst case: every sequence may use its whole length. Expected: the chance that the live tokens of n
sequences exceed the pool stays below an accepted risk, all n slots being busy.

What one slot holds at a random moment is not what its request holds in the end:

- A request is met in proportion to the time that it stays: while its answer is written that is the
  answer's length, so long answers are met more often than they arrive, and are part written.
- While its prompt is read it is met in proportion to the prompt. The engine admits a request only when
  its whole prompt has room (vLLM 0.33.0, scheduler_reserve_full_isl), so the prompt counts whole.
- Whole blocks of every KV group are counted; what a window or a recurrent state bounds, is bounded.
- A request beyond the longest sequence is counted as cut to it. The engine refuses a longer prompt and
  ends a longer answer early, so this errs on the safe side. Shared prefixes are counted for each.

Prompts and answers are independent, and so are the slots.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul
from typing import Final

from plimsoll.plan.crowd import Load, is_rarer, sequences_about
from plimsoll.plan.records import Lane
from plimsoll.plan.spread import spread_of

CELLS: Final = 256
FEWEST_CELLS: Final = 32
CELLS_PER_DEVIATION: Final = 12
"""Steps of tokens from nothing to the longest sequence; of cost as many as the deviation needs, within
the two bounds. Rounding to them keeps the mean and widens the spread a little."""
TOKENS_READ_PER_STEP: Final = 64
"""Prompt tokens that are read in the time of one decoding step, at least: the cards' ratio of 16-bit
operations to bytes is 156 (A100) to 403 (L4), of which prefill reaches 40 % and more."""

_ROUNDING: Final = 1e-13
"""Differences smaller than this part are left over from rounding."""

CostOfTokens = Callable[[int], int]
"""What a live sequence of so many tokens takes from the pool (blocks or tokens)."""


def expected_sequences(
    load: Load, room: int, *, risk: float, near: int | None = None, at_most: int = 4096
) -> int:
    """The most sequences whose live tokens exceed `room` with a chance of at most `risk`.

    `room` is in the unit of the load's cost: blocks or tokens. 0 when not even one fits. The search
    starts at `near`, where the caller knows better than the load's deviation.
    """

    most = min(at_most, int(room / load.mean))  # more would exceed it on average
    return largest(
        lambda n: n == 0 or is_rarer(load, n, room, risk),
        at_most=most,
        near=sequences_about(load, room, risk) if near is None else near,
    )


def load_of(lanes: Sequence[Lane], *, longest: int, cost: CostOfTokens) -> Load:
    """What one live sequence of this traffic takes, as a distribution over cells of its cost.

    A lane's share is of the pool's live tokens; how often one of its sequences is met follows from
    what they hold.
    """
    weights = [0.0] * (CELLS + 1)
    for lane in lanes:
        live = _live(lane, longest)
        weight = lane.share / _mean(live)
        weights = [sum_ + weight * chance for sum_, chance in zip(weights, live, strict=True)]
    total = sum(weights)
    return _priced([weight / total for weight in weights], longest, cost)


def _priced(live: Sequence[float], longest: int, cost: CostOfTokens) -> Load:
    """Live tokens as cells of cost. Blocks are whole: at a cell's edge half of the lengths around it
    have begun the next block."""
    at = [longest * cell // CELLS for cell in range(CELLS + 1)]
    prices = [(cost(max(1, tokens)) + cost(min(longest, tokens + 1))) / 2 for tokens in at]
    mean = sum(map(mul, live, prices))
    variance, third = (
        sum(map(mul, live, ((price - mean) ** power for price in prices))) for power in (2, 3)
    )
    deviation = variance**0.5
    most = prices[-1]
    cells = CELLS
    if deviation > 0:
        cells = min(CELLS, max(FEWEST_CELLS, round(CELLS_PER_DEVIATION * most / deviation)))
    unit = most / cells
    chances = [0.0] * (cells + 2)
    for chance, price in zip(live, prices, strict=True):
        whole = min(int(price / unit), cells)
        part = price / unit - whole
        chances[whole] += chance * (1 - part)
        chances[whole + 1] += chance * part
    while chances[-1] < _ROUNDING:
        chances.pop()
    return Load(
        unit=unit,
        chances=tuple(chances),
        mean=mean,
        deviation=deviation,
        skew=third / deviation**3 if deviation > 0 else 0.0,
    )


@lru_cache(maxsize=256)
def _live(lane: Lane, longest: int) -> tuple[float, ...]:
    """The chance that a sequence of the lane holds so many cells of tokens, at a random moment."""
    width = longest / CELLS
    edges = [cell * width for cell in range(CELLS + 1)]
    prompts = [
        spread.below(edge) for spread in [spread_of(lane.prompt_tokens, longest)] for edge in edges
    ]
    answers = [
        spread.below(edge) for spread in [spread_of(lane.output_tokens, longest)] for edge in edges
    ]
    # E[min(prompt, edge)], and the same of what is written: its density at w is P(answer > w) / mean
    prompt_up_to = [
        below.first + edge * (1 - below.chance) for edge, below in zip(edges, prompts, strict=True)
    ]
    mean_prompt = prompt_up_to[-1]
    mean_answer = answers[-1].first + longest * (1 - answers[-1].chance)
    written_up_to = [
        edge
        - (edge * below.first - below.second / 2 + edge * edge / 2 * (1 - below.chance))
        / mean_answer
        for edge, below in zip(edges, answers, strict=True)
    ]
    # the same of a prompt that is met in proportion to its length
    reading_up_to = [
        (below.second + edge * (mean_prompt - below.first)) / mean_prompt
        for edge, below in zip(edges, prompts, strict=True)
    ]
    writing = _together(_cells(prompt_up_to, width), _cells(written_up_to, width))
    reading = _cells(reading_up_to, width)
    if _mean(reading) <= _mean(writing):  # then more time for reading would only make room
        return tuple(writing)
    read_steps = mean_prompt / TOKENS_READ_PER_STEP
    # against the median answer, so that a longer tail of answers does not make reading rarer
    part = read_steps / (read_steps + min(lane.output_tokens.p50, mean_answer))
    return tuple(
        part * early + (1 - part) * late for early, late in zip(reading, writing, strict=True)
    )


def forget() -> None:
    """Drop what is remembered between plans; only a measurement needs it."""
    _live.cache_clear()


def _cells(up_to: Sequence[float], width: float) -> list[float]:
    """A distribution on cells with the same mean, from E[min(x, edge)] at every edge: a length between
    two edges is shared between them."""
    bends = [
        (2 * here - before - after, here)
        for before, here, after in zip(up_to, up_to[1:], up_to[2:], strict=False)
    ]
    inner = [bend / width if bend > _ROUNDING * here else 0.0 for bend, here in bends]
    return [max(0.0, 1 - up_to[1] / width), *inner, max(0.0, up_to[-1] - up_to[-2]) / width]


def _together(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The distribution of the sum of two, cut at the last cell."""
    turned = other[::-1]
    sums = [sum(map(mul, one, turned[CELLS - cell :])) for cell in range(CELLS)]
    cut = 1 - sum(sums)
    return [*sums, cut if cut > _ROUNDING * CELLS else 0.0]


def _mean(chances: Sequence[float]) -> float:
    """In cells."""
    return sum(cell * chance for cell, chance in enumerate(chances))


def largest(holds: Callable[[int], bool], *, at_most: int, near: int | None = None) -> int:
    """The largest n in 0..at_most for which `holds`, where it holds up to some n and not beyond.

    `near` is where to look first; the search is short when the answer is not far from it.
    """
    low, high = 0, at_most
    if near is not None and at_most > 0:
        low, high = _bracket(holds, max(1, min(near, at_most)), at_most)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _bracket(holds: Callable[[int], bool], near: int, at_most: int) -> tuple[int, int]:
    """Bounds of the answer, found in steps of 1, 2, 4, ... from `near`."""
    step = 1
    if holds(near):
        low = near
        while low < at_most:
            higher = min(low + step, at_most)
            if not holds(higher):
                return low, higher - 1
            low, step = higher, 2 * step
        return at_most, at_most
    high = near - 1
    while high > 0:
        lower = max(1, high + 1 - step)
        if holds(lower):
            return lower, high
        high, step = lower - 1, 2 * step
    return 0, 0
