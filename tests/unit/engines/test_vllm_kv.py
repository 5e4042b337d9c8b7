"""Does our block arithmetic give what vLLM's own planning code gives?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import worlds
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import kv
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts
from plimsoll.units import round_up

ORACLE = Path(__file__).parents[2] / "data" / "vllm_kv_oracle.json"
ROWS: list[dict[str, Any]] = json.loads(ORACLE.read_text())["rows"]


def _layout(row: dict[str, Any]) -> kv.PagedLayout:
    """The oracle's layers, as they would be before vLLM split them over ranks."""
    groups = tuple(
        KvGroup(
            kind=KvKind(layer["kind"]),
            layers=layer["count"],
            kv_heads=1 if layer["kind"] == "Mla" else layer["kvHeadsPerRank"] * row["tp"],
            key_dim=layer["keyDim"],
            value_dim=layer["valueDim"],
            window_tokens=layer["window"],
        )
        for layer in row["layers"]
    )
    model = worlds.model(worlds.EIGHT_B).model_copy(update={"kv_groups": groups})
    return kv.layout(
        model,
        cards=row["tp"],
        kv_dtype=row["kvDtype"],
        release=Release.of("0.33.0"),
        max_num_batched_tokens=row["inFlightTokens"] // 2,
        block_tokens=row["blockTokens"],
    )


def test_the_oracle_has_all_its_rows() -> None:
    assert len(ROWS) == 170


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['model']}")
def test_blocks_are_what_vllm_counts(row: dict[str, Any]) -> None:
    pool = _layout(row)
    assert pool.block_bytes == row["poolBytesPerBlock"]
    assert kv.blocks_of_sequence(pool, row["maxModelLen"]) == row["blocksPerFullRequest"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['model']}")
def test_concurrency_is_what_vllm_prints(row: dict[str, Any]) -> None:
    pool = _layout(row)
    per_request = kv.blocks_of_sequence(pool, row["maxModelLen"])
    for available, blocks, concurrency in row["capacity"]:
        if blocks is None:  # vLLM refused: not even one sequence, with a block kept back
            assert available // pool.block_bytes - kv.NULL_BLOCKS < per_request
            continue
        assert available // pool.block_bytes == blocks
        assert blocks / per_request == pytest.approx(concurrency)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['model']}")
def test_lengths_within_a_step_take_the_same_blocks(row: dict[str, Any]) -> None:
    pool = _layout(row)
    step = kv.step_tokens(pool)
    edges = [kind.most_tokens or row["maxModelLen"] for kind in pool.kinds]
    for tokens in (1, 1000, 4097, *(edge + beside for edge in edges for beside in (-1, 0, 1))):
        whole = kv.blocks_of_sequence(pool, round_up(tokens, step))
        assert whole == kv.blocks_of_sequence(pool, tokens)


def _seventy_b() -> ModelFacts:
    return worlds.model(worlds.SEVENTY_B)


def test_seventy_b_takes_320_kib_per_token_and_half_at_fp8() -> None:
    assert kv.kv_bytes_per_token_per_card(_seventy_b(), cards=1, kv_dtype="auto") == 327_680
    assert kv.kv_bytes_per_token_per_card(_seventy_b(), cards=1, kv_dtype="fp8") == 163_840


def test_seventy_b_takes_a_quarter_on_each_of_four_cards() -> None:
    assert kv.kv_bytes_per_token_per_card(_seventy_b(), cards=4, kv_dtype="auto") == 81_920


def test_a_long_sequence_of_seventy_b_takes_10_74_gigabytes_whole_blocks_counted() -> None:
    pool = kv.layout(
        _seventy_b(),
        cards=1,
        kv_dtype="auto",
        release=Release.of("0.22.1"),
        max_num_batched_tokens=2048,
    )
    assert 10_737_418_240 == kv.blocks_of_sequence(pool, 32_768) * pool.block_bytes


def test_eight_b_takes_128_kib_per_token() -> None:
    model = worlds.model(worlds.EIGHT_B)
    assert kv.kv_bytes_per_token_per_card(model, cards=1, kv_dtype="auto") == 131_072


def test_kv_heads_are_replicated_when_there_are_fewer_than_cards() -> None:
    four_heads = KvGroup(kind=KvKind.FULL, layers=48, kv_heads=4, key_dim=128, value_dim=128)
    assert [kv.kv_heads_per_card(four_heads, cards) for cards in (1, 2, 4, 8)] == [4, 2, 1, 1]


def test_mla_is_whole_on_every_card() -> None:
    latent = KvGroup(kind=KvKind.MLA, layers=61, kv_heads=1, key_dim=576, value_dim=0)
    for cards in (1, 8):
        assert 1152 == kv.layer_bytes_per_token(latent, cards=cards, value_bytes=2)


def test_heads_that_do_not_divide_are_named_with_the_numbers_that_would() -> None:
    problem = kv.heads_problem(_seventy_b(), 3)
    assert problem is not None
    assert (
        problem.message == "64 attention heads do not divide by 3 cards; 1, 2, 4, 8, 16 would work"
    )


def test_sliding_layers_hold_two_steps_in_flight_from_0_26() -> None:
    assert [kv.steps_in_flight(Release.of(text)) for text in ("0.22.1", "0.25.1", "0.26.0")] == [
        1,
        1,
        2,
    ]


def test_the_longest_sequence_takes_no_more_blocks_than_given() -> None:
    pool = _layout(ROWS[0])
    longest = kv.longest_sequence(pool, 100, at_most=10_000)
    assert kv.blocks_of_sequence(pool, longest) == 100
    assert kv.blocks_of_sequence(pool, longest + 1) == 101
