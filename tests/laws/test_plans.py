"""Laws that hold for every plan, whatever the question."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import worlds
from plimsoll.facts.gpu import GpuFacts
from plimsoll.plan.held import still_fits
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Plan, PlanRequest, Refusal
from plimsoll.units import GIB

CARDS = ("rtx-a6000", "rtx-4090", "h100-sxm", "l40s", "a100-80gb-sxm", "t4", "h200", "gb10")
MODELS = (worlds.SEVENTY_B, worlds.EIGHT_B, "google/gemma-3-27b-it", "openai/gpt-oss-20b",
          "deepseek-ai/DeepSeek-V3", "mistralai/Mixtral-8x7B-v0.1")  # fmt: skip
RELEASES = ("0.8.5", "0.17.1", "0.18.0", "0.22.1", "0.26.0", "0.33.0", None)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Any vLLM question over cards and models of the catalogue."""
    p50 = draw(st.integers(16, 4000))
    lane = worlds.one_lane(
        prompt=(p50, p50 * draw(st.integers(1, 8))), output=(100, 100 * draw(st.integers(1, 20)))
    )
    return worlds.eight_b_on_a_4090(
        gpu=worlds.card(draw(st.sampled_from(CARDS))),
        model=worlds.model(draw(st.sampled_from(MODELS))),
        cards=draw(st.sampled_from((1, 2, 4, 8))),
        release=draw(st.sampled_from(RELEASES)),
        max_model_len=draw(st.one_of(st.none(), st.integers(256, 8192))),
        concurrency=draw(st.one_of(st.none(), st.integers(1, 300))),
        guarantee=draw(st.sampled_from(Guarantee)),
        lanes=draw(st.sampled_from(((), (lane,)))),
        kv_dtype=draw(st.sampled_from(("auto", "fp8"))),
    )


@settings(deadline=None, max_examples=150)
@given(requests())
def test_a_ledger_always_sums_to_the_card(request: PlanRequest) -> None:
    outcome = plan(request)
    if isinstance(outcome, Plan):
        assert outcome.card_bytes == sum(line.bytes for line in outcome.ledger)
        assert all(line.bytes >= 0 for line in outcome.ledger)
        assert outcome.concurrency.max_num_seqs >= 1
        assert outcome.concurrency.worst_case >= 1


@settings(deadline=None, max_examples=60)
@given(requests())
def test_planning_twice_gives_the_same(request: PlanRequest) -> None:
    assert plan(request) == plan(request)


@settings(deadline=None, max_examples=60)
@given(requests(), st.integers(1, 40))
def test_a_larger_card_never_holds_less(request: PlanRequest, more_gib: int) -> None:
    """Within a class of card: steps and sequence limits jump at 70 GiB."""
    larger = _grown(request.gpu, more_gib)
    if (request.gpu.total_bytes >= 70 * GIB) != (larger.total_bytes >= 70 * GIB):
        return
    alone = request._replace(concurrency=None)
    small, large = plan(alone), plan(alone._replace(gpu=larger))
    if isinstance(small, Plan):
        assert isinstance(large, Plan)
        assert large.kv.pool_tokens >= small.kv.pool_tokens * 0.98  # more sequences take logits
        assert large.concurrency.max_num_seqs >= small.concurrency.max_num_seqs


def _grown(gpu: GpuFacts, more_gib: int) -> GpuFacts:
    return gpu.model_copy(update={"total_bytes": gpu.total_bytes + more_gib * GIB})


@settings(deadline=None, max_examples=60)
@given(requests())
def test_more_concurrency_never_needs_less(request: PlanRequest) -> None:
    """What is refused for n stays refused for more than n."""
    asked = request.concurrency or 1
    fewer, more = (plan(request._replace(concurrency=n)) for n in (asked, asked + 7))
    if isinstance(fewer, Refusal):
        assert isinstance(more, Refusal)


@settings(deadline=None, max_examples=60)
@given(requests())
def test_a_plan_holds_on_the_card_it_was_made_for_and_not_on_a_smaller_one(
    request: PlanRequest,
) -> None:
    outcome = plan(request)
    if isinstance(outcome, Plan):
        assert still_fits(outcome, request.gpu)
        smaller = request.gpu.model_copy(update={"total_bytes": request.gpu.total_bytes // 2})
        assert not still_fits(outcome, smaller)
