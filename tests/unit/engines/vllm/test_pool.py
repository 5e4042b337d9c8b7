"""Does the pool come out as vLLM's own planning code lays it out?"""

from __future__ import annotations

from typing import Any

import pytest

import kv_rows
from plimsoll.cli.kv_query import Query, query
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import pool, split
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.pool import EngineRefuses, Fits, Pool, TooLong
from plimsoll.engines.vllm.specs import SpecKind
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.units import GIB

ROWS = pytest.mark.parametrize("row", kv_rows.ROWS, ids=lambda row: f"{row['id']}-{row['model']}")
_OWN_KERNELS = ("GDN_ATTN", "MAMBA1_ATTN", "MAMBA2_ATTN")


def _pool(row: dict[str, Any]) -> tuple[Query, Pool]:
    asked = query(row, {})
    found = pool.pool_of(kv_rows.model_of(row["config"]), asked.ask)
    assert isinstance(found, Pool), found
    return asked, found


def test_the_oracle_has_all_its_rows() -> None:
    assert 254 == len(kv_rows.ROWS)


@ROWS
def test_blocks_are_what_vllm_counts(row: dict[str, Any]) -> None:
    asked, found = _pool(row)
    (stage,) = found.stages
    blocks = stage.blocks(asked.ask.max_model_len)
    assert row["pool_bytes_per_block"] == stage.block_bytes
    assert row["blocks_per_full_request"] == blocks
    assert row["bytes_per_full_request"] == blocks * stage.block_bytes
    assert row["max_in_flight_tokens"] == asked.ask.in_flight_tokens


@ROWS
def test_groups_are_what_vllm_forms(row: dict[str, Any]) -> None:
    asked, found = _pool(row)
    length = asked.ask.max_model_len
    groups = found.fullest.groups
    assert sorted(
        (g["layers"], g["page_bytes_all_layers"], g["blocks_per_full_request"])
        for g in row["groups"]
    ) == sorted((g.layers, g.page_bytes, g.blocks(length)) for g in groups)
    grow = (g for g in groups if SpecKind.RECURRENT not in g.kinds)
    assert {g.block_tokens for g in grow} <= {g["block_size"] for g in row["groups"]}


@ROWS
def test_kernels_blocks_and_dtype_are_what_vllm_chooses(row: dict[str, Any]) -> None:
    _, found = _pool(row)
    attention = [name for name in row["attention_backends"] if name not in _OWN_KERNELS]
    assert sorted(attention) == sorted(kernel.name for kernel in found.kernels)
    assert row["block_size"] == found.block_tokens
    assert row["kv_cache_dtype_resolved"] == found.kv_dtype


@ROWS
def test_capacity_is_what_vllm_prints_or_refuses(row: dict[str, Any]) -> None:
    _, found = _pool(row)
    for entry in row["capacity"]:
        answer = pool.whole(found, entry["available_bytes"])
        if "refused" in entry:
            assert isinstance(answer, TooLong)
            assert entry["estimated_max_model_len"] == answer.estimated_max_model_len
        else:
            expected = Fits(
                entry["num_blocks"], entry["max_concurrency"], entry["kv_cache_size_tokens"]
            )
            assert expected == answer


def _laid_out(model: ModelFacts, **ask: Any) -> Pool:
    found = pool.pool_of(model, KvAsk(**{"max_model_len": 8192} | ask))
    assert isinstance(found, Pool), found
    return found


def _refused(model: ModelFacts, **ask: Any) -> str:
    found = pool.pool_of(model, KvAsk(**{"max_model_len": 8192} | ask))
    assert isinstance(found, EngineRefuses), found
    return found.message


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({"tp": 3}, "32 attention heads do not divide by 3 cards"),
        ({"pp": 33}, "32 layers cannot be parted into 33 stages"),
        ({"tp": 8, "dcp": 3}, "3 does not divide tensor parallelism 8"),
        ({"tp": 8, "dcp": 2}, "needs a tensor parallelism of 16"),
        ({"tp": 32, "dcp": 8}, "needs a tensor parallelism of 64"),
    ],
)
def test_splits_that_vllm_refuses_are_named(ask: dict[str, int], words: str) -> None:
    assert words in _refused(kv_rows.model(kv_rows.heads(32)), **ask)


def test_windows_are_not_shared_by_context_parallel_ranks() -> None:
    model = kv_rows.model(kv_rows.heads(32, KvKind.SLIDING, kv_heads=1, window=512))
    assert "windows" in _refused(model, tp=8, dcp=2)


def test_a_stage_whose_layers_all_share_the_kv_of_others_is_refused() -> None:
    model = kv_rows.model(kv_rows.heads(20, at=tuple(range(20))), layers=30)
    assert "no layer with KV of its own" in _refused(model, pp=3)
    assert 20 == _laid_out(model).stages[0].groups[0].layers


def test_a_remainder_of_layers_goes_to_the_stages_before_the_last() -> None:
    assert [range(9), range(9, 19), range(19, 28)] == list(split.partition(28, 3))
    assert [16, 16] == [len(stage) for stage in split.partition(32, 2)]
    assert [7, 8, 8, 7] == [len(stage) for stage in split.partition(30, 4)]


def test_the_fullest_stage_decides_how_many_blocks_there_are() -> None:
    found = _laid_out(kv_rows.model(kv_rows.heads(28, kv_heads=4)), pp=3)
    widest = max(stage.block_bytes for stage in found.stages)
    answer = pool.whole(found, 4 * GIB)
    assert isinstance(answer, Fits)
    assert 4 * GIB // widest == answer.blocks


def test_drafts_stand_on_the_last_stage() -> None:
    alone = _laid_out(kv_rows.model(kv_rows.heads(32)), pp=2)
    drafted = _laid_out(
        kv_rows.model(kv_rows.heads(32)), pp=2, draft_groups=(kv_rows.heads(1),), drafts=3
    )
    assert alone.stages[0].block_bytes == drafted.stages[0].block_bytes
    assert 17 * alone.stages[1].block_bytes == 16 * drafted.stages[1].block_bytes


def test_a_latent_is_whole_on_every_card_and_shared_by_context_parallel_ranks() -> None:
    model = kv_rows.model(kv_rows.latent(61), attention_heads=128)
    one, eight = _laid_out(model), _laid_out(model, tp=8)
    assert one.stages == eight.stages
    shared = _laid_out(model, tp=8, dcp=8)
    assert one.stages[0].blocks(8192) == 8 * shared.stages[0].blocks(8192)


def test_an_index_of_blocks_beside_plain_heads_is_kept_in_bfloat16_whatever_the_dtype() -> None:
    index = kv_rows.latent(57, width=128, at=tuple(range(3, 60)))
    index = index.model_copy(update={"kind": KvKind.INDEXER})
    model = kv_rows.model(kv_rows.heads(60, kv_heads=4, at=tuple(range(60))), index)
    found = {dtype: _laid_out(model, kv_dtype=dtype) for dtype in ("auto", "fp8")}
    (group,) = found["auto"].stages[0].groups
    assert (117, 128) == (group.layers, group.block_tokens)
    assert {"auto": 17_596_416, "fp8": 9_732_096} == {
        dtype: each.stages[0].block_bytes for dtype, each in found.items()
    }
    assert "128 wide" in _refused(model, dcp=2, tp=8)
    assert "nvfp4" in _refused(model, kv_dtype="nvfp4")


def test_a_block_shorter_than_a_compressed_latent_is_refused() -> None:
    model = kv_rows.model_of("hf_configs/deepseek-v4-flash.json")
    assert "stand for 128" in _refused(model, block_tokens=32)
    assert 256 == _laid_out(model).block_tokens


def test_windows_hold_one_step_up_to_0_25_and_each_step_in_flight_from_0_26() -> None:
    model = kv_rows.model(kv_rows.heads(32, KvKind.SLIDING, window=1024))
    of = {
        text: _laid_out(
            model, release=Release.of(text), max_num_batched_tokens=2048, max_model_len=32_768
        )
        .stages[0]
        .blocks(32_768)
        for text in ("0.25.1", "0.26.0")
    }
    assert {"0.25.1": 193, "0.26.0": 321} == of


def test_prefixes_of_hybrids_are_cached_unasked_from_0_26() -> None:
    states = {
        text: _laid_out(kv_rows.qwen3_next(), release=Release.of(text)).stages[0].groups[0]
        for text in ("0.25.1", "0.26.0", "0.33.0")
    }
    assert {"0.25.1": 1, "0.26.0": 2, "0.33.0": 3} == {
        text: group.blocks(8192) for text, group in states.items()
    }


def test_drafted_tokens_take_a_state_block_each_and_widen_the_convolution() -> None:
    alone = _laid_out(kv_rows.qwen3_next(), max_model_len=8192)
    drafted = _laid_out(kv_rows.qwen3_next(), drafts=3, max_model_len=8192)
    states = [each.stages[0].groups[0].blocks(8192) for each in (alone, drafted)]
    assert [3, 6] == states


def test_cross_attention_holds_the_encoders_budget_whatever_the_length() -> None:
    decoder = tuple(range(32))
    model = kv_rows.model(
        kv_rows.heads(32, kv_heads=20, width=64, at=decoder),
        kv_rows.heads(32, KvKind.CROSS, kv_heads=20, width=64, at=decoder),
        attention_heads=20,
    )
    found = _laid_out(model, max_model_len=448, max_num_batched_tokens=1504)
    assert [28, 94] == [group.blocks(448) for group in found.stages[0].groups]
    assert [1, 94] == [group.blocks(16) for group in found.stages[0].groups]


def test_tokens_were_the_blocks_parted_among_groups_up_to_0_20() -> None:
    model = kv_rows.model(
        kv_rows.heads(12, KvKind.SLIDING, width=64, window=128, at=tuple(range(0, 24, 2))),
        kv_rows.heads(12, width=64, at=tuple(range(1, 24, 2))),
    )
    found = _laid_out(model, release=Release.of("0.20.2"))
    answer = pool.whole(found, GIB)
    assert isinstance(answer, Fits)
    assert answer.blocks // 2 * 16 == answer.tokens


def test_groups_of_unequal_layers_count_alike_in_older_releases() -> None:
    model = kv_rows.model_of("hf_configs/gemma-3-27b.json")
    older, newer = (
        pool.whole(_laid_out(model, release=Release.of(release), has_async_scheduling=False), GIB)
        for release in ("0.26.0", "0.33.0")
    )
    assert older == newer


def test_a_card_without_a_kernel_is_refused_with_its_capability() -> None:
    message = _refused(kv_rows.model(kv_rows.latent(61)), capability=(8, 0), kv_dtype="fp8")
    assert "Mla layers 576 wide" in message
    assert "compute capability 8.0" in message


def test_hybrids_need_the_hybrid_manager() -> None:
    assert "hybrid" in _refused(kv_rows.qwen3_next(), has_hybrid_manager=False)


def test_states_that_do_not_divide_are_named() -> None:
    model = kv_rows.model(kv_rows.recurrent(36, kv_rows.DELTA), attention_heads=12)
    found = pool.pool_of(model, KvAsk(max_model_len=8192, tp=3))
    assert isinstance(found, EngineRefuses)
    assert found.is_division
    assert "32 recurrent heads do not divide by 3 cards" == found.message


def test_a_pool_smaller_than_its_null_block_estimates_nothing() -> None:
    found = _laid_out(kv_rows.model(kv_rows.heads(32)))
    answer = pool.whole(found, 1)
    assert isinstance(answer, TooLong)
    assert 0 == answer.estimated_max_model_len
