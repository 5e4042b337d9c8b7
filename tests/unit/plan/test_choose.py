"""Is the best of several ways chosen, and is it said what was given up?"""

from __future__ import annotations

from typing import Any

import pytest

import worlds
from plimsoll.engines.base import EngineName
from plimsoll.plan.choose import WORTH_MORE_CARDS, Candidate, Choice, choose
from plimsoll.plan.paged import gauge_vllm
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import MIB


def ways(
    gpu: str, model: str = worlds.EIGHT_B, *, gguf: str | None = None, **changes: Any
) -> list[PlanRequest]:
    """vLLM on 1, 2, 4 and 8 cards, and llama.cpp on 1 and 2 where a file is named."""
    base = worlds.eight_b_on_a_4090(
        gpu=worlds.card(gpu),
        model=worlds.model(model),
        gguf=worlds.gguf(model, gguf) if gguf else None,
        max_model_len=None,
    )._replace(**changes)
    vllm = [base._replace(cards=cards) for cards in (1, 2, 4, 8)]
    llama = base._replace(engine=EngineName.LLAMA_CPP, release=None)
    return [*vllm, *([llama._replace(cards=cards) for cards in (1, 2)] if gguf else [])]


def chosen(requests: list[PlanRequest], **how: Any) -> Choice:
    found = choose(requests, **how)
    assert isinstance(found, Choice), found
    return found


def test_no_other_way_carries_half_as_many_tokens_again_on_a_card() -> None:
    for gpu in ("rtx-4090", "l40s", "h100-sxm", "t4"):
        found = chosen(ways(gpu))
        best = found.best.tokens_per_card
        wider = [each for each in found.others if each.request.cards > found.best.request.cards]
        assert all(each.tokens_per_card < WORTH_MORE_CARDS * best for each in wider), gpu


def test_one_card_serves_where_two_are_little_better() -> None:
    found = chosen(ways("h100-sxm"))
    assert found.best.request.cards == 1
    assert any(
        "2 cards with vLLM" in said and "times the tokens per card" in said
        for said in found.gave_up
    )


def test_more_cards_are_taken_where_the_fewest_hardly_fit() -> None:
    """Two cards of 80 GB hold 70B and next to no cache."""
    found = chosen(ways("h100-sxm", worlds.SEVENTY_B))
    assert found.best.request.cards == 4
    assert found.gave_up[0].startswith("chosen: 4 cards with vLLM; 1 card of ")


def test_asked_for_sequences_the_fewest_cards_that_hold_them_are_best() -> None:
    for asked, cards in ((4, 1), (16, 2), (60, 4)):
        found = chosen(ways("rtx-4090", concurrency=asked, max_model_len=8192))
        assert found.best.request.cards == cards, asked
        assert found.plan.concurrency.max_num_seqs == asked


def test_a_gguf_is_chosen_only_where_vllm_does_not_fit() -> None:
    large = chosen(ways("h100-sxm", worlds.SEVENTY_B, gguf="Q4_K_M"))
    assert large.best.request.engine is EngineName.VLLM
    assert "not chosen: llama.cpp, whose weights have fewer bits" in large.gave_up
    small = chosen(ways("t4", worlds.SEVENTY_B, gguf="Q4_K_M"))
    assert small.best.request.engine is EngineName.LLAMA_CPP


def test_all_layers_on_two_cards_go_before_some_on_one() -> None:
    found = chosen(ways("rtx-3090", worlds.SEVENTY_B, gguf="Q4_K_M")[4:])
    assert (found.best.request.cards, found.plan.gpu_layers) == (2, found.plan.layers)
    assert any("some layers would stay in host memory" in said for said in found.gave_up)


def test_shapes_with_room_for_all_workers_go_first() -> None:
    requests = ways("rtx-a5000")
    alone = chosen(requests, rooms=[8, 4, 2, 1], wanted=1)
    many = chosen(requests, rooms=[8, 4, 2, 1], wanted=8)
    assert (alone.best.request.cards, many.best.request.cards) == (2, 1)
    assert any("there are cards for 4 such workers" in said for said in many.gave_up)


def test_room_that_nothing_has_holds_nothing_up() -> None:
    found = chosen(ways("h100-sxm", worlds.SEVENTY_B), rooms=[4, 2, 1, 0], wanted=4)
    assert found.best.request.cards == 2


def test_the_usual_length_gives_way_where_nobody_asked_for_one() -> None:
    """Cards on which one sequence of 8,192 tokens does not fit, and a shorter one does."""
    lengths = set()
    for mib in range(16_000, 20_000, 100):
        gpu = worlds.card("rtx-4090").model_copy(update={"total_bytes": mib * MIB})
        found = choose([worlds.eight_b_on_a_4090(gpu=gpu, max_model_len=None)])
        if isinstance(found, Choice):
            lengths.add(found.plan.max_model_len)
            said = "no length was asked for" in " ".join(found.plan.notes)
            assert said == (found.plan.max_model_len < 8192)
    assert lengths == {2048, 4096, 8192}


def test_a_short_length_that_was_asked_for_is_no_choice_of_ours() -> None:
    found = chosen(ways("rtx-4090", max_model_len=4096))
    assert "no length was asked for" not in " ".join(found.gave_up)


def test_a_length_that_was_asked_for_stays() -> None:
    (one, *_) = ways("rtx-4090", max_model_len=8192, concurrency=300)
    found = choose([one])
    assert isinstance(found, Refusal)
    assert found.reason is Reason.KV_BUDGET_EXCEEDED


def test_where_nothing_fits_the_first_refusal_stands() -> None:
    requests = ways("t4", worlds.SEVENTY_B)[:2]
    assert choose(requests) == plan(requests[0])


def test_what_was_given_up_stands_in_the_plan() -> None:
    found = chosen(ways("h100-sxm"))
    assert set(found.gave_up) <= set(found.plan.notes)
    assert plan(found.request) == found.plan


def test_one_way_is_no_choice_and_nothing_is_said() -> None:
    found = chosen(ways("h100-sxm")[:1])
    assert found.gave_up == ()


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="give at least one question"):
        choose([])


@pytest.mark.parametrize("gpu", ["rtx-4090", "h100-sxm", "l4"])
@pytest.mark.parametrize("model", [worlds.EIGHT_B, "openai/gpt-oss-20b"])
def test_a_gauge_says_what_the_worst_case_plan_says(gpu: str, model: str) -> None:
    for request in ways(gpu, model, lanes=(worlds.one_lane(),), guarantee=Guarantee.EXPECTED):
        gauge = gauge_vllm(request)
        whole = plan(request._replace(guarantee=Guarantee.WORST_CASE))
        if isinstance(gauge, Refusal):
            assert isinstance(whole, Refusal)
            continue
        assert isinstance(whole, Plan)
        assert gauge.sequences == whole.concurrency.worst_case
        assert gauge.tokens <= whole.kv.pool_tokens


def test_a_candidate_counts_tokens_by_card() -> None:
    (_, two, *_) = ways("l40s")
    candidate = Candidate(at=1, request=two, room=4, tokens=1000, sequences=5)
    assert candidate.tokens_per_card == 500
    assert candidate.words == "2 cards with vLLM"
