"""What would Plimsoll have said of llama.cpp's buffers on real cards, as people reported them?

Each reading says which figures it can be held against; the legend stands in its file. A model is known by its
public name or not at all, and then a figure that needs its shape is listed as not planned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy.named import model_of
from benchmarks.accuracy.row import Check, Row, Verdict

from plimsoll.catalog.models import find_gguf
from plimsoll.engines.llama_cpp.context import ServerContext, row_bytes, server_context
from plimsoll.engines.llama_cpp.memory import CUDA_CONTEXT_BYTES, POOL_RESERVE_BYTES
from plimsoll.engines.llama_cpp.placement import OUTPUT_FIRST_SINCE
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts
from plimsoll.units import MIB

Reading = Mapping[str, Any]

EQUAL: Final = 0.005
"""KV that is planned from shape and cells may miss the printed sum by this part."""
LARGEST_CARD_MIB: Final = 1024 * 1024
"""No card has a TiB: a request for more is a fault of the engine's own sum."""
_BUILD: Final = re.compile(r"^b(\d{4,6})$")


def rows(path: Path) -> tuple[Row, ...]:
    """Every reading of a file, in its order."""
    readings: Sequence[Reading] = json.loads(path.read_text(encoding="utf-8"))["readings"]
    return tuple(_row(reading, readings) for reading in readings)


def _row(reading: Reading, readings: Sequence[Reading]) -> Row:
    facts = _facts(reading)
    checks = [
        check for name in reading["checks"] for check in _CHECKS[name](reading, facts, readings)
    ]
    version = reading.get("engine_version")
    return Row(
        id=str(reading["id"]),
        engine=" ".join(part for part in (reading["engine"], version) if part),
        model=str(reading["model"]),
        architecture=facts.architecture if isinstance(facts, ModelFacts) else "",
        card=" + ".join(card["name"] for card in reading["gpus"]) or "none named",
        checks=tuple(checks),
        reason="" if checks else "the reading names nothing that it can be held against",
        source=str(reading["ref"]),
    )


def _facts(reading: Reading) -> ModelFacts | str:
    name = str(reading["model"])
    tries = (model_of(each) for each in (name, name.replace(" ", "-"), name.replace(":", "-")))
    found = list(tries)
    return next((each for each in found if isinstance(each, ModelFacts)), found[0])


def _missing(what: str, reported: float | None, reason: str) -> Check:
    return Check(what, None, reported, Verdict.NOT_PLANNED, reason)


# --- keys and values ---


def _context(reading: Reading) -> ServerContext | None:
    if not reading.get("ctx"):
        return None
    return server_context(
        ctx_size=reading["ctx"],
        slots=reading.get("slots") or 1,
        cache_type=reading.get("cache_type_k") or "f16",
        value_type=reading.get("cache_type_v") or reading.get("cache_type_k") or "f16",
        unified=not reading.get("slots"),
        ubatch_tokens=reading.get("ubatch") or 512,
        flash=reading.get("flash_attn") is not False,
    )


def _bytes_per_token(group: KvGroup, context: ServerContext) -> int:
    heads = 1 if group.kind is KvKind.MLA else group.kv_heads
    value = 0 if group.kind is KvKind.MLA else group.value_dim
    row = row_bytes(group.key_dim, context.key_type) + row_bytes(value, context.value_type)
    return group.layers * heads * row


def _kv(reading: Reading, facts: ModelFacts | str, _: Sequence[Reading]) -> Iterator[Check]:
    """From the shape where it is known; else the reading's own bytes per token times our cells."""
    context, reported = _context(reading), reading["reported"]
    total = reported.get("kv_total_mib")
    if context is None or total is None:
        yield _missing("kv MiB of all cards", total, "the context is not stated")
        return
    cells = context.cells_per_slot * context.streams
    per_token = reported.get("kv_bytes_per_token")
    if isinstance(facts, ModelFacts) and not any(g.kind is KvKind.SLIDING for g in facts.kv_groups):
        planned = sum(
            _bytes_per_token(group, context)
            for group in facts.kv_groups
            if group.state is None and group.kind is not KvKind.INDEXER
        )
        if per_token is not None and planned != per_token:
            yield _missing(
                "kv bytes per token",
                per_token,
                f"the public shape of {facts.id} has {planned}: another model of that name",
            )
        else:
            per_token = planned
    reason = "" if isinstance(facts, ModelFacts) else f"{facts}: the reading's own bytes per token"
    if per_token is None:
        yield _missing("kv MiB of all cards", total, reason or "the bytes per token are not stated")
        return
    yield _near("kv MiB of all cards", per_token * cells / MIB, total, reason)


def _near(
    what: str, planned: float, reported: float, reason: str = "", slack: float = 0.0
) -> Check:
    error = abs(planned - reported)
    if error <= max(slack, 0.006):
        return Check(what, planned, reported, Verdict.EQUAL, reason)
    if error <= EQUAL * reported:
        return Check(what, planned, reported, Verdict.WITHIN, reason)
    verdict = Verdict.OVER if planned < reported else Verdict.UNDER
    return Check(what, planned, reported, verdict, reason)


def _layers(reading: Reading) -> tuple[int, int] | None:
    """Blocks on cards, and blocks in all; the output counts as a layer, the first one in newer builds."""
    offloaded, total = reading.get("layers_offloaded"), reading.get("layers_total")
    if not offloaded or not total:
        return None
    build = _BUILD.match(str(reading.get("engine_version") or ""))
    is_new = build is not None and int(build[1]) >= int(OUTPUT_FIRST_SINCE[1:])
    blocks = total - 1
    return min(offloaded - 1 if is_new else offloaded, blocks), blocks


def _kv_split(reading: Reading, _: ModelFacts | str, __: Sequence[Reading]) -> Iterator[Check]:
    layers, devices = _layers(reading), reading["reported"]["devices"]
    held = sum(device.get("kv_mib", 0) for device in devices)
    rest = (reading["reported"].get("host") or {}).get("kv_mib", 0)
    if layers is None or not held:
        yield _missing(
            "kv MiB of the cards", held or None, "the layers on the cards are not stated"
        )
        return
    on_cards, blocks = layers
    yield _near("kv MiB of the cards", (held + rest) * on_cards / blocks, held, slack=0.02)


def _slope(
    reading: Reading, facts: ModelFacts | str, readings: Sequence[Reading]
) -> Iterator[Check]:
    """Growth of the context's column from the reading before to this one, per token."""
    alike = [r for r in readings if (r["model"], r["quant"], r["gpus"]) == _identity(reading)]
    points = sorted((r["ctx"], _context_mib(r)) for r in alike if r.get("ctx") and _context_mib(r))
    here = [index for index, point in enumerate(points) if point[0] == reading.get("ctx")]
    if len(points) < 2 or not here:
        yield _missing("context bytes per token", None, "no second reading of the same set-up")
        return
    first, second = points[max(here[0] - 1, 0)], points[max(here[0], 1)]
    tokens = second[0] - first[0]
    reported = (second[1] - first[1]) * MIB / tokens
    if not isinstance(facts, ModelFacts):
        yield _missing("context bytes per token", reported, facts)
        return
    context = server_context(ctx_size=1, slots=1)
    groups = [g for g in facts.kv_groups if g.state is None and g.window_tokens is None]
    planned = sum(_bytes_per_token(group, context) for group in groups)
    yield _near("context bytes per token", planned, reported, slack=MIB / tokens)


def _identity(reading: Reading) -> tuple[Any, Any, Any]:
    return reading["model"], reading["quant"], reading["gpus"]


def _context_mib(reading: Reading) -> float:
    devices = reading["reported"]["devices"]
    return sum(float(device.get("context_mib", device.get("kv_mib", 0))) for device in devices)


# --- weights, sums, what nobody prints ---


def _per_layer(reading: Reading, _: ModelFacts | str, __: Sequence[Reading]) -> Iterator[Check]:
    layers, devices = _layers(reading), reading["reported"]["devices"]
    held = sum(device.get("model_mib", 0) for device in devices)
    gguf = find_gguf(str(reading["model"]), str(reading.get("quant") or ""))
    if layers is None or not held:
        yield _missing("weights MiB of a layer", None, "the layers on the cards are not stated")
        return
    reported = held / layers[0]
    if gguf is None:
        yield _missing(
            "weights MiB of a layer",
            reported,
            "the file is not named closely enough to know its tensors",
        )
        return
    planned = sum(gguf.block_bytes[-layers[0] :]) / layers[0] / MIB
    yield _near("weights MiB of a layer", planned, reported)


def _sum(reading: Reading, _: ModelFacts | str, __: Sequence[Reading]) -> Iterator[Check]:
    devices, reported = reading["reported"]["devices"], reading["reported"]
    total = reported.get("projected_mib")
    parts = [device.get("used_mib") for device in devices]
    if total is None or not parts or None in parts:
        yield _missing("sum MiB of all cards", total, "the parts are not all stated")
        return
    yield _near("sum MiB of all cards", sum(parts), total, slack=float(len(parts)))


def _overhead(reading: Reading, _: ModelFacts | str, __: Sequence[Reading]) -> Iterator[Check]:
    """What the driver shows beyond the logged buffers, against what the plan keeps for it."""
    planned = (CUDA_CONTEXT_BYTES + POOL_RESERVE_BYTES) / MIB
    for device in reading["reported"]["devices"]:
        what = f"context and pools MiB of {device['device']}"
        found = _unlogged(device)
        if found is None:
            yield _missing(what, None, "the driver's figure is not stated")
            continue
        verdict = Verdict.WITHIN if found <= planned else Verdict.OVER
        yield Check(what, planned, found, verdict, "a bound: context, kernels and pools together")


def _unlogged(device: Mapping[str, float]) -> float | None:
    if "unaccounted_mib" in device:
        return device["unaccounted_mib"]
    used = device.get("driver_mib", device.get("used_mib"))
    parts = [device.get(f"{name}_mib", 0) for name in ("model", "kv", "context", "rs", "compute")]
    return None if used is None or not any(parts) else used - sum(parts)


def _outcome(reading: Reading, facts: ModelFacts | str, _: Sequence[Reading]) -> Iterator[Check]:
    reported = reading["reported"]
    asked = reported.get("requested_compute_mib")
    if asked is not None and asked > LARGEST_CARD_MIB:
        yield Check(
            "outcome", None, None, Verdict.REFUSED_ALIKE, f"{asked:,.0f} MiB are on no card"
        )
        return
    state, limit = reported.get("saved_state_mib"), reported.get("host_cache_limit_mib")
    if state is not None and limit is not None:
        yield _state(reading, facts, state, limit)
        return
    quant = str(reading.get("quant") or "")
    if find_gguf(str(reading["model"]), quant) is None:
        lacks = "the file is not named closely enough to know its tensors"
        yield _missing("outcome", None, facts if isinstance(facts, str) else lacks)
        return
    yield _missing("outcome", None, "what the cards had free is not stated")


def _state(reading: Reading, facts: ModelFacts | str, state: float, limit: float) -> Check:
    """A prompt that is larger than the cache's cap stands in host memory beside it while it is saved."""
    what = "kv MiB of one saved prompt"
    context, tokens = _context(reading), reading["reported"].get("saved_state_tokens")
    if not isinstance(facts, ModelFacts) or context is None or not tokens:
        reason = facts if isinstance(facts, str) else "its tokens are not stated"
        return _missing(
            what, state, f"{reason}; counted beside the cap of {limit:,.0f} MiB all the same"
        )
    planned = sum(
        _bytes_per_token(group, context) * min(tokens, _most_cells(group, context, tokens))
        for group in facts.kv_groups
    )
    return _near(what, planned / MIB, state)


def _most_cells(group: KvGroup, context: ServerContext, tokens: int) -> int:
    return tokens if group.window_tokens is None else context.sliding_cells(group.window_tokens)


Plans = Callable[[Reading, ModelFacts | str, Sequence[Reading]], Iterator[Check]]
_CHECKS: Final[Mapping[str, Plans]] = {
    "kv": _kv,
    "kv_split": _kv_split,
    "per_layer": _per_layer,
    "sum": _sum,
    "outcome": _outcome,
    "context_overhead": _overhead,
    "kv_slope": _slope,
    "context_slope": _slope,
}
