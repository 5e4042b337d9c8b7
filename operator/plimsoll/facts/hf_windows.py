"""What does each layer keep where some layers attend to a window or a chunk only?

A layout takes a config's fields and gives, for each layer in order, the groups of one layer that it
keeps. They follow what vLLM 0.33.0 (PyPI wheel, vllm/model_executor/models, engine/arg_utils.py and
config/model.py) makes of a config whose class is that of transformers 5.20.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError
from plimsoll.facts.hf_shapes import (
    CHUNKED_NAME,
    FULL_NAMES,
    SLIDING_NAME,
    Layer,
    Layout,
    by_name,
    heads_of,
    layer_names,
    plain,
    width_of,
    window_everywhere,
)
from plimsoll.facts.model import KvKind


def listed(*, own_width: bool = True, otherwise_full: bool = False) -> Layout:
    """The window stands at the layers that layer_types names; without a list, at all or none.

    Llama, Granite, Apertus and what runs through the Transformers backend. `otherwise_full`: without a list the
    class takes all layers for full, whatever the window.
    """

    def layout(f: Fields) -> list[Layer]:
        layers = f.layers()
        names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers)
        heads, width = heads_of(f, own_width=own_width)
        f.skip("layer_rope_theta", "attention_sinks", "num_attention_heads_per_layer")
        if names is None and otherwise_full:
            names = [FULL_NAMES[0]] * layers
        if names is None:
            return [(plain(heads, width, window=window_everywhere(f, None)),)] * layers
        return by_name(f, names, heads, width)

    return layout


def switched(*, own_width: bool = True) -> Layout:
    """Qwen: use_sliding_window switches the window on, from layer max_window_layers.

    Layers with and without are refused by the engine (vllm/model_executor/models/qwen2.py).
    """

    def layout(f: Fields) -> list[Layer]:
        layers = f.layers()
        is_on = f.flag("use_sliding_window")
        window = f.count("sliding_window") * is_on
        first = f.count("max_window_layers")
        names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
            SLIDING_NAME if window and index >= first else FULL_NAMES[0] for index in range(layers)
        ]
        heads, width = heads_of(f, own_width=own_width)
        if len(set(names)) > 1:
            raise NotUnderstoodError(
                f"use_sliding_window is {is_on} with max_window_layers {first} of {layers} layers: the engine "
                "does not run layers with and without the window in one model of this class."
            )
        is_windowed = names[0] == SLIDING_NAME and window > 0
        return [(plain(heads, width, window=window if is_windowed else None),)] * layers

    return layout


def switched_moe(f: Fields) -> list[Layer]:
    """Qwen3 MoE: the switch is for all layers (transformers 5.20.2 Qwen3MoeConfig)."""
    layers = f.layers()
    window = f.count("sliding_window") * f.flag("use_sliding_window")
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers)
    f.skip("max_window_layers")
    if names is not None and len(set(names)) > 1:
        raise NotUnderstoodError(
            "layer_types names more than one kind of layer, which this model class does not tell apart."
        )
    heads, width = heads_of(f)
    is_windowed = window > 0 and (names is None or names[0] == SLIDING_NAME)
    return [(plain(heads, width, window=window if is_windowed else None),)] * layers


def never_switched(f: Fields) -> list[Layer]:
    """Qwen2 MoE: with the window on, class and engine lay the layers out differently; refused."""
    if f.flag("use_sliding_window"):
        raise NotUnderstoodError(
            "use_sliding_window is true, of which Qwen2 MoE and its engine make different layers."
        )
    f.skip("sliding_window", "max_window_layers")
    layers = f.layers()
    names = layer_names(f, *FULL_NAMES, layers=layers)
    return [(plain(*heads_of(f, own_width=False)),)] * (len(names) if names else layers)


def from_layer(f: Fields) -> list[Layer]:
    """dots1: the window begins at layer max_window_layers."""
    layers = f.layers()
    window, first = f.count("sliding_window"), f.count("max_window_layers")
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
        SLIDING_NAME if window and index >= first else FULL_NAMES[0] for index in range(layers)
    ]
    return by_name(f, names, *heads_of(f))


def cohere_moe(f: Fields) -> list[Layer]:
    """Cohere 2 MoE: a pattern of its own for the first dense layers (transformers 5.20.2)."""
    layers = f.layers()
    first, step = f.count("first_k_dense_replace"), f.whole("sliding_window_pattern")
    dense_step = f.whole("prefix_dense_sliding_window_pattern")
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
        SLIDING_NAME
        if (index + 1 if index < first else index - first + 1)
        % (dense_step if index < first else step)
        else FULL_NAMES[0]
        for index in range(layers)
    ]
    return by_name(f, names, *heads_of(f), beyond=1)


def every(
    nth: int,
    *,
    key: str | None = None,
    first_is_full: bool = False,
    beyond: int = 0,
    own_width: bool = True,
) -> Layout:
    """Every nth layer full and the others sliding, unless layer_types (or `key`) say otherwise.

    `first_is_full`: counted from the first layer instead of from the nth; `beyond`: tokens that the class adds to
    the window (Cohere counts the ones before the token itself).
    """

    def layout(f: Fields) -> list[Layer]:
        layers = f.layers()
        step = f.whole(key) if key is not None and key in f else nth
        names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
            FULL_NAMES[0] if (index + (not first_is_full)) % step == 0 else SLIDING_NAME
            for index in range(layers)
        ]
        heads, width = heads_of(f, own_width=own_width)
        f.skip("layer_rope_theta", "attention_sinks", "sliding_window_size")
        return by_name(f, names, heads, width, beyond=beyond)

    return layout


def alternating(f: Fields) -> list[Layer]:
    """gpt-oss: the first of every two layers slides, whatever a list says (vLLM gpt_oss.py)."""
    layers = f.layers()
    expected = [SLIDING_NAME if index % 2 == 0 else FULL_NAMES[0] for index in range(layers)]
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers)
    if names is not None and names != expected:
        raise NotUnderstoodError(
            "layer_types is not sliding_attention and full_attention in turn, which the engine takes for granted."
        )
    return by_name(f, expected, *heads_of(f))


def chunked(f: Fields) -> list[Layer]:
    """Llama 4: layers with rotary positions attend inside a chunk, the others (no_rope) to all.

    vLLM llama4.py; it does not read layer_types, so a list that says otherwise is refused.
    """
    layers = f.layers()
    step = f.whole("no_rope_layer_interval")
    f.skip("nope_layer_interval")
    default = tuple(int((index + 1) % step != 0) for index in range(layers))
    has_rope = f.per_layer("no_rope_layers", layers) if f.listed("no_rope_layers") else default
    chunk = f.count("attention_chunk_size")
    is_local = [bool(flag) and chunk > 0 for flag in has_rope or default]
    names = layer_names(f, *FULL_NAMES, CHUNKED_NAME, layers=layers)
    if names is not None and [name == CHUNKED_NAME for name in names] != [
        bool(flag) for flag in has_rope or default
    ]:
        raise NotUnderstoodError("layer_types and no_rope_layers do not name the same layers.")
    heads, width = heads_of(f)
    full = plain(heads, width)
    local = full.model_copy(update={"kind": KvKind.CHUNKED, "window_tokens": chunk})
    return [(local if flag else full,) for flag in is_local]


def gemma4(f: Fields) -> list[Layer]:
    """Full layers with their own head width and, where K and V are one, their own number of heads.

    transformers 5.20.2 Gemma4TextConfig (the last layer is always full), vLLM gemma4.py; vLLM stores K and V apart
    even where they are equal. The last num_kv_shared_layers use the cache of an earlier layer of their kind.
    """
    layers = f.layers()
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
        SLIDING_NAME if (index + 1) % 6 else FULL_NAMES[0] for index in range(layers)
    ]
    names[-1] = FULL_NAMES[0]
    heads, width = heads_of(f)
    global_heads = f.count("num_global_key_value_heads") * f.flag("attention_k_eq_v")
    full = plain(global_heads or heads, f.count("global_head_dim") or width)
    sliding = plain(heads, width, window=f.whole("sliding_window"))
    f.skip("use_bidirectional_attention", "attn_logit_softcapping")
    kept: list[Layer] = [(sliding if name == SLIDING_NAME else full,) for name in names]
    return _without_shared(f, names, kept)


def gemma3n(f: Fields) -> list[Layer]:
    """Every fifth layer full; the last num_kv_shared_layers use the cache of an earlier one."""
    layers = f.layers()
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
        SLIDING_NAME if (index + 1) % 5 else FULL_NAMES[0] for index in range(layers)
    ]
    f.skip("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "altup_num_inputs")
    f.skip("activation_sparsity_pattern", "laurel_rank", "use_bidirectional_attention")
    return _without_shared(f, names, by_name(f, names, *heads_of(f)))


def separate_sliding(f: Fields) -> list[Layer]:
    """MiMo-V2: sliding layers have head counts and widths of their own (vLLM mimo_v2.py).

    It drops attention_chunk_size, which the published files carry, and reads sliding_window_size.
    """
    layers = f.layers()
    pattern = f.per_layer("hybrid_layer_pattern", layers, goes_on=True)
    if pattern is None:
        raise NotUnderstoodError(
            "hybrid_layer_pattern is not given; it must say which layers slide."
        )
    if strange := sorted(set(pattern) - {0, 1}):
        raise NotUnderstoodError(f"hybrid_layer_pattern holds {strange}, which we do not count.")
    f.skip(
        "attention_chunk_size", "sliding_window", "swa_num_attention_heads", "num_attention_heads"
    )
    f.skip("attention_value_scale", "swa_rope_theta", "attention_projection_layout", "layer_types")
    width, swa_width = f.whole("head_dim"), f.whole("swa_head_dim")
    full = plain(f.whole("num_key_value_heads"), width, f.count("v_head_dim") or width)
    sliding = plain(
        f.whole("swa_num_key_value_heads"),
        swa_width,
        f.count("swa_v_head_dim") or swa_width,
        window=f.whole("sliding_window_size"),
    )
    return [(sliding if flag else full,) for flag in pattern]


def windows_per_layer(f: Fields) -> list[Layer]:
    """EXAONE MoE: sliding_windows gives each sliding layer its own window (vLLM exaone_moe.py)."""
    layers = f.layers()
    own = f.per_layer("sliding_windows", layers)
    kept = _patterned(f, layers)
    if own is None:
        return kept
    heads, width = heads_of(f)
    return [
        layer if layer[0].kind is KvKind.FULL else (plain(heads, width, window=window or None),)
        for layer, window in zip(kept, own, strict=True)
    ]


def patterned(f: Fields) -> list[Layer]:
    """EXAONE 4: layer_types, or every nth layer full by sliding_window_pattern."""
    return _patterned(f, f.layers())


def _patterned(f: Fields, layers: int) -> list[Layer]:
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers)
    if names is None:
        step = f.count("sliding_window_pattern") if f.count("sliding_window") else 0
        if step == 0:
            raise NotUnderstoodError(
                "neither layer_types nor sliding_window_pattern say which layers slide."
            )
        names = [SLIDING_NAME if (index + 1) % step else FULL_NAMES[0] for index in range(layers)]
    f.skip("sliding_window_pattern")
    return by_name(f, names, *heads_of(f))


def step_flash(f: Fields) -> list[Layer]:
    """Step-3.5 and 3.7 Flash: windows by layer_types, the list may go on over the draft layers."""
    layers = f.layers()
    names = f.listed("layer_types") or [FULL_NAMES[0]] * layers
    drafts = f.count("num_nextn_predict_layers")
    if strange := sorted({str(name) for name in names} - {*FULL_NAMES, SLIDING_NAME}):
        raise NotUnderstoodError(f"layer_types names {', '.join(strange)}, which we do not count.")
    if len(names) not in (layers, layers + drafts):
        raise NotUnderstoodError(
            f"layer_types names {len(names)} layers but num_hidden_layers is {layers} and "
            f"num_nextn_predict_layers {drafts}."
        )
    if (implementation := f.text("att_impl_type")) not in ("", "GQA"):
        raise NotUnderstoodError(f"att_impl_type is {implementation!r}, which we do not count.")
    f.skip("attention_other_setting", "num_sliding_attention_heads", "use_head_wise_attn_gate")
    f.skip("yarn_only_types", "use_rope_layers", "mtp_layer_types")
    queries = f.whole("num_attention_heads")
    heads = f.count("num_attention_groups") or f.whole("num_key_value_heads")
    return by_name(f, [str(name) for name in names[:layers]], heads, width_of(f, queries))


def rope_switched(f: Fields) -> list[Layer]:
    """SmolLM3: the window, where there is one, is at the layers without rotary positions."""
    layers = f.layers()
    step = f.whole("no_rope_layer_interval")
    rope = f.per_layer("no_rope_layers", layers) or tuple(
        int((index + 1) % step != 0) for index in range(layers)
    )
    window = f.count("sliding_window") * f.flag("use_sliding_window")
    names = layer_names(f, *FULL_NAMES, SLIDING_NAME, layers=layers) or [
        FULL_NAMES[0] if flag or not window else SLIDING_NAME for flag in rope
    ]
    f.skip("max_window_layers")
    return by_name(f, names, *heads_of(f))


def _without_shared(f: Fields, names: Sequence[str], kept: list[Layer]) -> list[Layer]:
    shared = f.count("num_kv_shared_layers")
    if shared == 0:
        return kept
    first = len(names) - shared
    if first <= 0 or not set(names[first:]) <= set(names[:first]):
        raise NotUnderstoodError(
            f"num_kv_shared_layers is {shared} of {len(names)} layers, which leaves no layer to share with."
        )
    return kept[:first] + [()] * shared
