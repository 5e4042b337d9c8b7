"""What does the llm-d planner's published formula say?

Not its program: a comparison written from what llm-d-incubation/llm-d-planner (PyPI llm-d-planner 0.3.3,
planner/capacity_planner.py and data/configuration/vllm_memory_constants.json) says it computes. Bytes
per token are layers x 2 x KV heads x head size, or layers x (latent + rotary) for two DeepSeek classes;
no windows, no recurrent state, no blocks; the KV data type is that of the weights, taken
as 16 bits where config.json names none. Free for KV over all
cards is utilization x cards x card, less the weights, one activation peak (per architecture, per
replica and not per card) and the non-torch share of each card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.accuracy.peers.peer import Figure, Peer, Question, Silent, text_config

GIB: Final = 1 << 30
ACTIVATION_GIB: Final = {
    "LlamaForCausalLM": 1.89,
    "Qwen2ForCausalLM": 2.25,
    "Qwen3ForCausalLM": 2.21,
    "Mistral3ForConditionalGeneration": 2.10,
    "PixtralForConditionalGeneration": 2.10,
    "DeepseekV2ForCausalLM": 1.93,
    "GraniteForCausalLM": 0.85,
    "LlavaNextForConditionalGeneration": 0.79,
    "MixtralForCausalLM": 1.21,
    "Phi3ForCausalLM": 1.52,
    "Qwen2MoeForCausalLM": 2.47,
    "Qwen3MoeForCausalLM": 2.68,
    "Gemma2ForCausalLM": 3.65,
    "Gemma3ForCausalLM": 3.94,
    "GemmaForCausalLM": 3.63,
}
"""Its measured peaks on an H100 with vLLM 0.19.0, per architecture."""
ACTIVATION_DENSE_GIB: Final = 2.0
ACTIVATION_MOE_GIB: Final = 2.5
NON_TORCH_ONE_CARD_GIB: Final = 0.27
NON_TORCH_STAGES_GIB: Final = 0.07
NON_TORCH_RANKS_GIB: Final = 2.10
"""Per card: alone, one rank of several pipeline stages, several ranks."""
MOE_FIELDS: Final = ("n_routed_experts", "n_shared_experts", "num_experts", "num_experts_per_tok")
MLA_CLASSES: Final = ("DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM")
VALUE_BYTES: Final = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


def request_bytes(question: Question) -> Figure:
    """One request of the full length, on each of the cards that share the model."""
    if question.kv_dtype != "auto":
        return Silent("the KV data type is not an input of its formula")
    if question.config is None or question.max_model_len is None:
        return Silent("the formula needs config.json and a length")
    config = text_config(question.config)
    architecture = (question.config.get("architectures") or [question.architecture])[0]
    layers = config.get("num_hidden_layers")
    values = _latent_values(config) if architecture in MLA_CLASSES else _head_values(config)
    if not layers or values is None:
        return Silent("config.json lacks a field that the formula needs")
    dtype = str(
        question.config.get("torch_dtype")
        or question.config.get("dtype")
        or config.get("torch_dtype")
        or config.get("dtype")
        or question.dtype
        or "bfloat16"
    )
    each = layers * values * VALUE_BYTES.get(dtype, 2.0)
    return float(each * question.max_model_len / (question.tp * question.pp))


def _latent_values(config: Mapping[str, Any]) -> float | None:
    latent, rotary = config.get("kv_lora_rank"), config.get("qk_rope_head_dim")
    return latent + rotary if latent and rotary else None


def _head_values(config: Mapping[str, Any]) -> float | None:
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    return 2 * kv_heads * width if kv_heads and width else None


def pool_bytes(question: Question) -> Figure:
    """KV memory on each card: what is left over all cards, shared out."""
    if not (question.card_bytes and question.utilization and question.weights_bytes_per_card):
        return Silent("the formula needs the card's total, the utilization and the weights")
    cards = question.tp * question.pp
    if question.tp > 1:
        non_torch = NON_TORCH_RANKS_GIB
    else:
        non_torch = NON_TORCH_STAGES_GIB if question.pp > 1 else NON_TORCH_ONE_CARD_GIB
    each = (
        question.card_bytes * question.utilization
        - question.weights_bytes_per_card
        - non_torch * GIB
        - _activation_gib(question) * GIB / cards
    )
    return max(each, 0.0)


def _activation_gib(question: Question) -> float:
    known = ACTIVATION_GIB.get(question.architecture)
    if known is not None:
        return known
    config = text_config(question.config) if question.config else {}
    is_moe = any(name in config for name in MOE_FIELDS) or "Moe" in question.architecture
    return ACTIVATION_MOE_GIB if is_moe else ACTIVATION_DENSE_GIB


PEER: Final = Peer(
    name="llm-d planner (formula)",
    version="0.3.3",
    how="written from its description: llm-d-incubation/llm-d-planner 0.3.3, capacity_planner.py",
    request=request_bytes,
    pool=pool_bytes,
)
