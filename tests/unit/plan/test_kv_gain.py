"""Fewer bits gain something only where the KV cache is what binds."""

from __future__ import annotations

import worlds
from plimsoll.engines.base import EngineName
from plimsoll.plan.kv_gain import kv_gain, planned_length
from plimsoll.plan.records import PlanRequest


def seventy_b_gguf(gpu: str) -> PlanRequest:
    """70B as a GGUF file on one card."""
    return PlanRequest(
        engine=EngineName.LLAMA_CPP,
        release="b11434",
        gpu=worlds.card(gpu),
        cards=1,
        gguf=worlds.gguf(worlds.SEVENTY_B, "Q6_K"),
        max_model_len=16384,
        concurrency=1,
    )


def test_a_small_card_holds_twice_the_sequences() -> None:
    gain = kv_gain(worlds.eight_b_on_a_4090(), "fp8")
    assert gain.is_gain
    assert gain.plan is not None
    assert "fp8" == gain.plan.kv.dtype
    assert (
        "fp8 would hold 12 sequences at once (12 of all 8,192 tokens), 16 bit holds 6 sequences at once "
        "(6 of all 8,192 tokens)"
    ) == gain.sentence


def test_a_concurrency_that_fits_at_16_bit_gains_nothing() -> None:
    gain = kv_gain(worlds.eight_b_on_a_4090(concurrency=6), "fp8")
    assert not gain.is_gain
    assert "fp8 would gain nothing" in gain.sentence


def test_a_concurrency_that_fits_only_with_fewer_bits_is_a_gain() -> None:
    gain = kv_gain(worlds.eight_b_on_a_4090(concurrency=10), "fp8")
    assert gain.is_gain
    assert "only with fp8 it fits" in gain.sentence


def test_a_card_whose_engine_already_takes_its_most_sequences_gains_nothing() -> None:
    gain = kv_gain(worlds.eight_b_on_a_4090(gpu=worlds.card("b200"), max_model_len=512), "fp8")
    assert not gain.is_gain


def test_a_card_without_a_kernel_gains_nothing_and_says_why() -> None:
    gain = kv_gain(worlds.eight_b_on_a_4090(gpu=worlds.card("Tesla-T4")), "fp8")
    assert gain.plan is None
    assert not gain.is_gain
    assert "does not work here" in gain.sentence


def test_in_llama_cpp_more_layers_on_the_card_are_a_gain() -> None:
    gain = kv_gain(seventy_b_gguf("rtx-a6000"), "q8_0")
    assert gain.is_gain
    assert "layers on the card" in gain.sentence


def test_the_planned_length_is_what_the_plan_will_have() -> None:
    for request in (worlds.eight_b_on_a_4090(), worlds.seventy_b_on_four_a6000()):
        gain = kv_gain(request, "fp8")
        assert gain.plan is not None
        assert gain.plan.max_model_len == planned_length(request)
    gguf = kv_gain(seventy_b_gguf("rtx-a6000"), "q8_0")
    assert gguf.plan is not None
    assert gguf.plan.max_model_len == planned_length(seventy_b_gguf("rtx-a6000"))
