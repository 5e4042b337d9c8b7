"""What does each layer keep where some run a delta net, a short convolution or linear attention?

As vLLM 0.33.0 lays it out (vllm/model_executor/models and vllm/models/kimi_k3, their
get_mamba_state_shape_from_config); class values from transformers 5.20.2.
"""

from __future__ import annotations

from typing import Final

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError
from plimsoll.facts.hf_latent import latent_of
from plimsoll.facts.hf_mamba import recurrent
from plimsoll.facts.hf_shapes import (
    FULL_NAMES,
    Layer,
    Layout,
    heads_of,
    layer_names,
    plain,
    width_of,
)
from plimsoll.facts.model import RecurrentKind, RecurrentState


def gated_delta(f: Fields) -> list[Layer]:
    """Qwen3-Next and Qwen3.5: every full_attention_interval-th layer attends, the others run a delta net."""
    layers = f.layers()
    names = layer_names(f, *FULL_NAMES, "linear_attention", layers=layers)
    step = f.whole("full_attention_interval")
    is_full = [
        name in FULL_NAMES
        for name in names
        or [
            FULL_NAMES[0] if (index + 1) % step == 0 else "linear_attention"
            for index in range(layers)
        ]
    ]
    attention = plain(*heads_of(f))
    state = recurrent(_delta(f, state_dtype=f.text("mamba_ssm_dtype") or "auto"))
    return [(attention if flag else state,) for flag in is_full]


def olmo_hybrid(f: Fields) -> list[Layer]:
    """OLMo hybrid: every fourth layer attends; widths of the delta net follow the stream's by default."""
    layers = f.layers()
    names = layer_names(f, *FULL_NAMES, "linear_attention", layers=layers) or [
        FULL_NAMES[0] if index % 4 == 3 else "linear_attention" for index in range(layers)
    ]
    queries = f.whole("num_attention_heads")
    f.skip(*(f"linear_{name}" for name in ("a_log_min", "a_log_max", "dt_min", "dt_max")))
    f.skip("linear_dt_init_floor", "linear_allow_neg_eigval")
    keys = f.count("linear_num_key_heads") or queries
    key_width = f.count("linear_key_head_dim") or int(0.75 * f.whole("hidden_size") / keys)
    state = RecurrentState(
        kind=RecurrentKind.GATED_DELTA,
        conv_kernel=f.whole("linear_conv_kernel_dim"),
        heads=(values := f.count("linear_num_value_heads") or queries),
        head_dim=(value_width := f.count("linear_value_head_dim") or 2 * key_width),
        key_heads=keys,
        state_dim=key_width,
        inner_channels=2 * keys * key_width + values * value_width,
    )
    attention = plain(*heads_of(f))
    return [(attention if name in FULL_NAMES else recurrent(state),) for name in names]


def kimi_delta(f: Fields) -> list[Layer]:
    """Kimi-Linear and Kimi-K3: a delta net at linear_attn_config's kda_layers (from 1), latents elsewhere."""
    layers = f.layers()
    linear = f.part("linear_attn_config")
    f.skip("q_lora_rank", "qk_nope_head_dim", "v_head_dim", "num_key_value_heads", "head_dim")
    f.skip("mla_use_nope", "mla_use_output_gate", "attn_res_block_size", "latent_moe_use_norm")
    f.skip("num_attention_heads", "routed_expert_hidden_size", "hidden_size_per_head")
    if linear is None:
        return [(latent_of(f),)] * layers
    at = set(linear.numbers("kda_layers") or ())
    full = set(linear.numbers("full_attn_layers") or ())
    if at & full or not set(range(1, layers + 1)) <= at | full:
        raise NotUnderstoodError(
            f"{linear.where}kda_layers and full_attn_layers do not name each of {layers} layers once."
        )
    linear.skip("use_full_rank_gate")
    heads, width = linear.whole("num_heads"), linear.whole("head_dim")
    state = RecurrentState(
        kind=RecurrentKind.KIMI_DELTA,
        conv_kernel=linear.whole("short_conv_kernel_size"),
        heads=heads,
        head_dim=width,
        key_heads=heads,
        state_dim=width,
        inner_channels=3 * heads * width,
        state_dtype="float32",
        bounded_gate=linear.value("gate_lower_bound") is not None,
    )
    if strange := [name for name, _ in linear.rest()]:
        raise NotUnderstoodError(
            f"{linear.where}{strange[0]} = {linear.given[strange[0]]!r} is a field that we do not know here."
        )
    one, other = latent_of(f), recurrent(state)
    return [(other if index + 1 in at else one,) for index in range(layers)]


def short_convolution(channels: str) -> Layout:
    """LFM2: a short convolution over `channels` at the layers that do not attend."""

    def layout(f: Fields) -> list[Layer]:
        layers = f.layers()
        names = layer_names(f, *FULL_NAMES, "conv", "short_conv", layers=layers)
        at = f.numbers("full_attn_idxs")
        if names is None and at is None and channels == "hidden_size":
            raise NotUnderstoodError("layer_types is not given; it must say which layers attend.")
        if names is None:
            chosen = set(range(layers)) if at is None else set(at)
            names = [FULL_NAMES[0] if index in chosen else "conv" for index in range(layers)]
        f.skip("full_attn_idxs", "conv_bias", "conv_use_xavier_init", "conv_dim_out", "conv_dim")
        f.skip(
            "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of", "block_dim"
        )
        f.skip("block_ff_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale")
        f.skip("block_use_swiglu", "block_use_xavier_init")
        heads, width = heads_of(f)
        state = RecurrentState(
            kind=RecurrentKind.SHORT_CONVOLUTION,
            conv_kernel=f.whole("conv_L_cache"),
            inner_channels=f.whole(channels),
        )
        attention = plain(heads, width)
        return [(attention if name in FULL_NAMES else recurrent(state),) for name in names]

    return layout


def lightning(f: Fields) -> list[Layer]:
    """MiniMax-Text-01 and M1: linear attention where attn_type_list is 0 (vLLM up to 0.23)."""
    layers = f.layers()
    kinds = f.per_layer("attn_type_list", layers)
    if kinds is None:
        names = layer_names(f, *FULL_NAMES, "linear_attention", layers=layers) or [
            "linear_attention" if (index + 1) % 2 == 0 else FULL_NAMES[0] for index in range(layers)
        ]
        kinds = tuple(int(name in FULL_NAMES) for name in names)
    if strange := sorted(set(kinds) - {0, 1}):
        raise NotUnderstoodError(f"attn_type_list holds {strange}, which we do not count.")
    f.skip(
        "layer_types", "block_size", "sliding_window", "shared_moe_mode", "shared_intermediate_size"
    )
    f.skip(*(f"layernorm_{kind}_{end}" for kind in _MINIMAX_KINDS for end in ("alpha", "beta")))
    f.skip(
        *(
            f"{kind}_{end}_factor"
            for kind in ("full_attn", "linear_attn")
            for end in ("alpha", "beta")
        )
    )
    heads, width = heads_of(f)
    state = RecurrentState(
        kind=RecurrentKind.LIGHTNING, heads=f.whole("num_attention_heads"), head_dim=width
    )
    return [(plain(heads, width) if kind else recurrent(state),) for kind in kinds]


def bailing_linear(f: Fields) -> list[Layer]:
    """Ring and Ling 2.5: a latent at every layer_group_size-th layer, lightning attention elsewhere."""
    layers, group = f.layers(), f.count("layer_group_size") or 1
    f.skip("qk_nope_head_dim", "v_head_dim", "q_lora_rank", "num_key_value_heads", "qk_head_dim")
    f.skip("group_norm_size", "linear_silu", "use_linear_silu", "linear_rope", "rotary_type")
    one = latent_of(f)
    queries = f.whole("num_attention_heads")
    state = RecurrentState(
        kind=RecurrentKind.LIGHTNING, heads=queries, head_dim=width_of(f, queries)
    )
    return [(one if (index + 1) % group == 0 else recurrent(state),) for index in range(layers)]


_MINIMAX_KINDS: Final = ("full_attention", "linear_attention", "mlp")


def _delta(f: Fields, *, state_dtype: str) -> RecurrentState:
    keys, key_width = f.whole("linear_num_key_heads"), f.whole("linear_key_head_dim")
    values, value_width = f.whole("linear_num_value_heads"), f.whole("linear_value_head_dim")
    return RecurrentState(
        kind=RecurrentKind.GATED_DELTA,
        conv_kernel=f.whole("linear_conv_kernel_dim"),
        inner_channels=2 * keys * key_width + values * value_width,
        heads=values,
        head_dim=value_width,
        key_heads=keys,
        state_dim=key_width,
        state_dtype=state_dtype,
    )
