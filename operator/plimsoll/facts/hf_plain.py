"""What does each layer keep where all layers attend to every token, or none to any?

As vLLM 0.33.0 (PyPI wheel, vllm/model_executor/models) lays it out, for Qwen 1 and Phi-3 small as its
earlier releases did.
"""

from __future__ import annotations

from typing import Final

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError
from plimsoll.facts.hf_shapes import (
    FULL_NAMES,
    SLIDING_NAME,
    Layer,
    Layout,
    heads_of,
    layer_names,
    layers_by,
    plain,
    width_of,
    window_everywhere,
)
from plimsoll.facts.hf_windows import listed
from plimsoll.facts.model import KvKind


def uniform(*, own_width: bool = True) -> Layout:
    """All layers alike; the class reads no layer_types, so a mixed list is refused."""

    def layout(f: Fields) -> list[Layer]:
        layers = f.layers()
        names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers)
        if names is not None and len(set(names)) > 1:
            raise NotUnderstoodError(
                "layer_types names more than one kind of layer, which this model class does not tell apart."
            )
        heads, width = heads_of(f, own_width=own_width)
        window = window_everywhere(f, names)
        return [(plain(heads, width, window=window),)] * layers

    return layout


def without_groups(f: Fields) -> list[Layer]:
    """GPT-NeoX, OPT: as many KV heads as query heads."""
    queries = f.whole("num_attention_heads")
    return [(plain(queries, width_of(f, queries, own_width=False)),)] * f.layers()


def all_attend(f: Fields) -> list[Layer]:
    """MiniMax-M2: plain heads; attn_type_list, which it inherits from MiniMax-01, must be all ones."""
    kinds = f.numbers("attn_type_list")
    if kinds is not None and set(kinds) != {1}:
        raise NotUnderstoodError(
            "attn_type_list is not 1 everywhere, which this model class does not tell apart."
        )
    return uniform()(f)


def qwen1(f: Fields) -> list[Layer]:
    """Qwen 1: as many KV heads as query heads; kv_channels is their width (vLLM up to 0.23)."""
    f.skip("kv_channels")
    return without_groups(f)


def sparse_in_arithmetic(f: Fields) -> list[Layer]:
    """Phi-3 small: block-sparse attention that keeps every token all the same (vLLM up to 0.9)."""
    f.skip(*(f"blocksparse_{name}" for name in _BLOCKSPARSE), "dense_attention_every_n_layers")
    return uniform(own_width=False)(f)


def no_shared_cache(f: Fields) -> list[Layer]:
    """Hunyuan MoE: plain heads, unless layers share their cache (use_cla)."""
    if f.flag("use_cla"):
        raise NotUnderstoodError(
            "use_cla is true: layers share their cache, which we do not count."
        )
    f.skip("cla_share_factor", "use_mla", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim")
    f.skip(
        "q_lora_rank",
        "v_head_dim",
        "attention_head_dim",
        "num_media_embeds",
        "group_limited_greedy",
    )
    return listed()(f)


def blocks_that_differ(f: Fields) -> list[Layer]:
    """Llama-Nemotron (DeciLM): block_configs gives each layer its own heads, or no attention."""
    layers = f.layers()
    blocks = f.listed("block_configs")
    if blocks is None or len(blocks) != layers:
        raise NotUnderstoodError(f"block_configs must have an entry for each of {layers} layers.")
    queries = f.whole("num_attention_heads")
    f.skip("num_key_value_heads", "num_key_value_heads_per_layer")
    width = width_of(f, queries)
    kept: list[Layer] = []
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise NotUnderstoodError(
                f"block_configs[{index}] is {block!r}; it must be a group of fields."
            )
        attention = Fields(block, where=f"block_configs[{index}].").part("attention")
        if attention is None:
            raise NotUnderstoodError(f"block_configs[{index}].attention is not given.")
        kept.append(
            ()
            if attention.flag("no_op")
            else (plain(queries // attention.whole("n_heads_in_group"), width),)
        )
        if strange := [name for name, value in attention.rest() if value not in (None, False, 0)]:
            raise NotUnderstoodError(
                f"{attention.where}{strange[0]} = {attention.given[strange[0]]!r} is a field that we do not know here."
            )
    return kept


def many_or_one(f: Fields) -> list[Layer]:
    """Falcon: one KV head with multi_query, num_kv_heads in the new decoder (vLLM falcon.py)."""
    queries = f.whole("num_attention_heads")
    is_new, is_single = f.flag("new_decoder_architecture"), f.flag("multi_query")
    own = f.count("num_kv_heads") or queries
    heads = own if is_new else 1 if is_single else queries
    f.skip("num_ln_in_parallel_attn", "n_embed", "layer_types")
    return [(plain(heads, width_of(f, queries, own_width=False)),)] * f.layers()


def chatglm(f: Fields) -> list[Layer]:
    """ChatGLM: multi_query_group_num KV heads where multi_query_attention is on."""
    queries = f.whole("num_attention_heads")
    heads = f.whole("multi_query_group_num") if f.flag("multi_query_attention") else queries
    width = width_of(f, queries, own_width=False)
    f.skip("kv_channels")
    f.skip("quantization_bit", "pre_seq_len", "prefix_projection", "multi_query_group_num")
    return [(plain(heads, width),)] * layers_by(f, "num_layers")


def all_queries(heads: str, width: str, layers: str, *, single: str | None = None) -> Layout:
    """GPT-2 and its like: as many KV heads as query heads, or one where `single` is true."""

    def layout(f: Fields) -> list[Layer]:
        queries = f.whole(heads)
        kept = 1 if single is not None and f.flag(single) else queries
        return [(plain(kept, f.whole(width) // queries),)] * layers_by(f, layers)

    return layout


def dbrx(f: Fields) -> list[Layer]:
    """DBRX: attn_config holds the KV heads."""
    attention = f.part("attn_config")
    if attention is None:
        raise NotUnderstoodError("attn_config is not given; it must say kv_n_heads.")
    attention.skip("attn_pdrop", "clip_qkv", "rope_theta", "model_type")
    heads = attention.whole("kv_n_heads")
    if strange := [name for name, _ in attention.rest()]:
        raise NotUnderstoodError(f"attn_config.{strange[0]} is a field that we do not know here.")
    return [(plain(heads, f.whole("d_model") // f.whole("n_heads")),)] * layers_by(f, "n_layers")


def one_shared_head(f: Fields) -> list[Layer]:
    """Step-3: one KV head (multi-matrix factorisation); the engine takes no other number."""
    heads = f.whole("num_attention_groups")
    if heads != 1:
        raise NotUnderstoodError(f"num_attention_groups is {heads}; Step-3 has one KV head.")
    f.skip("share_q_dim", "num_attention_heads", "max_position_embedding")
    return [(plain(1, f.whole("head_dim")),)] * f.layers()


def grouped_names(f: Fields) -> list[Layer]:
    """Step-1: num_attention_groups KV heads."""
    queries = f.whole("num_attention_heads")
    heads = f.count("num_attention_groups") or f.count("num_key_value_heads") or 1
    return [(plain(heads, width_of(f, queries, own_width=False)),)] * f.layers()


def encoder_beside(f: Fields) -> list[Layer]:
    """Whisper: each decoder layer keeps its own tokens and the encoder's (vLLM whisper.py)."""
    queries = f.whole("decoder_attention_heads")
    own = plain(queries, f.whole("d_model") // queries)
    f.skip("is_encoder_decoder", "encoder_attention_heads", "encoder_layers", "encoder_ffn_dim")
    f.skip("decoder_ffn_dim", "encoder_layerdrop", "decoder_layerdrop", "num_hidden_layers")
    f.skip("max_source_positions")
    return [(own, own.model_copy(update={"kind": KvKind.CROSS}))] * layers_by(f, "decoder_layers")


def padded_heads(f: Fields) -> list[Layer]:
    """MiniCPM3: latent in the weights, whole heads in the cache; values as wide as keys (minicpm3.py)."""
    heads = f.whole("num_attention_heads")
    width = f.whole("qk_nope_head_dim") + f.whole("qk_rope_head_dim")
    f.skip(
        "kv_lora_rank",
        "q_lora_rank",
        "v_head_dim",
        "num_key_value_heads",
        "head_dim",
        "qk_head_dim",
    )
    return [(plain(heads, width),)] * f.layers()


_BLOCKSPARSE: Final = (
    "block_size",
    "homo_head_pattern",
    "num_local_blocks",
    "triton_kernel_block_size",
    "vert_stride",
)
