"""How many requests of each lane does one worker hold, and what of it is each gate's?

The arithmetic of slots is the plan's (`plan.lanes_slots`), which sizes the engine by it; here it is dealt to
gates and weighed.
"""

from collections.abc import Sequence
from typing import Final

from plimsoll.gate.records import LaneRoom, Part, Slots, WorkerRoom
from plimsoll.plan import lanes_slots

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
        most=tuple(lanes_slots.most_of(lane, worker) for lane in lanes),
        kv_tokens=kv_tokens,
        sequences=sequences,
    )


def request_tokens(lane: LaneRoom, worker: WorkerRoom) -> int:
    """KV tokens that one request of the lane may take of this worker: whole blocks, or a whole slot."""
    return lanes_slots.request_tokens(lane, worker)


def slots_of(worker: WorkerRoom, lanes: Sequence[LaneRoom]) -> Slots:
    """Requests of each lane, in the order of the lanes: within KV tokens and max_num_seqs."""
    return lanes_slots.slots_of(worker, lanes)


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
