"""Which layers of a model keep KV, and in which layout, as config.json says?

The layouts follow vLLM 0.33.0 (PyPI wheel): what each model class gives its attention layers. Known
architectures stand in one table; a name or a field that is not understood is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from plimsoll.facts.model import KvGroup, KvKind

Config = Mapping[str, Any]

MOST_LAYERS: Final = 10_000
"""Far above any model; stops a broken config from being read as gigabytes of layers."""


class NotUnderstoodError(ValueError):
    """Says in one sentence what is missing or strange in a config."""


def architecture_of(config: Config) -> str:
    """The first of config.json's architectures, or words that stand for its absence."""
    names = config.get("architectures")
    if isinstance(names, Sequence) and not isinstance(names, str) and names:
        return str(names[0])
    return "none named"


def text_config(config: Config) -> Config:
    """The part that describes the language model: text_config of a multimodal model, or the whole."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config


def whole_number(config: Config, name: str) -> int:
    """A field that must be a whole number above zero. Raises NotUnderstoodError."""
    value = number_or(config, name, 0)
    if value == 0:
        seen = "is not given" if config.get(name) is None else f"is {config[name]!r}"
        raise NotUnderstoodError(f"{name} {seen}; it must be a whole number above zero.")
    return value


def number_or(config: Config, name: str, otherwise: int) -> int:
    """A field that may be left out or null. Raises NotUnderstoodError when it is no whole number."""
    value = config.get(name)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NotUnderstoodError(f"{name} is {value!r}; it must be a whole number.")
    return value


def head_dim(text: Config) -> int:
    """Width of one head: head_dim, or the stream's width over the query heads."""
    if given := number_or(text, "head_dim", 0):
        return given
    return whole_number(text, "hidden_size") // whole_number(text, "num_attention_heads")


def family_of(architecture: str) -> Family:
    """The row of the table. Raises NotUnderstoodError when there is none, or one that we refuse."""
    if architecture in _REFUSED:
        raise NotUnderstoodError(f"{architecture} {_REFUSED[architecture]}.")
    found = _FAMILIES.get(architecture)
    if found is None:
        raise NotUnderstoodError(f"the architecture {architecture} is not in our table.")
    return found


def kv_groups(config: Config) -> tuple[KvGroup, ...]:
    """Layers by layout, first layer's layout first. Raises NotUnderstoodError in one sentence."""
    architecture = architecture_of(config)
    family = family_of(architecture)
    text = text_config(config)
    if whole_number(text, "num_hidden_layers") > MOST_LAYERS:
        raise NotUnderstoodError(
            f"num_hidden_layers is {text['num_hidden_layers']}, which no model has."
        )
    for name, meaning in _STRANGE.items():
        if text.get(name) and name not in family.understands:
            raise NotUnderstoodError(
                f"{architecture} with {name} = {text[name]} is {meaning}, which we do not count."
            )
    kinds = family.kinds(text)
    counts = Counter(kinds)
    return tuple(family.group(text, kind, counts[kind]) for kind in dict.fromkeys(kinds))


# --- which kind each layer is -----------------------------------------------------------------------

_KINDS: Final = {
    "full_attention": KvKind.FULL,
    "sliding_attention": KvKind.SLIDING,
    "chunked_attention": KvKind.CHUNKED,
}


def _listed(text: Config) -> list[KvKind] | None:
    """Kinds from layer_types, the list that newer configs carry; None when there is none."""
    names = text.get("layer_types")
    if not names:
        return None
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise NotUnderstoodError(
            f"layer_types is {names!r}; it must be a list with a name per layer."
        )
    strange = sorted({str(name) for name in names} - _KINDS.keys())
    if strange:
        raise NotUnderstoodError(f"layer_types names {', '.join(strange)}, which we do not count.")
    if len(names) != whole_number(text, "num_hidden_layers"):
        raise NotUnderstoodError(
            f"layer_types names {len(names)} layers but num_hidden_layers is "
            f"{text['num_hidden_layers']}."
        )
    return [_KINDS[name] for name in names]


def _uniform(text: Config) -> list[KvKind]:
    """All layers alike: sliding when the config has a window that is not switched off.

    vllm/model_executor/layers/attention: without a window of its own a layer takes the config's.
    """
    layers = whole_number(text, "num_hidden_layers")
    is_windowed = text.get("sliding_window") is not None
    if is_windowed and "use_sliding_window" in text:
        if not text["use_sliding_window"]:
            return [KvKind.FULL] * layers
        if (listed := _listed(text)) is None:
            raise NotUnderstoodError(
                "use_sliding_window is true but no layer_types say which layers have the window."
            )
        return listed
    if (listed := _listed(text)) is not None and len(set(listed)) > 1:
        return listed
    return [KvKind.SLIDING if is_windowed else KvKind.FULL] * layers


def _every(nth: int, *, key: str | None = None) -> Callable[[Config], list[KvKind]]:
    """Every nth layer full and the others sliding, unless layer_types (or `key`) say otherwise."""

    def kinds(text: Config) -> list[KvKind]:
        if (listed := _listed(text)) is not None:
            return listed
        step = number_or(text, key, nth) or nth if key else nth
        return [
            KvKind.SLIDING if (index + 1) % step else KvKind.FULL
            for index in range(whole_number(text, "num_hidden_layers"))
        ]

    return kinds


def _chunked(text: Config) -> list[KvKind]:
    """Llama 4: layers with rotary positions attend inside a chunk, every 4th (no_rope) to all.

    vllm/model_executor/models/llama4.py; the interval is Llama4TextConfig's default.
    """
    if (listed := _listed(text)) is not None:
        return listed
    layers = whole_number(text, "num_hidden_layers")
    if not text.get("attention_chunk_size"):
        return [KvKind.FULL] * layers
    step = number_or(text, "no_rope_layer_interval", 4) or 4
    rope = text.get("no_rope_layers") or [(index + 1) % step for index in range(layers)]
    if not isinstance(rope, Sequence) or len(rope) != layers:
        raise NotUnderstoodError(f"no_rope_layers must have one entry for each of {layers} layers.")
    is_local = [bool(flag) for flag in rope]
    return [KvKind.CHUNKED if local else KvKind.FULL for local in is_local]


def _latent(text: Config) -> list[KvKind]:
    return [KvKind.MLA] * whole_number(text, "num_hidden_layers")


# --- what one layer of a kind keeps -----------------------------------------------------------------


def _heads(text: Config, kind: KvKind, layers: int) -> KvGroup:
    """Plain heads: as many as num_key_value_heads says, all query heads where it says nothing."""
    width = head_dim(text)
    return KvGroup(
        kind=kind,
        layers=layers,
        kv_heads=number_or(text, "num_key_value_heads", 0)
        or whole_number(text, "num_attention_heads"),
        key_dim=width,
        value_dim=width,
        window_tokens=_window(text, kind),
    )


def _gemma4(text: Config, kind: KvKind, layers: int) -> KvGroup:
    """Gemma 4's full layers have their own head width and count.

    vLLM stores K and V apart even where attention_k_eq_v makes them equal.
    """
    group = _heads(text, kind, layers)
    if kind is not KvKind.FULL:
        return group
    width = number_or(text, "global_head_dim", group.key_dim)
    heads = number_or(text, "num_global_key_value_heads", group.kv_heads)
    return group.model_copy(update={"kv_heads": heads, "key_dim": width, "value_dim": width})


def _mla(text: Config, kind: KvKind, layers: int) -> KvGroup:
    width = whole_number(text, "kv_lora_rank") + whole_number(text, "qk_rope_head_dim")
    return KvGroup(kind=kind, layers=layers, kv_heads=1, key_dim=width, value_dim=0)


def _window(text: Config, kind: KvKind) -> int | None:
    if kind is KvKind.SLIDING:
        return whole_number(text, "sliding_window")
    if kind is KvKind.CHUNKED:
        return whole_number(text, "attention_chunk_size")
    return None


# --- the tables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """How architectures of one family lay out their layers."""

    kinds: Callable[[Config], list[KvKind]] = _uniform
    """Which kind each layer is."""
    group: Callable[[Config, KvKind, int], KvGroup] = _heads
    """What the layers of one kind keep."""
    understands: tuple[str, ...] = ()
    """Fields of _STRANGE that this family gives a meaning."""
    defaults: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Class defaults that published files leave out."""
    norms: int = 2
    """Norms of the residual stream in one layer."""
    norms_heads: bool = False
    """Whether queries and keys are normed per head with weights."""
    router_bytes: int = 2
    """Bytes of one router weight as vLLM holds it."""


_PLAIN: Final = Family()
_HEAD_NORMS: Final = Family(norms_heads=True)
_MLA: Final = Family(kinds=_latent, group=_mla, understands=("kv_lora_rank",))
# transformers 5.24.0 Gemma3TextConfig: the 4B to 27B files leave these two out.
_GEMMA3: Final = Family(
    kinds=_every(6, key="sliding_window_pattern"),
    defaults={"vocab_size": 262_208, "max_position_embeddings": 131_072},
    norms=4,
    norms_heads=True,
)
_FAMILIES: Final[Mapping[str, Family]] = {
    "LlamaForCausalLM": _PLAIN,
    "MistralForCausalLM": _PLAIN,
    "Mistral3ForConditionalGeneration": _PLAIN,
    "MixtralForCausalLM": _PLAIN,
    "Qwen2ForCausalLM": _PLAIN,
    "Qwen2MoeForCausalLM": _PLAIN,
    "Qwen2VLForConditionalGeneration": _PLAIN,
    "Qwen2_5_VLForConditionalGeneration": _PLAIN,
    "Qwen3ForCausalLM": _HEAD_NORMS,
    "Qwen3MoeForCausalLM": _HEAD_NORMS,
    "Qwen3VLForConditionalGeneration": _HEAD_NORMS,
    "Qwen3VLMoeForConditionalGeneration": _HEAD_NORMS,
    "Phi3ForCausalLM": _PLAIN,
    "Glm4MoeForCausalLM": Family(norms_heads=True, router_bytes=4),
    "GraniteForCausalLM": _PLAIN,
    "GraniteMoeForCausalLM": _PLAIN,
    "MiniMaxM2ForCausalLM": _PLAIN,
    "SeedOssForCausalLM": _PLAIN,
    "GptOssForCausalLM": Family(kinds=_every(2)),
    "Gemma2ForCausalLM": Family(kinds=_every(2), norms=4),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Gemma4ForCausalLM": Family(kinds=_every(6), group=_gemma4, norms=4, norms_heads=True),
    "Gemma4ForConditionalGeneration": Family(
        kinds=_every(6), group=_gemma4, norms=4, norms_heads=True
    ),
    "Llama4ForCausalLM": Family(kinds=_chunked, understands=("attention_chunk_size",)),
    "Llama4ForConditionalGeneration": Family(kinds=_chunked, understands=("attention_chunk_size",)),
    "DeepseekV2ForCausalLM": _MLA,
    "DeepseekV3ForCausalLM": _MLA,
    "KimiK25ForConditionalGeneration": _MLA,
}
"""vLLM 0.33.0 vllm/model_executor/models; rows with a published layout are checked in the tests."""

_RECURRENT: Final = "mixes attention with recurrent layers, whose state is per sequence"
_REFUSED: Final[Mapping[str, str]] = {
    "Qwen3NextForCausalLM": _RECURRENT,
    "Qwen3_5ForConditionalGeneration": _RECURRENT,
    "Qwen3_5MoeForConditionalGeneration": _RECURRENT,
    "Qwen3_5ForCausalLM": _RECURRENT,
    "Qwen3_5MoeForCausalLM": _RECURRENT,
    "JambaForCausalLM": _RECURRENT,
    "GraniteMoeHybridForCausalLM": _RECURRENT,
    "NemotronHForCausalLM": _RECURRENT,
    "FalconH1ForCausalLM": _RECURRENT,
    "BambaForCausalLM": _RECURRENT,
    "Zamba2ForCausalLM": _RECURRENT,
    "Lfm2ForCausalLM": _RECURRENT,
    "KimiLinearForCausalLM": _RECURRENT,
    "MiniMaxText01ForCausalLM": _RECURRENT,
    "MambaForCausalLM": "keeps a recurrent state and no KV cache",
    "Mamba2ForCausalLM": "keeps a recurrent state and no KV cache",
    "DeepseekV32ForCausalLM": "keeps an index beside each layer's latent (sparse attention)",
    "GlmMoeDsaForCausalLM": "keeps an index beside each layer's latent (sparse attention)",
    "DeepseekV4ForCausalLM": "keeps compressed latents and compressor states in blocks of their own",
    "BertModel": "keeps no KV cache: it embeds, and does not generate",
    "XLMRobertaModel": "keeps no KV cache: it embeds, and does not generate",
    "XLMRobertaForSequenceClassification": "keeps no KV cache: it ranks, and does not generate",
    "WhisperForConditionalGeneration": "has an encoder, whose cross attention we do not count",
    "Gemma3nForConditionalGeneration": "has layers that share the KV of others",
}
"""Architectures we know of and whose memory we do not know how to count yet."""

_STRANGE: Final[Mapping[str, str]] = {
    "kv_lora_rank": "latent attention",
    "index_topk": "sparse attention with an index",
    "index_head_dim": "sparse attention with an index",
    "compress_ratios": "compressed attention",
    "attention_chunk_size": "chunked attention",
    "num_kv_shared_layers": "KV shared between layers",
    "cross_attention_layers": "cross attention",
    "hybrid_override_pattern": "a hybrid of attention and recurrent layers",
    "mamba_d_state": "a hybrid of attention and recurrent layers",
    "linear_num_key_heads": "a hybrid of attention and recurrent layers",
    "use_cla": "KV shared between layers",
}
"""Fields that change what a layer keeps, and what they announce."""
