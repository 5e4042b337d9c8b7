"""Which one thing is changed, and is it the right way round?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import worlds
from plimsoll.api.deaths_moves import Made, MoveName, NotMade, Situation, move_for
from plimsoll.diagnose.death import Death
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Overrides, Plan, PlanRequest
from plimsoll.plan.steps import Steps
from plimsoll.units import GIB, MIB


def situation(
    request: PlanRequest, kind: DeathKind, reserves: int = 0, **numbers: int
) -> Situation:
    outcome = plan(request)
    assert isinstance(outcome, Plan)
    return Situation(request, outcome, Death(kind=kind, sentence="x.", numbers=numbers), reserves)


def moved(now: Situation, times: int = 0) -> Made:
    found = move_for(now, times=times)
    assert isinstance(found, Made), found
    assert (found.plan.args(), found.plan.host_memory_bytes) != (
        now.plan.args(), now.plan.host_memory_bytes,
    )  # fmt: skip
    return found


def edge(**changes: Any) -> PlanRequest:
    return worlds.eight_b_on_a_4090(**changes)


def gguf(**changes: Any) -> PlanRequest:
    request = PlanRequest(
        engine=EngineName.LLAMA_CPP, release="b11434", gpu=worlds.card("rtx-a6000"), cards=1,
        gguf=worlds.gguf(worlds.SEVENTY_B, "Q4_K_M"), max_model_len=32768, concurrency=1,
    )  # fmt: skip
    return request._replace(**changes)


def test_capture_is_given_what_was_missing_and_no_more_than_a_fifth_of_the_cache_otherwise() -> (
    None
):
    blind = moved(situation(edge(), DeathKind.CUDA_OOM_AT_CAPTURE))
    first = plan(edge())
    assert isinstance(first, Plan)
    lost = first.kv.pool_bytes_per_card - blind.plan.kv.pool_bytes_per_card
    assert 0 < lost <= first.kv.pool_bytes_per_card // 5
    told = moved(
        situation(edge(), DeathKind.CUDA_OOM_AT_CAPTURE, triedBytes=3 * GIB, freeBytes=GIB)
    )
    assert told.steps.reserve_bytes >= 2 * GIB
    assert MoveName.MORE_RESERVE is told.name is blind.name


def test_too_little_for_the_cache_raises_the_share() -> None:
    first = plan(edge())
    assert isinstance(first, Plan)
    there = first.kv.pool_bytes_per_card // 6 - 200 * MIB
    found = moved(
        situation(edge(), DeathKind.LENGTH_TOO_LONG, neededBytes=GIB, availableBytes=there)
    )
    assert MoveName.MORE_BUDGET is found.name
    assert found.plan.gpu_memory_utilization is not None
    assert first.gpu_memory_utilization is not None
    assert found.plan.gpu_memory_utilization > first.gpu_memory_utilization
    assert 8192 == found.plan.max_model_len
    assert found.plan.line(ByteOwner.ACTIVATION) > first.line(ByteOwner.ACTIVATION) + 4 * GIB


def test_only_a_length_that_nobody_asked_for_is_shortened() -> None:
    numbers = {"neededBytes": GIB, "availableBytes": 500 * MIB, "estimatedMaxModelLen": 3900}
    asked = move_for(situation(edge(), DeathKind.LENGTH_TOO_LONG, **numbers), times=0)
    free = moved(situation(edge(max_model_len=None), DeathKind.LENGTH_TOO_LONG, **numbers))
    assert isinstance(asked, Made | NotMade)
    if isinstance(asked, Made):
        assert 8192 == asked.plan.max_model_len
    assert free.plan.max_model_len in (3840, 8192)


def test_a_plans_own_length_stays_when_something_else_is_changed() -> None:
    found = moved(situation(edge(max_model_len=None), DeathKind.CUDA_OOM_AT_CAPTURE))
    assert 8192 == found.plan.max_model_len == found.steps.max_model_len


def test_the_profile_run_takes_smaller_steps_and_not_a_smaller_share() -> None:
    now = situation(edge(), DeathKind.CUDA_OOM_IN_PROFILE)
    found = moved(now)
    assert MoveName.SMALLER_STEPS is found.name
    assert now.plan.gpu_memory_utilization == found.plan.gpu_memory_utilization


def test_more_sequences_than_states_become_as_many_as_there_are_blocks() -> None:
    found = moved(situation(edge(), DeathKind.TOO_MANY_SEQUENCES, maxNumSeqs=6, blocks=4))
    assert 4 == found.plan.concurrency.max_num_seqs


@pytest.mark.parametrize("kind", [DeathKind.HOST_OOM_BEFORE_READY, DeathKind.HOST_OOM_SERVING])
def test_host_memory_grows_and_the_card_is_left_alone(kind: DeathKind) -> None:
    now = situation(edge(), kind)
    found = moved(now)
    assert now.plan.args() == found.plan.args()
    assert found.plan.host_memory_bytes > now.plan.host_memory_bytes


def test_half_a_card_that_is_taken_is_planned_around_or_refused() -> None:
    """A 48 GB card of which 25.67 of 47.4 GiB are free: at most 0.54 of it."""
    request = edge(gpu=worlds.card("rtx-a6000"))
    numbers = {"totalBytes": round(47.4 * GIB), "freeBytes": round(25.67 * GIB)}
    found = moved(situation(request, DeathKind.MEMORY_HELD_BY_OTHERS, **numbers))
    assert found.plan.gpu_memory_utilization is not None
    assert 0.50 < found.plan.gpu_memory_utilization <= 0.54
    too_little = numbers | {"freeBytes": 15 * GIB}
    refused = move_for(situation(request, DeathKind.MEMORY_HELD_BY_OTHERS, **too_little), times=0)
    assert isinstance(refused, NotMade)
    assert "WeightsDoNotFit" in refused.sentence or "too little" in refused.sentence


def test_llama_cpp_gives_up_one_layer_then_more() -> None:
    now = situation(gguf(max_model_len=65536), DeathKind.CUDA_OOM_AT_LOAD)
    layers = [now.plan.gpu_layers or 0]
    for times in range(3):
        found = moved(now, times)
        layers.append(found.plan.gpu_layers or 0)
        now = Situation(now.request._replace(steps=found.steps), found.plan, now.death, times + 1)
    dropped = [before - after for before, after in pairwise(layers)]
    assert 1 == dropped[0]
    assert dropped == sorted(dropped)
    assert sum(dropped) <= layers[0] // 5


def test_llama_cpp_serves_with_a_smaller_batch_first() -> None:
    found = moved(situation(gguf(), DeathKind.CUDA_OOM_SERVING))
    assert MoveName.SMALLER_BATCH is found.name
    assert ("--ubatch-size", "256") in {(flag.name, flag.value) for flag in found.plan.flags}


def test_a_smaller_prompt_cache_leaves_its_memory_to_the_container() -> None:
    now = situation(gguf(), DeathKind.HOST_OOM_SERVING)
    found = moved(now)
    assert MoveName.SMALLER_CACHE is found.name
    assert now.plan.host_memory_bytes == found.plan.host_memory_bytes


def test_what_the_user_pinned_is_named_and_left() -> None:
    request = edge(overrides=Overrides(gpu_memory_utilization=0.9))
    found = moved(situation(request, DeathKind.CUDA_OOM_AT_CAPTURE))
    assert MoveName.FEWER_GRAPHS is found.name or MoveName.NO_GRAPHS is found.name
    assert 0.9 == found.plan.gpu_memory_utilization
    held = move_for(situation(request, DeathKind.MEMORY_HELD_BY_OTHERS), times=0)
    assert NotMade("LeaveToOthers would change gpuMemoryUtilization, which you pinned") == held


def test_a_move_that_would_break_what_was_promised_is_not_made() -> None:
    """Six sequences fit and six are asked for: less cache would break the promise, fewer graphs do not."""
    found = moved(situation(edge(concurrency=6), DeathKind.CUDA_OOM_AT_CAPTURE))
    assert found.name in (MoveName.FEWER_GRAPHS, MoveName.NO_GRAPHS)
    assert 6 == found.plan.concurrency.max_num_seqs


def test_weights_that_do_not_load_have_no_argument() -> None:
    assert isinstance(move_for(situation(edge(), DeathKind.CUDA_OOM_AT_LOAD), times=0), NotMade)
    assert isinstance(move_for(situation(edge(), DeathKind.UNKNOWN), times=0), NotMade)


def test_nothing_learned_is_the_plan_as_it_was() -> None:
    for request in (edge(), worlds.seventy_b_on_four_a6000(), gguf()):
        assert plan(request) == plan(request._replace(steps=Steps()))
