"""What does a config.json say about a model?

The layout of its KV cache is the subject of hf_layouts; here are the other fields and the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.facts.hf_layouts import (
    Config,
    NotUnderstoodError,
    architecture_of,
    family_of,
    head_dim,
    kv_groups,
    number_or,
    text_config,
    whole_number,
)
from plimsoll.facts.model import ModelFacts, Quantization, UnknownLayout, Weights
from plimsoll.facts.source import Provenance

WAY_OUT: Final = (
    "Give the layout yourself in model.facts, or choose a model whose layout we know; "
    "nothing is guessed."
)


def model_facts(
    config: Config,
    *,
    id: str,  # noqa: A002 - the record's own word
    weights: Weights,
    provenance: Provenance,
) -> ModelFacts | UnknownLayout:
    """The facts behind a config.json, with weights counted elsewhere, or what is not understood."""
    architecture = architecture_of(config)
    text = text_config(config)
    try:
        groups = kv_groups(config)
        filled = {**family_of(architecture).defaults, **text}
        return ModelFacts(
            id=id,
            architecture=architecture,
            layers=whole_number(text, "num_hidden_layers"),
            hidden_size=whole_number(text, "hidden_size"),
            intermediate_size=_feed_forward_width(text),
            attention_heads=whole_number(text, "num_attention_heads"),
            vocab_size=whole_number(filled, "vocab_size"),
            max_position_embeddings=whole_number(filled, "max_position_embeddings"),
            dtype=_dtype(config),
            quantization=quantization_of(config),
            kv_groups=groups,
            weights=weights,
            experts=_experts(text),
            provenance=provenance,
        )
    except NotUnderstoodError as reason:
        return UnknownLayout(architecture=architecture, message=f"{id}: {reason} {WAY_OUT}")


def replicated_bytes(config: Config) -> int:
    """Bytes of the weights that every tensor-parallel rank holds whole, counted from the shape.

    Norms, routers and MLA down-projections at 16 bit (8 where the checkpoint is). Equal to what the
    ranks of vLLM 0.33.0 hold for dense models, Qwen3 MoE and Llama 4, within 0.05 % for GLM-4.5 and
    DeepSeek-V3 (biases and scales are left out). Tensor headers, where there are some, know better.
    Raises NotUnderstoodError.
    """
    text = text_config(config)
    family = family_of(architecture_of(config))
    layers, width = whole_number(text, "num_hidden_layers"), whole_number(text, "hidden_size")
    latent, query_latent = number_or(text, "kv_lora_rank", 0), number_or(text, "q_lora_rank", 0)
    norms = (family.norms * layers + 1) * width + layers * (latent + query_latent)
    if family.norms_heads and text.get("use_qk_norm", True):
        norms += layers * 2 * head_dim(text)
    routers = (layers - number_or(text, "first_k_dense_replace", 0)) * _experts(text) * width
    down = 0
    if latent:
        down = layers * width * (latent + query_latent + whole_number(text, "qk_rope_head_dim"))
    quantization = quantization_of(config)
    down_bytes = 1 if quantization is not None and quantization.bits == 8 else 2
    return 2 * norms + family.router_bytes * routers + down_bytes * down


def quantization_of(config: Config) -> Quantization | None:
    """How the checkpoint stores its weights, from quantization_config; None for the model's dtype."""
    found = config.get("quantization_config") or text_config(config).get("quantization_config")
    if not isinstance(found, Mapping):
        return None
    method = str(found.get("quant_method") or "unknown")
    return Quantization(method=method, bits=_bits(method, found))


def _experts(text: Config) -> int:
    for name in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"):
        if experts := number_or(text, name, 0):
            return experts
    return 0


def _feed_forward_width(text: Config) -> int:
    """The dense layer's width, or that of all experts one token uses, whichever is wider.

    Llama 4 calls the dense one intermediate_size_mlp and the experts' intermediate_size; its shared
    expert is as wide as a routed one.
    """
    if not _experts(text):
        return whole_number(text, "intermediate_size")
    names = ("num_experts_per_tok", "experts_per_token", "top_k_experts")
    used = whole_number(text, next((name for name in names if text.get(name)), names[0]))
    used += number_or(text, "n_shared_experts", 0) + ("intermediate_size_mlp" in text)
    own = "moe_intermediate_size" if text.get("moe_intermediate_size") else "intermediate_size"
    dense = number_or(text, "intermediate_size_mlp", 0)
    if text.get("first_k_dense_replace") or text.get("mlp_only_layers"):
        dense = whole_number(text, "intermediate_size")
    return max(used * whole_number(text, own), dense)


def _dtype(config: Config) -> str:
    """The dtype that vLLM computes in; float32 checkpoints run in 16 bit (vllm/config/model.py)."""
    for part in (config, text_config(config)):
        for name in ("dtype", "torch_dtype"):
            if isinstance(found := part.get(name), str):
                dtype = found.removeprefix("torch.")
                return "bfloat16" if dtype == "float32" else dtype
    return "bfloat16"


_ALGORITHM_BITS: Final = {"FP8": 8, "INT8_SQ": 8, "NVFP4": 4, "W4A8_AWQ": 4, "W4A16_AWQ": 4}
"""modelopt's quant_algo (nvidia-modelopt 0.37)."""
_METHOD_BITS: Final = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4}
"""Methods with one width (vLLM 0.33.0 vllm/model_executor/layers/quantization)."""


def _bits(method: str, found: Mapping[str, Any]) -> int | None:
    """The width of a weight where the checkpoint has only one."""
    if isinstance(bits := found.get("bits"), int):
        return bits
    if isinstance(groups := found.get("config_groups"), Mapping):
        inner = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        widths = {entry.get("num_bits") for entry in inner if isinstance(entry, Mapping)}
        only = widths.pop() if len(widths) == 1 else None
        return only if isinstance(only, int) else None
    if found.get("quant_algo"):
        return _ALGORITHM_BITS.get(str(found["quant_algo"]).upper())
    if method == "bitsandbytes":
        return 4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else None
    return _METHOD_BITS.get(method)
