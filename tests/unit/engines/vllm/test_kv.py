"""Does the planner get the pool's geometry for the card it has, or for the worst it may have?"""

from __future__ import annotations

from typing import Any

import pytest

import kv_rows
import worlds
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import kv
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts
from plimsoll.units import round_up

WHOLE = [row for row in kv_rows.ROWS if row["pp"] == 1 and row["dcp"] == 1 and not row["label"].startswith(
    ("hybrid", "async", "prefix"))]  # fmt: skip
"""Rows with the flags that the planner pins."""


def _layout(model: ModelFacts, **changes: Any) -> kv.PagedLayout:
    asked: dict[str, Any] = {
        "cards": 1,
        "kv_dtype": "auto",
        "release": Release.of("0.33.0"),
        "max_model_len": 32_768,
        "max_num_batched_tokens": 2048,
        "capability": (9, 0),
    }
    found = kv.layout(model, **asked | changes)
    assert isinstance(found, kv.PagedLayout), found
    return found


def _of_row(row: dict[str, Any]) -> kv.PagedLayout:
    major, minor = row["compute_capability"].split(".")
    return _layout(
        kv_rows.model_of(row["config"]),
        cards=row["tp"],
        kv_dtype=row["kv_cache_dtype"],
        max_model_len=row["max_model_len"],
        max_num_batched_tokens=row["max_num_batched_tokens"],
        block_tokens=row["block_size_flag"],
        capability=(int(major), int(minor)),
    )


@pytest.mark.parametrize("row", WHOLE, ids=lambda row: f"{row['id']}-{row['model']}")
def test_the_planner_never_counts_less_than_vllm(row: dict[str, Any]) -> None:
    paged = _of_row(row)
    blocks = kv.blocks_of_sequence(paged, row["max_model_len"])
    if paged.doubt:  # with FlashInfer the engine may choose other kernels
        assert paged.block_bytes * blocks >= row["bytes_per_full_request"]
    else:
        assert row["blocks_per_full_request"] == blocks
        assert row["pool_bytes_per_block"] == paged.block_bytes


@pytest.mark.parametrize("row", WHOLE[::3], ids=lambda row: f"{row['id']}-{row['model']}")
def test_lengths_within_a_step_take_the_same_blocks(row: dict[str, Any]) -> None:
    paged = _of_row(row)
    step = kv.step_tokens(paged)
    edges = [kind.most_tokens or row["max_model_len"] for kind in paged.kinds]
    for tokens in (1, 1000, 4097, *(edge + beside for edge in edges for beside in (-1, 0, 1))):
        whole = kv.blocks_of_sequence(paged, round_up(tokens, step))
        assert whole == kv.blocks_of_sequence(paged, tokens)


def test_a_card_that_does_not_say_what_it_is_gets_the_layout_that_takes_most() -> None:
    latents = kv_rows.model(kv_rows.latent(61), attention_heads=128)
    paged = _layout(latents, capability=None, max_model_len=32_700)
    known = [_layout(latents, capability=each, max_model_len=32_700) for each in kv.GENERATIONS]
    most = max(each.block_bytes * kv.blocks_of_sequence(each, 32_700) for each in known)
    assert most == paged.block_bytes * kv.blocks_of_sequence(paged, 32_700)
    assert "compute capability" in paged.doubt
    plain = _layout(kv_rows.model(kv_rows.heads(32)), capability=None)
    assert "" == plain.doubt


def test_blocks_that_kernels_or_states_force_are_left_to_the_engine() -> None:
    forced = [
        _layout(model).is_forced
        for model in (
            kv_rows.model(kv_rows.heads(32)),
            kv_rows.model(kv_rows.latent(61)),
            kv_rows.qwen3_next(),
        )
    ]
    assert [False, True, True] == forced


def test_states_are_held_whatever_the_length() -> None:
    paged = _layout(kv_rows.qwen3_next())
    assert 9 == paged.state_blocks
    assert 10 == kv.blocks_of_sequence(paged, 1)
    assert 10 == kv.blocks_of_sequence(paged, 576)
    assert 11 == kv.blocks_of_sequence(paged, 577)
    assert 576 == kv.step_tokens(paged)
    assert 12 * 2 * 512 * 2 == paged.bytes_per_token_per_card


def test_what_the_engine_refuses_is_a_result() -> None:
    refused = kv.layout(
        kv_rows.model(kv_rows.latent(61)),
        cards=1,
        kv_dtype="fp8",
        release=Release.of("0.33.0"),
        max_model_len=4096,
        max_num_batched_tokens=2048,
        capability=(8, 0),
    )
    assert isinstance(refused, kv.EngineRefuses)


def _seventy_b() -> ModelFacts:
    return worlds.model(worlds.SEVENTY_B)


def test_seventy_b_takes_320_kib_per_token_and_half_at_fp8() -> None:
    assert 327_680 == kv.kv_bytes_per_token_per_card(_seventy_b(), cards=1, kv_dtype="auto")
    assert 163_840 == kv.kv_bytes_per_token_per_card(_seventy_b(), cards=1, kv_dtype="fp8")
    assert 327_680 == _layout(_seventy_b()).bytes_per_token_per_card


def test_seventy_b_takes_a_quarter_on_each_of_four_cards() -> None:
    assert 81_920 == kv.kv_bytes_per_token_per_card(_seventy_b(), cards=4, kv_dtype="auto")
    assert 81_920 == _layout(_seventy_b(), cards=4).bytes_per_token_per_card


def test_a_long_sequence_of_seventy_b_takes_10_74_gigabytes_whole_blocks_counted() -> None:
    paged = _layout(_seventy_b(), release=Release.of("0.22.1"))
    assert 10_737_418_240 == kv.blocks_of_sequence(paged, 32_768) * paged.block_bytes


def test_eight_b_takes_128_kib_per_token() -> None:
    model = worlds.model(worlds.EIGHT_B)
    assert 131_072 == kv.kv_bytes_per_token_per_card(model, cards=1, kv_dtype="auto")


def test_kv_heads_are_replicated_when_there_are_fewer_than_cards() -> None:
    four_heads = KvGroup(kind=KvKind.FULL, layers=48, kv_heads=4, key_dim=128, value_dim=128)
    assert [4, 2, 1, 1] == [kv.kv_heads_per_card(four_heads, cards) for cards in (1, 2, 4, 8)]


def test_mla_is_whole_on_every_card() -> None:
    latent = KvGroup(kind=KvKind.MLA, layers=61, kv_heads=1, key_dim=576, value_dim=0)
    for cards in (1, 8):
        assert 1152 == kv.layer_bytes_per_token(latent, cards=cards, value_bytes=2)


def test_heads_that_do_not_divide_are_named_with_the_numbers_that_would() -> None:
    problem = kv.heads_problem(_seventy_b(), 3)
    assert problem is not None
    assert (
        "64 attention heads do not divide by 3 cards; 1, 2, 4, 8, 16 would work" == problem.message
    )


def test_sliding_layers_hold_two_steps_in_flight_from_0_26() -> None:
    of = [kv.steps_in_flight(Release.of(text)) for text in ("0.22.1", "0.25.1", "0.26.0")]
    assert [1, 1, 2] == of


def test_the_longest_sequence_takes_no_more_blocks_than_given() -> None:
    paged = _layout(_seventy_b())
    longest = kv.longest_sequence(paged, 100, at_most=10_000)
    assert 100 == kv.blocks_of_sequence(paged, longest)
    assert 101 == kv.blocks_of_sequence(paged, longest + 1)
