"""Do our layouts agree with the specs that vLLM itself gives each layer?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.facts.hf_config import model_facts, quantization_of, replicated_bytes
from plimsoll.facts.hf_layouts import NotUnderstoodError, kv_groups
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts, Quantization, UnknownLayout, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

LAYOUTS = json.loads(
    (Path(__file__).parents[2] / "data" / "vllm_layouts.json").read_text(encoding="utf-8")
)
MODELS: dict[str, dict[str, Any]] = {row["model"]: row for row in LAYOUTS["models"]}
KINDS = {
    "FullAttentionSpec": KvKind.FULL,
    "SlidingWindowSpec": KvKind.SLIDING,
    "ChunkedLocalAttentionSpec": KvKind.CHUNKED,
    "MLAAttentionSpec": KvKind.MLA,
}
REFUSED = {
    "deepseek-v3.2": "DeepseekV32ForCausalLM",
    "deepseek-v4-flash": "DeepseekV4ForCausalLM",
    "granite-4.0-h-small": "GraniteMoeHybridForCausalLM",
    "jamba-v0.1": "JambaForCausalLM",
    "nemotron-h-56b": "NemotronHForCausalLM",
    "qwen3-next-80b-a3b": "Qwen3NextForCausalLM",
    "qwen3.5-27b": "Qwen3_5ForConditionalGeneration",
}
KNOWN = sorted(MODELS.keys() - REFUSED.keys())
READ = Provenance(source=FactSource.FILES, confidence=Confidence.EXACT)
LLAMA = MODELS["llama-3.1-8b"]["config"]


def facts_of(config: dict[str, Any]) -> ModelFacts | UnknownLayout:
    return model_facts(config, id="a/model", weights=Weights(total_bytes=1), provenance=READ)


def refusal_of(config: dict[str, Any]) -> str:
    found = facts_of(config)
    assert isinstance(found, UnknownLayout)
    return found.message


@pytest.mark.parametrize("model", KNOWN)
def test_groups_are_the_specs_that_vllm_makes(model: str) -> None:
    row = MODELS[model]
    expected = {
        KvGroup(
            kind=KINDS[spec["kind"]],
            layers=spec["count"],
            kv_heads=spec["heads"],
            key_dim=spec["head_size"],
            value_dim=spec["head_size_v"],
            window_tokens=spec.get("window"),
        )
        for spec in row["specs"]
    }
    assert expected == set(kv_groups(row["config"]))


@pytest.mark.parametrize(("model", "architecture"), sorted(REFUSED.items()))
def test_what_we_cannot_count_is_refused_by_name(model: str, architecture: str) -> None:
    found = facts_of(MODELS[model]["config"])
    assert isinstance(found, UnknownLayout)
    assert architecture == found.architecture
    assert architecture in found.message
    assert "model.facts" in found.message


# What ranks hold beside an even share: KV heads repeated above their number, padding of MXFP4 tiles.
EXACT_RANKS = [
    (model, int(ranks))
    for model in KNOWN
    for ranks in MODELS[model]["rank_bytes"]
    if int(ranks) > 1
    and int(ranks) <= min(spec["heads"] for spec in MODELS[model]["specs"])
    and "gpt-oss" not in model
]


@pytest.mark.parametrize(("model", "ranks"), EXACT_RANKS)
def test_an_even_share_plus_what_is_replicated_is_what_a_rank_holds(model: str, ranks: int) -> None:
    row = MODELS[model]
    total = row["rank_bytes"]["1"]
    whole = replicated_bytes(row["config"])
    assert row["rank_bytes"][str(ranks)] == pytest.approx(
        (total - whole) / ranks + whole, rel=1e-5, abs=0
    )


def test_dense_ranks_are_exact_to_the_byte() -> None:
    row = MODELS["llama-3.3-70b"]
    assert 161 * 8192 * 2 == replicated_bytes(row["config"])
    assert 35_278_831_616 == (141_107_412_992 - 161 * 8192 * 2) // 4 + 161 * 8192 * 2


def test_latent_ranks_leave_out_only_biases_and_scales() -> None:
    row = MODELS["deepseek-v3"]
    whole = replicated_bytes(row["config"])
    share = (row["rank_bytes"]["1"] - whole) // 8 + whole
    assert 0 <= row["rank_bytes"]["8"] - share < 300_000


def test_a_window_that_is_switched_off_is_no_window() -> None:
    config = MODELS["qwen2.5-7b"]["config"]
    assert (131_072, False) == (config["sliding_window"], config["use_sliding_window"])
    assert {KvKind.FULL} == {group.kind for group in kv_groups(config)}


def test_a_window_that_is_on_without_a_list_is_refused() -> None:
    config = {**MODELS["qwen2.5-7b"]["config"], "use_sliding_window": True}
    with pytest.raises(NotUnderstoodError, match="use_sliding_window is true"):
        kv_groups(config)


def test_a_list_of_layers_wins_over_the_pattern() -> None:
    kinds = ["full_attention"] * 20 + ["sliding_attention"] * 6
    config = {**MODELS["gemma-3-1b"]["config"], "layer_types": kinds}
    assert [(KvKind.FULL, 20), (KvKind.SLIDING, 6)] == [
        (g.kind, g.layers) for g in kv_groups(config)
    ]


def test_a_list_of_the_wrong_length_is_refused_with_both_numbers() -> None:
    config = {**MODELS["gemma-3-1b"]["config"], "layer_types": ["full_attention"] * 3}
    assert "layer_types names 3 layers but num_hidden_layers is 26" in refusal_of(config)


def test_a_kind_of_layer_that_we_do_not_know_is_named() -> None:
    config = {**LLAMA, "layer_types": ["full_attention"] * 31 + ["lightning_attention"]}
    assert "lightning_attention" in refusal_of(config)


def test_a_listed_interval_of_llama_4_is_followed() -> None:
    config = MODELS["llama-4-scout"]["config"]
    text = {**config["text_config"], "no_rope_layers": [1] * 40 + [0] * 8}
    groups = kv_groups({**config, "text_config": text})
    assert [(KvKind.CHUNKED, 40), (KvKind.FULL, 8)] == [(g.kind, g.layers) for g in groups]


def test_llama_4_without_chunks_is_full() -> None:
    config = MODELS["llama-4-scout"]["config"]
    text = {**config["text_config"], "attention_chunk_size": None}
    assert {KvKind.FULL} == {g.kind for g in kv_groups({**config, "text_config": text})}


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("kv_lora_rank", 512, "latent attention"),
        ("index_topk", 2048, "index"),
        ("num_kv_shared_layers", 10, "shared between layers"),
        ("mamba_d_state", 128, "recurrent"),
        ("attention_chunk_size", 8192, "chunked"),
        ("cross_attention_layers", [3, 8], "cross attention"),
    ],
)
def test_a_field_that_changes_the_cache_is_not_passed_over(
    field: str, value: object, word: str
) -> None:
    message = refusal_of({**LLAMA, field: value})
    assert field in message
    assert word in message


def test_shared_layers_of_gemma_4_are_refused() -> None:
    config = MODELS["gemma-4-31b-nvfp4"]["config"]
    text = {**config["text_config"], "num_kv_shared_layers": 20}
    assert "num_kv_shared_layers = 20" in refusal_of({**config, "text_config": text})


def test_an_unknown_architecture_is_named() -> None:
    message = refusal_of({**LLAMA, "architectures": ["SomethingNewForCausalLM"]})
    assert "SomethingNewForCausalLM is not in our table" in message


@pytest.mark.parametrize("architectures", [None, [], "LlamaForCausalLM", 7])
def test_a_config_without_architectures_says_so(architectures: object) -> None:
    assert "none named" in refusal_of({**LLAMA, "architectures": architectures})


@pytest.mark.parametrize(
    "field",
    [
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
    ],
)
@pytest.mark.parametrize("value", [None, 0, -1, "many", 1.5, True, [32]])
def test_a_field_that_is_missing_or_strange_is_named(field: str, value: object) -> None:
    message = refusal_of({**LLAMA, field: value})
    assert field in message
    assert "whole number" in message


def test_a_number_of_layers_that_no_model_has_is_refused_at_once() -> None:
    assert "num_hidden_layers is 1000000000000" in refusal_of(
        {**LLAMA, "num_hidden_layers": 10**12}
    )


def test_heads_that_are_not_given_are_all_query_heads() -> None:
    config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    assert [32] == [group.kv_heads for group in kv_groups(config)]


def test_a_head_width_of_its_own_wins() -> None:
    assert [128] == [g.key_dim for g in kv_groups(MODELS["qwen3-30b-a3b"]["config"])]
    assert [96] == [g.key_dim for g in kv_groups(MODELS["phi-3-mini-128k"]["config"])]


def test_facts_of_a_dense_model() -> None:
    found = facts_of(LLAMA)
    assert isinstance(found, ModelFacts)
    assert (32, 4096, 14336, 32, 128_256, 131_072, "bfloat16", None, 0) == (
        found.layers,
        found.hidden_size,
        found.intermediate_size,
        found.attention_heads,
        found.vocab_size,
        found.max_position_embeddings,
        found.dtype,
        found.quantization,
        found.experts,
    )


@pytest.mark.parametrize(
    ("model", "width", "experts"),
    [
        ("qwen3-30b-a3b", 8 * 768, 128),
        ("gpt-oss-20b", 4 * 2880, 32),
        ("deepseek-v3", 9 * 2048, 256),
        ("llama-4-scout", 2 * 8192, 16),
        ("glm-4.5", 9 * 1536, 160),
    ],
)
def test_the_width_is_that_of_all_experts_of_a_token(model: str, width: int, experts: int) -> None:
    found = facts_of(MODELS[model]["config"])
    assert isinstance(found, ModelFacts)
    assert (width, experts) == (found.intermediate_size, found.experts)


def test_fields_that_a_class_has_by_default_may_be_left_out() -> None:
    found = facts_of(MODELS["gemma-3-27b"]["config"])
    assert isinstance(found, ModelFacts)
    assert (262_208, 131_072) == (found.vocab_size, found.max_position_embeddings)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "torch.bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float32"}, "bfloat16"),
        ({}, "bfloat16"),
    ],
)
def test_the_dtype_is_the_one_that_vllm_computes_in(given: dict[str, str], dtype: str) -> None:
    found = facts_of({**{k: v for k, v in LLAMA.items() if k != "torch_dtype"}, **given})
    assert isinstance(found, ModelFacts)
    assert dtype == found.dtype


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3"}, Quantization(method="fp8", bits=8)),
        ({"quant_method": "mxfp4"}, Quantization(method="mxfp4", bits=4)),
        ({"quant_method": "awq", "bits": 4}, Quantization(method="awq", bits=4)),
        ({"quant_method": "gptq", "bits": 3}, Quantization(method="gptq", bits=3)),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8}}},
            },
            Quantization(method="compressed-tensors", bits=8),
        ),
        (
            {
                "quant_method": "modelopt",
                "config_groups": {
                    "a": {"weights": {"num_bits": 4}},
                    "b": {"weights": {"num_bits": 8}},
                },
            },
            Quantization(method="modelopt", bits=None),
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            Quantization(method="modelopt", bits=4),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            Quantization(method="bitsandbytes", bits=4),
        ),
        ({"quant_method": "something-new"}, Quantization(method="something-new", bits=None)),
        ({"config_groups": {"a": None, "b": {"weights": None}}}, Quantization(method="unknown")),
    ],
)
def test_the_width_of_weights_is_said_only_where_there_is_one(
    config: dict[str, Any], expected: Quantization
) -> None:
    assert expected == quantization_of({"quantization_config": config})
