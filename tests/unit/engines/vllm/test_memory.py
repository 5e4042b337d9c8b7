"""Do our bounds cover what vLLM reported on real cards?"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import worlds
from plimsoll.engines.base import ByteOwner, Release
from plimsoll.engines.vllm import memory
from plimsoll.facts.gpu import GpuFacts, GpuVendor
from plimsoll.facts.model import Quantization
from plimsoll.units import GIB

DATA = Path(__file__).parents[3] / "data"
READINGS: dict[str, dict[str, Any]] = {
    reading["id"]: reading
    for reading in json.loads((DATA / "vllm_readings.json").read_text())["readings"]
}

# reading and a card of its kind
COLLECTIVES = (
    ("v001", "h100-sxm"),
    ("v003", "h100-sxm"),
    ("v008", "h100-sxm"),
    ("v011", "h100-sxm"),
    ("v016", "rtx-3090"),
    ("v019", "rtx-4090"),
    ("v070", "a100-40gb-sxm"),
    ("v084", "rtx-2080-ti"),
    ("v091", "v100-sxm2-32gb"),
    ("v101", "h100-sxm"),
    ("v105", "rtx-3090"),
    ("v132", "rtx-2080-ti"),
)


def _card(name: str) -> GpuFacts:
    """A card of the catalogue, or one of that name."""
    try:
        return worlds.card(name)
    except AssertionError:
        return worlds.card("rtx-3090").model_copy(update={"product": f"NVIDIA {name.upper()}"})


@pytest.mark.parametrize(("reading", "card"), COLLECTIVES)
def test_the_collective_bound_covers_the_reading(reading: str, card: str) -> None:
    reported, cards = READINGS[reading]["reported"]["non_torch_gib"], READINGS[reading]["tp"]
    model = worlds.model(worlds.EIGHT_B)
    assert reported <= memory.collective_bytes(model, cards, _card(card)) / GIB


def test_without_a_card_links_are_assumed() -> None:
    model = worlds.model(worlds.EIGHT_B)
    linked = memory.collective_bytes(model, 4, worlds.card("h100-sxm"))
    assert linked == memory.collective_bytes(model, 4)
    assert linked > memory.collective_bytes(model, 4, worlds.card("rtx-4090"))


def test_amd_cards_take_more_alone() -> None:
    # 0.53 GiB on one card (reading v130)
    amd = worlds.card("rtx-3090").model_copy(update={"vendor": GpuVendor.AMD})
    assert 0.53 <= memory.collective_bytes(worlds.model(worlds.EIGHT_B), 1, amd) / GIB


def test_latents_with_eight_bit_experts_take_most() -> None:
    # 7.16 GiB on each of 8 H200 (reading v085)
    plain = worlds.model("deepseek-ai/DeepSeek-V3").model_copy(update={"quantization": None})
    small = plain.model_copy(update={"quantization": Quantization(method="fp8", bits=8)})
    assert 7.16 <= memory.collective_bytes(small, 8) / GIB
    assert memory.collective_bytes(plain, 8) < 3 * GIB


@pytest.mark.parametrize(
    ("reading", "model_id", "step", "sequences"),
    [
        ("v001", "openai/gpt-oss-20b", 8192, 1024),
        ("v002", "openai/gpt-oss-120b", 8192, 1024),
        ("v105", "Qwen/Qwen3-8B-FP8", 2048, 256),
    ],
)
def test_the_graph_bound_covers_the_reading(
    reading: str, model_id: str, step: int, sequences: int
) -> None:
    reported = READINGS[reading]["reported"]["cuda_graph_gib"]
    ours = memory.graph_bytes(
        worlds.model(model_id), max_num_batched_tokens=step, max_num_seqs=sequences
    )
    assert reported <= ours / GIB


def test_graph_sizes_follow_the_number_of_sequences() -> None:
    assert memory.graph_sizes(1, 2048) == 2  # 1, 2
    assert memory.graph_sizes(4, 2048) == 4  # 1, 2, 4, 8
    assert memory.graph_sizes(32, 2048) == 11  # 1, 2, 4, 8 to 64 by 8
    assert memory.graph_sizes(1024, 8192) == 51  # and 272 to 512 by 16


def test_graphs_are_inside_the_share_from_0_18() -> None:
    assert not memory.graphs_are_inside_share(Release.of("0.17.1"))
    assert memory.graphs_are_inside_share(Release.of("0.18.0"))


def test_we_never_pin_steps_above_those_of_a_large_card() -> None:
    assert memory.default_batched_tokens(worlds.card("h100-sxm")) == 8192
    assert memory.default_batched_tokens(worlds.card("gb200")) == 8192
    assert memory.default_batched_tokens(worlds.card("a100-80gb-sxm")) == 2048
    assert memory.default_batched_tokens(worlds.card("rtx-a6000")) == 2048


def test_a_newer_release_leaves_more_of_the_card() -> None:
    lines_of = partial(
        memory.fixed_lines,
        worlds.model(worlds.EIGHT_B),
        worlds.card("h100-sxm"),
        cards=1,
        max_num_batched_tokens=8192,
        max_num_seqs=1024,
    )
    unknown, newest = lines_of(), lines_of(release=Release.of("0.33.0"))
    assert [line.owner for line in unknown] == [line.owner for line in newest]
    peak = {
        name: next(line.bytes for line in lines if line.owner is ByteOwner.ACTIVATION)
        for name, lines in (("unknown", unknown), ("newest", newest))
    }
    assert peak["newest"] < peak["unknown"]
