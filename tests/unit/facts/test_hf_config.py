"""Do the facts behind a config.json agree with what vLLM itself makes of it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups, model_facts, replicated_bytes
from plimsoll.facts.model import ModelFacts, UnknownLayout, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

LAYOUTS = json.loads(
    (Path(__file__).parents[2] / "data" / "vllm_layouts.json").read_text(encoding="utf-8")
)
MODELS: dict[str, dict[str, Any]] = {row["model"]: row for row in LAYOUTS["models"]}
HYBRID_OR_SPARSE = (
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "granite-4.0-h-small",
    "jamba-v0.1",
    "nemotron-h-56b",
    "qwen3-next-80b-a3b",
    "qwen3.5-27b",
)
KNOWN = sorted(MODELS.keys() - set(HYBRID_OR_SPARSE))
READ = Provenance(source=FactSource.FILES, confidence=Confidence.EXACT)
LLAMA = MODELS["llama-3.1-8b"]["config"]


def facts_of(config: dict[str, Any]) -> ModelFacts | UnknownLayout:
    return model_facts(config, id="a/model", weights=Weights(total_bytes=1), provenance=READ)


def refusal_of(config: dict[str, Any]) -> str:
    found = facts_of(config)
    assert isinstance(found, UnknownLayout)
    return found.message


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


def test_what_lies_around_the_layout_is_read_too() -> None:
    found = facts_of(MODELS["qwen3.5-27b"]["config"])
    assert isinstance(found, ModelFacts)
    assert (True, False, False) == (found.multimodal, found.tied_embeddings, found.prefix_lm)
    glm = facts_of(MODELS["glm-4.5"]["config"])
    assert isinstance(glm, ModelFacts)
    assert (8, 1536, 160) == (glm.experts_per_token, glm.expert_width, glm.experts)


def test_draft_layers_are_counted_apart() -> None:
    found = facts_of({**MODELS["deepseek-v3"]["config"], "num_nextn_predict_layers": 1})
    assert isinstance(found, ModelFacts)
    assert (61, 1) == (found.layers, found.draft_layers)


def test_gemma_3_with_images_sees_them_both_ways_and_gemma_2_caps_its_logits() -> None:
    config = {**MODELS["gemma-3-27b"]["config"], "model_type": "gemma3"}
    seeing = facts_of(config)
    capped = facts_of({**MODELS["gemma-2-9b"]["config"], "attn_logit_softcapping": 50.0})
    assert isinstance(seeing, ModelFacts)
    assert isinstance(capped, ModelFacts)
    assert (True, False) == (seeing.prefix_lm, seeing.soft_capped)
    assert (False, True) == (capped.prefix_lm, capped.soft_capped)


def test_layers_are_named_where_they_differ_and_not_where_all_are_alike() -> None:
    assert [()] == [group.at for group in kv_groups(LLAMA)]
    (sliding, full) = kv_groups(MODELS["gemma-3-1b"]["config"])
    assert (5, 11, 17, 23) == full.at
    assert (0, 1, 2, 3, 4, 6) == sliding.at[:6]


def test_a_field_that_nobody_knows_is_told() -> None:
    found = facts_of({**LLAMA, "my_note": "tuned in Gothenburg"})
    assert isinstance(found, ModelFacts)
    assert ("my_note",) == found.unread


def test_a_model_that_sees_both_ways_keeps_no_cache() -> None:
    assert "is_causal is False" in refusal_of({**LLAMA, "is_causal": False})


def test_a_dtype_that_no_engine_computes_in_is_refused() -> None:
    assert "torch_dtype is 'float8_e4m3'" in refusal_of({**LLAMA, "torch_dtype": "float8_e4m3"})


def test_a_class_fills_what_a_whole_file_leaves_out_and_not_what_some_fields_do() -> None:
    few = {name: LLAMA[name] for name in ("architectures", "num_hidden_layers", "hidden_size")}
    whole = model_facts(few, id="a/model", weights=Weights(total_bytes=1), provenance=READ)
    parts = model_facts(
        few, id="a/model", weights=Weights(total_bytes=1), provenance=READ, whole=False
    )
    assert isinstance(whole, ModelFacts)
    assert 32_000 == whole.vocab_size  # transformers 5.20.2 LlamaConfig
    assert isinstance(parts, UnknownLayout)
    assert "num_attention_heads is not given" in parts.message


def test_a_model_without_attention_has_no_query_heads_and_no_bound_on_its_length() -> None:
    mamba = {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "num_hidden_layers": 64,
        "hidden_size": 2560,
    }
    found = facts_of(mamba)
    assert isinstance(found, ModelFacts)
    assert (0, 5120, 1 << 20) == (
        found.attention_heads,
        found.intermediate_size,
        found.max_position_embeddings,
    )
