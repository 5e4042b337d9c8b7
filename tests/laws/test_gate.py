"""What holds of the gate whatever happens: searched over rooms, lanes, and the order of events."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.gate.allocate import part_of, slots_of
from plimsoll.gate.records import LaneRoom, WorkerRoom, promise

sys.path.append(str(Path(__file__).resolve().parents[2]))
from benchmarks.gateway.walk import walk

STEPS = 8_000
"""Looks in CI; `python -m benchmarks.gateway.walk` takes 300,000."""

ROOMS = st.fixed_dictionaries(
    {
        "pool": st.just("a"),
        "kv_tokens": st.integers(0, 2_000_000),
        "max_num_seqs": st.integers(0, 600),
        "block_tokens": st.sampled_from((1, 16, 64, 528)),
    }
).map(WorkerRoom.model_validate)
LANES = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.just("a"),
            "tokens": st.integers(1, 200_000),
            "share_percent": st.integers(0, 12),
            "priority": st.integers(0, 3),
            "borrow": st.booleans(),
            "most_per_worker": st.none() | st.integers(1, 5),
        }
    ).map(LaneRoom.model_validate),
    min_size=1,
    max_size=8,
)


@given(room=ROOMS, lanes=LANES)
def test_slots_keep_to_tokens_and_sequences_and_are_worth_having(
    room: WorkerRoom, lanes: list[LaneRoom]
) -> None:
    slots = slots_of(room, lanes)
    part = part_of(room, lanes)
    assert promise(part, slots).is_within(part)
    assert all(0 <= slot <= most for slot, most in zip(slots, part.most, strict=True))
    fits = [most > 0 for most in part.most]
    assert any(slots) == (any(fits) and room.max_num_seqs > 0)


@given(room=ROOMS, lanes=LANES, more=st.integers(0, 100_000))
def test_a_larger_worker_never_promises_fewer_tokens_with_one_lane(
    room: WorkerRoom, lanes: list[LaneRoom], more: int
) -> None:
    larger = room.model_copy(update={"kv_tokens": room.kv_tokens + more})
    assert slots_of(room, lanes[:1]) <= slots_of(larger, lanes[:1])


@given(room=ROOMS, lanes=LANES, gates=st.integers(1, 4))
def test_gates_together_have_the_plan(room: WorkerRoom, lanes: list[LaneRoom], gates: int) -> None:
    parts = [part_of(room, lanes, gates=gates, index=index) for index in range(gates)]
    whole = slots_of(room, lanes)
    assert whole == tuple(map(sum, zip(*(part.planned for part in parts), strict=True)))


def test_the_promise_holds_through_bursts_lending_drains_crashes_and_hand_overs() -> None:
    walked = walk(STEPS, seed=7)
    assert () == walked.violations
    assert STEPS <= walked.steps
    assert walked.lent > 0
    assert walked.crashes > 0
    assert walked.hand_overs > 0
