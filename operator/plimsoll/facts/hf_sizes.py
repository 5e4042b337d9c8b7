"""How wide is a model, how many experts has it, how long may a sequence be, as its config says?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from plimsoll.facts.hf_fields import Fields

_STREAM: Final = ("hidden_size", "n_embd", "d_model")
_VOCABULARY: Final = ("vocab_size", "padded_vocab_size")
_LENGTHS: Final = (
    *(
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "max_target_positions",
    ),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
_QUERIES: Final = ("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads")
_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_PER_TOKEN: Final = (
    *("num_experts_per_tok", "experts_per_token", "top_k_experts", "num_experts_per_token"),
    *("moe_topk", "moe_top_k", "moe_k"),
)
_SHARED: Final = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_DRAFTS: Final = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
    "num_mtp_modules",
)
_DENSE: Final = (
    *("intermediate_size", "ffn_hidden_size", "ffn_dim", "decoder_ffn_dim", "block_ff_dim"),
    "ff_intermediate_size",
)


def stream_width(f: Fields) -> int:
    """Width of the residual stream. Raises NotUnderstoodError."""
    return _first(f, _STREAM)


def vocabulary(f: Fields) -> int:
    """Tokens in the vocabulary. Raises NotUnderstoodError."""
    return _first(f, _VOCABULARY)


def draft_layers(f: Fields) -> int:
    """Layers of multi-token prediction in the checkpoint."""
    return _any(f, _DRAFTS)


def pass_over_sizes(f: Fields) -> None:
    """Sizes beside the layout, of which a config may name more than we need."""
    f.skip(*_STREAM, *_VOCABULARY, *_LENGTHS, *_PER_TOKEN, *_EXPERTS, *_DRAFTS, *_SHARED, *_QUERIES)
    f.skip(
        "intermediate_size",
        "moe_intermediate_size",
        "attn_logit_softcapping",
        "max_source_positions",
        "model_max_length",
    )


def _any(f: Fields, names: Sequence[str]) -> int:
    """The first of the names that has a number above zero, the file's own before the class's; else 0."""
    given = next((name for name in names if name in f and _number(f, name)), None)
    if given is not None:
        return _number(f, given)
    return next((found for name in names if name not in f and (found := _number(f, name))), 0)


def _number(f: Fields, name: str) -> int:
    """A number, or the largest of a list with one per layer or, for experts, per kind."""
    value = f.value(name)
    if isinstance(value, Sequence) and not isinstance(value, str):
        per_layer = len(value) == f.count("num_hidden_layers")
        if per_layer or name in (*_EXPERTS, *_PER_TOKEN, *_SHARED, "moe_intermediate_size"):
            return max(f.numbers(name) or (0,))
    return f.count(name)


def _first(f: Fields, names: Sequence[str]) -> int:
    """As `_any`, but there must be one. Raises NotUnderstoodError."""
    found = _any(f, names)
    return found or f.whole(names[0])


def longest(f: Fields) -> int:
    """The shortest of the lengths that a config names (vLLM model_arch_config_convertor.py)."""
    if own := f.count("model_max_length"):
        return own
    found = [length for name in _LENGTHS if (length := f.count(name))]
    if found:
        return min(found)
    if _LENGTHS[0] in f.given or not f.has_class:
        return f.whole(_LENGTHS[0])
    return _NO_LENGTH if query_heads(f) else _NO_BOUND


_NO_LENGTH: Final = 2048
"""What vLLM assumes where no field names a length (vLLM 0.33.0 vllm/config/model.py)."""


_NO_BOUND: Final = 1 << 20
"""For models without attention, whose memory does not depend on the length and which name none."""


def query_heads(f: Fields) -> int:
    """Query heads; 0 in a model without attention."""
    given = next((name for name in _QUERIES if f.value(name) is not None), None)
    return 0 if given is None else f.whole(given)


def expert_count(f: Fields) -> int:
    experts = _any(f, _EXPERTS)
    if not experts and (ffn := f.given.get("ffn_config")) and isinstance(ffn, Mapping):
        return Fields(ffn, where="ffn_config.").count("moe_num_experts")
    return experts


def expert_width(f: Fields) -> int:
    if isinstance(ffn := f.given.get("ffn_config"), Mapping):
        return Fields(ffn, where="ffn_config.").count("ffn_hidden_size")
    return _any(f, ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"))


def feed_forward_width(f: Fields, experts: int) -> int:
    """The dense layer's width, or that of all experts one token uses, whichever is wider.

    Llama 4 calls the dense one intermediate_size_mlp and the experts' intermediate_size; its shared
    expert is as wide as a routed one. Without a dense layer: that of the widest block (Llama-Nemotron) or of the
    recurrence (Mamba).
    """
    if not experts:
        return _dense_width(f)
    used = experts_per_token(f) or f.whole(_PER_TOKEN[0])
    used += _any(f, _SHARED) + ("intermediate_size_mlp" in f)
    dense = f.count("intermediate_size_mlp") or f.count("dense_intermediate_size")
    if f.value("first_k_dense_replace") or f.value("mlp_only_layers"):
        dense = max(dense, _any(f, _DENSE))
    return max(used * expert_width(f), dense)


def _dense_width(f: Fields) -> int:
    if found := _any(f, _DENSE):
        return found
    if blocks := f.given.get("block_configs"):
        return _widest_block(f, blocks)
    if "n_embd" in f or f.value("n_embd") is not None:
        return f.count("n_inner") or 4 * f.whole("n_embd")
    if inner := f.count("d_inner") or f.count("expand") * _any(f, _STREAM):
        return inner
    if f.where == "" and f.value("n_layer") is not None:
        return 4 * stream_width(f)
    return f.whole("intermediate_size")


def _widest_block(f: Fields, blocks: Any) -> int:
    """Llama-Nemotron: a block's width is 2/3 of ffn_mult times the stream's, in steps of 256."""
    factors = [
        block["ffn"].get("ffn_mult") or 0
        for block in blocks
        if isinstance(block, Mapping) and isinstance(block.get("ffn"), Mapping)
    ]
    width = int(2 * max(factors, default=0) * f.whole("hidden_size") / 3)
    return -(-width // 256) * 256


def experts_per_token(f: Fields) -> int:
    ffn = f.given.get("ffn_config")
    nested = Fields(ffn, where="ffn_config.").count("moe_top_k") if isinstance(ffn, Mapping) else 0
    return _any(f, _PER_TOKEN) or nested
