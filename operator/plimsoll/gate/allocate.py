"""How many requests of each lane does one worker hold?

Each lane gets whole requests out of its share. What rounding leaves goes first to lanes that would
otherwise have no request on this worker, then to the others in order of priority, as long as a whole
request fits. Where the engine runs fewer sequences than that, the lanes are cut in proportion, each
keeping one. A lane whose one request is larger than what is left for it has 0 there: it is closed on
that card, for HAProxy reads a limit of 0 as no limit.
"""

from collections.abc import Sequence
from typing import Final

from plimsoll.gate.records import LaneRoom, Part, Slots, WorkerRoom
from plimsoll.units import round_up

HEAVIEST: Final = 256
"""HAProxy's weights are 0 to 256 (HAProxy 2.6, configuration manual, `weight`); 0 takes no requests."""


def part_of(
    worker: WorkerRoom, lanes: Sequence[LaneRoom], *, gates: int = 1, index: int = 0
) -> Part:
    """What one of several gates may promise on this worker; the parts add up to the plan.

    Slots are dealt whole, round robin, each lane beginning one gate further, so that no gate gets all
    remainders. `index` counts from 0.
    """
    tokens = tuple(request_tokens(lane, worker) for lane in lanes)
    whole = slots_of(worker, lanes)
    planned = tuple(
        slots // gates + ((index - lane) % gates < slots % gates)
        for lane, slots in enumerate(whole)
    )
    if gates == 1:
        kv_tokens, sequences = worker.kv_tokens, worker.max_num_seqs
    else:  # what no gate has been given, none may lend out
        kv_tokens, sequences = sum(map(int.__mul__, planned, tokens)), sum(planned)
    return Part(
        tokens=tokens,
        planned=planned,
        most=tuple(_most(lane, worker, size) for lane, size in zip(lanes, tokens, strict=True)),
        kv_tokens=kv_tokens,
        sequences=sequences,
    )


def request_tokens(lane: LaneRoom, worker: WorkerRoom) -> int:
    """KV tokens that one request of the lane may take of this worker: whole blocks, or a whole slot."""
    if worker.slot_tokens is not None and lane.tokens <= worker.slot_tokens:
        return worker.slot_tokens
    return round_up(lane.tokens, worker.block_tokens)


def slots_of(worker: WorkerRoom, lanes: Sequence[LaneRoom]) -> Slots:
    """Requests of each lane, in the order of the lanes: within KV tokens and max_num_seqs."""
    tokens = [request_tokens(lane, worker) for lane in lanes]
    most = [_most(lane, worker, size) for lane, size in zip(lanes, tokens, strict=True)]
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


def closed_everywhere(workers: Sequence[WorkerRoom], lanes: Sequence[LaneRoom]) -> tuple[str, ...]:
    """Names of the lanes that no worker holds a request of."""
    slots = [slots_of(worker, lanes) for worker in workers]
    return tuple(
        lane.name for place, lane in enumerate(lanes) if not any(each[place] for each in slots)
    )


def weights_of(workers: Sequence[WorkerRoom], lanes: Sequence[LaneRoom]) -> tuple[int, ...]:
    """By worker: its weight, 1 to 256, by speed; where one speed is unknown, by sequences.

    Limits come from KV, weights from speed: a large card that computes slowly would otherwise be given
    more than it can do in time.
    """
    speeds = [worker.speed for worker in workers if worker.speed is not None]
    if len(speeds) < len(workers):
        speeds = [float(sum(slots_of(worker, lanes))) for worker in workers]
    top = max(speeds, default=1.0) or 1.0
    return tuple(max(1, min(HEAVIEST, round(HEAVIEST * speed / top))) for speed in speeds)


def _most(lane: LaneRoom, worker: WorkerRoom, size: int) -> int:
    """Requests of the lane alone on the worker, as far as its memory goes."""
    if worker.slot_tokens is not None and lane.tokens > worker.slot_tokens:
        return 0
    most = worker.kv_tokens // size
    if lane.most_per_worker is None:
        return most
    return min(most, max(1, round(lane.most_per_worker * (worker.speed or 1.0))))


def _in_order(lanes: Sequence[LaneRoom]) -> list[int]:
    """Places of the lanes, the most urgent first."""
    return sorted(range(len(lanes)), key=lambda place: lanes[place].priority)


def _within_sequences(slots: list[int], most: int, order: Sequence[int]) -> Slots:
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
