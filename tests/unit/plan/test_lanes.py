"""Does an engine behind a gate get what its lanes need, and only there?"""

from __future__ import annotations

from typing import Any

import pytest

import worlds
from plimsoll.engines.base import ByteOwner
from plimsoll.plan.lanes import (
    LEAST_STEP_TOKENS,
    AtTheGate,
    LaneAtGate,
    long_prompt_tokens,
    step_tokens,
)
from plimsoll.plan.lanes_pace import TERAOPS, prompt_tokens_per_second, relative_speeds
from plimsoll.plan.lanes_slots import Room, most_at_once, slots_of
from plimsoll.plan.paged_ask import PagedAsk, prepare
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Lane, Overrides, Plan, PlanRequest, TokenQuantiles
from plimsoll.plan.steps import Steps

CHAT = LaneAtGate("chat", 3900, 70, 0, True, None, 700, is_long=False)
BATCH = LaneAtGate("batch", 31_200, 30, 10, False, 2, 22_000, is_long=True)
GATE = AtTheGate(lanes=(CHAT, BATCH))
TRAFFIC = (
    Lane("chat", TokenQuantiles(700, 3000), TokenQuantiles(250, 900), 0.7),
    Lane("batch", TokenQuantiles(22_000, 30_000), TokenQuantiles(400, 1200), 0.3),
)


def question(**changes: Any) -> PlanRequest:
    """An 8B model on a card of 80 GB, which takes steps of 8,192 tokens by itself."""
    return worlds.eight_b_on_a_4090(
        gpu=worlds.card("h100-sxm"),
        model=worlds.model("meta-llama/Llama-3.1-8B-Instruct"),
        max_model_len=32_768,
        lanes=TRAFFIC,
        guarantee=Guarantee.EXPECTED,
        release="0.33.0",
        gate=GATE,
    )._replace(**changes)


def answer(**changes: Any) -> Plan:
    found = plan(question(**changes))
    assert isinstance(found, Plan), found
    return found


def flags(found: Plan) -> dict[str, str | None]:
    return {flag.name: flag.value for flag in found.flags}


def about(found: Plan, word: str) -> list[str]:
    return [note for note in found.notes if note.startswith("lanes: ") and word in note]


def test_the_newest_release_is_told_all_of_it() -> None:
    found = answer()
    said = flags(found)
    assert "priority" == said["--scheduling-policy"]
    assert "512" == said["--long-prefill-token-threshold"]
    assert "2048" == said["--max-num-batched-tokens"]
    assert "--long-prefill-token-threshold-adaptive" in said
    sequences = found.concurrency.max_num_seqs
    assert str(sequences + sequences // 4) == said["--max-num-queued-reqs"]


def test_no_flag_and_no_note_is_there_without_a_gate() -> None:
    found = answer(gate=None)
    said = flags(found)
    assert "fcfs" == said["--scheduling-policy"]
    assert "8192" == said["--max-num-batched-tokens"]
    assert not {"--long-prefill-token-threshold", "--max-num-queued-reqs"} & said.keys()
    assert [] == about(found, "")


@pytest.mark.parametrize(
    ("release", "policy", "has_adaptive", "has_queue"),
    [
        ("0.8.5", "fcfs", False, False),
        ("0.27.1", "fcfs", False, False),
        ("0.28.0", "priority", False, False),
        ("0.29.0", "priority", False, True),
        ("0.30.0", "priority", False, True),
        ("0.31.0", "priority", True, True),
    ],
)
def test_a_release_is_told_what_it_knows(
    release: str, policy: str, has_adaptive: bool, has_queue: bool
) -> None:
    found = answer(release=release)
    said = flags(found)
    assert policy == said["--scheduling-policy"]
    assert has_adaptive == ("--long-prefill-token-threshold-adaptive" in said)
    assert has_queue == ("--max-num-queued-reqs" in said)
    assert "512" == said["--long-prefill-token-threshold"]
    assert bool(about(found, "only wall")) is not has_queue
    assert bool(about(found, "first come")) is (policy == "fcfs")


def test_a_policy_that_nobody_feeds_is_not_pinned() -> None:
    same = AtTheGate(lanes=(CHAT, BATCH._replace(priority=CHAT.priority)))
    assert "fcfs" == flags(answer(gate=same))["--scheduling-policy"]


def test_sequences_are_as_many_as_the_gate_ever_lets_in() -> None:
    found, alone = answer(), answer(gate=None)
    room = Room(kv_tokens=found.kv.pool_tokens, block_tokens=found.kv.block_tokens or 1)
    assert found.concurrency.max_num_seqs < alone.concurrency.max_num_seqs
    assert sum(slots_of(room, GATE.lanes)) <= found.concurrency.max_num_seqs
    assert found.concurrency.max_num_seqs <= most_at_once(room, GATE.lanes)


def test_without_a_borrower_they_are_the_slots() -> None:
    room = Room(kv_tokens=250_000, block_tokens=16)
    lanes = (CHAT._replace(borrow=False), BATCH)
    assert sum(slots_of(room, lanes)) == most_at_once(room, lanes)
    assert most_at_once(room, lanes) < most_at_once(room, (CHAT, BATCH))


def test_what_the_user_pins_holds_and_is_shown() -> None:
    overrides = Overrides(max_num_seqs=200, max_num_batched_tokens=4096)
    found = answer(overrides=overrides)
    said = flags(found)
    assert ("200", "4096") == (said["--max-num-seqs"], said["--max-num-batched-tokens"])
    assert {"--max-num-seqs", "--max-num-batched-tokens"} == {
        flag.name for flag in found.flags if flag.override
    }
    assert about(found, "maxNumBatchedTokens")
    assert about(found, "never lets in more")


def test_what_the_user_asks_for_at_once_is_kept() -> None:
    found = answer(concurrency=100)
    assert 100 == found.concurrency.max_num_seqs


def test_flags_among_the_users_arguments_are_theirs() -> None:
    theirs = frozenset({"--long-prefill-token-threshold", "--max-num-queued-reqs"})
    found = answer(gate=GATE._replace(said=theirs))
    said = flags(found)
    assert not theirs & said.keys()
    assert "--long-prefill-token-threshold-adaptive" not in said
    assert 2 == len(about(found, "extraArgs"))


def test_a_smaller_step_leaves_more_for_the_pool() -> None:
    found, alone = answer(), answer(gate=None)
    assert found.line(ByteOwner.ACTIVATION) < alone.line(ByteOwner.ACTIVATION)
    assert found.kv.pool_tokens > alone.kv.pool_tokens


def test_a_target_sets_the_step_by_the_cards_pace() -> None:
    model = worlds.model("meta-llama/Llama-3.1-8B-Instruct")
    half_way = BATCH.prompt_tokens // 2
    pace = prompt_tokens_per_second(model, worlds.card("h100-sxm"), 1, after_tokens=half_way)
    assert pace is not None
    found = answer(gate=GATE._replace(gap_seconds=0.05))
    step = int(flags(found)["--max-num-batched-tokens"] or 0)
    assert 0.9 * 0.05 * pace <= step <= 0.05 * pace
    assert step % 64 == 0
    assert about(found, "ms each")


def test_a_target_that_no_step_keeps_is_said_to_be_missed() -> None:
    found = answer(gate=GATE._replace(gap_seconds=0.01))
    assert str(LEAST_STEP_TOKENS) == flags(found)["--max-num-batched-tokens"]
    assert about(found, "more than the 10 ms asked for")


def test_a_target_on_a_card_of_unknown_pace_changes_nothing_and_says_so() -> None:
    slow = answer(gpu=worlds.card("gb10"), gate=GATE._replace(gap_seconds=0.05))
    assert "2048" == flags(slow)["--max-num-batched-tokens"]
    assert about(slow, "no effect")


def test_a_step_holds_the_sequences_that_are_asked_for() -> None:
    overrides = Overrides(max_num_seqs=900)
    found = answer(gate=GATE._replace(gap_seconds=0.01), overrides=overrides)
    assert "900" == flags(found)["--max-num-batched-tokens"]


def test_what_a_death_taught_of_steps_goes_before_lanes() -> None:
    found = answer(steps=Steps(max_num_batched_tokens=1024))
    assert "1024" == flags(found)["--max-num-batched-tokens"]


def test_lanes_alike_in_length_need_no_pace() -> None:
    alike = AtTheGate(lanes=(CHAT, BATCH._replace(is_long=False, most_per_worker=None)))
    said = flags(answer(gate=alike))
    assert "8192" == said["--max-num-batched-tokens"]
    assert "--long-prefill-token-threshold" not in said
    assert "priority" == said["--scheduling-policy"]


@pytest.mark.parametrize(("usual", "expected"), [(700, 512), (1500, 750), (2000, 768), (9000, 768)])
def test_a_long_prompts_part_is_not_far_below_the_others_prompts(usual: int, expected: int) -> None:
    gate = AtTheGate(lanes=(CHAT._replace(prompt_tokens=usual), BATCH))
    assert expected == long_prompt_tokens(gate, step=2048, longest=32_768)


def test_a_part_of_a_step_is_no_longer_than_a_sequence() -> None:
    assert 256 == long_prompt_tokens(GATE, step=2048, longest=256)


@pytest.mark.parametrize("release", ["0.20.2", "0.33.0"])
def test_states_at_the_ends_of_blocks_fit_into_a_long_prompts_part(release: str) -> None:
    asked = question(
        gpu=worlds.card("h200"),
        model=worlds.model("Qwen/Qwen3-Next-80B-A3B-Instruct"),
        cards=2,
        release=release,
        gate=GATE._replace(gap_seconds=0.01),
    )
    ask, found = prepare(asked), plan(asked)
    assert isinstance(ask, PagedAsk)
    assert isinstance(found, Plan)
    block = ask.pool.block_tokens
    assert block > LEAST_STEP_TOKENS
    said = flags(found)
    assert block <= int(said["--long-prefill-token-threshold"] or 0)
    assert 2 * block <= int(said["--max-num-batched-tokens"] or 0)


def test_a_step_is_never_larger_than_the_engines_own() -> None:
    assert 2048 == step_tokens(GATE._replace(gap_seconds=10.0), 2048, 20_000.0)
    assert 8192 == step_tokens(None, 8192, None)


def test_paces_are_those_of_cards_in_the_catalogue() -> None:
    model = worlds.model("meta-llama/Llama-3.1-8B-Instruct")
    for key in TERAOPS:
        assert prompt_tokens_per_second(model, worlds.card(key), 1) is not None, key


def test_a_token_costs_attention_what_stands_before_it() -> None:
    """Llama 3.1 8B: 2 x 7.0e9 operations for weights, 2 x 32 layers x 32 heads x 256 for each token before."""
    model, card = worlds.model("meta-llama/Llama-3.1-8B-Instruct"), worlds.card("h100-sxm")
    first = prompt_tokens_per_second(model, card, 1)
    later = prompt_tokens_per_second(model, card, 1, after_tokens=30_000)
    assert first is not None
    assert later is not None
    weights = 989e12 * 0.4 / first
    assert weights == pytest.approx(2 * 7.0e9, rel=0.01)
    assert 989e12 * 0.4 / later - weights == pytest.approx(2 * 32 * 32 * 256 * 30_000)


def test_recurrent_layers_cost_the_same_at_any_depth() -> None:
    """Qwen3-Next attends in a quarter of its 48 layers, with 16 heads of 256."""
    model, card = worlds.model("Qwen/Qwen3-Next-80B-A3B-Instruct"), worlds.card("h200")
    first = prompt_tokens_per_second(model, card, 1)
    later = prompt_tokens_per_second(model, card, 1, after_tokens=30_000)
    assert first is not None
    assert later is not None
    more = 989e12 * 0.4 / later - 989e12 * 0.4 / first
    assert more == pytest.approx(2 * 12 * 16 * 512 * 30_000)


def test_a_window_bounds_what_depth_costs() -> None:
    model, card = worlds.model("openai/gpt-oss-20b"), worlds.card("h100-sxm")
    costs = [
        1 / (prompt_tokens_per_second(model, card, 1, after_tokens=tokens) or 0)
        for tokens in (1_000, 2_000, 3_000)
    ]
    full = sum(group.layers for group in model.kv_groups if group.window_tokens is None)
    assert 0 < full < model.layers
    per_token = 2 * full * model.attention_heads * 128 / (989e12 * 0.4)
    assert costs[1] - costs[0] == pytest.approx(1_000 * per_token)
    assert costs[2] - costs[1] == pytest.approx(1_000 * per_token)


def test_speeds_are_told_beside_the_fastest_and_only_where_all_are_known() -> None:
    h100, l4 = worlds.card("h100-sxm").product, worlds.card("l4").product
    assert (1.0, 121 / 989) == relative_speeds([(h100, 1), (l4, 1)])
    assert (1.0, 484 / 989) == relative_speeds([(h100, 1), (l4, 4)])
    assert (None, None) == relative_speeds([(h100, 1), (worlds.card("gb10").product, 1)])
    assert () == relative_speeds([])


def test_seventy_billion_weights_are_read_at_the_pace_of_the_cards() -> None:
    """2 x 70e9 operations a token; four cards of 155 TFLOPS reach 40 %."""
    pace = prompt_tokens_per_second(worlds.model(worlds.SEVENTY_B), worlds.card("rtx-a6000"), 4)
    assert pace is not None
    assert pace == pytest.approx(4 * 155e12 * 0.4 / (2 * 70e9), rel=0.05)
