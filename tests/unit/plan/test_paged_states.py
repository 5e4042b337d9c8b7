"""Plans for models whose sequences hold recurrent states, or whose card leaves a kernel open."""

from __future__ import annotations

from typing import Any

import kv_rows
import worlds
from plimsoll.facts.model import ModelFacts, Weights
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Overrides, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import GIB


def _hybrid(weights_gib: int = 40) -> ModelFacts:
    """Qwen3-Next's layers with made-up weights."""
    return kv_rows.qwen3_next().model_copy(
        update={"weights": Weights(total_bytes=weights_gib * GIB), "vocab_size": 151_936}
    )


def _request(**changes: Any) -> PlanRequest:
    fields: dict[str, Any] = {
        "gpu": worlds.card("h100-sxm"),
        "model": _hybrid(),
        "release": "0.33.0",
        "max_model_len": 32_768,
    }
    return worlds.eight_b_on_a_4090(**fields | changes)


def _plan(request: PlanRequest) -> Plan:
    found = plan(request)
    assert isinstance(found, Plan), found
    return found


def _refusal(request: PlanRequest) -> Refusal:
    found = plan(request)
    assert isinstance(found, Refusal), found
    return found


def test_a_hybrid_is_planned_and_its_states_are_told() -> None:
    found = _plan(_request())
    assert "holds 9 of the pool's blocks as recurrent state" in found.explanation
    assert 0 == found.kv.pool_bytes_per_card % 14_155_776
    assert 24_576 == found.kv.bytes_per_token_per_card


def test_the_block_that_states_force_is_left_to_the_engine() -> None:
    names = [flag.name for flag in _plan(_request()).flags]
    assert "--block-size" not in names
    plain = _plan(worlds.eight_b_on_a_4090())
    assert "16" in [flag.value for flag in plain.flags if flag.name == "--block-size"]


def test_more_sequences_than_the_pool_has_blocks_are_refused_with_the_most_that_pass() -> None:
    """vllm-project/recipes#831: 1024 sequences on 939 blocks do not start."""
    refusal = _refusal(
        _request(model=_hybrid(58), overrides=Overrides(max_num_seqs=1024), max_model_len=4096)
    )
    assert Reason.OVERRIDE_CANNOT_WORK is refusal.reason
    assert "maxNumSeqs 1,024 is more than the pool's" in refusal.message
    assert "recurrent state: vLLM does not start" in refusal.message


def test_states_that_do_not_divide_are_a_matter_of_heads() -> None:
    model = _hybrid().model_copy(
        update={"attention_heads": 12, "kv_groups": _hybrid().kv_groups[:1]}
    )
    refusal = _refusal(_request(model=model, cards=3))
    assert Reason.HEADS_NOT_DIVISIBLE is refusal.reason
    assert "32 recurrent heads do not divide by 3 cards" in refusal.message


def test_a_card_that_does_not_say_its_capability_is_planned_on_the_safe_side() -> None:
    silent = worlds.card("h100-sxm").model_copy(update={"compute_capability": None})
    known, unknown = _plan(_request()), _plan(_request(gpu=silent))
    assert unknown.kv.pool_tokens <= known.kv.pool_tokens
    assert any("nobody said which compute capability" in note for note in unknown.notes)
    assert not any("nobody said" in note for note in known.notes)


def test_a_kernel_that_the_card_lacks_is_a_matter_of_the_dtype() -> None:
    model = kv_rows.model(kv_rows.latent(27), weights=Weights(total_bytes=8 * GIB))
    refusal = _refusal(_request(model=model, gpu=worlds.card("a100-80gb-sxm"), kv_dtype="fp8"))
    assert Reason.KV_DTYPE_UNSUPPORTED is refusal.reason


def test_a_block_size_that_no_kernel_reads_is_a_matter_of_the_override() -> None:
    refusal = _refusal(_request(model=kv_rows.model(kv_rows.heads(32), weights=Weights(total_bytes=GIB)),
                                overrides=Overrides(block_size=24)))  # fmt: skip
    assert Reason.OVERRIDE_CANNOT_WORK is refusal.reason
    assert "in blocks of 24 tokens" in refusal.message
