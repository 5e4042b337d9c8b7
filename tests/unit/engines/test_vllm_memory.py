"""Do our bounds cover what vLLM reported on real cards?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import worlds
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import memory
from plimsoll.units import GIB

DATA = Path(__file__).parents[2] / "data"
READINGS: dict[str, dict[str, Any]] = {
    reading["id"]: reading
    for reading in json.loads((DATA / "vllm_readings.json").read_text())["readings"]
}
ORACLE: list[dict[str, Any]] = json.loads((DATA / "vllm_kv_oracle.json").read_text())["rows"]

# reading, model of the catalogue, tokens of a step and sequences as `vllm serve` defaults there
STARTS = (
    ("v001", "openai/gpt-oss-20b", 8192, 1024),
    ("v003", worlds.SEVENTY_B, 8192, 1024),
    ("v004", "meta-llama/Llama-3.1-8B-Instruct", 8192, 1024),
    ("v006", "Qwen/Qwen3-0.6B", 8192, 1024),
    ("v008", "Qwen/Qwen3-32B", 8192, 1024),
    ("v105", "Qwen/Qwen3-8B-FP8", 2048, 256),
)


@pytest.mark.parametrize(("reading", "model_id", "step", "sequences"), STARTS)
def test_the_activation_bound_covers_the_reading(
    reading: str, model_id: str, step: int, sequences: int
) -> None:
    reported = READINGS[reading]["reported"]["activation_peak_gib"]
    ours = memory.activation_bytes(
        worlds.model(model_id),
        cards=READINGS[reading]["tp"],
        max_num_batched_tokens=step,
        max_num_seqs=sequences,
    )
    assert reported <= ours / GIB <= 1.30 * reported


@pytest.mark.parametrize("reading", ["v001", "v003", "v004", "v008", "v011", "v105"])
def test_the_collective_bound_covers_the_reading(reading: str) -> None:
    reported = READINGS[reading]["reported"]["non_torch_gib"]
    cards = READINGS[reading]["tp"]
    assert reported <= memory.collective_bytes(worlds.model(worlds.EIGHT_B), cards) / GIB


@pytest.mark.parametrize(
    ("reading", "model_id", "step", "sequences"), [STARTS[0], STARTS[5]], ids=["v001", "v105"]
)
def test_the_graph_bound_covers_the_reading(
    reading: str, model_id: str, step: int, sequences: int
) -> None:
    reported = READINGS[reading]["reported"]["cuda_graph_gib"]
    ours = memory.graph_bytes(
        worlds.model(model_id), max_num_batched_tokens=step, max_num_seqs=sequences
    )
    assert reported <= ours / GIB


@pytest.mark.parametrize("cards", [1, 4, 8])
def test_weights_of_one_rank_are_vllms_to_a_thousandth(cards: int) -> None:
    theirs = next(
        row["weightsBytesThisRank"]
        for row in ORACLE
        if row["model"] == "llama-3.3-70b" and row["tp"] == cards
    )
    ours = memory.weights_bytes_per_card(worlds.model(worlds.SEVENTY_B), cards)
    assert ours == pytest.approx(theirs, rel=0.001)


def test_graph_sizes_follow_the_number_of_sequences() -> None:
    assert memory.graph_sizes(1, 2048) == 2  # 1, 2
    assert memory.graph_sizes(4, 2048) == 4  # 1, 2, 4, 8
    assert memory.graph_sizes(32, 2048) == 11  # 1, 2, 4, 8 to 64 by 8
    assert memory.graph_sizes(1024, 8192) == 51  # and 272 to 512 by 16


def test_graphs_are_inside_the_share_from_0_18() -> None:
    assert not memory.graphs_are_inside_share(Release.of("0.17.1"))
    assert memory.graphs_are_inside_share(Release.of("0.18.0"))


def test_large_cards_take_larger_steps() -> None:
    assert memory.default_batched_tokens(worlds.card("h100-sxm")) == 8192
    assert memory.default_batched_tokens(worlds.card("a100-80gb-sxm")) == 2048
    assert memory.default_batched_tokens(worlds.card("rtx-a6000")) == 2048
