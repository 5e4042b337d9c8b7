"""Host memory of a llama-server, by owner."""

from __future__ import annotations

from llama_models import facts
from plimsoll.catalog.models import find_gguf
from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import host
from plimsoll.engines.llama_cpp.caches import slot_state_bytes
from plimsoll.engines.llama_cpp.context import context_of_slots
from plimsoll.engines.llama_cpp.placement import place
from plimsoll.facts.model import GgufFacts
from plimsoll.units import GIB, MIB

NEW = Release.of("b11669")


def named(model: str, quantization: str) -> GgufFacts:
    found = find_gguf(model, quantization)
    assert found is not None
    return found


LLAMA_70B = named("meta-llama/Llama-3.3-70B-Instruct", "Q6_K")
GEMMA = named("google/gemma-3-270m", "Q4_K_M")


def test_a_prompt_of_16k_is_an_entry_of_5_gib() -> None:
    context = context_of_slots(max_model_len=16384, slots=1, cache_type="f16")
    assert 5 * GIB == host.prompt_state_bytes(LLAMA_70B, context)
    assert 5 * GIB == host.default_cache_ram_bytes(LLAMA_70B, context)


def test_the_prompt_cache_never_exceeds_llama_cpps_own_default() -> None:
    context = context_of_slots(max_model_len=131072, slots=4, cache_type="f16")
    assert 8 * GIB == host.default_cache_ram_bytes(LLAMA_70B, context)


def test_logits_of_two_slots_are_the_2_mib_that_b11669_prints() -> None:
    context = context_of_slots(max_model_len=4096, slots=2, cache_type="f16")
    assert 2 * MIB == host.output_bytes(GEMMA, context)


def test_checkpoints_are_for_models_with_windows_or_states_and_few() -> None:
    assert 0 == host.checkpoints(LLAMA_70B, 131072)
    assert 1 == host.checkpoints(GEMMA, 4096)
    assert host.MOST_CHECKPOINTS == host.checkpoints(GEMMA, 131072)
    assert 1 == host.checkpoints(facts("mamba2"), 4096)


def test_a_checkpoint_of_a_recurrent_model_is_the_state_of_one_slot() -> None:
    gguf = facts("mamba2")
    context = context_of_slots(max_model_len=4096, slots=4, cache_type="f16")
    assert slot_state_bytes(gguf) == host.checkpoint_bytes(gguf, context)


def test_host_memory_names_every_owner() -> None:
    context = context_of_slots(max_model_len=8192, slots=2, cache_type="f16")
    found = host.host_memory(
        GEMMA,
        context,
        place(GEMMA, gpu_layers=10),
        NEW,
        cache_ram_bytes=GIB,
        checkpoints_per_slot=1,
    )
    assert 2 * host.checkpoint_bytes(GEMMA, context) == found.checkpoint_bytes
    assert 0 == found.total_bytes % MIB
    assert found.total_bytes >= (
        found.weights_bytes
        + found.kv_bytes
        + GIB
        + found.checkpoint_bytes
        + found.prompt_state_bytes
        + host.BASE_BYTES
    )


def test_experts_that_stay_behind_are_the_hosts() -> None:
    gguf = facts("qwen3moe")
    context = context_of_slots(max_model_len=4096, slots=1, cache_type="f16")
    without, behind = (
        host.host_memory(
            gguf,
            context,
            place(gguf, gpu_layers=99, host_experts=count),
            NEW,
            cache_ram_bytes=0,
            checkpoints_per_slot=0,
        ).weights_bytes
        for count in (0, 12)
    )
    experts = sum(
        tensor.bytes * len(group.at)
        for group in gguf.blocks
        for tensor in group.tensors
        if "exps" in tensor.name
    )
    assert experts == behind - without
