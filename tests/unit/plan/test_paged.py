"""What does the planner say to the stories' questions about vLLM?"""

from __future__ import annotations

import pytest

import worlds
from plimsoll.engines.base import ByteOwner
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Overrides, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import GB, GIB


def _plan(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Plan), outcome
    return outcome


def _refusal(request: PlanRequest) -> Refusal:
    outcome = plan(request)
    assert isinstance(outcome, Refusal), outcome
    return outcome


def test_twenty_whole_sequences_do_not_fit_a_plant_card_and_both_ways_out_are_offered() -> None:
    refusal = _refusal(worlds.eight_b_on_a_4090(concurrency=20))
    assert refusal.reason is Reason.KV_BUDGET_EXCEEDED
    assert "20 sequences of 8,192 tokens need 20.0 GiB of KV cache" in refusal.message
    assert "16.06 GB of weights" in refusal.message
    assert "at any gpuMemoryUtilization" in refusal.message
    offers = {offer.change: offer.value for offer in refusal.offers}
    assert offers["limits.concurrency"] == "6"
    assert offers["limits.maxModelLen"] == "2560"


def test_what_is_offered_fits() -> None:
    assert _plan(worlds.eight_b_on_a_4090(concurrency=6)).concurrency.max_num_seqs == 6
    shorter = worlds.eight_b_on_a_4090(concurrency=20, max_model_len=2560)
    assert _plan(shorter).concurrency.worst_case >= 20
    longer = worlds.eight_b_on_a_4090(concurrency=20, max_model_len=2560 + 256)
    assert isinstance(plan(longer), Refusal)


@pytest.mark.parametrize("utilization", [0.5, 0.9, 0.97])
def test_no_utilization_makes_room_for_twenty(utilization: float) -> None:
    overrides = Overrides(gpu_memory_utilization=utilization)
    assert isinstance(plan(worlds.eight_b_on_a_4090(concurrency=20, overrides=overrides)), Refusal)


def test_the_mixed_fleet_has_35_gb_of_weights_on_each_of_four_cards() -> None:
    weights = _plan(worlds.seventy_b_on_four_a6000()).line(ByteOwner.WEIGHTS)
    assert weights / GB == pytest.approx(35.28, abs=0.05)


def test_the_mixed_fleet_is_explained_in_one_sentence() -> None:
    found = _plan(worlds.seventy_b_on_four_a6000())
    assert found.max_model_len == 16_384
    assert found.kv.bytes_per_token_per_card == 81_920
    assert found.kv.bytes_per_token_per_replica == 327_680
    worst = found.kv.pool_bytes_per_card // (81_920 * 16_384)
    assert found.concurrency.worst_case == worst == 8
    in_fp8 = found.kv.pool_bytes_per_card // (40_960 * 16_384)
    assert in_fp8 == 17
    assert (
        f"hold {worst} sequences of 16,384 tokens at 16 bit ({in_fp8} at fp8)" in found.explanation
    )
    mean = found.kv.pool_bytes_per_card // 81_920 // 32 // 16 * 16
    assert f"32 at once are only safe while their mean length stays below {mean:,} tokens" in (
        found.explanation
    )
    assert found.explanation.count(".") == 1 + found.explanation.count(" GiB") + 1  # numbers, end


def test_expected_concurrency_lies_between_worst_case_and_the_median() -> None:
    found = _plan(worlds.seventy_b_on_four_a6000())
    assert found.concurrency.expected is not None
    assert found.concurrency.worst_case < found.concurrency.expected
    assert found.concurrency.max_num_seqs * (1800 + 350 // 2) < found.kv.pool_tokens


def test_worst_case_keeps_to_whole_sequences() -> None:
    found = _plan(worlds.seventy_b_on_four_a6000(guarantee=Guarantee.WORST_CASE))
    assert found.concurrency.max_num_seqs == found.concurrency.worst_case == 8


def test_weights_that_do_not_fit_are_said_with_the_number_of_cards_that_would() -> None:
    request = worlds.eight_b_on_a_4090(model=worlds.model(worlds.SEVENTY_B))
    refusal = _refusal(request)
    assert refusal.reason is Reason.WEIGHTS_DO_NOT_FIT
    assert "131.4 GiB of weights" in refusal.message
    assert [offer.value for offer in refusal.offers if offer.change == "gpu.perWorker"] == ["8"]


def test_llama_cpp_is_offered_where_a_gguf_file_is_known() -> None:
    request = worlds.seventy_b_on_four_a6000(cards=1, gguf=worlds.gguf(worlds.SEVENTY_B, "Q6_K"))
    offers = {offer.change: offer for offer in _refusal(request).offers}
    assert offers["engine"].value == "llamaCpp"
    assert "of 81 layers on the card (Q6_K)" in offers["engine"].sentence


def test_a_sequence_longer_than_the_model_is_refused() -> None:
    refusal = _refusal(worlds.eight_b_on_a_4090(max_model_len=16_384))
    assert refusal.reason is Reason.LENGTH_BEYOND_MODEL
    assert "8,192" in refusal.message


def test_heads_that_do_not_divide_are_refused() -> None:
    assert _refusal(worlds.seventy_b_on_four_a6000(cards=3)).reason is Reason.HEADS_NOT_DIVISIBLE


def test_a_cache_dtype_without_a_kernel_is_refused() -> None:
    t4 = worlds.eight_b_on_a_4090(gpu=worlds.card("t4"), kv_dtype="fp8", max_model_len=512)
    assert _refusal(t4).reason is Reason.KV_DTYPE_UNSUPPORTED
    unknown = worlds.eight_b_on_a_4090(kv_dtype="q8_0")
    assert _refusal(unknown).reason is Reason.KV_DTYPE_UNSUPPORTED


def test_a_card_without_bfloat16_computes_in_float16() -> None:
    found = _plan(
        worlds.eight_b_on_a_4090(gpu=worlds.card("v100-32gb"), max_model_len=4096, cards=1)
    )
    assert found.args()[found.args().index("--dtype") + 1] == "float16"
    assert any("no bfloat16" in note for note in found.notes)


def test_overrides_are_honoured_and_shown() -> None:
    overrides = Overrides(max_num_seqs=4, gpu_memory_utilization=0.9)
    found = _plan(worlds.eight_b_on_a_4090(overrides=overrides))
    assert {flag.name: flag.value for flag in found.flags if flag.override} == {
        "--max-num-seqs": "4",
        "--gpu-memory-utilization": "0.900",
    }
    assert found.concurrency.max_num_seqs == 4


def test_a_share_that_cannot_pass_the_start_check_is_refused_with_the_largest_that_does() -> None:
    half_taken = worlds.card("rtx-a6000").model_copy(update={"held_by_others_bytes": 22 * GIB})
    request = worlds.eight_b_on_a_4090(
        gpu=half_taken, overrides=Overrides(gpu_memory_utilization=0.9)
    )
    refusal = _refusal(request)
    assert refusal.reason is Reason.OVERRIDE_CANNOT_WORK
    assert "at most 0.526 passes" in refusal.message


def test_a_half_taken_card_gets_a_smaller_share_by_itself() -> None:
    half_taken = worlds.card("rtx-a6000").model_copy(update={"held_by_others_bytes": 22 * GIB})
    found = _plan(worlds.eight_b_on_a_4090(gpu=half_taken))
    assert found.gpu_memory_utilization is not None
    assert 0.50 < found.gpu_memory_utilization <= 0.526
    assert found.line(ByteOwner.OTHERS) == 22 * GIB


def test_graphs_lie_outside_the_share_before_0_18() -> None:
    old = _plan(worlds.seventy_b_on_four_a6000(release="0.17.1"))
    new = _plan(worlds.seventy_b_on_four_a6000(release="0.18.0"))
    assert old.env == ()
    assert [each.name for each in new.env] == ["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"]
    assert old.kv.pool_bytes_per_card > new.kv.pool_bytes_per_card
    assert old.line(ByteOwner.HEADROOM) < new.line(ByteOwner.HEADROOM)


@pytest.mark.parametrize(
    ("release", "says"),
    [(None, "names no release"), ("0.40.0", "not in our table"), ("0.7.3", "older than our table")],
)
def test_a_release_that_we_do_not_know_is_said(release: str | None, says: str) -> None:
    found = _plan(worlds.eight_b_on_a_4090(release=release))
    assert any(says in note for note in found.notes)


def test_without_length_and_traffic_the_plan_says_what_it_was_made_for() -> None:
    found = _plan(worlds.eight_b_on_a_4090(max_model_len=None))
    assert found.max_model_len == 8192
    assert any("neither traffic nor limits.maxModelLen" in note for note in found.notes)


def test_a_sliding_model_pays_for_the_steps_in_flight() -> None:
    def pool_tokens(release: str) -> int:
        return _plan(
            worlds.eight_b_on_a_4090(
                gpu=worlds.card("h100-sxm"),
                model=worlds.model("google/gemma-3-27b-it"),
                release=release,
                max_model_len=32_768,
            )
        ).kv.pool_tokens

    assert pool_tokens("0.26.0") < pool_tokens("0.25.1")


@pytest.mark.parametrize("utilization", [0.96, 0.97, 0.98, 0.985, 0.99])
@pytest.mark.parametrize("release", ["0.17.1", "0.22.1"])
def test_a_pinned_share_gives_a_plan_that_adds_up_or_a_refusal(
    release: str, utilization: float
) -> None:
    """Before 0.18 graphs come on top of the share, and more sequences have more of them."""
    overrides = Overrides(gpu_memory_utilization=utilization)
    outcome = plan(worlds.seventy_b_on_four_a6000(release=release, overrides=overrides))
    if isinstance(outcome, Plan):
        assert outcome.card_bytes == sum(line.bytes for line in outcome.ledger)
    else:
        assert outcome.reason is Reason.OVERRIDE_CANNOT_WORK
        assert "passes" in outcome.message
