"""Are states as large, and as many, as vLLM keeps them?"""

from __future__ import annotations

import pytest

import kv_rows
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import recurrent
from plimsoll.engines.vllm.recurrent import Checkpoints, StateDoesNotDivideError
from plimsoll.facts.model import RecurrentKind, RecurrentState

NEWEST = Release.of("0.33.0")


def _bytes(state: RecurrentState, cards: int = 1, drafts: int = 0) -> int:
    return recurrent.state_bytes(state, cards=cards, model_dtype="bfloat16", drafts=drafts)


def test_states_of_published_models() -> None:
    assert 1_097_728 == _bytes(kv_rows.DELTA)
    assert 2_147_840 == _bytes(kv_rows.MAMBA2)
    assert 311_296 == _bytes(kv_rows.MAMBA1)


def test_a_state_in_fp32_leaves_the_convolution_in_the_models_dtype() -> None:
    qwen35 = kv_rows.DELTA.model_copy(update={"heads": 48, "state_dtype": "float32"})
    assert 3_207_168 == _bytes(qwen35)


def test_states_are_split_over_cards_and_shared_groups_replicated() -> None:
    assert _bytes(kv_rows.DELTA) == 2 * _bytes(kv_rows.DELTA, cards=2)
    assert 2 * (3 * 4352 + 64 * 64 * 128) == _bytes(kv_rows.MAMBA2, cards=2)
    with pytest.raises(StateDoesNotDivideError, match="128 recurrent heads do not divide by 3"):
        _bytes(kv_rows.MAMBA2.model_copy(update={"inner_channels": 8448}), cards=3)


def test_drafts_widen_the_convolutions_tail() -> None:
    assert 2 * 2 * 8192 == _bytes(kv_rows.DELTA, drafts=2) - _bytes(kv_rows.DELTA)


def test_short_convolutions_keep_a_tail_and_lightning_a_square() -> None:
    tail = RecurrentState(kind=RecurrentKind.SHORT_CONVOLUTION, conv_kernel=3, inner_channels=2048)
    assert 2 * 2048 * 2 == _bytes(tail)
    square = RecurrentState(kind=RecurrentKind.LIGHTNING, heads=64, head_dim=128)
    assert 64 * 128 * 128 * 2 == _bytes(square)


def test_a_kimi_delta_keeps_its_state_in_fp32_unasked() -> None:
    kimi = RecurrentState(
        kind=RecurrentKind.KIMI_DELTA,
        conv_kernel=4,
        heads=32,
        head_dim=128,
        key_heads=32,
        state_dim=128,
    )
    assert 3 * 3 * 4096 * 2 + 32 * 128 * 128 * 4 == _bytes(kimi)


def _left(
    state: RecurrentState, capability: tuple[int, int], release: Release = NEWEST
) -> Checkpoints:
    return recurrent.checkpoints(
        state, capability=capability, model_dtype="bfloat16", release=release
    )


def test_a_delta_nets_prefill_leaves_a_checkpoint_where_flashinfers_kernel_runs() -> None:
    by_card = {each: _left(kv_rows.DELTA, each) for each in ((9, 0), (8, 0), (10, 0), (12, 0))}
    there, nothing = Checkpoints(1, 64), Checkpoints()
    assert {(9, 0): there, (8, 0): nothing, (10, 0): there, (12, 0): there} == by_card
    narrow = kv_rows.DELTA.model_copy(update={"state_dim": 64})
    assert [there, nothing] == [_left(narrow, each) for each in ((9, 0), (10, 0))]


def test_mamba_2_leaves_one_on_every_card_and_mamba_1_none() -> None:
    assert Checkpoints(1) == _left(kv_rows.MAMBA2, (8, 0))
    assert Checkpoints() == _left(kv_rows.MAMBA1, (9, 0))
    assert Checkpoints() == _left(kv_rows.MAMBA2, (9, 0), Release.of("0.26.0"))


def test_blocks_of_states() -> None:
    assert 1 == recurrent.state_blocks(is_aligned=False, drafts=0, checkpoint_blocks=0)
    assert 4 == recurrent.state_blocks(is_aligned=False, drafts=3, checkpoint_blocks=1)
    assert 6 == recurrent.state_blocks(is_aligned=True, drafts=3, checkpoint_blocks=1)
