"""Which facts of the model does a plan go by?

Facts given in the object come first, then those of the ConfigMap that it names, then what an inspection
read from the files, then the catalogue's by the model's public identity. Contradictions are shown.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import yaml
from pydantic import ValidationError

from plimsoll.api.model_spec import InlineFacts
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.catalog.models import find_gguf, find_model
from plimsoll.facts.model import GgufFacts, ModelFacts, UnknownLayout
from plimsoll.plan.records import Reason, Refusal

MODEL: Final = "model"
GGUF: Final = "gguf"


class ReadFacts(NamedTuple):
    """What an inspection read from the files, as far as it did."""

    model: ModelFacts | None = None
    """As vLLM loads it."""
    gguf: GgufFacts | None = None
    """As llama.cpp loads it."""
    refused: Mapping[str, str] = MappingProxyType({})
    """By kind: the files were read, and no facts follow from them."""
    missing: str = ""
    """Why a model that nobody knows has no facts yet."""
    weighs: str = ""
    """Digest of facts that are heavier than those that went before; a plan made on those is made anew."""


class KnownModel(NamedTuple):
    """What is known of the model before any engine is asked."""

    model: ModelFacts | None = None
    """As vLLM loads it."""
    gguf: GgufFacts | None = None
    """As llama.cpp loads it."""
    model_refusal: Refusal | None = None
    """Why there are no facts for vLLM."""
    gguf_refusal: Refusal | None = None
    """Why there are no facts for llama.cpp."""
    notes: tuple[str, ...] = ()
    """Contradictions between sources."""


def known_model(
    spec: InferenceDeploymentSpec, facts_text: str | None, read: ReadFacts | None = None
) -> KnownModel:
    """Facts for both engines, or for each the reason why there are none."""
    given = _given(spec, facts_text)
    if isinstance(given, Refusal):
        return KnownModel(model_refusal=given, gguf_refusal=given)
    read = read or ReadFacts()
    catalogued = find_model(spec.model.id) if spec.model.id else None
    model, model_refusal = _model(spec, given, read, catalogued)
    gguf, gguf_refusal = _gguf(spec, given, read)
    return KnownModel(
        model=model,
        gguf=gguf,
        model_refusal=model_refusal,
        gguf_refusal=gguf_refusal,
        notes=tuple(_contradictions(given.model, catalogued)),
    )


def _given(spec: InferenceDeploymentSpec, facts_text: str | None) -> InlineFacts | Refusal:
    facts = spec.model.facts
    if facts is None:
        return InlineFacts()
    if facts.inline is not None:
        return facts.inline
    if facts.config_map is None:
        return InlineFacts()
    where = f"ConfigMap {facts.config_map.name}, key {facts.config_map.key}"
    if facts_text is None:
        return Refusal(
            reason=Reason.MODEL_UNKNOWN,
            message=f"spec.model.facts.configMap: {where} is not there; make it with "
            f"`plimsoll facts FOLDER --config-map {facts.config_map.name}`.",
        )
    try:
        return InlineFacts.model_validate(yaml.safe_load(facts_text))
    except (yaml.YAMLError, ValidationError) as error:
        first = str(error).splitlines()[0]
        return Refusal(
            reason=Reason.MODEL_UNKNOWN,
            message=f"spec.model.facts.configMap: {where} cannot be read as facts ({first}); make it "
            f"anew with `plimsoll facts FOLDER --config-map {facts.config_map.name}`.",
        )


def _model(
    spec: InferenceDeploymentSpec,
    given: InlineFacts,
    read: ReadFacts,
    catalogued: ModelFacts | UnknownLayout | None,
) -> tuple[ModelFacts | None, Refusal | None]:
    if given.model is None and MODEL in read.refused:
        return None, _refused(read.refused[MODEL])
    found = given.model or read.model or catalogued
    if isinstance(found, ModelFacts):
        return found, None
    if isinstance(found, UnknownLayout):
        return None, Refusal(reason=Reason.LAYOUT_UNKNOWN, message=found.message)
    name = spec.model.id or spec.model.name
    where = "spec.model.id" if spec.model.id else "spec.model"
    return None, Refusal(
        reason=Reason.MODEL_UNKNOWN,
        message=f"{where}: {name!r} is not in the catalogue; "
        + (
            read.missing
            or "give its facts under spec.model.facts, as `plimsoll facts FOLDER` prints them"
        )
        + ".",
    )


def _gguf(
    spec: InferenceDeploymentSpec, given: InlineFacts, read: ReadFacts
) -> tuple[GgufFacts | None, Refusal | None]:
    if given.gguf is not None:
        return given.gguf, None
    if GGUF in read.refused:
        return None, _refused(read.refused[GGUF])
    if read.gguf is not None:
        return read.gguf, None
    gguf = spec.model.gguf
    if gguf is None:
        return None, None
    if spec.model.id and gguf.quantization:
        found = find_gguf(spec.model.id, gguf.quantization)
        if found is not None:
            return found, None
    what = f"{spec.model.id or spec.model.name} as {gguf.quantization or 'a GGUF file'}"
    return None, Refusal(
        reason=Reason.MODEL_UNKNOWN,
        message=f"spec.model.gguf: {what} is not in the catalogue; "
        + (
            read.missing
            or "give its facts under spec.model.facts, as `plimsoll facts FILE.gguf` prints them"
        )
        + ".",
    )


def _refused(sentence: str) -> Refusal:
    return Refusal(reason=Reason.MODEL_SOURCE_UNUSABLE, message=sentence.removesuffix(".") + ".")


def _contradictions(
    given: ModelFacts | None, catalogued: ModelFacts | UnknownLayout | None
) -> Iterator[str]:
    if given is None or not isinstance(catalogued, ModelFacts):
        return
    pairs = (
        ("layers", given.layers, catalogued.layers),
        ("KV groups", given.kv_groups, catalogued.kv_groups),
        ("vocabulary", given.vocab_size, catalogued.vocab_size),
        ("weights in bytes", given.weights.total_bytes, catalogued.weights.total_bytes),
    )
    for what, ours, theirs in pairs:
        if ours != theirs:
            yield f"{what}: the facts given say {_short(ours)}, the catalogue {_short(theirs)}; the facts win"


def _short(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
