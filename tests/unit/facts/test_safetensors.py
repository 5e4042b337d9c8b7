"""Do headers of safetensors files give the bytes that vLLM loads?"""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from plimsoll.facts.hf_config import model_facts, replicated_bytes
from plimsoll.facts.model import ModelFacts, Weights
from plimsoll.facts.safetensors import (
    SafetensorsError,
    check_index,
    read_header,
    weights,
)
from plimsoll.facts.source import Confidence, FactSource, Provenance

LAYOUTS = json.loads(
    (Path(__file__).parents[2] / "data" / "vllm_layouts.json").read_text(encoding="utf-8")
)
CONFIGS: dict[str, dict[str, Any]] = {row["model"]: row["config"] for row in LAYOUTS["models"]}
LLAMA = CONFIGS["llama-3.1-8b"]


def header(shapes: dict[str, list[int]], *, width_bytes: int = 2) -> dict[str, Any]:
    """Tensors of these shapes, one behind the other."""
    entries, at = {}, 0
    for name, shape in shapes.items():
        size = width_bytes
        for length in shape:
            size *= length
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return entries


def llama_shapes(config: dict[str, Any], layers: range) -> dict[str, list[int]]:
    """Tensor names and shapes of a Llama checkpoint."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    kv = width // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, list[int]] = {}
    for index in layers:
        prefix = f"model.layers.{index}"
        shapes |= {
            f"{prefix}.self_attn.q_proj.weight": [width, width],
            f"{prefix}.self_attn.k_proj.weight": [kv, width],
            f"{prefix}.self_attn.v_proj.weight": [kv, width],
            f"{prefix}.self_attn.o_proj.weight": [width, width],
            f"{prefix}.mlp.gate_proj.weight": [inner, width],
            f"{prefix}.mlp.up_proj.weight": [inner, width],
            f"{prefix}.mlp.down_proj.weight": [width, inner],
            f"{prefix}.input_layernorm.weight": [width],
            f"{prefix}.post_attention_layernorm.weight": [width],
        }
    return shapes


def llama_files() -> tuple[dict[str, Any], dict[str, Any]]:
    ends = {
        "model.embed_tokens.weight": [128_256, 4096],
        "lm_head.weight": [128_256, 4096],
        "model.norm.weight": [4096],
    }
    return header(llama_shapes(LLAMA, range(20))), header(llama_shapes(LLAMA, range(20, 32)) | ends)


def file_of(entries: dict[str, Any]) -> bytes:
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(text)) + text


def llama_facts(**more: object) -> ModelFacts:
    found = model_facts(
        {**LLAMA, **more},
        id="a/model",
        weights=Weights(total_bytes=1),
        provenance=Provenance(source=FactSource.FILES, confidence=Confidence.EXACT),
    )
    assert isinstance(found, ModelFacts)
    return found


def test_the_sum_over_files_is_the_published_total() -> None:
    found = weights(llama_files())
    assert 16_060_522_496 == found.total_bytes
    assert replicated_bytes(LLAMA) == found.replicated_bytes
    layer = 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096)
    assert layer == found.largest_layer_bytes


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.mlp.gate.weight",
        "model.layers.3.mlp.gate.e_score_correction_bias",
        "model.layers.3.block_sparse_moe.gate.weight",
        "model.layers.3.mlp.router.weight",
        "language_model.model.layers.3.feed_forward.router.weight",
        "model.layers.3.self_attn.q_a_proj.weight",
        "model.layers.3.self_attn.q_a_proj.weight_scale_inv",
        "model.layers.3.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.3.self_attn.kv_a_layernorm.weight",
        "model.layers.3.self_attn.q_norm.weight",
        "model.layers.3.pre_feedforward_layernorm.weight",
        "model.norm.weight",
        "vision_tower.vision_model.encoder.layers.0.layer_norm1.weight",
    ],
)
def test_every_rank_holds_this_whole(name: str) -> None:
    found = weights([header({name: [8, 4]})])
    assert (64, 64) == (found.total_bytes, found.replicated_bytes)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.mlp.gate_proj.weight",
        "model.layers.3.mlp.experts.7.gate_proj.weight",
        "model.layers.3.mlp.experts.gate_up_proj_blocks",
        "model.layers.3.self_attn.kv_b_proj.weight",
        "model.layers.3.self_attn.q_b_proj.weight",
        "model.layers.3.self_attn.q_proj.weight_scale",
        "model.embed_tokens.weight",
        "lm_head.weight",
    ],
)
def test_ranks_share_this(name: str) -> None:
    assert 0 == weights([header({name: [8, 4]})]).replicated_bytes


def test_the_header_comes_without_metadata_and_nothing_behind_it_is_read() -> None:
    entries = header({"a": [2, 3]})
    stream = BytesIO(file_of(entries) + b"\0" * 12)
    assert entries == read_header(stream)
    assert len(file_of(entries)) == stream.tell()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends after 0 bytes"),
        (b"\1\0\0", "ends after 3 bytes"),
        (file_of(header({"a": [2]}))[:-5], "ends inside its header"),
        (struct.pack("<Q", 2**40), "no safetensors file"),
        (struct.pack("<Q", 4) + b"{{{{", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "JSON list"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "not JSON"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (file_of({"a": {"dtype": "BF16", "shape": [2]}}), "tensor a has data_offsets None"),
        (file_of({"a": {"data_offsets": [8, 4]}}), r"data_offsets \[8, 4\]"),
        (file_of({"a": 5}), "tensor a has data_offsets None"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(data: bytes, words: str) -> None:
    with pytest.raises(SafetensorsError, match=words):
        read_header(BytesIO(data))


def test_the_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00002.safetensors"
    path.write_bytes(b"\1")
    with path.open("rb") as stream, pytest.raises(SafetensorsError, match="model-00001-of-00002"):
        read_header(stream)


def test_missing_files_of_an_index_are_named() -> None:
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-3.safetensors"}}
    assert ("m-1.safetensors", "m-3.safetensors") == check_index(index, {"m-2.safetensors", "x"})
    assert () == check_index(index, ["m-1.safetensors", "m-2.safetensors", "m-3.safetensors"])


def test_an_index_without_a_map_is_told_apart() -> None:
    with pytest.raises(SafetensorsError, match="no weight_map"):
        check_index({"metadata": {}}, [])
