"""Which model does a report mean, when it names one in its own words?

By public identity first, then by the name without publisher, quantisation and tuning: an Instruct, FP8 or AWQ
build has the shape of its base, and a distilled model that of the model it was made from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy.peers.configs import CATALOGUE, config_of

from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.hf_weights import counted_weights
from plimsoll.facts.model import ModelFacts, UnknownLayout, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

OLDER: Final = Path(__file__).with_name("older_models.json")
"""Shapes of older models that public readings name and the catalogue does not carry."""

_TUNED: Final = re.compile(
    r"[-_ ](?:instruct|chat|it|base|hf|fp8|fp16|bf16|int4|int8|nvfp4|mxfp4|awq|gptq|bnb|exl3|autoround"
    r"|bitsandbytes|quantized|dynamic|w8a8|w4a16|[48]bit|v0\.\d|\d{4}|preview|qat|block|fp4|gguf)\b"
)
_BITS: Final = (
    (re.compile(r"int4|awq|gptq|bnb-4bit|nvfp4|mxfp4|fp4|4bit|w4a16|autoround", re.IGNORECASE), 4),
    (re.compile(r"fp8|int8|w8a8|8bit", re.IGNORECASE), 8),
)
_MADE_FROM: Final = (
    (re.compile(r"^deepseek-r1-distill-qwen-(1\.5b|7b|14b|32b)"), r"qwen2.5-\1"),
    (re.compile(r"^deepseek-r1-distill-llama-8b"), "llama-3.1-8b"),
    (re.compile(r"^deepseek-r1-distill-llama-70b"), "llama-3.3-70b"),
    (re.compile(r"^deepseek-r1-0528-qwen3-8b"), "qwen3-8b"),
    (re.compile(r"^cosyvoice2-0\.5b"), "qwen2.5-0.5b"),
    (re.compile(r"^meta-llama"), "llama"),
    (re.compile(r"^nvidia (nemotron .*)$"), r"nvidia-\1"),
)
"""The models' own cards say what they were made from."""


def model_of(name: str | None) -> ModelFacts | str:
    """Facts of a named model, or in one sentence why there are none."""
    if not name:
        return "the reading names no model"
    config = config_named(name)
    if config is None:
        return f"no public shape of {name} is in the catalogue"
    try:
        weights = counted_weights(config)
    except NotUnderstoodError:
        weights = None
    found = model_facts(
        config,
        id=name,
        weights=weights or Weights(total_bytes=0),
        provenance=Provenance(source=FactSource.CATALOGUE, confidence=Confidence.TABLE),
    )
    return found.message if isinstance(found, UnknownLayout) else found


def config_named(name: str) -> Mapping[str, Any] | None:
    """The config.json of a named model, as far as the catalogue carries it."""
    return config_of(name) or _by_short_name().get(short(name)) or _only_one(short(name))


def short(name: str) -> str:
    """A name without publisher, quantisation and tuning, in small letters."""
    plain, _, aside = name.rpartition("/")[2].lower().partition("(")
    if said := re.match(r"(\w+) class", aside):
        plain = f"{plain.strip()}-{said[1]}"
    plain = plain.strip()
    for pattern, base in _MADE_FROM:
        plain = pattern.sub(base, plain)
    while (cut := _TUNED.sub("", plain)) != plain:
        plain = cut
    return re.sub(r"[-_ ]+", "-", plain).strip("-")


def _only_one(plain: str) -> Mapping[str, Any] | None:
    """The one shape whose name goes on where this one ends: Nemotron 3 Nano is 30B-A3B."""
    found = [config for key, config in _by_short_name().items() if key.startswith(f"{plain}-")]
    shapes = {json.dumps(config, sort_keys=True) for config in found}
    return found[0] if len(shapes) == 1 else None


def bits_of(name: str | None) -> int | None:
    """Bits of a weight, as the name has it."""
    return next((bits for words, bits in _BITS if words.search(name or "")), None)


@cache
def every_model() -> tuple[ModelFacts, ...]:
    """All models of the catalogue that we understand, for what an unnamed one may be."""
    found = (model_of(row["id"]) for row in _catalogue())
    return tuple(model for model in found if isinstance(model, ModelFacts))


def _catalogue() -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = json.loads(CATALOGUE.read_text(encoding="utf-8"))["models"]
    return rows


@cache
def _by_short_name() -> Mapping[str, Mapping[str, Any]]:
    """The first row of each short name: the plain build stands before its quantised ones."""
    older = json.loads(OLDER.read_text(encoding="utf-8"))["models"]
    found: dict[str, Mapping[str, Any]] = {short(row["id"]): row["config"] for row in older}
    for row in reversed(_catalogue()):
        for name in (row["id"], *row.get("aliases", ())):
            if (config := config_of(row["id"])) is not None:
                found[short(name)] = config
    return found
