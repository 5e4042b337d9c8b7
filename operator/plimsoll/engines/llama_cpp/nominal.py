"""Which tensors must a model have whose file nobody listed?

The usual ones of its architecture and shape, with the types whose bytes are those of the block
(mixes.py). Where no mix gives them, their bytes are bounds: every feed-forward tensor counts as large as
the file's largest for its elements, every attention tensor too, so that what is brought to a card is never
taken too small.
"""

from collections.abc import Callable
from math import prod
from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.mixes import TYPES, is_small, mixed, size_of
from plimsoll.facts.model import (
    GgufBlocks,
    GgufFacts,
    GgufTensorFacts,
    KvGroup,
    KvKind,
    RecurrentKind,
    RecurrentState,
)

Shapes = dict[str, tuple[int, ...]]

NORMED_HEADS: Final = frozenset(
    {"qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "qwen3next", "qwen35", "qwen35moe"}
    | {"gemma3", "gemma4", "hunyuan-dense", "hunyuan-moe", "bailingmoe2", "dots1", "exaone4"}
    | {"lfm2", "lfm2moe"}
)
"""Architectures that norm each head of queries and keys."""
WIDE_NORMS: Final = frozenset({"olmo2", "olmoe", "minimax-m2"})
"""Architectures that norm queries and keys over all heads."""
POST_NORMS: Final = frozenset({"gemma2", "gemma3", "gemma4", "glm4", "olmo2", "exaone4"})
"""Architectures with norms after attention and after the feed-forward part."""
NO_PRE_NORMS: Final = frozenset({"olmo2", "exaone4"})
"""Architectures without norms before them."""
NAMED_AFTER_ATTENTION: Final = frozenset(
    {"gpt-oss", "qwen3next", "qwen35", "qwen35moe", "glm4moe", "seed_oss"}
)
"""Architectures that name the norm before the feed-forward part after attention."""
ATTENTION_BIASES: Final = frozenset(
    {"qwen2", "qwen2vl", "qwen2moe", "gpt-oss", "starcoder2", "glm4moe", "seed_oss"}
)
"""Architectures with biases on queries, keys and values."""
FUSED_QKV: Final = frozenset({"phi3", "bailingmoe2"})
"""Architectures with one projection for queries, keys and values."""
PARALLEL: Final = frozenset({"command-r", "cohere2"})
"""Architectures whose feed-forward part reads the norm before attention."""
ALONE: Final = frozenset({"nemotron_h", "nemotron_h_moe"})
"""Architectures whose blocks are attention, a recurrence or a feed-forward part, each alone."""
BIASED: Final = frozenset({"starcoder2", "phimoe"})
"""Architectures with a bias on every norm and projection."""
FUSED_GATE: Final = frozenset({"phi3", "glm4"})
"""Architectures whose feed-forward part has one projection for gate and value."""
UNGATED: Final = frozenset({"starcoder2", "arcee", "nemotron_h", "nemotron_h_moe"})
"""Architectures whose feed-forward part has no gate."""
GATED_QUERIES: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
SHARED_GATES: Final = frozenset({"qwen2moe", "qwen3next", "qwen35moe"})
"""Architectures whose shared expert has a gate."""
SHARED_EXPERTS: Final = SHARED_GATES | frozenset(
    {"deepseek", "deepseek2", "glm4moe", "bailingmoe2", "dots1", "llama4", "ernie4_5-moe"}
    | {"hunyuan-moe", "nemotron_h_moe", "granitehybrid"}
)
SELECTION_BIASES: Final = frozenset(
    {"glm4moe", "minimax-m2", "bailingmoe2", "dots1", "nemotron_h_moe", "lfm2moe", "ernie4_5-moe"}
)
"""Architectures whose router adds a bias before it chooses."""
LISTED_ALONE: Final = frozenset({"gemma4"})
"""Architectures whose blocks hold more than their shape says: a file's own list is needed."""
LATENT_ROPE_DIM: Final = 64
LATENT_HEAD_DIM: Final = 128
"""Widths of a latent head's rotary and other parts, the same in all public models of the kind
(DeepSeek-V2, V3, Kimi-K2)."""
UNLISTED_FACTOR: Final = 1.5
"""Bytes of a packed tensor above the average of its block: Q6_K in a Q4_K_M file is 1.4 times."""


FACTORS: Final = "rope_freqs.weight"
MOST_FACTORS_BYTES: Final = 1024
"""Factors of the rotation: four bytes for each pair of a head's values."""


class Widths(NamedTuple):
    """What the shape of a model does not say, with its usual value."""

    shared_expert: int = 0
    """Width of the shared expert; 0 for that of one expert."""
    query_rank: int = 0
    """Rank of latent queries; 0 where they are projected at once."""
    latent_nope_dim: int = LATENT_HEAD_DIM
    latent_value_dim: int = LATENT_HEAD_DIM
    latent_rope_dim: int = LATENT_ROPE_DIM


def shapes(
    gguf: GgufFacts,
    attention: KvGroup | None,
    recurrence: KvGroup | None,
    *,
    has_experts: bool,
    widths: Widths = Widths(),  # noqa: B008 - a tuple of numbers
) -> Shapes:
    """Shapes of the tensors of a block, by name without its number."""
    width, name = gguf.embedding_length, gguf.architecture
    found: Shapes = {} if name in NO_PRE_NORMS else {"attn_norm.weight": (width,)}
    if recurrence is not None and recurrence.state is not None:
        found |= _RECURRENT[recurrence.state.kind](width, recurrence.state, name)
    if attention is not None:
        is_latent = attention.kind is KvKind.MLA
        found |= (_latent if is_latent else _attention)(gguf, attention, widths)
    is_alone = name in ALONE and (attention is not None or recurrence is not None)
    if (gguf.feed_forward_length or has_experts) and not is_alone:
        found |= _experts(gguf, widths) if has_experts else _dense(gguf)
        found |= {} if name in ALONE else _norms(name, width)
    if name in BIASED:
        found |= {
            key.replace(".weight", ".bias"): (shape[-1],)
            for key, shape in found.items()
            if key.endswith(".weight") and "exps" not in key and "gate_inp" not in key
        }
    return found


def _norms(name: str, width: int) -> Shapes:
    found: Shapes = {}
    if name in POST_NORMS:
        found |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
    if name in NAMED_AFTER_ATTENTION:
        found["post_attention_norm.weight"] = (width,)
    elif name not in NO_PRE_NORMS | PARALLEL:
        found["ffn_norm.weight"] = (width,)
    return found


def _attention(gguf: GgufFacts, group: KvGroup, _: Widths) -> Shapes:
    width, name = gguf.embedding_length, gguf.architecture
    query = group.key_dim * gguf.head_count
    key, value = group.key_dim * group.kv_heads, group.value_dim * group.kv_heads
    out = group.value_dim * gguf.head_count
    found: Shapes = {"attn_output.weight": (out, width)}
    if name in FUSED_QKV:
        found["attn_qkv.weight"] = (width, query + key + value)
    else:
        times = 2 if name in GATED_QUERIES else 1
        found["attn_q.weight"] = (width, times * query)
        found["attn_k.weight"] = (width, key)
        found["attn_v.weight"] = (width, value)
    if name in ATTENTION_BIASES:
        found |= {"attn_q.bias": (query,), "attn_k.bias": (key,), "attn_v.bias": (value,)}
    if name == "gpt-oss":
        found |= {"attn_output.bias": (width,), "attn_sinks.weight": (gguf.head_count,)}
    if name in NORMED_HEADS:
        found |= {"attn_q_norm.weight": (group.key_dim,), "attn_k_norm.weight": (group.key_dim,)}
    if name in WIDE_NORMS:
        found |= {"attn_q_norm.weight": (query,), "attn_k_norm.weight": (key,)}
    return found


def _latent(gguf: GgufFacts, group: KvGroup, widths: Widths) -> Shapes:
    width, heads = gguf.embedding_length, gguf.head_count
    rope = widths.latent_rope_dim
    latent = group.key_dim - rope
    nope, value = widths.latent_nope_dim, widths.latent_value_dim
    query = (nope + rope) * heads
    found: Shapes = {
        "attn_kv_a_mqa.weight": (width, group.key_dim),
        "attn_kv_a_norm.weight": (latent,),
        "attn_k_b.weight": (nope, latent, heads),
        "attn_v_b.weight": (latent, value, heads),
        "attn_output.weight": (value * heads, width),
    }
    if widths.query_rank == 0:
        return found | {"attn_q.weight": (width, query)}
    return found | {
        "attn_q_a.weight": (width, widths.query_rank),
        "attn_q_a_norm.weight": (widths.query_rank,),
        "attn_q_b.weight": (widths.query_rank, query),
    }


def _dense(gguf: GgufFacts) -> Shapes:
    width, inner, name = gguf.embedding_length, gguf.feed_forward_length, gguf.architecture
    down: Shapes = {"ffn_down.weight": (inner, width)}
    if name in FUSED_GATE:
        return down | {"ffn_up.weight": (width, 2 * inner)}
    if name in UNGATED:
        return down | {"ffn_up.weight": (width, inner)}
    return down | {"ffn_up.weight": (width, inner), "ffn_gate.weight": (width, inner)}


def _experts(gguf: GgufFacts, widths: Widths) -> Shapes:
    width, name, count = gguf.embedding_length, gguf.architecture, gguf.expert_count
    inner = gguf.expert_feed_forward_length or gguf.feed_forward_length
    found: Shapes = {
        "ffn_gate_inp.weight": (width, count),
        "ffn_up_exps.weight": (width, inner, count),
        "ffn_down_exps.weight": (inner, width, count),
    }
    if name not in UNGATED:
        found["ffn_gate_exps.weight"] = (width, inner, count)
    if name == "gpt-oss":
        found |= {
            "ffn_gate_inp.bias": (count,),
            "ffn_up_exps.bias": (inner, count),
            "ffn_gate_exps.bias": (inner, count),
            "ffn_down_exps.bias": (width, count),
        }
    if name in SELECTION_BIASES or (name == "deepseek2" and widths.query_rank):
        found["exp_probs_b.bias"] = (count,)
    if name in SHARED_EXPERTS:
        shared = widths.shared_expert or inner
        found |= {"ffn_up_shexp.weight": (width, shared), "ffn_down_shexp.weight": (shared, width)}
        if name not in UNGATED:
            found["ffn_gate_shexp.weight"] = (width, shared)
        if name in SHARED_GATES:
            found["ffn_gate_inp_shexp.weight"] = (width, 1)
    return found


def _mamba1(width: int, state: RecurrentState, name: str) -> Shapes:
    inner, rank = state.inner_channels, state.heads or -(-width // 16)
    found: Shapes = {
        "ssm_in.weight": (width, 2 * inner),
        "ssm_conv1d.weight": (state.conv_kernel, inner),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (inner, rank + 2 * state.state_dim),
        "ssm_dt.weight": (rank, inner),
        "ssm_dt.bias": (inner,),
        "ssm_a": (state.state_dim, inner),
        "ssm_d": (inner,),
        "ssm_out.weight": (inner, width),
    }
    if name == "jamba":
        found |= {
            "ssm_dt_norm.weight": (rank,),
            "ssm_b_norm.weight": (state.state_dim,),
            "ssm_c_norm.weight": (state.state_dim,),
        }
    return found


def _mamba2(width: int, state: RecurrentState, _: str) -> Shapes:
    inner, groups = state.inner_channels, state.key_heads
    channels = inner + 2 * groups * state.state_dim
    return {
        "ssm_in.weight": (width, inner + channels + state.heads),
        "ssm_conv1d.weight": (state.conv_kernel, channels),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (state.heads,),
        "ssm_a": (1, state.heads),
        "ssm_d": (1, state.heads),
        "ssm_norm.weight": (inner // max(groups, 1), groups),
        "ssm_out.weight": (inner, width),
    }


def _delta_net(width: int, state: RecurrentState, name: str) -> Shapes:
    inner, channels = (
        state.inner_channels,
        state.inner_channels + 2 * state.key_heads * state.state_dim,
    )
    found: Shapes = {
        "attn_qkv.weight": (width, channels),
        "attn_gate.weight": (width, inner),
        "ssm_conv1d.weight": (state.conv_kernel, channels),
        "ssm_dt.bias": (state.heads,),
        "ssm_a": (state.heads,),
        "ssm_norm.weight": (state.head_dim,),
        "ssm_out.weight": (inner, width),
    }
    if name == "qwen3next":
        return found | {"ssm_ba.weight": (width, 2 * state.heads)}
    return found | {
        "ssm_beta.weight": (width, state.heads),
        "ssm_alpha.weight": (width, state.heads),
    }


def _short_convolution(width: int, state: RecurrentState, _: str) -> Shapes:
    return {
        "shortconv.in_proj.weight": (width, 3 * width),
        "shortconv.conv.weight": (state.conv_kernel, width),
        "shortconv.out_proj.weight": (width, width),
    }


_RECURRENT: Final[dict[RecurrentKind, Callable[[int, RecurrentState, str], Shapes]]] = {
    RecurrentKind.MAMBA1: _mamba1,
    RecurrentKind.MAMBA2: _mamba2,
    RecurrentKind.GATED_DELTA: _delta_net,
    RecurrentKind.SHORT_CONVOLUTION: _short_convolution,
}


# --- facts ---


def blocks(
    gguf: GgufFacts, kept: tuple[tuple[KvGroup | None, KvGroup | None], ...]
) -> tuple[GgufBlocks, ...]:
    """The blocks of a model of this shape, alike ones together; `kept` is the cache of each."""
    largest = max(gguf.block_bytes)
    found: dict[tuple[GgufTensorFacts, ...], list[int]] = {}
    for index, (attention, recurrence) in enumerate(kept):
        size = gguf.block_bytes[index]
        has_experts = gguf.expert_count > 0 and (
            2 * size >= largest or not gguf.feed_forward_length
        )
        shape = shapes(gguf, attention, recurrence, has_experts=has_experts)
        found.setdefault(mixed(shape, size) or _bounded(gguf, shape, size), []).append(index)
    return tuple(GgufBlocks(at=tuple(at), tensors=tensors) for tensors, at in found.items())


def _bounded(gguf: GgufFacts, shape: Shapes, size: int) -> tuple[GgufTensorFacts, ...]:
    packed = gguf.quantization not in {"F32", "F16", "BF16"}
    elements = sum(prod(s) for name, s in shape.items() if not is_small(name, s)) or 1
    rate = size / elements * (UNLISTED_FACTOR if packed else 1)
    known = {
        "ffn": _rate(gguf.largest_ffn_tensor_bytes, shape, "ffn"),
        "attn": _rate(gguf.largest_attention_tensor_bytes, shape, "attn"),
    }
    made = []
    for name, one in shape.items():
        if is_small(name, one):
            made.append(GgufTensorFacts(name=name, shape=one, type="F32", bytes=4 * prod(one)))
            continue
        this = known.get(name.partition("_")[0]) or rate
        made.append(
            GgufTensorFacts(
                name=name,
                shape=one,
                type=gguf.quantization if packed else "F16",
                bytes=min(int(prod(one) * this + 0.5), size),
            )
        )
    return tuple(made)


def _rate(largest_bytes: int, shape: Shapes, part: str) -> float | None:
    largest = max(
        (prod(s) for n, s in shape.items() if n.startswith(part) and not is_small(n, s)), default=0
    )
    return largest_bytes / largest if largest_bytes and largest else None


def outside(gguf: GgufFacts) -> tuple[GgufTensorFacts, ...]:
    """The tensors outside blocks of a model of this shape.

    A few bytes beside the embedding are the factors of the rotation (Llama 3.1 and later).
    """
    shape = (gguf.embedding_length, gguf.vocab_size)
    norm = 4 * gguf.embedding_length
    embedding, beside = _matrix("token_embd.weight", shape, gguf.embedding_bytes)
    found = [
        embedding,
        GgufTensorFacts(name="output_norm.weight", shape=shape[:1], type="F32", bytes=norm),
    ]
    if not gguf.tied_output:
        found.append(_matrix("output.weight", shape, max(gguf.output_bytes - norm, 0))[0])
    if beside:
        factors = (beside // 4,)
        found.append(GgufTensorFacts(name=FACTORS, shape=factors, type="F32", bytes=beside))
    return tuple(found)


def _matrix(name: str, shape: tuple[int, ...], size: int) -> tuple[GgufTensorFacts, int]:
    """A matrix, and the bytes beside it when a type gives the rest; else all of them are its own."""
    for kind in TYPES:
        this = size_of(shape, kind)
        if this is not None and 0 <= size - this <= MOST_FACTORS_BYTES:
            return GgufTensorFacts(name=name, shape=shape, type=kind, bytes=this), size - this
    return GgufTensorFacts(name=name, shape=shape, type="Q8_0", bytes=size), 0
