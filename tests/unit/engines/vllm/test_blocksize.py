"""Are blocks as long as kernels, states and unquantised layers force them to be?"""

from __future__ import annotations

from typing import Any

import kv_rows
from plimsoll.engines.vllm import pool
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.pool import Pool
from plimsoll.facts.model import KvKind, ModelFacts, RecurrentKind, RecurrentState


def _pool(model: ModelFacts, **ask: Any) -> Pool:
    found = pool.pool_of(model, KvAsk(**{"max_model_len": 32_768} | ask))
    assert isinstance(found, Pool), found
    return found


def _block(model: ModelFacts, **ask: Any) -> int:
    return _pool(model, **ask).block_tokens


def test_a_page_of_attention_is_no_smaller_than_a_state() -> None:
    model = kv_rows.qwen3_next()
    by_card = [_block(model, capability=each) for each in ((9, 0), (8, 0), (10, 0))]
    assert [576, 544, 640] == by_card
    assert [576, 320] == [_block(model, tp=tp) for tp in (2, 4)]
    assert 544 == _block(model, has_prefix_caching=False)
    assert 1088 == _block(model, kv_dtype="fp8")


def test_a_block_size_flag_is_a_step_of_the_aligned_block() -> None:
    assert 1024 == _block(kv_rows.qwen3_next(), block_tokens=1024)
    assert 640 == _block(kv_rows.qwen3_next(), block_tokens=128)


def test_latents_beside_states_take_multiples_of_128() -> None:
    kimi = RecurrentState(
        kind=RecurrentKind.KIMI_DELTA,
        conv_kernel=4,
        heads=32,
        head_dim=128,
        key_heads=32,
        state_dim=128,
    )
    full = tuple(range(3, 27, 4))
    rest = tuple(n for n in range(27) if n not in full)
    model = kv_rows.model(kv_rows.recurrent(21, kimi, rest), kv_rows.latent(6, at=full))
    assert 0 == _block(model) % 128
    assert _block(model) * 1152 >= 2_170_880


def test_unquantised_layers_share_the_page_of_the_quantised_ones() -> None:
    model = kv_rows.model(
        kv_rows.heads(12, KvKind.SLIDING, width=64, window=128, at=tuple(range(0, 24, 2))),
        kv_rows.heads(12, width=64, at=tuple(range(1, 24, 2))),
    )
    found = _pool(model, kv_dtype="fp8", skip_layers=("sliding_window",))
    assert 32 == found.block_tokens
    assert {12 * 32 * 8 * 128} == {group.page_bytes for group in found.stages[0].groups}
    assert [16, 32] == sorted(group.block_tokens for group in found.stages[0].groups)


def test_turboquant_spares_two_layers_at_each_end() -> None:
    found = _pool(kv_rows.model(kv_rows.heads(32)), kv_dtype="turboquant_k8v4")
    assert 32 == found.block_tokens
    assert 32 * 8 * (28 * 196 + 4 * 512) == found.stages[0].block_bytes
