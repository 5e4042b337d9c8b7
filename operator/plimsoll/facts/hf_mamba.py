"""What does each layer of a model with Mamba layers keep, as its config says?

Attention layers keep keys and values, Mamba layers a state of constant size per sequence, and some
layers both or neither. As vLLM 0.33.0 lays it out (vllm/model_executor/models, their
get_mamba_state_shape_from_config); class values from transformers 5.20.2.
"""

from __future__ import annotations

from typing import Final

from plimsoll.facts.hf_fields import MOST_LAYERS, Fields, NotUnderstoodError
from plimsoll.facts.hf_shapes import FULL_NAMES, Layer, heads_of, layer_names, plain
from plimsoll.facts.model import KvGroup, KvKind, RecurrentKind, RecurrentState

_MAMBA_NAMES: Final = ("mamba", "linear_attention")
_ARITHMETIC: Final = (
    *(
        "mamba_chunk_size",
        "mamba_conv_bias",
        "mamba_proj_bias",
        "mamba_dt_rank",
        "mamba_hidden_act",
    ),
    *("mamba_dt_min", "mamba_dt_max", "mamba_dt_limit", "mamba_dt_init_floor", "mamba_rms_norm"),
    *(
        "mamba_norm_before_gate",
        "mamba_use_mlp",
        "use_mamba_kernels",
        "use_mambapy",
        "use_conv_bias",
    ),
    *("use_falcon_mambapy", "use_associative_scan", "use_mem_eff_path", "conv_bias", "chunk_size"),
    *("mixer_rms_eps", "ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers"),
)
"""Fields of recurrent layers that leave the shape of their state as it is."""


def recurrent(state: RecurrentState) -> KvGroup:
    """The state of one layer."""
    return KvGroup(kind=KvKind.RECURRENT, layers=1, kv_heads=0, key_dim=0, value_dim=0, state=state)


def mamba(f: Fields) -> list[Layer]:
    """Mamba and Falcon-Mamba: nothing but Mamba 1."""
    inner = f.count("intermediate_size") or f.whole("expand") * f.whole("hidden_size")
    f.skip(*_ARITHMETIC, "expand", "hidden_size", "d_model", "d_inner", "ssm_cfg", "n_layer")
    return [(_mamba1(inner, f.whole("state_size"), f.whole("conv_kernel")),)] * f.layers()


def mamba2(f: Fields) -> list[Layer]:
    """Mamba 2 (Codestral Mamba): nothing but Mamba 2."""
    f.skip(*_ARITHMETIC, "intermediate_size")
    state = RecurrentState(
        kind=RecurrentKind.MAMBA2,
        conv_kernel=f.whole("conv_kernel"),
        inner_channels=f.whole("expand") * f.whole("hidden_size"),
        heads=f.whole("num_heads"),
        head_dim=f.whole("head_dim"),
        key_heads=f.whole("n_groups"),
        state_dim=f.whole("state_size"),
    )
    return [(recurrent(state),)] * f.layers()


def jamba(f: Fields) -> list[Layer]:
    """Jamba: attention at every attn_layer_period-th layer from attn_layer_offset, else Mamba 1."""
    layers = f.layers()
    period, offset = f.whole("attn_layer_period"), f.count("attn_layer_offset")
    attention = _attention(f)
    f.skip(*_ARITHMETIC)
    state = _mamba1(
        f.whole("mamba_expand") * f.whole("hidden_size"),
        f.whole("mamba_d_state"),
        f.whole("mamba_d_conv"),
    )
    return [(attention if index % period == offset else state,) for index in range(layers)]


def _attention(f: Fields) -> KvGroup:
    """Heads as wide as the stream's share, in classes that read no head_dim.

    The engine sizes its blocks by one that stands there all the same (vLLM 0.33.0 get_head_size), so another is
    refused.
    """
    heads, width = heads_of(f, own_width=False)
    f.same("head_dim", width, "hidden_size over num_attention_heads")
    return plain(heads, width)


def granite_hybrid(f: Fields) -> list[Layer]:
    """Granite 4.0 H: Mamba 2 where layer_types (or layers_block_type) says so, attention elsewhere."""
    layers = f.layers()
    names = layer_names(f, *FULL_NAMES, *_MAMBA_NAMES, layers=layers) or ["mamba"] * layers
    attention = _attention(f)
    inner = f.whole("mamba_expand") * f.whole("hidden_size")
    state = recurrent(_mamba2(f, inner))
    return [(state if name in _MAMBA_NAMES else attention,) for name in names]


def bamba(f: Fields) -> list[Layer]:
    """Bamba: attention at attn_layer_indices, Mamba 2 elsewhere (vLLM up to 0.23)."""
    layers = f.layers()
    at = set(f.numbers("attn_layer_indices") or ())
    attention = _attention(f)
    state = recurrent(_mamba2(f, f.whole("mamba_expand") * f.whole("hidden_size")))
    f.skip("attn_rotary_emb")
    return [(attention if index in at else state,) for index in range(layers)]


def falcon_h1(f: Fields) -> list[Layer]:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    attention = plain(*heads_of(f))
    inner = f.count("mamba_d_ssm") or f.whole("mamba_expand") * f.whole("hidden_size")
    f.skip("mamba_expand", "attn_rotary_emb", "layers_block_type")
    return [(attention, recurrent(_mamba2(f, inner)))] * f.layers()


def nemotron_h(f: Fields) -> list[Layer]:
    """Nemotron-H and Nemotron 3: layers_block_type, or hybrid_override_pattern letter by letter.

    Attention, Mamba 2, feed-forward and expert layers; the last two keep nothing. num_hidden_layers does not count
    where a list is given. The state is float32 where the file says nothing (vLLM models/config.py).
    """
    names = f.listed("layers_block_type")
    pattern = f.text("hybrid_override_pattern")
    if names is None:
        if strange := sorted(set(pattern) - _LETTERS.keys()):
            raise NotUnderstoodError(
                f"hybrid_override_pattern holds {''.join(strange)!r}, which we do not count."
            )
        names = [_LETTERS[letter] for letter in pattern]
    if strange_names := sorted({str(name) for name in names} - set(_NEMOTRON_NAMES)):
        raise NotUnderstoodError(
            f"layers_block_type names {', '.join(strange_names)}, which we do not count."
        )
    if not names:
        raise NotUnderstoodError(
            "neither layers_block_type nor hybrid_override_pattern say what the layers are."
        )
    if len(names) > MOST_LAYERS:
        raise NotUnderstoodError(f"{len(names)} layers are named, which no model has.")
    heads, width = heads_of(f)
    attention = plain(heads, width, window=f.count("sliding_window") or None)
    f.skip(*_ARITHMETIC, "num_hidden_layers", "expand", "mamba_expand", "moe_latent_size")
    f.skip("attention_head_dim")
    state = RecurrentState(
        kind=RecurrentKind.MAMBA2,
        conv_kernel=f.count("mamba_d_conv") or f.whole("conv_kernel"),
        inner_channels=f.whole("mamba_num_heads") * f.whole("mamba_head_dim"),
        heads=f.whole("mamba_num_heads"),
        head_dim=f.whole("mamba_head_dim"),
        key_heads=f.count("mamba_n_groups") or f.whole("n_groups"),
        state_dim=f.whole("ssm_state_size"),
        state_dtype=f.text("mamba_ssm_cache_dtype") or "float32",
    )
    kept: dict[str, Layer] = {
        **dict.fromkeys(FULL_NAMES, (attention,)),
        **dict.fromkeys(_MAMBA_NAMES, (recurrent(state),)),
    }
    return [kept.get(str(name), ()) for name in names]


def zamba2(f: Fields) -> list[Layer]:
    """Zamba2: Mamba 2 in every layer, and a shared attention block beside it at the hybrid ones."""
    layers = f.layers()
    names = f.listed("layers_block_type")
    if names is None or len(names) != layers:
        raise NotUnderstoodError(
            f"layers_block_type must have an entry for each of {layers} layers."
        )
    if strange := sorted({str(name) for name in names} - {*_MAMBA_NAMES, "hybrid"}):
        raise NotUnderstoodError(
            f"layers_block_type names {', '.join(strange)}, which we do not count."
        )
    queries = f.whole("num_attention_heads")
    width = f.count("attention_head_dim") or 2 * f.whole("hidden_size") // queries
    f.skip(
        *_ARITHMETIC,
        "num_key_value_heads",
        "attention_hidden_size",
        "num_mem_blocks",
        "kv_channels",
    )
    f.skip("hybrid_layer_ids", "num_query_groups", "use_shared_attention_adapter", "adapter_rank")
    f.skip("use_shared_mlp_adapter", "use_mem_rope", "use_long_context", "ffn_hidden_size")
    inner = f.whole("mamba_expand") * f.whole("hidden_size")
    mamba_heads = f.whole("n_mamba_heads")
    state = recurrent(
        RecurrentState(
            kind=RecurrentKind.MAMBA2,
            conv_kernel=f.whole("mamba_d_conv"),
            inner_channels=inner,
            heads=mamba_heads,
            head_dim=f.count("mamba_headdim") or inner // mamba_heads,
            key_heads=f.whole("mamba_ngroups"),
            state_dim=f.whole("mamba_d_state"),
        )
    )
    attention = plain(queries, width)
    return [(attention, state) if name == "hybrid" else (state,) for name in names]


def plamo2(f: Fields) -> list[Layer]:
    """PLaMo 2: attention in the middle of every mamba_step layers, Mamba 2 elsewhere (vLLM up to 0.26)."""
    layers, step = f.layers(), f.whole("mamba_step")
    middle = step // 2
    is_mamba = [
        index != layers - 1 if layers <= middle else index % step != middle
        for index in range(layers)
    ]
    width, heads = f.whole("hidden_size_per_head"), f.whole("mamba_num_heads")
    f.skip(
        *_ARITHMETIC,
        "num_attention_heads",
        "mamba_enabled",
        "attention_window_size",
        "full_attention_idx",
    )
    state = recurrent(
        RecurrentState(
            kind=RecurrentKind.MAMBA2,
            conv_kernel=f.whole("mamba_d_conv"),
            inner_channels=heads * width,
            heads=heads,
            head_dim=width,
            key_heads=0,
            state_dim=f.whole("mamba_d_state"),
        )
    )
    attention = plain(f.whole("num_key_value_heads"), width)
    return [(state if flag else attention,) for flag in is_mamba]


_LETTERS: Final = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


_NEMOTRON_NAMES: Final = (*FULL_NAMES, *_MAMBA_NAMES, "moe", "mlp")


def _mamba1(inner: int, state_dim: int, conv_kernel: int) -> KvGroup:
    return recurrent(
        RecurrentState(
            kind=RecurrentKind.MAMBA1,
            conv_kernel=conv_kernel,
            inner_channels=inner,
            state_dim=state_dim,
        )
    )


def _mamba2(f: Fields, inner: int) -> RecurrentState:
    """Granite's spelling of Mamba 2, where mamba_d_head may be "auto"."""
    f.skip(*_ARITHMETIC)
    heads = f.whole("mamba_n_heads")
    own = f.value("mamba_d_head")
    return RecurrentState(
        kind=RecurrentKind.MAMBA2,
        conv_kernel=f.whole("mamba_d_conv"),
        inner_channels=inner,
        heads=heads,
        head_dim=inner // heads if own == "auto" else f.whole("mamba_d_head"),
        key_heads=f.whole("mamba_n_groups"),
        state_dim=f.whole("mamba_d_state"),
    )
