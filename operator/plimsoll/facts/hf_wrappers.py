"""Which models hold a language model beside an encoder, and which do we refuse by name?

Architectures as vLLM 0.33.0 (vllm/model_executor/models/registry.py) names them; model types as the
published files spell them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Wrapper:
    """A model that holds a language model and an encoder beside it."""

    inner: str
    """The language model's architecture where the file does not name it."""
    types: tuple[str, ...]
    """Model types that come with it."""
    text: str = ""
    """The language model's type where the file does not name it; "" for the inner family's first."""


WRAPPERS: Final[Mapping[str, Wrapper]] = {
    "AriaForConditionalGeneration": Wrapper("AriaTextForCausalLM", ("aria",)),
    "AudioFlamingo3ForConditionalGeneration": Wrapper("Qwen2ForCausalLM", ("audioflamingo3",)),
    "Blip2ForConditionalGeneration": Wrapper("OPTForCausalLM", ("blip-2",)),
    "Cohere2VisionForConditionalGeneration": Wrapper("Cohere2ForCausalLM", ("cohere2_vision",)),
    "DeepseekOCRForCausalLM": Wrapper("DeepseekV2ForCausalLM", ("deepseek_vl_v2", "deepseekocr")),
    "DeepseekVLV2ForCausalLM": Wrapper("DeepseekV2ForCausalLM", ("deepseek_vl_v2",)),
    "Eagle2_5_VLForConditionalGeneration": Wrapper("Qwen2ForCausalLM", ("eagle_2_5_vl",)),
    "Ernie4_5_VLMoeForConditionalGeneration": Wrapper(
        "Ernie4_5_MoeForCausalLM", ("ernie4_5_moe_vl", "ernie4_5_vl_moe"), "ernie4_5_vl_moe_text"
    ),
    "Exaone4_5_ForConditionalGeneration": Wrapper("Exaone4ForCausalLM", ("exaone4_5",)),
    "Gemma3ForConditionalGeneration": Wrapper("Gemma3ForCausalLM", ("gemma3",)),
    "Gemma3nForConditionalGeneration": Wrapper("Gemma3nForCausalLM", ("gemma3n",)),
    "Gemma4ForConditionalGeneration": Wrapper("Gemma4ForCausalLM", ("gemma4",)),
    "Gemma4UnifiedForConditionalGeneration": Wrapper(
        "Gemma4ForCausalLM", ("gemma4_unified",), "gemma4_unified_text"
    ),
    "GlmAsrForConditionalGeneration": Wrapper("LlamaForCausalLM", ("glmasr",)),
    "Glm4vForConditionalGeneration": Wrapper("Glm4ForCausalLM", ("glm4v",), "glm4v_text"),
    "Glm4vMoeForConditionalGeneration": Wrapper(
        "Glm4MoeForCausalLM", ("glm4v_moe",), "glm4v_moe_text"
    ),
    "GlmOcrForConditionalGeneration": Wrapper("Glm4ForCausalLM", ("glm_ocr",), "glm_ocr_text"),
    "Granite4VisionForConditionalGeneration": Wrapper("GraniteForCausalLM", ("granite4_vision",)),
    "GraniteSpeechForConditionalGeneration": Wrapper("GraniteForCausalLM", ("granite_speech",)),
    "GraniteSpeechPlusForConditionalGeneration": Wrapper(
        "GraniteForCausalLM", ("granite_speech_plus",)
    ),
    "H2OVLChatModel": Wrapper("MistralForCausalLM", ("h2ovl_chat",)),
    "Idefics3ForConditionalGeneration": Wrapper("LlamaForCausalLM", ("idefics3",)),
    "InternS1ForConditionalGeneration": Wrapper("Qwen3ForCausalLM", ("interns1",)),
    "InternVLChatModel": Wrapper("Qwen2ForCausalLM", ("internvl_chat",)),
    "InternVLForConditionalGeneration": Wrapper("Qwen2ForCausalLM", ("internvl",)),
    "KimiK25ForConditionalGeneration": Wrapper("DeepseekV3ForCausalLM", ("kimi_k25",)),
    "KimiK3ForConditionalGeneration": Wrapper("KimiLinearForCausalLM", ("kimi_k3",)),
    "KimiVLForConditionalGeneration": Wrapper("DeepseekV3ForCausalLM", ("kimi_vl",)),
    "Lfm2VlForConditionalGeneration": Wrapper("Lfm2ForCausalLM", ("lfm2-vl", "lfm2_vl")),
    "LightOnOCRForConditionalGeneration": Wrapper("Qwen3ForCausalLM", ("lighton_ocr",)),
    "Llama4ForConditionalGeneration": Wrapper("Llama4ForCausalLM", ("llama4",)),
    "Llama_Nemotron_Nano_VL": Wrapper("LlamaForCausalLM", ("Llama_Nemotron_Nano_VL",)),
    "LlavaForConditionalGeneration": Wrapper("LlamaForCausalLM", ("llava",)),
    "LlavaLlamaForCausalLM": Wrapper("LlamaForCausalLM", ("llava", "llava_llama")),
    "LlavaNextForConditionalGeneration": Wrapper("LlamaForCausalLM", ("llava_next",)),
    "LlavaNextVideoForConditionalGeneration": Wrapper("LlamaForCausalLM", ("llava_next_video",)),
    "LlavaOnevisionForConditionalGeneration": Wrapper("Qwen2ForCausalLM", ("llava_onevision",)),
    "MiniCPMO": Wrapper("Qwen2ForCausalLM", ("minicpmo",)),
    "MiniCPMV": Wrapper("Qwen2ForCausalLM", ("minicpmv",)),
    "MiniMaxM3SparseForConditionalGeneration": Wrapper(
        "MiniMaxM3SparseForCausalLM", ("minimax_m3_vl",)
    ),
    "Mistral3ForConditionalGeneration": Wrapper("MistralForCausalLM", ("mistral3",)),
    "NVLM_D": Wrapper("Qwen2ForCausalLM", ("NVLM_D",)),
    "NemotronH_Nano_Omni_Reasoning_V3": Wrapper(
        "NemotronHForCausalLM", ("NemotronH_Nano_Omni_Reasoning_V3",)
    ),
    "NemotronH_Super_Omni_Reasoning_V3": Wrapper(
        "NemotronHForCausalLM", ("NemotronH_Super_Omni_Reasoning_V3",)
    ),
    "NemotronH_Nano_VL_V2": Wrapper("NemotronHForCausalLM", ("NemotronH_Nano_VL_V2",)),
    "Ovis": Wrapper("Qwen2ForCausalLM", ("ovis",)),
    "Ovis2_5": Wrapper("Qwen3ForCausalLM", ("ovis2_5",)),
    "PaliGemmaForConditionalGeneration": Wrapper("GemmaForCausalLM", ("paligemma",)),
    "Phi3VForCausalLM": Wrapper("Phi3ForCausalLM", ("phi3_v",)),
    "Phi4MMForCausalLM": Wrapper("Phi3ForCausalLM", ("phi4mm",)),
    "PixtralForConditionalGeneration": Wrapper("MistralForCausalLM", ("pixtral",)),
    "Qwen2AudioForConditionalGeneration": Wrapper("Qwen2ForCausalLM", ("qwen2_audio",)),
    "Qwen2VLForConditionalGeneration": Wrapper("Qwen2ForCausalLM", ("qwen2_vl",), "qwen2_vl_text"),
    "Qwen2_5_VLForConditionalGeneration": Wrapper(
        "Qwen2ForCausalLM", ("qwen2_5_vl",), "qwen2_5_vl_text"
    ),
    "Qwen2_5OmniForConditionalGeneration": Wrapper(
        "Qwen2ForCausalLM", ("qwen2_5_omni",), "qwen2_5_omni_text"
    ),
    "Qwen2_5OmniModel": Wrapper("Qwen2ForCausalLM", ("qwen2_5_omni",), "qwen2_5_omni_text"),
    "Qwen3OmniMoeForConditionalGeneration": Wrapper(
        "Qwen3MoeForCausalLM", ("qwen3_omni_moe",), "qwen3_omni_moe_text"
    ),
    "Qwen3VLForConditionalGeneration": Wrapper("Qwen3VLTextForCausalLM", ("qwen3_vl",)),
    "Qwen3VLMoeForConditionalGeneration": Wrapper("Qwen3VLMoeTextForCausalLM", ("qwen3_vl_moe",)),
    "Qwen3_5ForConditionalGeneration": Wrapper("Qwen3_5ForCausalLM", ("qwen3_5",), "qwen3_5_text"),
    "Qwen3_5MoeForConditionalGeneration": Wrapper(
        "Qwen3_5MoeForCausalLM", ("qwen3_5_moe",), "qwen3_5_moe_text"
    ),
    "SkyworkR1VChatModel": Wrapper("Qwen2ForCausalLM", ("skywork_chat",)),
    "SmolVLMForConditionalGeneration": Wrapper("LlamaForCausalLM", ("smolvlm",)),
    "Step3VLForConditionalGeneration": Wrapper("Step3TextForCausalLM", ("step3_vl",)),
    "Step3p7ForConditionalGeneration": Wrapper("Step3p5ForCausalLM", ("step3p7",)),
    "UltravoxModel": Wrapper("LlamaForCausalLM", ("ultravox",)),
    "VoxtralForConditionalGeneration": Wrapper("LlamaForCausalLM", ("voxtral",)),
}
"""vLLM 0.33.0 vllm/model_executor/models/registry.py."""

_EMBEDS: Final = "keeps no KV cache: it embeds, and does not generate"
_RANKS: Final = "keeps no KV cache: it ranks or rewards, and does not generate"
REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("BertModel", "RobertaModel", "XLMRobertaModel", "ModernBertModel", "NomicBertModel"),
        _EMBEDS,
    ),
    **dict.fromkeys(("GteModel", "GteNewModel", "JinaEmbeddingsV5Model", "CLIPModel"), _EMBEDS),
    **dict.fromkeys(
        ("CLIPVisionModelWithProjection", "SiglipModel", "EmbeddingGemma2Model"), _EMBEDS
    ),
    **dict.fromkeys(
        ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model", "PhiModel"), _EMBEDS
    ),
    **dict.fromkeys(("Gemma2Model", "Gemma3TextModel", "LlamaBidirectionalModel"), _EMBEDS),
    **dict.fromkeys(
        tuple(
            f"{name}ForSequenceClassification"
            for name in ("Bert", "Llama", "Qwen2", "Qwen3", "Roberta", "XLMRoberta", "ModernBert")
        ),
        _RANKS,
    ),
    **dict.fromkeys(
        ("InternLM2ForRewardModel", "Qwen2ForRewardModel", "Qwen2ForProcessRewardModel"), _RANKS
    ),
    "MllamaForConditionalGeneration": "has layers that keep the image's keys and values, which no current engine "
    "release runs",
    "NemotronHPuzzleForCausalLM": "gives each layer its own shape in block_configs, which we do not count",
}
"""Architectures we know of and whose memory we do not count."""
