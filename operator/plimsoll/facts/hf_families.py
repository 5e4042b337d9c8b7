"""Which layout does an architecture have, and which part of its config says so?

The table of language models; those that hold one inside stand in hf_wrappers. Architectures as vLLM
0.33.0 (vllm/model_executor/models/registry.py) and its earlier releases know them; model types as
transformers 5.20.2 and the published files spell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.facts import hf_delta as deltas
from plimsoll.facts import hf_latent as latents
from plimsoll.facts import hf_mamba as mambas
from plimsoll.facts import hf_plain as plains
from plimsoll.facts import hf_windows as windows
from plimsoll.facts.hf_fields import Config, Fields, NotUnderstoodError
from plimsoll.facts.hf_shapes import Layout
from plimsoll.facts.hf_wrappers import REFUSED, WRAPPERS


@dataclass(frozen=True)
class Family:
    """How architectures of one family lay out their layers."""

    layout: Layout
    """What each layer keeps."""
    types: tuple[str, ...]
    """Model types that come with it; the first names the class whose values stand behind."""
    norms: int = 2
    """Norms of the residual stream in one layer."""
    norms_heads: bool = False
    """Whether queries and keys are normed per head with weights."""
    router_bytes: int = 2
    """Bytes of one router weight as vLLM holds it."""


@dataclass(frozen=True)
class Known:
    """A config whose parts have been told apart."""

    architecture: str
    """As the config names it."""
    family: Family
    """The row of the language model."""
    fields: Fields
    """The part that describes the language model."""
    around: tuple[Fields, ...]
    """What stands around that part, outermost first."""
    is_wrapped: bool
    """Whether an encoder stands beside the language model."""


def architecture_of(config: Config) -> str:
    """The first of config.json's architectures, or words that stand for its absence."""
    names = config.get("architectures")
    if isinstance(names, Sequence) and not isinstance(names, str) and names:
        return str(names[0])
    return "none named"


def text_config(config: Config) -> Config:
    """The part that describes the language model, or the whole where there is no such part."""
    for name in _INNER:
        if isinstance(part := config.get(name), Mapping):
            return text_config(part)
    return config


def known(config: Config, *, whole: bool = True) -> Known:
    """Family and parts of a config. Raises NotUnderstoodError where there is none.

    `whole`: it is a config.json, where a field that is left out has the value of its class. False for a
    few fields of one, where it is unknown.
    """
    architecture = architecture_of(config)
    if architecture in REFUSED:
        raise NotUnderstoodError(f"{architecture} {REFUSED[architecture]}.")
    around, part, where = [], config, ""
    while (
        name := next((name for name in _INNER if isinstance(part.get(name), Mapping)), None)
    ) is not None:
        outer = Fields(part, where=where)
        outer.skip(name)
        around.append(outer)
        part, where = part[name], f"{where}{name}."
    if (wrapper := WRAPPERS.get(architecture)) is not None:
        _check_type(architecture, config, wrapper.types if around else (*wrapper.types, ""))
        inner = architecture_of(part) if around else "none named"
        family = FAMILIES.get(inner) or FAMILIES.get(_BY_TYPE.get(str(part.get("model_type")), ""))
        family = family or FAMILIES[wrapper.inner]
        if inner not in FAMILIES and inner != "none named":
            raise NotUnderstoodError(
                f"{where}architectures names {inner}, which is not in our table."
            )
        default = (
            wrapper.text if family is FAMILIES[wrapper.inner] and wrapper.text else family.types[0]
        )
        if around:
            _check_type(architecture, part, (*family.types, wrapper.text), where)
        own = part.get("model_type") if around else None
        fields = Fields(part, model_type=str(own or default) if whole else "", where=where)
        return Known(architecture, family, fields, tuple(around), is_wrapped=True)
    found = FAMILIES.get(architecture)
    if found is None:
        raise NotUnderstoodError(f"the architecture {architecture} is not in our table.")
    if around:
        raise NotUnderstoodError(
            f"{architecture} is a language model alone, but {where[:-1]} holds another inside."
        )
    _check_type(architecture, config, found.types)
    own = config.get("model_type")
    fields = Fields(config, model_type=str(own or found.types[0]) if whole else "")
    return Known(architecture, found, fields, (), is_wrapped=False)


def _check_type(architecture: str, part: Config, types: Sequence[str], where: str = "") -> None:
    given = part.get("model_type")
    if given is not None and given not in types:
        expected = ", ".join(name for name in dict.fromkeys(types) if name)
        raise NotUnderstoodError(
            f"{where}model_type is {given!r}; {architecture} is known with {expected}."
        )


_INNER: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where configs keep their language model (vLLM 0.33.0 vllm/transformers_utils/config.py)."""

_OWN_WIDTH: Final = plains.uniform()
_STREAM_WIDTH: Final = plains.uniform(own_width=False)
_LISTED: Final = windows.listed()
_QWEN2: Final = Family(
    windows.switched(own_width=False),
    ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "mimo"),
)
_GEMMA3: Final = Family(
    windows.every(6, key="sliding_window_pattern"), ("gemma3_text",), norms=4, norms_heads=True
)
_GEMMA4: Final = Family(
    windows.gemma4, ("gemma4_text", "gemma4_unified_text"), norms=4, norms_heads=True
)
_QWEN3_MOE: Final = Family(
    windows.switched_moe, ("qwen3_moe", "qwen3_omni_moe_text"), norms_heads=True
)
_STEP_FLASH: Final = Family(
    windows.step_flash, ("step3p5", "step3p7", "step3p7_text"), norms_heads=True
)
_DEEPSEEK_V4: Final = Family(latents.compressed, ("deepseek_v4", "deepseek_ref"))
_MINIMAX_M3: Final = Family(
    latents.block_sparse, ("minimax_m3_text", "minimax_m3"), norms_heads=True
)

FAMILIES: Final[Mapping[str, Family]] = {
    # plain heads, alike in every layer
    "AquilaForCausalLM": Family(_STREAM_WIDTH, ("aquila", "aquila3")),
    "ArceeForCausalLM": Family(_LISTED, ("arcee",)),
    "AriaTextForCausalLM": Family(_OWN_WIDTH, ("aria_text",)),
    "BaiChuanForCausalLM": Family(_STREAM_WIDTH, ("baichuan",)),
    "BaichuanForCausalLM": Family(_STREAM_WIDTH, ("baichuan",)),
    "BailingMoeForCausalLM": Family(_OWN_WIDTH, ("bailing_moe",)),
    "BailingMoeV2ForCausalLM": Family(_OWN_WIDTH, ("bailing_moe", "bailing_moe_v2")),
    "BloomForCausalLM": Family(plains.all_queries("n_head", "hidden_size", "n_layer"), ("bloom",)),
    "ChatGLMForConditionalGeneration": Family(plains.chatglm, ("chatglm",)),
    "ChatGLMModel": Family(plains.chatglm, ("chatglm",)),
    "CohereForCausalLM": Family(_OWN_WIDTH, ("cohere",), norms=1),
    "DbrxForCausalLM": Family(plains.dbrx, ("dbrx",)),
    "DeciLMForCausalLM": Family(plains.blocks_that_differ, ("nemotron-nas", "decilm")),
    "DeepseekForCausalLM": Family(_STREAM_WIDTH, ("deepseek",)),
    "Ernie4_5ForCausalLM": Family(_LISTED, ("ernie4_5",)),
    "Ernie4_5_MoeForCausalLM": Family(_OWN_WIDTH, ("ernie4_5_moe", "ernie4_5_vl_moe_text")),
    "ExaoneForCausalLM": Family(_OWN_WIDTH, ("exaone",)),
    "FalconForCausalLM": Family(plains.many_or_one, ("falcon", "RefinedWeb", "RefinedWebModel")),
    "FlexOlmoForCausalLM": Family(_LISTED, ("flex_olmo",)),
    "GemmaForCausalLM": Family(_OWN_WIDTH, ("gemma",)),
    "GlmForCausalLM": Family(_LISTED, ("glm",)),
    "Glm4ForCausalLM": Family(_OWN_WIDTH, ("glm4", "glm4v_text", "glm_ocr_text"), norms=4),
    "Glm4MoeForCausalLM": Family(
        _OWN_WIDTH, ("glm4_moe", "glm4v_moe_text"), norms_heads=True, router_bytes=4
    ),
    "GPT2LMHeadModel": Family(plains.all_queries("n_head", "n_embd", "n_layer"), ("gpt2",)),
    "GPTBigCodeForCausalLM": Family(
        plains.all_queries("n_head", "n_embd", "n_layer", single="multi_query"), ("gpt_bigcode",)
    ),
    "GPTJForCausalLM": Family(plains.all_queries("n_head", "n_embd", "n_layer"), ("gptj",)),
    "GPTNeoXForCausalLM": Family(plains.without_groups, ("gpt_neox",)),
    "GraniteForCausalLM": Family(_LISTED, ("granite",)),
    "GraniteMoeForCausalLM": Family(windows.listed(own_width=False), ("granitemoe",)),
    "GraniteMoeSharedForCausalLM": Family(windows.listed(own_width=False), ("granitemoeshared",)),
    "Grok1ForCausalLM": Family(_OWN_WIDTH, ("grok-1", "grok1", "git", "grok_1"), norms=4),
    "Grok1ModelForCausalLM": Family(_OWN_WIDTH, ("grok-1", "grok1", "git", "grok_1"), norms=4),
    "HunYuanDenseV1ForCausalLM": Family(_LISTED, ("hunyuan_v1_dense",), norms_heads=True),
    "HunYuanMoEV1ForCausalLM": Family(
        plains.no_shared_cache, ("hunyuan_v1_moe", "hunyuan"), norms_heads=True
    ),
    "HYV3ForCausalLM": Family(_OWN_WIDTH, ("hy_v3",), norms_heads=True),
    "HyperCLOVAXForCausalLM": Family(_OWN_WIDTH, ("hyperclovax",)),
    "InternLMForCausalLM": Family(_STREAM_WIDTH, ("internlm",)),
    "InternLM2ForCausalLM": Family(_STREAM_WIDTH, ("internlm2",)),
    "InternLM3ForCausalLM": Family(_LISTED, ("internlm3",)),
    "IQuestCoderForCausalLM": Family(_LISTED, ("iquestcoder",)),
    "Jais2ForCausalLM": Family(_LISTED, ("jais2",)),
    "LlamaForCausalLM": Family(_LISTED, ("llama", "Yi", "yi", "granite_llama")),
    "LLaMAForCausalLM": Family(_LISTED, ("llama",)),
    "MiMoForCausalLM": _QWEN2,
    "MiniCPMForCausalLM": Family(_STREAM_WIDTH, ("minicpm",)),
    "MiniCPM3ForCausalLM": Family(plains.padded_heads, ("minicpm3",)),
    "MiniMaxM2ForCausalLM": Family(plains.all_attend, ("minimax_m2",)),
    "Ministral3ForCausalLM": Family(_LISTED, ("ministral3",)),
    "MistralForCausalLM": Family(_LISTED, ("mistral", "ministral", "ministral3")),
    "MixtralForCausalLM": Family(_OWN_WIDTH, ("mixtral",)),
    "NemotronForCausalLM": Family(_OWN_WIDTH, ("nemotron",)),
    "NanbeigeForCausalLM": Family(_LISTED, ("nanbeige",)),
    "OlmoForCausalLM": Family(_LISTED, ("olmo",)),
    "Olmo2ForCausalLM": Family(_LISTED, ("olmo2",)),
    "OlmoeForCausalLM": Family(_STREAM_WIDTH, ("olmoe",)),
    "OPTForCausalLM": Family(plains.without_groups, ("opt",)),
    "OrionForCausalLM": Family(_STREAM_WIDTH, ("orion",)),
    "Param2MoEForCausalLM": Family(_OWN_WIDTH, ("param2moe",)),
    "PersimmonForCausalLM": Family(plains.without_groups, ("persimmon",)),
    "PhiForCausalLM": Family(_LISTED, ("phi",)),
    "Phi3ForCausalLM": Family(_LISTED, ("phi3",)),
    "Phi3SmallForCausalLM": Family(plains.sparse_in_arithmetic, ("phi3small",)),
    "PhiMoEForCausalLM": Family(_OWN_WIDTH, ("phimoe",)),
    "QWenLMHeadModel": Family(plains.qwen1, ("qwen",)),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2MoeForCausalLM": Family(windows.never_switched, ("qwen2_moe",)),
    "Qwen3ForCausalLM": Family(windows.switched(), ("qwen3",), norms_heads=True),
    "Qwen3MoeForCausalLM": _QWEN3_MOE,
    "Qwen3VLTextForCausalLM": Family(_OWN_WIDTH, ("qwen3_vl_text",), norms_heads=True),
    "Qwen3VLMoeTextForCausalLM": Family(_OWN_WIDTH, ("qwen3_vl_moe_text",), norms_heads=True),
    "SarvamMoEForCausalLM": Family(_OWN_WIDTH, ("sarvam_moe",), norms_heads=True),
    "SeedOssForCausalLM": Family(_LISTED, ("seed_oss",)),
    "SolarForCausalLM": Family(_OWN_WIDTH, ("solar",)),
    "StableLmForCausalLM": Family(_STREAM_WIDTH, ("stablelm",)),
    "Starcoder2ForCausalLM": Family(_OWN_WIDTH, ("starcoder2",)),
    "Step1ForCausalLM": Family(plains.grouped_names, ("step1",)),
    "Step3TextForCausalLM": Family(plains.one_shared_head, ("step3_text",)),
    "TeleChat2ForCausalLM": Family(_LISTED, ("telechat",)),
    "TeleFLMForCausalLM": Family(_LISTED, ("TeleFLM", "teleflm")),
    "TeleChat3ForCausalLM": Family(_LISTED, ("telechat3",)),
    "XverseForCausalLM": Family(_STREAM_WIDTH, ("xverse",)),
    # windows and chunks
    "AfmoeForCausalLM": Family(
        windows.every(4, key="global_attn_every_n_layers"), ("afmoe",), norms=4, norms_heads=True
    ),
    "ApertusForCausalLM": Family(_LISTED, ("apertus",), norms_heads=True),
    "Cohere2ForCausalLM": Family(
        windows.every(4, key="sliding_window_pattern", beyond=1), ("cohere2",), norms=1
    ),
    "Cohere2MoeForCausalLM": Family(windows.cohere_moe, ("cohere2_moe",), norms=1),
    "CwmForCausalLM": Family(windows.every(4, first_is_full=True), ("cwm",)),
    "Dots1ForCausalLM": Family(windows.from_layer, ("dots1",), norms_heads=True),
    "Exaone4ForCausalLM": Family(windows.patterned, ("exaone4",), norms_heads=True),
    "ExaoneMoeForCausalLM": Family(windows.windows_per_layer, ("exaone_moe",), norms_heads=True),
    "ExaoneMoEForCausalLM": Family(windows.windows_per_layer, ("exaone_moe",), norms_heads=True),
    "Gemma2ForCausalLM": Family(windows.every(2), ("gemma2",), norms=4),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3nForCausalLM": Family(windows.gemma3n, ("gemma3n_text",), norms=4, norms_heads=True),
    "Gemma4ForCausalLM": _GEMMA4,
    "GptOssForCausalLM": Family(windows.alternating, ("gpt_oss",)),
    "GraniteSWAForCausalLM": Family(windows.every(4, first_is_full=True), ("granite_swa",)),
    "GraniteMoeSWAForCausalLM": Family(
        windows.every(4, first_is_full=True, own_width=False), ("granitemoe_swa",)
    ),
    "LagunaForCausalLM": Family(windows.listed(otherwise_full=True), ("laguna",), norms_heads=True),
    "Llama4ForCausalLM": Family(windows.chunked, ("llama4_text",)),
    "MellumForCausalLM": Family(windows.listed(otherwise_full=True), ("mellum",)),
    "MiMoV2FlashForCausalLM": Family(windows.separate_sliding, ("mimo_v2_flash", "mimo_v2")),
    "MiMoV2ForCausalLM": Family(windows.separate_sliding, ("mimo_v2", "mimo_v2_flash")),
    "Olmo3ForCausalLM": Family(windows.every(4), ("olmo3",)),
    "SmolLM3ForCausalLM": Family(windows.rope_switched, ("smollm3",)),
    "Step3p5ForCausalLM": _STEP_FLASH,
    "Step3p7FlashForCausalLM": _STEP_FLASH,
    "VaultGemmaForCausalLM": Family(windows.every(2), ("vaultgemma",)),
    # latents
    "AXK1ForCausalLM": Family(latents.latent, ("axk1",)),
    "DeepseekV2ForCausalLM": Family(latents.latent, ("deepseek_v2",)),
    "DeepseekV3ForCausalLM": Family(latents.latent, ("deepseek_v3", "kimi_k2")),
    "DeepseekV32ForCausalLM": Family(latents.latent, ("deepseek_v32",)),
    "DeepseekV4ForCausalLM": _DEEPSEEK_V4,
    "Glm4MoeLiteForCausalLM": Family(latents.latent, ("glm4_moe_lite",)),
    "GlmMoeDsaForCausalLM": Family(latents.latent, ("glm_moe_dsa",)),
    "LongcatFlashForCausalLM": Family(latents.latent_twice, ("longcat_flash",)),
    "DeepseekV4ForConditionalGeneration": _DEEPSEEK_V4,
    "MiniMaxM3ForCausalLM": _MINIMAX_M3,
    "MiniMaxM3SparseForCausalLM": _MINIMAX_M3,
    "SarvamMLAForCausalLM": Family(latents.latent, ("sarvam_mla",)),
    # recurrent layers
    "BailingMoeV2_5ForCausalLM": Family(deltas.bailing_linear, ("bailing_hybrid",)),
    "BambaForCausalLM": Family(mambas.bamba, ("bamba",)),
    "FalconH1ForCausalLM": Family(mambas.falcon_h1, ("falcon_h1",)),
    "FalconMambaForCausalLM": Family(mambas.mamba, ("falcon_mamba",), norms=1),
    "GraniteMoeHybridForCausalLM": Family(mambas.granite_hybrid, ("granitemoehybrid",)),
    "JambaForCausalLM": Family(mambas.jamba, ("jamba",)),
    "KimiLinearForCausalLM": Family(deltas.kimi_delta, ("kimi_linear",)),
    "Lfm2ForCausalLM": Family(deltas.short_convolution("conv_dim"), ("lfm2",), norms_heads=True),
    "Lfm2MoeForCausalLM": Family(
        deltas.short_convolution("hidden_size"), ("lfm2_moe",), norms_heads=True
    ),
    "MambaForCausalLM": Family(mambas.mamba, ("mamba",), norms=1),
    "Mamba2ForCausalLM": Family(mambas.mamba2, ("mamba2",), norms=1),
    "MiniMaxForCausalLM": Family(deltas.lightning, ("minimax", "minimax_text_01")),
    "MiniMaxM1ForCausalLM": Family(deltas.lightning, ("minimax_m1", "minimax_text_01")),
    "MiniMaxText01ForCausalLM": Family(deltas.lightning, ("minimax_text_01", "minimax")),
    "NemotronHForCausalLM": Family(mambas.nemotron_h, ("nemotron_h",), norms=1),
    "OlmoHybridForCausalLM": Family(deltas.olmo_hybrid, ("olmo_hybrid",)),
    "Plamo2ForCausalLM": Family(mambas.plamo2, ("plamo2",)),
    "Qwen3NextForCausalLM": Family(deltas.gated_delta, ("qwen3_next",), norms_heads=True),
    "Qwen3_5ForCausalLM": Family(deltas.gated_delta, ("qwen3_5_text", "qwen3_5"), norms_heads=True),
    "Qwen3_5MoeForCausalLM": Family(
        deltas.gated_delta, ("qwen3_5_moe_text", "qwen3_5_moe"), norms_heads=True
    ),
    "Zamba2ForCausalLM": Family(mambas.zamba2, ("zamba2",)),
    # an encoder that the decoder looks back at
    "WhisperForConditionalGeneration": Family(plains.encoder_beside, ("whisper",)),
}
"""vLLM 0.33.0 vllm/model_executor/models; Baichuan, Bamba, Dots1, Grok, InternLM, MiniMax-Text-01, PLaMo 2, Phi-3
small, Qwen and XVERSE as its earlier releases had them."""

_BY_TYPE: Final[Mapping[str, str]] = {
    model_type: architecture
    for architecture, family in reversed(tuple(FAMILIES.items()))
    for model_type in family.types
}
