"""A config that is of another model than the tensors is refused, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.agreement import disagreements, gguf_disagreements
from plimsoll.facts.gguf_header import GgufHeader, GgufTensor
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts, Quantization, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}
CONFIG: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}


def facts(**changes: Any) -> ModelFacts:
    """A Llama of two layers, four query heads, two KV heads of 16."""
    values: dict[str, Any] = {
        "id": "tiny",
        "architecture": "LlamaForCausalLM",
        "layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "attention_heads": 4,
        "vocab_size": 100,
        "max_position_embeddings": 2048,
        "kv_groups": (KvGroup(kind=KvKind.FULL, layers=2, kv_heads=2, key_dim=16, value_dim=16),),
        "weights": Weights(total_bytes=1),
        "provenance": Provenance(source=FactSource.FILES, confidence=Confidence.EXACT),
    }
    return ModelFacts(**{**values, **changes})


def tensors(dtype: str = "BF16", *, layers: int = 2, **changes: list[int]) -> dict[str, Any]:
    """The files' headers: one file per layer, and one for the rest."""
    shapes = {
        "q_proj": [64, 64],
        "k_proj": [32, 64],
        "v_proj": [32, 64],
        "up_proj": [128, 64],
        "embed": [100, 64],
        **changes,
    }
    files: dict[str, dict[str, list[int]]] = {
        "rest.safetensors": {"model.embed_tokens.weight": shapes["embed"]}
    }
    for layer in range(layers):
        at = f"model.layers.{layer}"
        files[f"{layer}.safetensors"] = {
            f"{at}.self_attn.q_proj.weight": shapes["q_proj"],
            f"{at}.self_attn.k_proj.weight": shapes["k_proj"],
            f"{at}.self_attn.v_proj.weight": shapes["v_proj"],
            f"{at}.mlp.up_proj.weight": shapes["up_proj"],
        }
    return {
        file: {name: entry(dtype, shape) for name, shape in held.items()}
        for file, held in files.items()
    }


def entry(dtype: str, shape: list[int]) -> dict[str, Any]:
    size = WIDTHS[dtype]
    for length in shape:
        size *= length
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}


def test_a_model_that_agrees_with_its_config_contradicts_nothing() -> None:
    assert () == disagreements(CONFIG, facts(), tensors())


@pytest.mark.parametrize(
    ("changed", "files", "field", "values"),
    [
        ({"layers": 3}, {}, "num_hidden_layers 3", "hold 2 layers"),
        ({"layers": 1}, {}, "num_hidden_layers 1", "hold 2 layers"),
        ({"hidden_size": 32}, {}, "hidden_size 32", "rest.safetensors has 64 columns"),
        ({"vocab_size": 128}, {}, "vocab_size 128", "rest.safetensors has 100 rows"),
        ({"attention_heads": 8}, {}, "num_attention_heads 8", "0.safetensors has 64 rows"),
        ({}, {"k_proj": [16, 64]}, "num_key_value_heads 2", "0.safetensors has 16 rows"),
        ({}, {"v_proj": [64, 64]}, "num_key_value_heads 2", "0.safetensors has 64 rows"),
        ({}, {"up_proj": [256, 64]}, "intermediate_size 128", "0.safetensors has 256 rows"),
        ({"experts": 8}, {}, None, None),  # stacked experts show no number
    ],
)
def test_each_field_is_held_against_the_shapes(
    changed: dict[str, Any], files: dict[str, Any], field: str | None, values: str | None
) -> None:
    said = disagreements(CONFIG, facts(**changed), tensors(**files))
    if field is None or values is None:
        assert () == said
        return
    (sentence, *_) = said
    assert f"config.json says {field}" in sentence
    assert values in sentence
    assert "fetch config.json and the weights again" in sentence


def test_declared_draft_layers_are_no_contradiction() -> None:
    more = tensors(layers=3)
    assert () == disagreements(CONFIG | {"num_nextn_predict_layers": 1}, facts(), more)
    assert 1 == len(disagreements(CONFIG, facts(), more))


def test_a_gated_query_is_twice_as_wide_and_right() -> None:
    assert () == disagreements(CONFIG, facts(), tensors(q_proj=[128, 64]))


def test_an_image_tower_has_shapes_of_its_own() -> None:
    files = tensors()
    files["tower.safetensors"] = {
        "vision_tower.layers.7.self_attn.k_proj.weight": entry("BF16", [48, 48]),
        "visual.embed_tokens.weight": entry("BF16", [7, 48]),
    }
    assert () == disagreements(CONFIG, facts(), files)


def test_numbered_experts_are_counted() -> None:
    files = tensors()
    files["experts.safetensors"] = {
        f"model.layers.0.mlp.experts.{n}.down_proj.weight": entry("BF16", [64, 8]) for n in range(4)
    }
    (said,) = disagreements(CONFIG, facts(experts=8), files)
    assert "config.json says 8 experts, the files hold 4" in said


@pytest.mark.parametrize(
    ("dtype", "said", "says"),
    [
        ("F32", "bfloat16", "config.json says torch_dtype bfloat16, 100% of the weights' bytes are F32"),
        ("F16", "bfloat16", None),  # as many bytes, and the engine casts
        ("F8_E4M3", "bfloat16", "config.json has no quantization_config, 100% of the weights' bytes are F8"),
        ("F32", "float32", None),
    ],
)  # fmt: skip
def test_the_dtype_of_most_bytes_is_the_configs(dtype: str, said: str, says: str | None) -> None:
    found = disagreements(CONFIG | {"torch_dtype": said}, facts(), tensors(dtype))
    if says is None:
        assert () == found
    else:
        assert says in found[0]


def test_a_quantized_config_needs_quantized_tensors() -> None:
    quantized = facts(quantization=Quantization(method="fp8", bits=8))
    (said,) = disagreements(CONFIG, quantized, tensors())
    assert "quantization_config fp8 of 8 bits, 100% of the weights' bytes are BF16" in said
    assert () == disagreements(CONFIG, quantized, tensors("F8_E4M3"))


def test_packed_weights_are_not_judged_by_their_shapes() -> None:
    packed = facts(quantization=Quantization(method="mxfp4", bits=4))
    files = tensors("U8", k_proj=[32, 32])
    files["rest.safetensors"] = {"model.embed_tokens.weight": entry("BF16", [100, 64])}
    assert () == disagreements(CONFIG, packed, files)


def header(blocks: int = 1, **metadata: Any) -> GgufHeader:
    """A GGUF file of one block."""
    given = {
        "general.architecture": "llama",
        "llama.block_count": blocks,
        "llama.embedding_length": 64,
        **{f"llama.{key}": value for key, value in metadata.items()},
    }
    shapes = {"token_embd.weight": (64, 100), "blk.0.attn_k.weight": (64, 32)}
    return GgufHeader(
        version=3,
        metadata=given,
        tensors=tuple(
            GgufTensor(name=n, shape=s, type="F16", bytes=2 * s[0] * s[1])
            for n, s in shapes.items()
        ),
        data_offset=0,
        alignment=32,
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        ({"vocab_size": 100}, None),
        ({"vocab_size": 128}, "llama.vocab_size is 128, token_embd.weight has 100 rows"),
        ({"embedding_length": 32}, "llama.embedding_length is 32, token_embd.weight is 64 wide"),
        ({"blocks": 2}, "llama.block_count is 2, the tensors are of 1 blocks"),
    ],
)
def test_metadata_of_a_gguf_file_is_held_against_its_tensors(
    changed: dict[str, Any], says: str | None
) -> None:
    found = gguf_disagreements(header(**changed))
    if says is None:
        assert () == found
    else:
        assert says in found[0]
