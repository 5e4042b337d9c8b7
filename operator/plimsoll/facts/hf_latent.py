"""What does each layer keep where attention runs over latents, with or without an index?

As vLLM 0.33.0 lays it out: vllm/model_executor/models/deepseek_v2.py, vllm/models/{deepseek_v32,
deepseek_v4,minimax_m3}; class values from transformers 5.20.2.
"""

from __future__ import annotations

from typing import Final

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError
from plimsoll.facts.hf_shapes import FULL_NAMES, Layer, heads_of, layer_names, layers_by, plain
from plimsoll.facts.model import KvGroup, KvKind

_INDEXED_NAMES: Final = (*FULL_NAMES, "indexed_attention", "deepseek_sparse_attention")
_WEIGHTS_ONLY: Final = (
    "q_lora_rank",
    "v_head_dim",
    "qk_head_dim",
    "num_key_value_heads",
    "head_dim",
)
"""Fields of latent attention that shape weights and leave the latent as it is."""


def latent_of(f: Fields) -> KvGroup:
    """One latent and one rotary key per token."""
    width = f.whole("kv_lora_rank") + f.whole("qk_rope_head_dim")
    return KvGroup(kind=KvKind.MLA, layers=1, kv_heads=1, key_dim=width, value_dim=0)


def index_of(width: int) -> KvGroup:
    """The index key of one layer."""
    return KvGroup(kind=KvKind.INDEXER, layers=1, kv_heads=1, key_dim=width, value_dim=0)


def latent(f: Fields) -> list[Layer]:
    """DeepSeek-V2/V3, Kimi-K2, GLM-4.7-Flash; with index_topk an index beside each latent (V3.2, GLM-5).

    A DeepSeek-V2 without rotary and other widths (DeepSeek-VL2 tiny) has plain heads.
    """
    layers = f.layers()
    names = layer_names(f, *_INDEXED_NAMES, layers=layers)
    if f.count("qk_nope_head_dim") == 0 and f.count("qk_rope_head_dim") == 0:
        f.skip("kv_lora_rank", "q_lora_rank", "v_head_dim", "use_mla")
        return [(plain(*heads_of(f, own_width=False)),)] * layers
    f.skip(*_WEIGHTS_ONLY)
    one = latent_of(f)
    if f.value("index_topk") is None:
        if names is not None and not set(names) <= set(FULL_NAMES):
            raise NotUnderstoodError(
                "layer_types names sparse layers, but index_topk is not given."
            )
        return [(one,)] * layers
    f.skip("index_n_heads", "indexer_rope_interleave", "index_share_for_mtp_iteration")
    f.whole("index_topk")
    index = index_of(f.whole("index_head_dim"))
    return [(index, one) if owns else (one,) for owns in _owns_an_index(f, layers)]


def latent_twice(f: Fields) -> list[Layer]:
    """LongCat-Flash: each layer holds two attentions, and num_hidden_layers counts those."""
    layers = layers_by(f, "num_layers")
    f.same("num_hidden_layers", 2 * layers, "twice num_layers")
    f.skip(
        *_WEIGHTS_ONLY,
        "qk_nope_head_dim",
        "mla_scale_q_lora",
        "mla_scale_kv_lora",
        "attention_method",
    )
    return [(latent_of(f), latent_of(f))] * layers


def compressed(f: Fields) -> list[Layer]:
    """DeepSeek-V4: each layer keeps a window, most also one latent for 4 or 128 tokens.

    compress_ratios, layer_types with compress_rates, or the class's own pattern; lists go on over draft layers.
    """
    layers = f.layers()
    rates = _rates(f)
    named = f.listed("layer_types")
    ratios = f.numbers("compress_ratios")
    if named is None and ratios is not None:
        if strange := sorted(set(ratios) - _NAME_OF.keys()):
            raise NotUnderstoodError(f"compress_ratios holds {strange}, which we do not count.")
        named = [_NAME_OF[ratio] for ratio in ratios]
    if named is None:
        named = ["heavily_compressed_attention"] * min(layers, 2) + [
            "compressed_sparse_attention" if index % 2 else "heavily_compressed_attention"
            for index in range(max(layers - 2, 0))
        ]
    if strange_names := sorted({str(name) for name in named} - set(_NAME_OF.values())):
        raise NotUnderstoodError(
            f"layer_types names {', '.join(strange_names)}, which we do not count."
        )
    if len(named) < layers:
        raise NotUnderstoodError(f"{len(named)} compressed layers are named of {layers}.")
    f.skip("q_lora_rank", "o_lora_rank", "o_groups", "qk_rope_head_dim", "num_key_value_heads")
    f.skip("index_n_heads", "index_topk", "num_hash_layers", "n_hash_layers", "compress_rope_theta")
    f.skip("hc_mult", "hc_eps", "hc_sinkhorn_iters", "num_attention_heads")
    kept = {
        name: KvGroup(
            kind=KvKind.COMPRESSED_MLA,
            layers=1,
            kv_heads=1,
            key_dim=f.whole("head_dim"),
            value_dim=0,
            window_tokens=f.whole("sliding_window"),
            compress_ratio=rates.get(name),
            index_dim=f.whole("index_head_dim") if rates.get(name) == _INDEXED_RATIO else None,
        )
        for name in _NAME_OF.values()
    }
    return [(kept[str(name)],) for name in named[:layers]]


def block_sparse(f: Fields) -> list[Layer]:
    """MiniMax-M3: plain heads everywhere, an index key beside them at the sparse layers."""
    layers = f.layers()
    heads, width = f.whole("num_key_value_heads"), f.whole("head_dim")
    attention = plain(heads, width)
    f.skip("num_attention_heads", "layer_types")
    sparse = f.part("sparse_attention_config")
    if sparse is None:
        raise NotUnderstoodError(
            "sparse_attention_config is not given; it must say which layers are sparse."
        )
    sparse.skip("use_sparse_attention", "sparse_topk_blocks", "sparse_block_size")
    sparse.skip("sparse_score_type", "sparse_init_block", "sparse_local_block")
    if any(flag == 0 for flag, is_sparse in _value_flags(sparse, layers) if is_sparse):
        raise NotUnderstoodError(
            "sparse_attention_config.sparse_disable_index_value is 0 at a sparse layer; an index with values "
            "is not counted."
        )
    sparse.skip("sparse_num_index_heads")
    index = index_of(sparse.whole("sparse_index_dim"))
    frequency = sparse.per_layer("sparse_attention_freq", layers, goes_on=True) or (0,) * layers
    if strange := [name for name, _ in sparse.rest()]:
        raise NotUnderstoodError(
            f"{sparse.where}{strange[0]} = {sparse.given[strange[0]]!r} is a field that we do not know here."
        )
    return [(attention, index) if flag else (attention,) for flag in frequency]


_NAME_OF: Final = {
    0: "sliding_attention",
    4: "compressed_sparse_attention",
    128: "heavily_compressed_attention",
}
"""transformers 5.20.2 models/deepseek_v4/configuration_deepseek_v4.py."""
_INDEXED_RATIO: Final = 4
"""Only these layers choose by an index (vLLM 0.33.0 vllm/models/deepseek_v4/attention.py)."""


def _rates(f: Fields) -> dict[str, int]:
    rates = {name: ratio for ratio, name in _NAME_OF.items() if ratio}
    if (given := f.part("compress_rates")) is not None:
        rates = {name: given.count(name) for name in given.given}
    for name, field in (
        ("compressed_sparse_attention", "compress_rate_csa"),
        ("heavily_compressed_attention", "compress_rate_hca"),
    ):
        if field in f:
            rates[name] = f.count(field)
    if strange := {name: rate for name, rate in rates.items() if rate not in (4, 128)}:
        raise NotUnderstoodError(f"compress_rates holds {strange}; we count 4 and 128.")
    return rates


def _owns_an_index(f: Fields, layers: int) -> list[bool]:
    """Layers that hold an index of their own; the others use the choice of the last that does.

    index_topk_pattern ("FSSF...") or every index_topk_freq-th layer from index_skip_topk_offset on. The engine
    does not read indexer_types, which says the same in published files.
    """
    pattern = f.text("index_topk_pattern")
    every, offset = f.count("index_topk_freq") or 1, f.value("index_skip_topk_offset")
    skip = 2 if offset is None else f.count("index_skip_topk_offset")
    owns = [
        (index >= len(pattern) or pattern[index] != "S")
        if pattern
        else max(index - skip + 1, 0) % every == 0
        for index in range(layers)
    ]
    f.skip("indexer_types")
    return owns


def _value_flags(sparse: Fields, layers: int) -> list[tuple[int, int]]:
    disabled = sparse.per_layer("sparse_disable_index_value", layers, goes_on=True) or (1,) * layers
    frequency = sparse.per_layer("sparse_attention_freq", layers, goes_on=True) or (0,) * layers
    return list(zip(disabled, frequency, strict=True))
