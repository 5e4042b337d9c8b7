"""Bytes on the cards and on the host against buffers that llama.cpp b11434 itself allocated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import host, memory
from plimsoll.engines.llama_cpp.context import ServerContext, context_of_slots, server_context
from plimsoll.facts.model import GgufFacts
from plimsoll.units import GIB, MIB

DATA = Path(__file__).parents[2] / "data"
PROBE = json.loads((DATA / "llamacpp_probe.json").read_text())
MODELS = {name: GgufFacts.model_validate(raw) for name, raw in PROBE["models"].items()}
CASES: list[dict[str, Any]] = PROBE["cases"]
ON_CARDS = [case for case in CASES if "layers" in case]

NEW, OLD = Release.of("b11434"), Release.of("b7410")
PADDING_BYTES = 0.1 * MIB


def words(case: dict[str, Any]) -> str:
    skipped = {"cells", "cards", "host"}
    return "-".join(f"{key}={value}" for key, value in case.items() if key not in skipped)


def context_of(case: dict[str, Any]) -> ServerContext:
    keys, values = case.get("types", ("f16", "f16"))
    return server_context(
        ctx_size=case["ctx"],
        slots=case["slots"],
        cache_type=keys,
        value_type=values,
        unified=case.get("unified", False),
        ubatch_tokens=case.get("ubatch", 512),
    )


def needs_of(case: dict[str, Any]) -> tuple[memory.CardNeed, ...]:
    return memory.needs(
        MODELS[case["model"]],
        context_of(case),
        gpu_layers=case["layers"],
        cards=len(case["cards"]),
        release=OLD if case.get("outputs", 0) > case["slots"] else NEW,
    )


def test_the_extract_is_whole() -> None:
    assert (366, 13) == (len(CASES), len(MODELS))


@pytest.mark.parametrize("case", CASES, ids=words)
def test_cells_are_those_of_llama_cpp(case: dict[str, Any]) -> None:
    context = context_of(case)
    total = context.cells_per_slot * context.streams
    assert case["cells"] == [total, context.cells_per_slot]


@pytest.mark.parametrize("case", ON_CARDS, ids=words)
def test_weights_are_exact_to_the_padding(case: dict[str, Any]) -> None:
    for (weights, _, _), need in zip(case["cards"], needs_of(case), strict=True):
        assert 0 <= weights - need.weights_bytes <= PADDING_BYTES


@pytest.mark.parametrize("case", CASES, ids=words)
def test_kv_on_cards_and_host_is_exact(case: dict[str, Any]) -> None:
    gguf, context = MODELS[case["model"]], context_of(case)
    if "layers" not in case:
        assert case["host"][1] == memory.kv_bytes(gguf, context, range(len(gguf.block_bytes)))
        return
    assert [card[1] for card in case["cards"]] == [need.kv_bytes for need in needs_of(case)]
    held = range(memory.first_block_on_card(gguf, case["layers"]))
    assert case["host"][1] == memory.kv_bytes(gguf, context, held)


@pytest.mark.parametrize("case", ON_CARDS, ids=words)
def test_compute_is_never_below_and_close_when_all_layers_are_on_one_card(
    case: dict[str, Any],
) -> None:
    over = [
        need.compute_bytes - card[2]
        for need, card in zip(needs_of(case), case["cards"], strict=True)
    ]
    is_full = case["layers"] >= memory.layer_count(MODELS[case["model"]])
    at_most = memory.ROUNDING_BYTES if is_full and len(over) == 1 else 418 * MIB
    assert min(over) >= 0
    assert max(over) <= at_most


@pytest.mark.parametrize("case", ON_CARDS, ids=words)
def test_host_weights_and_compute_are_those_of_llama_cpp(case: dict[str, Any]) -> None:
    gguf, layers = MODELS[case["model"]], case["layers"]
    weights, _, compute = case["host"]
    assert abs(weights - host.host_weights_bytes(gguf, layers)) <= PADDING_BYTES
    planned = host.host_compute_bytes(
        gguf, context_of(case), gpu_layers=layers, cards=len(case["cards"])
    )
    assert planned >= compute


def test_every_padding_is_inside_the_rounding() -> None:
    for case in ON_CARDS:
        for card, need in zip(case["cards"], needs_of(case), strict=True):
            assert sum(card) <= need.total_bytes


def test_the_70b_takes_320_kib_a_token() -> None:
    gguf = MODELS["llama70b-Q6_K"]
    assert 327_680 == memory.kv_bytes_per_token(gguf, range(80), "f16")
    assert 174_080 == memory.kv_bytes_per_token(gguf, range(80), "q8_0")


def test_80_of_81_layers_leave_block_0_on_the_host() -> None:
    gguf = MODELS["llama70b-Q6_K"]
    (share,) = memory.shares(gguf, 80, 1)
    assert (1, 80, True) == (share.first_block, share.end_block, share.has_output)
    assert gguf.embedding_bytes + gguf.block_bytes[0] == host.host_weights_bytes(gguf, 80)


def test_one_layer_is_the_output_alone() -> None:
    gguf = MODELS["llama70b-Q6_K"]
    assert gguf.output_bytes == memory.weights_bytes_on_card(gguf, 1)
    assert 0 == memory.weights_bytes_on_card(gguf, 0)


def test_more_layers_than_there_are_mean_all() -> None:
    gguf = MODELS["gemma"]
    assert memory.weights_bytes_on_card(gguf, 19) == memory.weights_bytes_on_card(gguf, 99)


def test_tied_embeddings_are_stored_twice() -> None:
    gguf = MODELS["gemma"]
    assert gguf.embedding_bytes == host.host_weights_bytes(gguf, 19)
    assert gguf.output_bytes > gguf.embedding_bytes


def test_slots_are_rounded_up_and_the_value_of_ctx_size_is_their_sum() -> None:
    context = server_context(ctx_size=4096, slots=3)
    assert 4608 == context.cells_per_slot * context.streams
    planned = context_of_slots(max_model_len=1300, slots=3, cache_type="f16")
    assert (4608, 1536) == (planned.ctx_size, planned.cells_per_slot)


def test_gemma_270m_matches_what_b11669_prints() -> None:
    """`-c 8192 -np 2 -lv 4` on the real file: KV 24.00 and 30.00 MiB, output 2.00 MiB."""
    gguf, context = MODELS["gemma"], context_of_slots(max_model_len=4096, slots=2, cache_type="f16")
    kv = {
        group.kind.value: memory.layer_kv_bytes(group, context) * group.layers
        for group in gguf.kv_groups
    }
    assert {"Full": 24 * MIB, "Sliding": 30 * MIB} == kv
    assert 2 * MIB == 4 * gguf.vocab_size * context.slots


def test_the_window_follows_the_physical_batch() -> None:
    gguf = MODELS["gemma3-27b"]
    sizes = [
        memory.kv_bytes(gguf, server_context(ctx_size=32768, slots=1, ubatch_tokens=ub), range(62))
        for ub in (512, 2048)
    ]
    assert [3184 * MIB, 3808 * MIB] == sizes


def test_unknown_tensor_sizes_are_bounded_by_the_largest_block() -> None:
    known = MODELS["llama70b-Q6_K"]
    unknown = known.model_copy(
        update={"largest_ffn_tensor_bytes": 0, "largest_attention_tensor_bytes": 0}
    )
    context = server_context(ctx_size=16384, slots=1)
    sizes = [
        memory.compute_bytes(gguf, context, gpu_layers=60, cards=1, release=NEW)
        for gguf in (known, unknown)
    ]
    assert sizes[1] - sizes[0] == max(known.block_bytes) - 192_675_840 - 55_050_240


def test_which_block_is_which_unknown_means_the_widest() -> None:
    known = MODELS["gemma3-27b"]
    unknown = known.model_copy(update={"sliding_blocks": ()})
    context = server_context(ctx_size=32768, slots=1)
    last = range(52, 62)
    assert memory.kv_bytes(known, context, last) < memory.kv_bytes(unknown, context, last)
    every = range(62)
    assert memory.kv_bytes(known, context, every) == memory.kv_bytes(unknown, context, every)


def test_blocks_without_kv_of_their_own_cost_at_most_the_widest() -> None:
    gguf = MODELS["llama70b-Q6_K"]
    (group,) = gguf.kv_groups
    fewer = gguf.model_copy(update={"kv_groups": (group.model_copy(update={"layers": 10}),)})
    context = server_context(ctx_size=4096, slots=1)
    assert 10 * 16 * MIB == memory.kv_bytes(fewer, context, range(20, 80))


def test_old_builds_pay_for_logits_and_for_the_copy_of_a_quantised_cache() -> None:
    gguf = MODELS["gemma3-27b"]
    plain = server_context(ctx_size=8192, slots=1)
    packed = server_context(ctx_size=8192, slots=1, cache_type="q8_0")
    old, new = (
        memory.compute_bytes(gguf, plain, gpu_layers=63, cards=1, release=release)
        for release in (OLD, NEW)
    )
    assert 300 * MIB < old - new < 420 * MIB
    old_packed = memory.compute_bytes(gguf, packed, gpu_layers=63, cards=1, release=OLD)
    assert old_packed >= old


def test_a_prompt_of_16k_is_an_entry_of_5_gib() -> None:
    gguf = MODELS["llama70b-Q6_K"]
    context = context_of_slots(max_model_len=16384, slots=1, cache_type="f16")
    assert 5 * GIB == host.prompt_state_bytes(gguf, context)
    assert 5 * GIB == host.default_cache_ram_bytes(gguf, context)


def test_the_prompt_cache_never_exceeds_llama_cpps_own_default() -> None:
    gguf = MODELS["llama70b-Q6_K"]
    context = context_of_slots(max_model_len=131072, slots=4, cache_type="f16")
    assert 8 * GIB == host.default_cache_ram_bytes(gguf, context)


def test_checkpoints_are_only_for_windowed_models_and_few() -> None:
    assert 0 == host.checkpoints(MODELS["llama70b-Q6_K"], 131072)
    assert 1 == host.checkpoints(MODELS["gemma"], 4096)
    assert host.MOST_CHECKPOINTS == host.checkpoints(MODELS["gemma3-27b"], 131072)


def test_host_memory_names_every_owner() -> None:
    gguf = MODELS["gemma3-27b"]
    context = context_of_slots(max_model_len=8192, slots=2, cache_type="f16")
    hosts = host.host_memory(
        gguf, context, gpu_layers=40, cards=1, cache_ram_bytes=GIB, checkpoints_per_slot=1
    )
    assert 416 * MIB == host.checkpoint_bytes(gguf, context)
    assert 2 * 416 * MIB == hosts.checkpoint_bytes
    assert 0 == hosts.total_bytes % MIB
    assert hosts.total_bytes >= (
        hosts.weights_bytes
        + hosts.kv_bytes
        + GIB
        + hosts.checkpoint_bytes
        + hosts.prompt_state_bytes
        + GIB
    )
