"""What holds of every plan behind a gate: its pins never exceed the room, and nothing changes without one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import worlds
from plimsoll.engines.vllm.flags import LANE_ROWS
from plimsoll.gate.allocate import part_of, slots_of
from plimsoll.gate.records import LaneRoom, WorkerRoom, promise
from plimsoll.plan.lanes import AtTheGate, LaneAtGate, let_in_at_most
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Lane, Plan, PlanRequest, TokenQuantiles

CARDS = ("rtx-a6000", "rtx-4090", "h100-sxm", "l40s", "h200", "gb10")
MODELS = (
    worlds.EIGHT_B,
    "google/gemma-3-27b-it",
    "openai/gpt-oss-20b",
    "mistralai/Mixtral-8x7B-v0.1",
)
RELEASES = ("0.8.5", "0.20.2", "0.28.0", "0.33.0", None)


@st.composite
def gates(draw: st.DrawFn) -> AtTheGate:
    count = draw(st.integers(1, 4))
    lanes = tuple(
        LaneAtGate(
            name=f"lane-{place}",
            tokens=draw(st.integers(64, 40_000)),
            share_percent=100 // count,
            priority=draw(st.integers(0, 3)),
            borrow=draw(st.booleans()),
            most_per_worker=draw(st.none() | st.integers(1, 5)),
            prompt_tokens=draw(st.integers(16, 30_000)),
            is_long=draw(st.booleans()),
        )
        for place in range(count)
    )
    return AtTheGate(lanes=lanes, gap_seconds=draw(st.none() | st.floats(0.01, 10)))


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    lane = Lane("all", TokenQuantiles(500, 3000), TokenQuantiles(100, 500))
    return worlds.eight_b_on_a_4090(
        gpu=worlds.card(draw(st.sampled_from(CARDS))),
        model=worlds.model(draw(st.sampled_from(MODELS))),
        cards=draw(st.sampled_from((1, 2, 4))),
        release=draw(st.sampled_from(RELEASES)),
        max_model_len=draw(st.integers(512, 8192)),
        guarantee=draw(st.sampled_from(Guarantee)),
        lanes=(lane,),
        gate=draw(gates()),
    )


@settings(deadline=None, max_examples=60)
@given(requests())
def test_what_is_pinned_for_lanes_never_exceeds_the_room(request: PlanRequest) -> None:
    found, alone = plan(request), plan(request._replace(gate=None))
    if not isinstance(found, Plan) or not isinstance(alone, Plan):
        return
    assert request.gate is not None
    said = {flag.name: flag.value for flag in found.flags}
    step, sequences = int(said["--max-num-batched-tokens"] or 0), found.concurrency.max_num_seqs
    assert found.card_bytes == sum(line.bytes for line in found.ledger)
    assert sequences <= step <= _step(alone)
    assert sequences <= max(found.concurrency.expected or 0, found.concurrency.worst_case)
    let_in = let_in_at_most(
        request.gate, block_tokens=found.kv.block_tokens or 1, pool_tokens=found.kv.pool_tokens
    )
    assert sequences <= let_in
    assert int(said.get("--long-prefill-token-threshold") or 1) <= min(step, found.max_model_len)
    assert int(said.get("--max-num-queued-reqs") or sequences) >= sequences


@settings(deadline=None, max_examples=120)
@given(gates(), st.integers(0, 2_000_000), st.sampled_from((1, 16, 528)))
def test_the_gate_lets_no_more_in_than_the_engine_was_sized_for(
    gate: AtTheGate, kv_tokens: int, block: int
) -> None:
    let_in = let_in_at_most(gate, block_tokens=block, pool_tokens=kv_tokens)
    worker = WorkerRoom(pool="a", kv_tokens=kv_tokens, max_num_seqs=1 << 20, block_tokens=block)
    lanes = tuple(
        LaneRoom(
            name=lane.name,
            tokens=lane.tokens,
            share_percent=lane.share_percent,
            priority=lane.priority,
            borrow=lane.borrow,
            most_per_worker=lane.most_per_worker,
        )
        for lane in gate.lanes
    )
    slots = slots_of(worker, lanes)
    part = part_of(worker, lanes)
    assert sum(slots) <= let_in
    for place, lane in enumerate(lanes):
        if lane.borrow:  # a borrower with all that the others leave
            lent = tuple(
                min(most, part.kv_tokens // part.tokens[place]) if each == place else 0
                for each, most in enumerate(part.most)
            )
            assert promise(part, lent).is_within(part)
            assert sum(lent) <= let_in


@settings(deadline=None, max_examples=20)
@given(requests())
def test_a_plan_without_a_gate_has_no_flag_of_lanes(request: PlanRequest) -> None:
    found = plan(request._replace(gate=None))
    if isinstance(found, Plan):
        assert not {row.name for row in LANE_ROWS} & {flag.name for flag in found.flags}
        assert not [note for note in found.notes if note.startswith("lanes:")]


def _step(found: Plan) -> int:
    return next(
        int(flag.value or 0) for flag in found.flags if flag.name == "--max-num-batched-tokens"
    )
