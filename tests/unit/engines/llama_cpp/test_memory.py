"""What a card needs, release by release, and where nobody listed a file's tensors."""

from __future__ import annotations

import pytest

from llama_models import MODELS, context_of, facts, placement_of, reserved
from plimsoll.catalog.models import find_gguf
from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import blocks, memory
from plimsoll.engines.llama_cpp.blocks import PADDING_BYTES
from plimsoll.engines.llama_cpp.bound import computed as bound
from plimsoll.engines.llama_cpp.context import server_context
from plimsoll.engines.llama_cpp.placement import place
from plimsoll.facts.model import GgufFacts
from plimsoll.units import MIB

NEW, OLD = Release.of("b11669"), Release.of("b7410")


def named(model: str, quantization: str) -> GgufFacts:
    found = find_gguf(model, quantization)
    assert found is not None
    return found


LLAMA_70B = named("meta-llama/Llama-3.3-70B-Instruct", "Q6_K")
GEMMA = named("google/gemma-3-270m", "Q4_K_M")


def unlisted(name: str) -> GgufFacts:
    return facts(name).model_copy(update={"blocks": (), "outside": ()})


def test_80_of_81_layers_leave_block_0_on_the_host() -> None:
    (need,) = memory.needs(
        LLAMA_70B,
        server_context(ctx_size=4096, slots=1),
        place(LLAMA_70B, gpu_layers=80),
        NEW,
    )
    assert (tuple(range(1, 80)), True) == (need.blocks, need.has_output)
    held = memory.host_weights_bytes(LLAMA_70B, place(LLAMA_70B, gpu_layers=80))
    assert 0 <= held - LLAMA_70B.embedding_bytes - LLAMA_70B.block_bytes[0] <= PADDING_BYTES


def test_the_fullest_card_is_the_one_that_needs_most() -> None:
    context = server_context(ctx_size=16384, slots=1)
    placement = place(LLAMA_70B, gpu_layers=81, shares=(1, 1, 1))
    every = memory.needs(LLAMA_70B, context, placement, NEW)
    assert 3 == len(every)
    fullest = memory.fullest(LLAMA_70B, context, placement, NEW)
    assert max(need.total_bytes for need in every) == fullest.total_bytes


def test_tied_embeddings_are_stored_twice() -> None:
    whole = place(GEMMA, gpu_layers=19)
    held = memory.host_weights_bytes(GEMMA, whole)
    assert 0 <= held - GEMMA.embedding_bytes <= PADDING_BYTES
    (need,) = memory.needs(GEMMA, server_context(ctx_size=4096, slots=1), whole, NEW)
    assert need.weights_bytes >= sum(GEMMA.block_bytes) + GEMMA.embedding_bytes


def test_old_builds_pay_for_logits_and_for_the_copy_of_a_packed_cache() -> None:
    plain = server_context(ctx_size=8192, slots=1)
    packed = server_context(ctx_size=8192, slots=1, cache_type="q8_0")
    whole = place(GEMMA, gpu_layers=19)
    old, new = (memory.computed(GEMMA, plain, whole, release).cards[0] for release in (OLD, NEW))
    assert 450 * MIB < old - new < 550 * MIB
    assert memory.computed(GEMMA, packed, whole, OLD).cards[0] >= old


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gemma4"])
def test_tensors_that_nobody_listed_are_never_taken_too_small(name: str) -> None:
    gguf = unlisted(name)
    assert not memory.is_exact(gguf)
    for case in MODELS[name]["cases"]:
        placement = placement_of(gguf, case["flags"])
        if placement.host_experts or case["flags"].get("nkvo"):
            continue
        found = memory.computed(gguf, context_of(case["flags"]), placement, NEW)
        for card, size in enumerate(found.cards):
            assert size >= reserved(case, card)[2], (case["flags"], blocks.is_typed(gguf))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gemma4"])
def test_the_closed_forms_are_never_below_either(name: str) -> None:
    gguf = facts(name)
    for case in MODELS[name]["cases"]:
        if case["flags"].get("op", 1) == 0:
            continue
        placement, context = placement_of(gguf, case["flags"]), context_of(case["flags"])
        for card, size in enumerate(bound(gguf, context, placement, NEW).cards):
            assert size >= reserved(case, card)[2], case["flags"]


def test_an_architecture_without_a_graph_gets_the_closed_forms() -> None:
    gguf = facts("qwen3").model_copy(update={"architecture": "newarch"})
    context, whole = server_context(ctx_size=8192, slots=1), place(facts("qwen3"), gpu_layers=13)
    assert bound(gguf, context, whole, NEW) == memory.computed(gguf, context, whole, NEW)


def test_tensors_with_other_names_get_the_closed_forms() -> None:
    known = facts("qwen3")
    renamed = tuple(
        group.model_copy(
            update={
                "tensors": tuple(
                    tensor.model_copy(update={"name": tensor.name.replace("attn_q", "other")})
                    for tensor in group.tensors
                )
            }
        )
        for group in known.blocks
    )
    gguf = known.model_copy(update={"blocks": renamed})
    context, whole = server_context(ctx_size=8192, slots=1), place(gguf, gpu_layers=13)
    assert bound(gguf, context, whole, NEW) == memory.computed(gguf, context, whole, NEW)
