"""What does a config.json say about a model?

Which layer keeps what is the subject of hf_families and the layouts behind it; here are the other
fields and the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plimsoll.facts.hf_families import Known, architecture_of, known, text_config
from plimsoll.facts.hf_fields import Config, Fields, NotUnderstoodError
from plimsoll.facts.hf_quantization import kv_dtype_of, quantization_of
from plimsoll.facts.hf_shapes import Layer
from plimsoll.facts.hf_sizes import (
    draft_layers,
    expert_count,
    expert_width,
    experts_per_token,
    feed_forward_width,
    longest,
    pass_over_sizes,
    query_heads,
    stream_width,
    vocabulary,
)
from plimsoll.facts.hf_vocabulary import unread
from plimsoll.facts.model import KvGroup, ModelFacts, UnknownLayout, Weights
from plimsoll.facts.source import Provenance

WAY_OUT: Final = (
    "Give the layout yourself in model.facts, or choose a model whose layout we know; "
    "nothing is guessed."
)


def model_facts(
    config: Config,
    *,
    id: str,  # noqa: A002 - the record's own word
    weights: Weights,
    provenance: Provenance,
    whole: bool = True,
) -> ModelFacts | UnknownLayout:
    """The facts behind a config.json, with weights counted elsewhere, or what is not understood.

    `whole` False: these are a few fields of a config.json; what is left out is unknown, and not the
    value of its class.
    """
    architecture = architecture_of(config)
    try:
        model = known(config, whole=whole)
        f = model.fields
        _refuse_both_directions(model)
        layers = model.family.layout(f)
        experts = expert_count(f)
        pass_over_sizes(f)
        return ModelFacts(
            id=id,
            architecture=architecture,
            layers=len(layers),
            hidden_size=stream_width(f),
            intermediate_size=feed_forward_width(f, experts),
            attention_heads=query_heads(f),
            vocab_size=vocabulary(f),
            max_position_embeddings=longest(f),
            dtype=_dtype(config),
            quantization=quantization_of(config),
            kv_groups=_merged(layers),
            weights=weights,
            experts=experts,
            experts_per_token=experts_per_token(f) if experts else 0,
            expert_width=expert_width(f) if experts else 0,
            tied_embeddings=_is_tied(model),
            draft_layers=draft_layers(f),
            kv_dtype=kv_dtype_of(config),
            prefix_lm=_is_prefix_lm(config, f),
            soft_capped=bool(f.value("attn_logit_softcapping")),
            multimodal=model.is_wrapped,
            encoder_tokens=f.count("max_source_positions"),
            unread=_unread(model),
            provenance=provenance,
        )
    except NotUnderstoodError as reason:
        return UnknownLayout(architecture=architecture, message=f"{id}: {reason} {WAY_OUT}")


def kv_groups(config: Config) -> tuple[KvGroup, ...]:
    """Layers by layout, first layer's layout first. Raises NotUnderstoodError in one sentence."""
    model = known(config)
    _refuse_both_directions(model)
    groups = _merged(model.family.layout(model.fields))
    pass_over_sizes(model.fields)
    _unread(model)
    return groups


def replicated_bytes(config: Config) -> int:
    """Bytes of the weights that every tensor-parallel rank holds whole, counted from the shape.

    Norms, routers and MLA down-projections at 16 bit (8 where the checkpoint is). Equal to what the
    ranks of vLLM 0.33.0 hold for dense models, Qwen3 MoE and Llama 4, within 0.05 % for GLM-4.5 and
    DeepSeek-V3 (biases and scales are left out). Tensor headers, where there are some, know better.
    Raises NotUnderstoodError.
    """
    model = known(config)
    f, family = model.fields, model.family
    layers, width = len(family.layout(f)), stream_width(f)
    latent, query_latent = f.count("kv_lora_rank"), f.count("q_lora_rank")
    norms = (family.norms * layers + 1) * width + layers * (latent + query_latent)
    if family.norms_heads and f.value("use_qk_norm") is not False:
        norms += layers * 2 * (f.count("head_dim") or width // query_heads(f))
    routers = (layers - f.count("first_k_dense_replace")) * expert_count(f) * width
    down = 0
    if latent:
        down = layers * width * (latent + query_latent + f.whole("qk_rope_head_dim"))
    quantization = quantization_of(config)
    down_bytes = 1 if quantization is not None and quantization.bits == 8 else 2
    return 2 * norms + family.router_bytes * routers + down_bytes * down


def _merged(layers: Sequence[Layer]) -> tuple[KvGroup, ...]:
    """One group per shape, in order of first layer; which layers only where they are not all alike."""
    at: dict[KvGroup, list[int]] = {}
    for index, layer in enumerate(layers):
        for group in layer:
            at.setdefault(group, []).append(index)
    if not at:
        raise NotUnderstoodError("no layer keeps anything.")
    if len(at) == 1:
        ((group, indices),) = at.items()
        is_everywhere = set(indices) == set(range(len(layers)))
        return (_placed(group, indices, () if is_everywhere else indices),)
    return tuple(_placed(group, indices, indices) for group, indices in at.items())


def _placed(group: KvGroup, indices: Sequence[int], at: Sequence[int]) -> KvGroup:
    return group.model_copy(update={"layers": len(indices), "at": tuple(at)})


def _refuse_both_directions(model: Known) -> None:
    for part in (*model.around, model.fields):
        if part.value("is_causal") is False:
            raise NotUnderstoodError(
                f"{part.where}is_causal is False: it embeds or ranks, and keeps no KV cache."
            )
    direction = model.fields.value("use_bidirectional_attention")
    if direction not in (None, False, "vision"):
        raise NotUnderstoodError(
            f"{model.fields.where}use_bidirectional_attention is {direction!r}: tokens see each other in both "
            "directions, which we do not count."
        )


def _unread(model: Known) -> tuple[str, ...]:
    """Also refuses what the parts around the language model say otherwise than it does."""
    inside = model.fields
    for part in model.around:
        for name, value in part.rest():
            if name in inside.given and inside.given[name] == value:
                part.skip(name)
    return tuple(name for part in (*model.around, inside) for name in unread(part))


def _is_tied(model: Known) -> bool:
    """Whether the output projection is the embedding; the outermost part that says so decides."""
    for part in (*model.around, model.fields):
        if isinstance(given := part.given.get("tie_word_embeddings"), bool):
            return given
    return model.fields.value("tie_word_embeddings") is True


def _is_prefix_lm(config: Config, f: Fields) -> bool:
    """vLLM 0.33.0 vllm/transformers_utils/model_arch_config_convertor.py."""
    if isinstance(given := config.get("is_mm_prefix_lm"), bool):
        return given
    if config.get("model_type") in ("gemma3", "paligemma", "bagel", "molmo2", "moondream3"):
        return True
    return bool(f.value("use_bidirectional_attention") == "vision")


def _dtype(config: Config) -> str:
    """The dtype that vLLM computes in; float32 checkpoints run in 16 bit (vllm/config/model.py).

    Raises NotUnderstoodError for one that no engine computes in.
    """
    for part in (config, text_config(config)):
        for name in ("dtype", "torch_dtype"):
            if (found := part.get(name)) is None:
                continue
            dtype = _DTYPES.get(str(found).removeprefix("torch."))
            if dtype is None:
                raise NotUnderstoodError(
                    f"{name} is {found!r}; it must be bfloat16, float16 or float32."
                )
            return dtype
    return "bfloat16"


_DTYPES: Final = {
    "auto": "bfloat16",
    "bfloat16": "bfloat16",
    "float": "bfloat16",
    "float16": "float16",
    "float32": "bfloat16",
    "half": "float16",
}
"""By the name in a config: what is computed in."""
