"""Does the KV layout give the figures that vLLM's own planning code gives?

Reads any file in the format of tests/data/vllm_kv.json, with the models' configs beside it, and asks
`plimsoll kv` what a person would ask it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy.row import Check, Row, Verdict

from plimsoll.cli.exits import BadInputError
from plimsoll.cli.kv_answer import answer
from plimsoll.cli.kv_query import query
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import ModelFacts, UnknownLayout, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

GIB: Final = 1 << 30
SOURCE: Final = "vLLM's own planning code on the meta device"
_WHOLE: Final = (
    ("bytes per request", "bytesPerFullRequest", "bytes_per_full_request"),
    ("block bytes", "poolBytesPerBlock", "pool_bytes_per_block"),
    ("blocks of one", "blocksPerFullRequest", "blocks_per_full_request"),
    ("block size", "blockTokens", "block_size"),
)
"""What is compared once a row: in words, ours, the engine's; the first is what a row is known by."""


def rows(path: Path) -> tuple[Row, ...]:
    """Every row of the file, compared; refusals too."""
    models: dict[str, ModelFacts | UnknownLayout] = {}
    found = []
    for raw in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        name = raw["config"]
        if name not in models:
            models[name] = _model(path.parent / name)
        found.append(_row(raw, models[name]))
    return tuple(found)


def _model(path: Path) -> ModelFacts | UnknownLayout:
    return model_facts(
        json.loads(path.read_text(encoding="utf-8")),
        id=path.stem,
        weights=Weights(total_bytes=0),
        provenance=Provenance(source=FactSource.FILES, confidence=Confidence.EXACT),
    )


def _row(raw: Mapping[str, Any], model: ModelFacts | UnknownLayout) -> Row:
    checks, reason = _compared(raw, model)
    return Row(
        id=raw["id"],
        engine=f"vllm {raw['vllm']}",
        model=raw["model"],
        architecture=raw["architecture"][0],
        card=raw["device"],
        checks=checks,
        reason=reason,
        source=SOURCE,
    )


def _compared(
    raw: Mapping[str, Any], model: ModelFacts | UnknownLayout
) -> tuple[tuple[Check, ...], str]:
    if isinstance(model, UnknownLayout):
        return _refused(raw, model.message), ""
    try:
        asked = query(raw, {})
    except BadInputError as error:
        return _refused(raw, str(error)), ""
    found = answer(model, asked)
    if found.is_refused:
        return _refused(raw, found.data["refused"]), ""
    whole = [_equal(words, found.data[ours], raw[theirs]) for words, ours, theirs in _WHOLE]
    whole.append(_equal("groups", len(found.data["groups"]), len(raw["groups"])))
    capacity = [
        check
        for ours, theirs in zip(found.data["capacity"], raw["capacity"], strict=True)
        for check in _held(ours, theirs)
    ]
    return (*whole, *capacity), ""


def _refused(raw: Mapping[str, Any], why: str) -> tuple[Check, ...]:
    """A model or a question that we refuse, where the engine has a figure."""
    words, _, theirs = _WHOLE[0]
    return (Check(words, None, raw[theirs], Verdict.WRONG, reason=why),)


def _equal(what: str, planned: float, reported: float) -> Check:
    same = planned == reported
    return Check(what, planned, reported, Verdict.EQUAL if same else Verdict.WRONG)


def _held(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Check]:
    """What some memory holds: the same figures, or refused alike with the same longest request."""
    at = f"at {theirs['available_bytes'] / GIB:g} GiB"
    if "refused" in ours and "refused" in theirs:
        same = ours["estimatedMaxModelLen"] == theirs["estimated_max_model_len"]
        yield Check(
            f"longest request {at}",
            ours["estimatedMaxModelLen"],
            theirs["estimated_max_model_len"],
            Verdict.REFUSED_ALIKE if same else Verdict.WRONG,
        )
        return
    if "refused" in ours or "refused" in theirs:
        yield Check(
            f"concurrency {at}",
            ours.get("maxConcurrency"),
            theirs.get("max_concurrency"),
            Verdict.WRONG,
            reason="refused by " + ("the plan" if "refused" in ours else "the engine") + " alone",
        )
        return
    yield _equal(f"concurrency {at}", ours["maxConcurrency"], theirs["max_concurrency"])
    yield _equal(f"blocks of the pool {at}", ours["numBlocks"], theirs["num_blocks"])
    yield _equal(f"cache tokens {at}", ours["tokens"], theirs["kv_cache_size_tokens"])
