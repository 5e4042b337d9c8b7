"""How many bytes of weights has a model of this shape, and how would ranks share them?

Counted from config.json alone, tensor by tensor, for families whose tensors we know; the headers of the
files, where there are some, know better (facts/safetensors.py). Tensors and their split are those of vLLM
0.33.0 model_executor/models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.facts import hf_towers
from plimsoll.facts.hf_feed_forward import (
    dense,
    experts,
    gemma4_feed_forward,
    nothing,
    offset,
    stepped,
    ungated,
)
from plimsoll.facts.hf_mixers import attention, delta, latent, mamba1, mamba2, mixed, nemotron
from plimsoll.facts.hf_parts import At, Family, Role, Shape, Tally
from plimsoll.facts.model import Weights
from plimsoll.facts.stored import stored

Config = Mapping[str, Any]


def counted_weights(config: Config, *, towers: bool = True) -> Weights | None:
    """The weights that the engine loads, split by how ranks share them; None for an unknown family.

    Without `towers` the language model alone (vLLM's --language-model-only). Raises NotUnderstoodError
    when a field that the family needs is missing.
    """
    shape = Shape.of(config)
    family = _FAMILIES.get(shape.architecture)
    store = stored(shape.quantization, shape.dtype)
    if family is None or store is None:
        return None
    tally = Tally(store)
    rows, width = shape.whole("vocab_size"), shape.whole("hidden_size")
    tally.values(Role.VOCABULARY, rows * width)
    if not shape.is_tied(default=family.tied):
        tally.values(Role.VOCABULARY, rows * width)
    tally.values(Role.REPLICATED, width)
    alike: dict[tuple[str, bool, int], Tally] = {}
    for layer in range(shape.layers):
        # what stays as it was may be named layer by layer, so these are each counted
        named = layer if store.kept else 0
        key = (shape.looks(layer), family.is_sparse(shape, layer), named)
        if (counted := alike.get(key)) is None:
            counted = alike[key] = Tally(store)
            at = At(shape, family, counted, layer)
            family.mixer(at)
            family.feed_forward(at)
            counted.values(Role.REPLICATED, family.norms * width)
        tally.add_layer(counted)
    if towers:
        hf_towers.count(config, tally)
    return tally.weights()


_PLAIN: Final = Family(mixer=attention, feed_forward=dense)
_QWEN2: Final = _PLAIN._replace(biased=True)
_QWEN3: Final = _PLAIN._replace(head_norms="head")
_MIXTRAL: Final = _PLAIN._replace(feed_forward=experts)
_QWEN3_MOE: Final = _PLAIN._replace(head_norms="head", feed_forward=experts, is_sparse=stepped)
_GEMMA3: Final = _PLAIN._replace(norms=4, head_norms="head")
_GEMMA4: Final = _PLAIN._replace(
    norms=4, head_norms="head", wide_full=True, feed_forward=gemma4_feed_forward
)
_DEEPSEEK: Final = _PLAIN._replace(mixer=latent, feed_forward=experts, corrected=True)
_QWEN3_NEXT: Final = _PLAIN._replace(
    mixer=mixed(delta),
    feed_forward=experts,
    is_sparse=stepped,
    head_norms="head",
    gated=True,
    shared_gate=True,
)
_QWEN3_5: Final = _PLAIN._replace(mixer=mixed(delta), head_norms="head", gated=True)
_LLAMA4: Final = _PLAIN._replace(feed_forward=experts, is_sparse=stepped, shared=1, tied=False)
_NEMOTRON: Final = _PLAIN._replace(mixer=nemotron, feed_forward=nothing, norms=1)

_FAMILIES: Final[Mapping[str, Family]] = {
    "ArceeForCausalLM": _PLAIN._replace(feed_forward=ungated),
    "CohereForCausalLM": _PLAIN._replace(norms=1),
    "Cohere2ForCausalLM": _PLAIN._replace(norms=1),
    "DeepseekV2ForCausalLM": _PLAIN._replace(mixer=latent, feed_forward=experts),
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "Exaone4ForCausalLM": _QWEN3,
    "Gemma2ForCausalLM": _PLAIN._replace(norms=4),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Glm4MoeForCausalLM": _PLAIN._replace(
        head_norms="head", feed_forward=experts, corrected=True, router_bytes=4
    ),
    "GlmMoeDsaForCausalLM": _DEEPSEEK,
    "GptOssForCausalLM": _PLAIN._replace(
        feed_forward=experts, biased=True, output_biased=True, sinks=True, expert_biased=True
    ),
    "GraniteForCausalLM": _PLAIN,
    "GraniteMoeForCausalLM": _MIXTRAL,
    "GraniteMoeHybridForCausalLM": _PLAIN._replace(mixer=mixed(mamba2), feed_forward=experts),
    "JambaForCausalLM": _PLAIN._replace(
        mixer=mixed(mamba1), feed_forward=experts, is_sparse=offset
    ),
    "KimiK25ForConditionalGeneration": _DEEPSEEK,
    "Llama4ForCausalLM": _LLAMA4,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "LlamaForCausalLM": _PLAIN,
    "MiniMaxM2ForCausalLM": _PLAIN._replace(
        head_norms="all", feed_forward=experts, corrected=True, router_bytes=4
    ),
    "Mistral3ForConditionalGeneration": _PLAIN,
    "MistralForCausalLM": _PLAIN,
    "MixtralForCausalLM": _MIXTRAL,
    "NemotronHForCausalLM": _NEMOTRON,
    "Olmo2ForCausalLM": _PLAIN._replace(head_norms="all"),
    "Olmo3ForCausalLM": _PLAIN._replace(head_norms="all"),
    "Phi3ForCausalLM": _PLAIN,
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2MoeForCausalLM": _MIXTRAL._replace(biased=True, is_sparse=stepped, shared_gate=True),
    "Qwen2VLForConditionalGeneration": _QWEN2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3MoeForCausalLM": _QWEN3_MOE,
    "Qwen3NextForCausalLM": _QWEN3_NEXT,
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3_MOE,
    "Qwen3_5ForConditionalGeneration": _QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_NEXT,
    "SeedOssForCausalLM": _PLAIN._replace(biased=True),
    "SmolLM3ForCausalLM": _PLAIN,
}
"""Architectures whose tensors we know."""
