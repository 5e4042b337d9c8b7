"""What do we know of a public model before any of its files has been read?

data/models.json holds published shapes and sizes, data/ggufs.json the bytes of each block of common
quantisations. Facts read from the files themselves replace these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from plimsoll.facts.hf_config import model_facts, replicated_bytes
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.hf_weights import counted_weights
from plimsoll.facts.model import GgufFacts, ModelFacts, UnknownLayout, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

_DATA: Final = Path(__file__).with_name("data")


@cache
def find_model(model_id: str) -> ModelFacts | UnknownLayout | None:
    """Facts of a model by its public identity; letter case does not matter.

    UnknownLayout when the catalogue has the model but not all that a plan needs, with what lacks;
    None when it does not have the model.
    """
    known = _models().get(model_id.lower())
    if known is None:
        return None
    spelling, row = known
    config = _config_of(row)
    total_bytes = row.get("weightsBytes")
    base = row.get("shapeOf")
    refs = (f"shape of {base}" if base else None, row.get("configRef"), row.get("weightsRef"))
    found = model_facts(
        config,
        id=spelling,
        weights=Weights(total_bytes=total_bytes or 0),
        provenance=Provenance(
            source=FactSource.CATALOGUE,
            confidence=Confidence.TABLE,
            detail="; ".join(ref for ref in refs if ref),
        ),
        whole=False,
    )
    if isinstance(found, UnknownLayout):
        return found
    if total_bytes is None:
        return UnknownLayout(
            architecture=found.architecture,
            message=f"{found.id}: the layout is known, the size of the weights was not published. "
            "Read it from the files with `plimsoll facts`, or give it in model.facts.",
        )
    return found.model_copy(update={"weights": _split(config, total_bytes)})


NEAR: Final = 0.02
"""A count from the shape this near to the published size is the same checkpoint's, and splits it."""


def _split(config: Mapping[str, Any], total_bytes: int) -> Weights:
    """The published size, split by how ranks share it; rows do not all say whether embeddings are tied."""
    try:
        counted = counted_weights(config)
    except NotUnderstoodError:
        counted = None
    if counted is not None and "tie_word_embeddings" not in config:
        untied = counted.total_bytes + counted.vocabulary_bytes
        if abs(untied - total_bytes) < abs(counted.total_bytes - total_bytes):
            twice = {"vocabulary_bytes": 2 * counted.vocabulary_bytes, "total_bytes": untied}
            counted = counted.model_copy(update=twice)
    if counted is None or abs(counted.total_bytes / total_bytes - 1) > NEAR:
        return Weights(total_bytes=total_bytes, replicated_bytes=replicated_bytes(config))
    return counted.model_copy(update={"total_bytes": total_bytes})


def find_gguf(model_id: str, quantization: str) -> GgufFacts | None:
    """Facts of the usual GGUF of a model at a quantisation (Q6_K); letter case does not matter.

    None when nobody published enough to count its blocks: then the file itself must be read.
    """
    for row in _ggufs():
        names = {name.lower() for name in row["ids"]}
        if model_id.lower() in names and quantization.upper() == row["quantization"].upper():
            return _gguf_of(row, model_id)
    return None


def known_ids() -> tuple[str, ...]:
    """Every public identity of the catalogue, aliases included, in alphabetical order."""
    return tuple(sorted((spelling for spelling, _ in _models().values()), key=str.lower))


def nearest_ids(model_id: str) -> tuple[str, ...]:
    """Identities that somebody who wrote `model_id` may have meant, best first, at most five."""
    import difflib  # noqa: PLC0415 - only when something is wrong

    typed = model_id.lower()
    name = typed.rpartition("/")[2]
    inside = sorted((key for key in _models() if name and name in key), key=len)
    alike = difflib.get_close_matches(typed, _models(), n=5, cutoff=0.7)
    short = {key.rpartition("/")[2]: key for key in reversed(_models())}
    by_name = [short[found] for found in difflib.get_close_matches(name, short, n=5, cutoff=0.7)]
    return tuple(_models()[key][0] for key in dict.fromkeys((*inside, *alike, *by_name)))[:5]


def _config_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    base = row.get("shapeOf")
    return {**_models()[base.lower()][1]["config"], **row["config"]} if base else row["config"]


def _gguf_of(row: Mapping[str, Any], model_id: str) -> GgufFacts:
    facts = {key: value for key, value in row.items() if key not in {"ids", "blocks", "ref"}}
    return GgufFacts.model_validate(
        {
            **facts,
            "id": model_id,
            "blockBytes": [size for size, times in row["blocks"] for _ in range(times)],
            "provenance": {"source": "Catalogue", "confidence": "Table", "detail": row["ref"]},
        }
    )


@cache
def _models() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Identity in small letters: as it is spelt, and its row."""
    rows = _read("models.json")["models"]
    names = ((name, row) for row in rows for name in (row["id"], *row.get("aliases", ())))
    return {name.lower(): (name, row) for name, row in names}


@cache
def _ggufs() -> tuple[Mapping[str, Any], ...]:
    return tuple(_read("ggufs.json")["ggufs"])


def _read(name: str) -> Mapping[str, Any]:
    text = (_DATA / name).read_text(encoding="utf-8")
    read: Mapping[str, Any] = json.loads(text)
    return read
