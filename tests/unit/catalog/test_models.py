"""Do the catalogue's models carry the numbers that were published for them?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.catalog.models import find_gguf, find_model, known_ids, nearest_ids
from plimsoll.facts.model import GgufFacts, KvKind, ModelFacts, Quantization, UnknownLayout
from plimsoll.facts.source import Confidence, FactSource
from plimsoll.units import GIB

DATA = Path(__file__).parents[2] / "data"
SHAPES: dict[str, dict[str, Any]] = {
    row["file"]: row
    for row in json.loads((DATA / "gguf_shapes.json").read_text(encoding="utf-8"))["models"]
}
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
FP8_70B = "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"
LLAMA_8B = "meta-llama/Meta-Llama-3-8B-Instruct"


def model(model_id: str) -> ModelFacts:
    found = find_model(model_id)
    assert isinstance(found, ModelFacts), found
    return found


def gguf(model_id: str, quantization: str) -> GgufFacts:
    found = find_gguf(model_id, quantization)
    assert found is not None
    return found


def kv_bytes_per_token(facts: ModelFacts | GgufFacts, *, bytes_per_value: int) -> int:
    return sum(
        group.layers * group.kv_heads * (group.key_dim + group.value_dim) * bytes_per_value
        for group in facts.kv_groups
    )


@pytest.mark.parametrize("model_id", known_ids())
def test_every_row_gives_facts_or_says_what_lacks(model_id: str) -> None:
    found = find_model(model_id)
    assert found is not None
    if isinstance(found, UnknownLayout):
        assert found.message.startswith(f"{model_id}: ")
        assert "model.facts" in found.message
    else:
        assert model_id == found.id
        assert FactSource.CATALOGUE is found.provenance.source
        assert Confidence.TABLE is found.provenance.confidence
        assert found.provenance.detail
        assert 0 < found.weights.replicated_bytes < found.weights.total_bytes / 50
        kept = {layer for group in found.kv_groups for layer in group.at or range(group.layers)}
        assert kept <= set(range(found.layers))


def test_four_of_five_in_the_catalogue_can_be_planned_for() -> None:
    facts = [each for name in known_ids() if isinstance(each := find_model(name), ModelFacts)]
    assert len(facts) > 0.8 * len(known_ids())


def test_hybrids_and_sparse_models_come_with_all_their_groups() -> None:
    assert [(KvKind.RECURRENT, 36), (KvKind.FULL, 12)] == [
        (g.kind, g.layers) for g in model("Qwen/Qwen3-Next-80B-A3B-Instruct").kv_groups
    ]
    assert [(KvKind.INDEXER, 61, 128), (KvKind.MLA, 61, 576)] == [
        (g.kind, g.layers, g.key_dim) for g in model("deepseek-ai/DeepSeek-V3.2").kv_groups
    ]
    assert [(KvKind.SLIDING, 25, 8, 256), (KvKind.FULL, 5, 2, 512)] == [
        (g.kind, g.layers, g.kv_heads, g.key_dim)
        for g in model("google/gemma-4-26B-A4B-it").kv_groups
    ]


def test_a_row_is_not_filled_with_what_its_class_would_say() -> None:
    found = find_model("tiiuae/Falcon-H1-34B-Instruct")
    assert isinstance(found, UnknownLayout)
    assert "mamba_expand is not given" in found.message


def test_70b_is_as_published() -> None:
    found = model(LLAMA_70B)
    assert (80, 8192, 28672, 64, 128_256, 131_072) == (
        found.layers,
        found.hidden_size,
        found.intermediate_size,
        found.attention_heads,
        found.vocab_size,
        found.max_position_embeddings,
    )
    assert 141_107_412_992 == found.weights.total_bytes
    assert 327_680 == kv_bytes_per_token(found, bytes_per_value=2)


def test_fp8_70b_has_the_shape_of_its_base_and_the_weights_that_were_read() -> None:
    found = model(FP8_70B)
    assert model(LLAMA_70B).kv_groups == found.kv_groups
    assert 67.72 == pytest.approx(found.weights.total_bytes / GIB, abs=1e-6)
    assert Quantization(method="compressed-tensors", bits=8) == found.quantization
    assert LLAMA_70B in found.provenance.detail
    assert "empirical-vllm-memory-results" in found.provenance.detail


def test_8b_is_as_published() -> None:
    found = model(LLAMA_8B)
    assert (32, 8192, 16_060_522_496) == (
        found.layers,
        found.max_position_embeddings,
        found.weights.total_bytes,
    )
    assert 131_072 == kv_bytes_per_token(found, bytes_per_value=2)


def test_experts_all_count_as_weights() -> None:
    found = model("mistralai/Mixtral-8x7B-v0.1")
    assert (93_405_585_408, 8, 2 * 14336) == (
        found.weights.total_bytes,
        found.experts,
        found.intermediate_size,
    )


def test_latents_and_windows_come_from_the_same_rules_as_config_files() -> None:
    assert [(KvKind.MLA, 61, 1, 576, 0)] == [
        (g.kind, g.layers, g.kv_heads, g.key_dim, g.value_dim)
        for g in model("deepseek-ai/DeepSeek-V3").kv_groups
    ]
    assert [(KvKind.SLIDING, 52, 1024), (KvKind.FULL, 10, None)] == [
        (g.kind, g.layers, g.window_tokens) for g in model("google/gemma-3-27b-it").kv_groups
    ]


def test_letter_case_does_not_matter_and_the_published_spelling_comes_back() -> None:
    assert LLAMA_70B == model(LLAMA_70B.upper()).id


def test_an_unknown_model_is_none() -> None:
    assert find_model("somebody/something") is None
    assert find_model("") is None


@pytest.mark.parametrize(
    ("model_id", "words"),
    [
        ("Qwen/Qwen3.8-27B", "linear_num_key_heads is not given"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "what the layers are"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "size of the weights was not published"),
        ("Qwen/Qwen3-14B", "max_position_embeddings is not given"),
        ("BAAI/bge-m3", "keeps no KV cache"),
    ],
)
def test_what_lacks_is_named(model_id: str, words: str) -> None:
    found = find_model(model_id)
    assert isinstance(found, UnknownLayout)
    assert words in found.message


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("meta-llama/Llama-3.3-70B", LLAMA_70B),
        ("llama-3.3-70b-instruct", LLAMA_70B),
        ("meta-llama/Lama-3.3-70B-Instruct", LLAMA_70B),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"),
    ],
)
def test_a_slip_of_the_finger_gets_the_right_suggestion(typed: str, meant: str) -> None:
    assert meant in nearest_ids(typed)


@pytest.mark.parametrize(
    ("quantization", "published_gb"),
    [
        ("Q4_K_S", 40.35),
        ("Q4_K_M", 42.52),
        ("Q5_K_S", 48.66),
        ("Q5_K_M", 49.95),
        ("Q6_K", 57.89),
        ("Q8_0", 74.98),
    ],
)
def test_70b_files_are_as_large_as_published(quantization: str, published_gb: float) -> None:
    found = gguf(LLAMA_70B, quantization)
    total = sum(found.block_bytes) + found.output_bytes + found.embedding_bytes
    assert 80 == len(found.block_bytes)
    assert published_gb == pytest.approx(total / 1e9, rel=3e-4)


@pytest.mark.parametrize(
    ("quantization", "published_gib"),
    [
        ("Q4_K_S", 4.36),
        ("Q4_K_M", 4.58),
        ("Q5_K_S", 5.21),
        ("Q5_K_M", 5.33),
        ("Q6_K", 6.14),
        ("Q8_0", 7.95),
        ("F16", 14.96),
    ],
)
def test_8b_files_are_as_large_as_published(quantization: str, published_gib: float) -> None:
    found = gguf("meta-llama/Llama-3.1-8B-Instruct", quantization)
    total = sum(found.block_bytes) + found.output_bytes + found.embedding_bytes
    assert published_gib == pytest.approx(total / GIB, abs=0.0101)


@pytest.mark.parametrize(
    ("file", "model_id", "quantization"),
    [
        ("llama70b-Q4_K_M.gguf", LLAMA_70B, "Q4_K_M"),
        ("llama70b-Q5_K_M.gguf", LLAMA_70B, "Q5_K_M"),
        ("llama70b-Q6_K.gguf", LLAMA_70B, "Q6_K"),
        ("llama70b-Q8_0.gguf", LLAMA_70B, "Q8_0"),
        ("llama70b-F16.gguf", LLAMA_70B, "F16"),
        ("llama8b-Q4_K_M.gguf", "meta-llama/Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("gemma.gguf", "google/gemma-3-270m", "Q4_K_M"),
    ],
)
def test_blocks_are_those_that_llama_cpp_loaded(
    file: str, model_id: str, quantization: str
) -> None:
    row, found = SHAPES[file], gguf(model_id, quantization)
    others = row["other_tensor_bytes"]
    output = others["output_norm.weight"] + others.get("output.weight", others["token_embd.weight"])
    assert tuple(b for b, times in row["layer_bytes"] for _ in range(times)) == found.block_bytes
    assert output == found.output_bytes
    assert others["token_embd.weight"] + others.get("rope_freqs.weight", 0) == found.embedding_bytes
    assert row["tied_output"] == found.tied_output
    assert tuple(row.get("swa_layers", ())) == found.sliding_blocks
    assert row["context_length"] == found.context_length


def test_16_bit_is_the_safetensors_total_with_norms_at_32_bit() -> None:
    found = gguf(LLAMA_70B, "F16")
    total = sum(found.block_bytes) + found.output_bytes + found.embedding_bytes
    assert 141_107_412_992 + 161 * 8192 * 2 + 256 == total


def test_the_largest_tensors_follow_from_shape_and_type() -> None:
    found = gguf(LLAMA_70B, "Q6_K")
    assert (28672 * 8192 // 256 * 210, 8192 * 8192 // 256 * 210) == (
        found.largest_ffn_tensor_bytes,
        found.largest_attention_tensor_bytes,
    )


def test_gguf_and_safetensors_of_a_model_keep_the_same_cache() -> None:
    assert model(LLAMA_70B).kv_groups == gguf(LLAMA_70B, "q4_k_m").kv_groups
    assert model(LLAMA_8B).kv_groups == gguf(LLAMA_8B, "Q8_0").kv_groups


def test_a_quantisation_that_nobody_counted_is_none() -> None:
    assert find_gguf(LLAMA_70B, "IQ2_XXS") is None
    assert find_gguf("Qwen/Qwen2.5-7B-Instruct", "Q4_K_M") is None
