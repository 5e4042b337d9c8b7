"""Laws of the number of sequences that traffic allows."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import worlds
from plimsoll.plan.concurrency import expected_sequences, load_of
from plimsoll.plan.length import length_from_traffic
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Lane, Plan, PlanRequest
from plimsoll.units import GIB, ceil_div

RISKS = st.sampled_from((0.0001, 0.001, 0.01, 0.05, 0.2))
BLOCK = 16


@st.composite
def lanes(draw: st.DrawFn) -> Lane:
    """Any one lane, from chat to batch."""
    prompt, answer = draw(st.integers(8, 8000)), draw(st.integers(8, 3000))
    return worlds.one_lane(
        prompt=(prompt, int(prompt * draw(st.floats(1, 12)))),
        output=(answer, int(answer * draw(st.floats(1, 12)))),
    )


def blocks(tokens: int) -> int:
    return ceil_div(tokens, BLOCK)


def fitting(lane: Lane, room: int, risk: float, longest: int | None = None) -> int:
    length = longest or length_from_traffic([lane], 1 << 20)
    return expected_sequences(load_of([lane], longest=length, cost=blocks), room, risk=risk)


@settings(deadline=None, max_examples=60)
@given(lanes(), RISKS, st.integers(1, 40), st.integers(0, 5000))
def test_more_memory_never_holds_fewer(lane: Lane, risk: float, whole: int, more: int) -> None:
    room = whole * blocks(length_from_traffic([lane], 1 << 20))
    assert fitting(lane, room, risk) <= fitting(lane, room + more, risk)


@settings(deadline=None, max_examples=60)
@given(lanes(), RISKS, st.integers(1, 60))
def test_the_worst_case_never_exceeds_the_expected(lane: Lane, risk: float, whole: int) -> None:
    length = length_from_traffic([lane], 1 << 20)
    assert whole <= fitting(lane, whole * blocks(length), risk)


@settings(deadline=None, max_examples=60)
@given(lanes(), st.tuples(RISKS, RISKS), st.integers(1, 40))
def test_less_risk_never_holds_more(lane: Lane, risks: tuple[float, float], whole: int) -> None:
    room = whole * blocks(length_from_traffic([lane], 1 << 20))
    assert fitting(lane, room, min(risks)) <= fitting(lane, room, max(risks))


@settings(deadline=None, max_examples=60)
@given(lanes(), st.floats(1, 3), st.booleans(), st.integers(1, 40))
def test_a_longer_tail_never_holds_more(
    lane: Lane, stretch: float, in_prompts: bool, whole: int
) -> None:
    """The same longest sequence, long enough for both, and a small risk."""
    field = "prompt_tokens" if in_prompts else "output_tokens"
    lengths = getattr(lane, field)
    longer = lane._replace(**{field: lengths._replace(p99=int(lengths.p99 * stretch))})
    longest = length_from_traffic([longer], 1 << 20)
    room = whole * blocks(longest)
    assert fitting(longer, room, 0.001, longest) <= fitting(lane, room, 0.001, longest)


@settings(deadline=None, max_examples=40)
@given(lanes(), st.sampled_from(("rtx-4090", "l40s", "h100-sxm")), st.integers(1, 30))
def test_a_plan_says_what_its_numbers_promise(lane: Lane, card: str, more_gib: int) -> None:
    request = worlds.eight_b_on_a_4090(
        gpu=worlds.card(card),
        lanes=(lane,),
        max_model_len=None,
        guarantee=Guarantee.EXPECTED,
    )
    found = plan(request)
    assume(isinstance(found, Plan))
    assert isinstance(found, Plan)
    at_once = found.concurrency
    assert at_once.expected is not None
    assert at_once.worst_case <= at_once.expected
    assert at_once.mean_occupied_tokens is not None
    assert at_once.p999_occupied_tokens is not None
    assert at_once.mean_occupied_tokens <= at_once.p999_occupied_tokens
    assert at_once.p999_occupied_tokens <= found.kv.pool_tokens * 1.01
    larger = plan(_on_more(request, more_gib))
    assert isinstance(larger, Plan)
    assert larger.concurrency.max_num_seqs >= at_once.max_num_seqs


def _on_more(request: PlanRequest, more_gib: int) -> PlanRequest:
    """Within a class of card: steps and limits jump at 70 GiB."""
    total = request.gpu.total_bytes + more_gib * GIB
    if request.gpu.total_bytes < 70 * GIB:
        total = min(total, 70 * GIB - 1)
    return request._replace(gpu=request.gpu.model_copy(update={"total_bytes": total}))
