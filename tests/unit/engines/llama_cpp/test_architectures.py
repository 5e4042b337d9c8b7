"""Buffers of 52 graphs against those that llama.cpp b11669 itself reserved."""

from __future__ import annotations

import pytest

from llama_models import MODELS, context_of, facts, placement_of, reserved
from plimsoll.engines.llama_cpp.blocks import weights_bytes
from plimsoll.engines.llama_cpp.caches import allocated_kv_bytes
from plimsoll.engines.llama_cpp.compute import compute
from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.engines.llama_cpp.traits import TRAITS
from plimsoll.facts.gguf_layouts import LAYOUTS

TWO_ORDERS = {"gemma4": 1.15}
"""With embeddings for each layer the order in which they are looked up differs between builds; the larger
of both is planned."""


def test_every_layout_has_a_graph_and_every_graph_a_model() -> None:
    assert LAYOUTS.keys() == TRAITS.keys()
    named = {model["metadata"]["general.architecture"] for model in MODELS.values()}
    assert {"llama"} == TRAITS.keys() - named


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_caches_are_equal(name: str) -> None:
    gguf = facts(name)
    for case in MODELS[name]["cases"]:
        context, placement = context_of(case["flags"]), placement_of(gguf, case["flags"])
        for where in (*range(placement.cards), HOST):
            planned = [
                weights_bytes(gguf, placement, where),
                allocated_kv_bytes(gguf, context, placement, where),
            ]
            assert reserved(case, where)[:2] == planned, (case["flags"], where)


@pytest.mark.parametrize("name", MODELS)
def test_what_the_graph_computes_in_is_equal(name: str) -> None:
    gguf = facts(name)
    for case in MODELS[name]["cases"]:
        context, placement = context_of(case["flags"]), placement_of(gguf, case["flags"])
        found = compute(gguf, context, placement, outputs=context.slots)
        for where in (*range(placement.cards), HOST):
            size = found.host if where == HOST else found.cards[where]
            least = reserved(case, where)[2]
            assert least <= size <= least * TWO_ORDERS.get(name, 1), (case["flags"], where)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_that_are_left_out_change_nothing(name: str) -> None:
    gguf = facts(name)
    for case in MODELS[name]["cases"]:
        context, placement = context_of(case["flags"]), placement_of(gguf, case["flags"])
        short, whole = (
            compute(gguf, context, placement, outputs=context.slots, whole=whole)
            for whole in (False, True)
        )
        assert whole == short


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_lies_somewhere_once(name: str) -> None:
    """All but the tied output and the factors of the rotation, which lie wherever they are read."""
    gguf = facts(name)
    for case in MODELS[name]["cases"]:
        placement = placement_of(gguf, case["flags"])
        places = (*range(placement.cards), HOST)
        held = sum(weights_bytes(gguf, placement, where) for where in places)
        listed = sum(t.bytes * len(g.at) for g in gguf.blocks for t in g.tensors)
        listed += sum(tensor.bytes for tensor in gguf.outside)
        twice = gguf.embedding_bytes if gguf.tied_output else 0
        assert listed <= held <= listed + twice + 200_000
