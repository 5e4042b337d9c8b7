"""What does KAITO's published formula say?

Not its program: a comparison written from what kaito-project/kaito v0.12.0 says it computes
(pkg/workspace/estimator: nodesestimator and max_model_len.go; presets/workspace/generator for the bytes
of a token). A card has utilization x total, less the weights, less 2.3 GiB (1.5 GiB on an A10), less
5 % of the card's share of the weights; the rest is KV of one sequence. Its further factor of 1.02 from
files to loaded weights is left out, since the cases state what was loaded. Bytes per token are 16 bits
x layers x 2 x KV heads x head size shared over the cards, or layers x (latent + rotary) on each card
for MLA; no windows, and recurrent layers count as attention.
"""

from __future__ import annotations

from typing import Final

from benchmarks.accuracy.peers.peer import Figure, Peer, Question, Silent, text_config

GIB: Final = 1 << 30
BASE_GIB: Final = 2.3
BASE_A10_GIB: Final = 1.5
OF_THE_WEIGHTS: Final = 0.05
VALUE_BYTES: Final = 2


def request_bytes(question: Question) -> Figure:
    """One sequence of the full length, on each card."""
    if question.kv_dtype != "auto":
        return Silent("its KV data type is fixed at 16 bits")
    if question.config is None or question.max_model_len is None:
        return Silent("the formula needs config.json and a length")
    config = text_config(question.config)
    layers = config.get("num_hidden_layers")
    latent, rotary = config.get("kv_lora_rank"), config.get("qk_rope_head_dim")
    if layers and latent and rotary:
        each = layers * (latent + rotary) * VALUE_BYTES / question.pp
        return float(each * question.max_model_len)
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    if not (layers and kv_heads and width):
        return Silent("config.json lacks a field that the formula needs")
    each = layers * 2 * kv_heads * width * VALUE_BYTES / (question.tp * question.pp)
    return float(each * question.max_model_len)


def pool_bytes(question: Question) -> Figure:
    """KV memory on each card."""
    if not (question.card_bytes and question.utilization and question.weights_bytes_per_card):
        return Silent("the formula needs the card's total, the utilization and the weights")
    words = question.card.upper().replace("-", " ").split()
    base = BASE_A10_GIB if "A10" in words else BASE_GIB
    weights = question.weights_bytes_per_card
    left = question.card_bytes * question.utilization - weights * (1 + OF_THE_WEIGHTS) - base * GIB
    return max(left, 0.0)


PEER: Final = Peer(
    name="KAITO (formula)",
    version="0.12.0",
    how="written from its description: kaito-project/kaito v0.12.0, pkg/workspace/estimator",
    request=request_bytes,
    pool=pool_bytes,
)
