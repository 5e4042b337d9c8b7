"""Blocks, output and experts on cards as llama.cpp places them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_models import facts
from plimsoll.engines.llama_cpp.placement import layer_count, place
from plimsoll.engines.llama_cpp.tensors import HOST

QWEN3 = facts("qwen3")
LAYERS = 13


def places(**more: Any) -> tuple[int, ...]:
    found = place(QWEN3, **more)
    return (*found.blocks, found.output)


def test_layers_are_blocks_and_the_output() -> None:
    assert LAYERS == layer_count(QWEN3)


def test_the_first_layer_is_the_output_and_then_the_last_blocks() -> None:
    assert (HOST,) * 12 + (0,) == places(gpu_layers=1)
    assert (HOST,) * 10 + (0, 0, 0) == places(gpu_layers=3)
    assert (0,) * LAYERS == places(gpu_layers=LAYERS) == places(gpu_layers=99)


def test_before_b7500_the_output_followed_the_blocks() -> None:
    assert (HOST,) * 9 + (0, 0, 0, HOST) == places(gpu_layers=3, output_first=False)
    assert (0,) * LAYERS == places(gpu_layers=LAYERS, output_first=False)


def test_without_cards_all_is_on_the_host() -> None:
    assert (HOST,) * LAYERS == places(gpu_layers=99, shares=())


@pytest.mark.parametrize(
    ("shares", "counts"),
    [
        ((1, 1), (7, 6)),
        ((3, 1), (10, 3)),
        ((1, 0), (13, 0)),
        ((10, 3), (10, 3)),
        ((1, 1, 1), (5, 4, 4)),
    ],
)
def test_shares_are_whole_layers(shares: tuple[int, ...], counts: tuple[int, ...]) -> None:
    found = places(gpu_layers=99, shares=shares)
    assert counts == tuple(found.count(card) for card in range(len(shares)))


@given(shares=st.lists(st.integers(1, 40), min_size=1, max_size=8), layers=st.integers(0, 20))
def test_cards_hold_whole_runs_in_order(shares: list[int], layers: int) -> None:
    found = places(gpu_layers=layers, shares=tuple(shares))
    assert sorted(found) == list(found)
    assert min(layers, LAYERS) == sum(where != HOST for where in found)


@given(st.data())
def test_layers_of_each_card_are_those_that_are_asked_for(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    asked = sum(counts)
    if asked <= LAYERS:
        found = places(gpu_layers=asked, shares=tuple(counts))
        assert counts == [found.count(card) for card in range(len(counts))]


def test_experts_stay_behind_from_the_first_block() -> None:
    moe = facts("qwen3moe")
    assert 5 == place(moe, gpu_layers=99, host_experts=5).host_experts
    assert 12 == place(moe, gpu_layers=99, host_experts=99).host_experts
    assert place(moe, gpu_layers=99, host_experts=5).is_full()
