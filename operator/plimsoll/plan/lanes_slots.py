"""How many requests of each lane does one worker hold, and how many at once in all?

The one arithmetic of slots: the gate keeps to it, and the plan sizes the engine by it. Each lane gets whole
requests out of its share. What rounding leaves goes first to lanes that would otherwise have no request on
this worker, then to the others in order of priority, as long as a whole request fits. Where the engine
runs fewer sequences than that, the lanes are cut in proportion, each keeping one. A lane whose one request
is larger than what is left for it has 0 there: it is closed on that card, for HAProxy reads a limit of 0 as
no limit.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from plimsoll.units import round_up


class Lane(Protocol):
    """What counts of a lane."""

    @property
    def tokens(self) -> int:
        """KV tokens that one request may take."""

    @property
    def share_percent(self) -> int:
        """Its part of each worker's KV tokens."""

    @property
    def priority(self) -> int:
        """Lower is served sooner; among equals the order of the lanes decides."""

    @property
    def borrow(self) -> bool:
        """Whether it may use what other lanes leave idle."""

    @property
    def most_per_worker(self) -> int | None:
        """Requests of it that the fastest worker computes at once, at most."""


class Worker(Protocol):
    """What counts of a worker."""

    @property
    def kv_tokens(self) -> int:
        """Tokens of its KV cache."""

    @property
    def max_num_seqs(self) -> int:
        """Sequences that its engine runs at once."""

    @property
    def block_tokens(self) -> int:
        """Tokens in one block."""

    @property
    def slot_tokens(self) -> int | None:
        """Tokens of one slot, where the engine divides its cache beforehand."""

    @property
    def speed(self) -> float | None:
        """How fast it computes beside the fastest, which has 1."""


class Room(NamedTuple):
    """A worker whose engine is not yet told how many sequences it runs."""

    kv_tokens: int
    block_tokens: int = 1
    max_num_seqs: int = 1 << 30
    slot_tokens: int | None = None
    speed: float | None = None


def request_tokens(lane: Lane, worker: Worker) -> int:
    """KV tokens that one request of the lane may take of this worker: whole blocks, or a whole slot."""
    if worker.slot_tokens is not None and lane.tokens <= worker.slot_tokens:
        return worker.slot_tokens
    return round_up(lane.tokens, worker.block_tokens)


def slots_of(worker: Worker, lanes: Sequence[Lane]) -> tuple[int, ...]:
    """Requests of each lane, in the order of the lanes: within KV tokens and max_num_seqs."""
    tokens = [request_tokens(lane, worker) for lane in lanes]
    most = [most_of(lane, worker) for lane in lanes]
    slots = [
        min(worker.kv_tokens * lane.share_percent // 100 // size, bound)
        for lane, size, bound in zip(lanes, tokens, most, strict=True)
    ]
    left = worker.kv_tokens - sum(map(int.__mul__, slots, tokens))
    order = _in_order(lanes)
    for place in [place for place in order if slots[place] == 0]:
        if most[place] and tokens[place] <= left:
            slots[place] = 1
            left -= tokens[place]
    for place in order:
        more = min(left // tokens[place], most[place] - slots[place])
        slots[place] += more
        left -= more * tokens[place]
    return _within_sequences(slots, worker.max_num_seqs, order)


def most_at_once(worker: Worker, lanes: Sequence[Lane]) -> int:
    """The most requests of all lanes together that the gate may ever have on this worker, whatever is lent.

    A lane that may not borrow stays within its slots; one that may can have all that fits.
    """
    bounds = [
        (request_tokens(lane, worker), most_of(lane, worker) if lane.borrow else slots)
        for lane, slots in zip(lanes, slots_of(worker, lanes), strict=True)
    ]
    left, most = worker.kv_tokens, 0
    for size, bound in sorted(bounds):
        requests = min(left // size, bound)
        left -= requests * size
        most += requests
    return min(most, worker.max_num_seqs)


def most_of(lane: Lane, worker: Worker) -> int:
    """Requests of the lane alone on the worker, as far as its memory goes."""
    if worker.slot_tokens is not None and lane.tokens > worker.slot_tokens:
        return 0
    most = worker.kv_tokens // request_tokens(lane, worker)
    if lane.most_per_worker is None:
        return most
    return min(most, max(1, round(lane.most_per_worker * (worker.speed or 1.0))))


def _in_order(lanes: Sequence[Lane]) -> list[int]:
    """Places of the lanes, the most urgent first."""
    return sorted(range(len(lanes)), key=lambda place: lanes[place].priority)


def _within_sequences(slots: list[int], most: int, order: Sequence[int]) -> tuple[int, ...]:
    """The slots cut in proportion, largest remainders first, each open lane keeping one while it can."""
    total = sum(slots)
    if total <= most:
        return tuple(slots)
    cut = [slot * most // total for slot in slots]
    rest = sorted(order, key=lambda place: -(slots[place] * most % total))
    for place in rest[: most - sum(cut)]:
        cut[place] += 1
    for place in order:
        if slots[place] and not cut[place] and (richest := max(cut)) > 1:
            cut[cut.index(richest)] -= 1
            cut[place] = 1
    return tuple(cut)
