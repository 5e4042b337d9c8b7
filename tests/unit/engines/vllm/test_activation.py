"""Is the activation peak the one that vLLM printed on real cards?"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import worlds
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import activation
from plimsoll.facts.model import Quantization
from plimsoll.facts.source import Confidence
from plimsoll.units import GIB

DATA = Path(__file__).parents[3] / "data"
READINGS: dict[str, dict[str, Any]] = {
    reading["id"]: reading
    for reading in json.loads((DATA / "vllm_readings.json").read_text())["readings"]
}

# reading, model of the catalogue, tokens of a step and sequences as `vllm serve` defaults there
SAMPLED = (
    ("v001", "openai/gpt-oss-20b", 8192, 1024),
    ("v003", worlds.SEVENTY_B, 8192, 1024),
    ("v004", "meta-llama/Llama-3.1-8B-Instruct", 8192, 1024),
    ("v006", "Qwen/Qwen3-0.6B", 8192, 1024),
    ("v008", "Qwen/Qwen3-32B", 8192, 1024),
    ("v084", "Qwen/Qwen3-8B", 8192, 256),
    ("v091", "Qwen/Qwen2.5-7B-Instruct", 2048, 256),
    ("v105", "Qwen/Qwen3-8B-FP8", 2048, 256),
    ("v132", "Qwen/Qwen3-30B-A3B", 4096, 256),
    ("v133", "Qwen/Qwen3-30B-A3B", 2048, 256),
)
"""Readings whose peak is the sampler's."""


def _peak(model_id: str, cards: int, step: int, rows: int, release: str | None = None) -> int:
    return activation.activation_bytes(
        worlds.model(model_id),
        cards=cards,
        max_num_batched_tokens=step,
        max_num_seqs=rows,
        release=None if release is None else Release.of(release),
    )


@pytest.mark.parametrize(("reading", "model_id", "step", "rows"), SAMPLED)
def test_the_sampler_peak_is_the_printed_one_and_never_below(
    reading: str, model_id: str, step: int, rows: int
) -> None:
    reported = READINGS[reading]["reported"]["activation_peak_gib"]
    ours = _peak(model_id, READINGS[reading]["tp"], step, rows)
    assert reported - 0.005 <= ours / GIB <= 1.02 * reported


def test_a_long_step_outgrows_the_sampler() -> None:
    # Qwen2.5-7B on a V100 with 0.8.5: 32,768 tokens in one step, 4.35 GiB (reading v092)
    ours = _peak("Qwen/Qwen2.5-7B-Instruct", 1, 32768, 256)
    assert 4.35 == pytest.approx(ours / GIB, abs=0.01)


def test_unpacked_weights_add_a_copy() -> None:
    # a 32B model in AWQ, 32,768 tokens in one step: 8.02 GiB (reading v106)
    packed = worlds.model("Qwen/Qwen2.5-32B-Instruct").model_copy(
        update={"quantization": Quantization(method="awq", bits=4)}
    )
    ours = activation.activation_bytes(
        packed, cards=1, max_num_batched_tokens=32768, max_num_seqs=256
    )
    assert 8.02 == pytest.approx(ours / GIB, rel=0.01)


def test_newer_releases_sample_in_half_the_room() -> None:
    model_id = "meta-llama/Llama-3.1-8B-Instruct"
    old, new = (_peak(model_id, 1, 8192, 1024, release) for release in ("0.16.0", "0.17.0"))
    assert old == _peak(model_id, 1, 8192, 1024)
    assert old > 2 * new - GIB // 8


def test_fewer_rows_take_less() -> None:
    model_id = "meta-llama/Llama-3.1-8B-Instruct"
    assert _peak(model_id, 1, 8192, 16) < _peak(model_id, 1, 8192, 256)


def test_a_tower_counts_with_its_largest_item() -> None:
    seen = worlds.model("Qwen/Qwen3-0.6B").model_copy(
        update={"architecture": "Qwen3VLForConditionalGeneration", "multimodal": True}
    )
    blind = worlds.model("Qwen/Qwen3-0.6B")
    peak = partial(
        activation.activation_bytes, cards=1, max_num_batched_tokens=2048, max_num_seqs=8
    )
    assert peak(seen) > peak(blind)
    assert peak(seen, largest_item_tokens=0) == peak(blind)


def test_videos_were_as_long_as_a_sequence_before_they_were_cut() -> None:
    assert 32768 == activation.largest_item_tokens(Release.of("0.9.2"), 32768)
    assert 16384 == activation.largest_item_tokens(Release.of("0.33.0"), 32768)
    assert 153_600 == activation.largest_item_tokens(None, 262_144)


def test_what_was_not_read_off_a_card_is_a_bound() -> None:
    assert Confidence.MEASURED is activation.confidence(Release.of("0.11.0"))
    assert Confidence.BOUND is activation.confidence(Release.of("0.33.0"))
