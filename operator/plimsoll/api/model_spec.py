"""Which model is served, where are its files, and who tells its facts?"""

from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from plimsoll.api.forms import (
    GgufType,
    GgufUri,
    ManifestError,
    ModelId,
    ModelUri,
    ObjectName,
    SecretKey,
    ServedName,
)
from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.facts.record import Record


class FactsConfigMap(Record):
    """A ConfigMap in the same namespace with facts of the model."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: SecretKey = "facts.yaml"
    """Key inside it; facts.yaml when left out."""


class InlineFacts(Record):
    """What `plimsoll facts` read from the model's files."""

    model: ModelFacts | None = None
    """The model as vLLM loads it."""
    gguf: GgufFacts | None = None
    """The GGUF file as llama.cpp loads it."""

    @model_validator(mode="after")
    def _no_negative_numbers(self) -> Self:
        for place, number in _numbers(self.model_dump(by_alias=True)):
            if number < 0:
                raise ManifestError(
                    f"{number} is below 0; copy the number from `plimsoll facts`", field=place
                )
        return self


def _numbers(value: object, place: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number inside, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{place}[{index}]")
    elif isinstance(value, int) and not isinstance(value, bool):
        yield place, value


class FactsSpec(Record):
    """Where the model's facts are from, instead of the catalogue."""

    inline: InlineFacts | None = None
    """The facts themselves."""
    config_map: FactsConfigMap | None = None
    """A ConfigMap that holds them."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.inline is None) == (self.config_map is None):
            raise ManifestError("needs one source of facts; write either inline or configMap")
        return self


class GgufSpec(Record):
    """The file that llama.cpp pools load."""

    uri: GgufUri
    """Where the file is: hf://org/name[@revision]/file.gguf, pvc://claim/folder/file.gguf,
    hostPath:///folder/file.gguf or oci://image#/file.gguf."""
    quantization: GgufType | None = None
    """Type of the file, e.g. Q6_K; lets the plan be made from the catalogue."""


class ModelSpec(Record):
    """The model that is served."""

    name: ServedName
    """Name by which clients ask for it, e.g. llama-3.3-70b."""
    id: ModelId | None = None
    """Public identity, e.g. meta-llama/Llama-3.3-70B-Instruct: lets the plan be made before any file
    was read."""
    uri: ModelUri | None = None
    """Where the folder is that vLLM pools load: hf://org/name[@revision], pvc://claim/folder,
    hostPath:///folder or oci://image[#/folder]."""
    gguf: GgufSpec | None = None
    """The file that llama.cpp pools load."""
    facts: FactsSpec | None = None
    """Facts that replace the catalogue's."""
