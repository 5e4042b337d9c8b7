"""Keys, values, windows and states of one slot and of many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_models import MODELS, facts
from plimsoll.catalog.models import find_gguf
from plimsoll.engines.llama_cpp.caches import (
    allocated_kv_bytes,
    kv_bytes,
    kv_bytes_per_token,
    layer_kv_bytes,
    slot_state_bytes,
)
from plimsoll.engines.llama_cpp.context import context_of_slots, refusal_of, server_context
from plimsoll.engines.llama_cpp.placement import place
from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.facts.model import GgufFacts
from plimsoll.units import MIB


def named(model: str, quantization: str) -> GgufFacts:
    found = find_gguf(model, quantization)
    assert found is not None
    return found


LLAMA_70B = named("meta-llama/Llama-3.3-70B-Instruct", "Q6_K")
GEMMA = named("google/gemma-3-270m", "Q4_K_M")


def test_the_70b_takes_320_kib_a_token() -> None:
    assert 327_680 == kv_bytes_per_token(LLAMA_70B, range(80), "f16")
    assert 174_080 == kv_bytes_per_token(LLAMA_70B, range(80), "q8_0")


def test_gemma_270m_matches_what_b11669_prints() -> None:
    """`-c 8192 -np 2 -lv 4` on the real file: KV 24.00 and 30.00 MiB."""
    context = context_of_slots(max_model_len=4096, slots=2, cache_type="f16")
    sizes = {g.kind.value: layer_kv_bytes(g, context) * g.layers for g in GEMMA.kv_groups}
    assert {"Full": 24 * MIB, "Sliding": 30 * MIB} == sizes


def test_slots_are_rounded_up_and_the_value_of_ctx_size_is_their_sum() -> None:
    context = server_context(ctx_size=4096, slots=3)
    assert 4608 == context.cells_per_slot * context.streams
    planned = context_of_slots(max_model_len=1300, slots=3, cache_type="f16")
    assert (4608, 1536) == (planned.ctx_size, planned.cells_per_slot)


def test_a_unified_cache_has_the_windows_of_all_slots() -> None:
    apart, together = (
        server_context(ctx_size=8192, slots=4, unified=unified) for unified in (False, True)
    )
    assert (1024, 4) == (apart.sliding_cells(512), apart.streams)
    assert (2560, 1) == (together.sliding_cells(512), together.streams)


def test_full_windows_keep_every_cell() -> None:
    context = server_context(ctx_size=8192, slots=1, full_windows=True)
    assert 8192 == context.sliding_cells(512)


@pytest.mark.parametrize("name", ["mamba2", "lfm2", "qwen3next", "jamba", "falcon-h1"])
def test_states_do_not_grow_with_the_length(name: str) -> None:
    gguf = facts(name)
    short, long = (
        context_of_slots(max_model_len=length, slots=2, cache_type="f16") for length in (1024, 4096)
    )
    states = [group for group in gguf.kv_groups if group.state is not None]
    for group in states:
        assert layer_kv_bytes(group, short) == layer_kv_bytes(group, long)
    assert slot_state_bytes(gguf) * 2 == sum(layer_kv_bytes(g, short) * g.layers for g in states)


def test_with_the_cache_on_the_host_cards_keep_nothing() -> None:
    context = server_context(ctx_size=4096, slots=1, kv_on_host=True)
    placement = place(LLAMA_70B, gpu_layers=81)
    assert 0 == allocated_kv_bytes(LLAMA_70B, context, placement, 0)
    assert 1280 * MIB == allocated_kv_bytes(LLAMA_70B, context, placement, HOST)


def test_a_packed_value_needs_flash_attention() -> None:
    context = server_context(ctx_size=4096, slots=1, cache_type="q8_0", flash=False)
    assert "--flash-attn on" in (refusal_of(context) or "")
    assert refusal_of(context._replace(flash=True)) is None


@given(name=st.sampled_from(sorted(MODELS)), slots=st.integers(1, 4), steps=st.integers(1, 64))
def test_padding_is_never_negative_and_small(name: str, slots: int, steps: int) -> None:
    gguf = facts(name)
    context = context_of_slots(max_model_len=256 * steps, slots=slots, cache_type="f16")
    placement = place(gguf, gpu_layers=99)
    bare = kv_bytes(gguf, context, range(len(gguf.block_bytes)))
    held = allocated_kv_bytes(gguf, context, placement, 0)
    assert 0 <= held - bare <= 4 * 128 * len(gguf.block_bytes)
