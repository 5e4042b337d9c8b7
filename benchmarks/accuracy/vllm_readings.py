"""What would Plimsoll have said of start-ups of vLLM that people reported?

Any file in the format of tests/data/vllm_readings.json. Which figures a reading can be held against stands in
its `checks`; nothing here knows a reading by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy import reading_pool
from benchmarks.accuracy.named import model_of
from benchmarks.accuracy.reading_layout import EQUAL, capacity, pools_of
from benchmarks.accuracy.row import Check, Row, Verdict

from plimsoll.engines.vllm import defaults
from plimsoll.engines.vllm.pool import Fits, TooLong, fits, whole
from plimsoll.facts.model import ModelFacts
from plimsoll.units import GIB

Reading = Mapping[str, Any]

OVER: Final = 0.01
"""A pool this much above the engine's is a promise that would break."""
UNDER: Final = 0.08
"""A pool this much below wastes room."""
UNSTATED: Final = (
    "release, parallel size or tokens of a step may have been others: not all are stated"
)
CLOSES_GIB: Final = 0.1
"""Printed parts that miss the stated share by more belong to another share."""


def rows(path: Path) -> tuple[Row, ...]:
    """Every reading of the file, planned."""
    readings: list[Reading] = json.loads(path.read_text(encoding="utf-8"))["readings"]
    return tuple(_row(reading, readings) for reading in readings)


def _row(reading: Reading, readings: Sequence[Reading]) -> Row:
    model = model_of(reading.get("model"))
    asked = {str(name).partition("_")[0] for name in reading["checks"]}
    if _states_a_budget(reading):
        asked.add("budget")
    found = [
        check for name, plan in _CHECKS.items() if name in asked for check in plan(reading, model)
    ]
    if "slope" in asked:
        found.extend(_slope(reading, model, readings))
    architecture = reading.get("hf_architecture") or (
        model.architecture if isinstance(model, ModelFacts) else ""
    )
    return Row(
        id=str(reading["id"]),
        engine=" ".join(("vllm", str(reading.get("engine_version") or ""))).strip(),
        model=str(reading.get("model") or "not named"),
        architecture=str(architecture),
        card=str(reading.get("gpu") or "not named"),
        checks=tuple(found),
        reason="" if found else _why_nothing(reading, asked),
        source=str(reading.get("ref") or ""),
    )


def _why_nothing(reading: Reading, asked: set[str]) -> str:
    if not asked:
        return f"no check is asked of this reading: {reading.get('note') or 'no note'}"
    return f"nothing to compare for {', '.join(sorted(asked))}"


# --- the pool ---------------------------------------------------------------------------------------


def _states_a_budget(reading: Reading) -> bool:
    """Whether total, share, weights and KV memory stand there, and the printed parts agree with them."""
    said, share = reading["reported"], reading_pool.requested_bytes(reading)
    if share is None or said.get("weights_gib") is None or said.get("available_kv_gib") is None:
        return False
    parts = [said[key] for key in ("weights_gib", "available_kv_gib")]
    rest = [said.get(key) for key in ("activation_peak_gib", "non_torch_gib")]
    if None in rest:
        return True
    left = share / GIB - sum(parts) - sum(rest)
    graphs = said.get("cuda_graph_estimated_gib") or 0
    return bool(min(abs(left), abs(left - graphs)) <= CLOSES_GIB)


def _budget(reading: Reading, _: ModelFacts | str) -> list[Check]:
    reported = float(reading["reported"].get("available_kv_gib") or 0) * GIB
    what = "kv pool bytes per card"
    planned = reading_pool.planned(reading)
    if isinstance(planned, str):
        return [Check(what, None, reported, Verdict.NOT_PLANNED, planned)]
    pool, reason = planned
    if reported <= 0:
        verdict = Verdict.REFUSED_ALIKE if pool <= 0 else Verdict.OVER
        return [Check(what, float(max(pool, 0)), reported, verdict, reason)]
    error = pool / reported - 1
    if error > OVER:
        return [Check(what, float(pool), reported, Verdict.OVER, reason)]
    verdict = Verdict.UNDER if error < -UNDER else Verdict.WITHIN
    return [Check(what, float(max(pool, 0)), reported, verdict, reason)]


# --- tokens and concurrency -------------------------------------------------------------------------


def _near(what: str, planned: float, reported: float, reason: str = "") -> Check:
    """Within half a per cent."""
    if planned == reported:
        return Check(what, planned, reported, Verdict.EQUAL, reason)
    error = planned / reported - 1
    if abs(error) <= EQUAL:
        return Check(what, planned, reported, Verdict.WITHIN, reason)
    return Check(what, planned, reported, Verdict.OVER if error > 0 else Verdict.UNDER, reason)


def _rounding(reading: Reading) -> str:
    """What the printed digits of KV memory leave open."""
    memory = float(reading["reported"]["available_kv_gib"])
    digits = len(str(memory).partition(".")[2])
    return f"KV memory is printed to {0.5 * 10 ** -max(digits, 2) / memory:.2%}"


def _tokens(reading: Reading, model: ModelFacts | str) -> list[Check]:
    said, length = reading["reported"], reading.get("max_model_len")
    reported, what = said.get("kv_tokens"), "kv tokens"
    if reported is None and not (said.get("max_concurrency") and length):
        return []
    held = capacity(reading, model)
    if reported is None:
        reported = said["max_concurrency"] * length
    if isinstance(held, str):
        return [Check(what, None, float(reported), Verdict.NOT_PLANNED, held)]
    pool, holds = held
    if isinstance(holds, TooLong):
        # the engine counts the pool's tokens also where it goes on to refuse the length
        blocks = int(float(said["available_kv_gib"]) * GIB) // pool.fullest.block_bytes
        holds = fits(pool, pool.fullest, blocks)
    from_tokens = said.get("kv_tokens") is not None
    tokens = holds.tokens if from_tokens else holds.concurrency * float(length or 0)
    return [_near(what, float(tokens), float(reported), _rounding(reading))]


def _concurrency(reading: Reading, model: ModelFacts | str) -> list[Check]:
    said, length = reading["reported"], reading.get("max_model_len")
    reported, what = said.get("max_concurrency"), "max concurrency"
    if reported is None:
        return []
    held = capacity(reading, model)
    if not isinstance(held, str) and isinstance(held[1], Fits):
        planned = round(held[1].concurrency, 2)
        return [_near(what, planned, float(reported), _rounding(reading))]
    if said.get("kv_tokens") and length:
        reason = "printed tokens over max_model_len"
        return [_near(what, round(said["kv_tokens"] / length, 2), float(reported), reason)]
    reason = held if isinstance(held, str) else "we would refuse this length"
    return [Check(what, None, float(reported), Verdict.NOT_PLANNED, reason)]


def _slope(reading: Reading, model: ModelFacts | str, readings: Sequence[Reading]) -> list[Check]:
    """Tokens that a larger share of the same card gives, against the next smaller share of the sweep."""
    same = ("model", "gpu", "ref", "tp", "max_model_len", "max_num_seqs", "gpu_memory_gib_total")
    share, tokens = reading.get("gpu_memory_utilization"), reading["reported"].get("kv_tokens")
    smaller = [
        other
        for other in readings
        if all(other.get(key) == reading.get(key) for key in same)
        and other["reported"].get("kv_tokens")
        and (other.get("gpu_memory_utilization") or 1) < (share or 0)
    ]
    if tokens is None or not smaller:
        return []
    other = max(smaller, key=lambda each: float(each["gpu_memory_utilization"]))
    reported = float(tokens - other["reported"]["kv_tokens"])
    what, pools = "kv tokens of a step in utilization", pools_of(reading, model)
    if isinstance(pools, str):
        return [Check(what, None, reported, Verdict.NOT_PLANNED, pools)]
    total = float(reading["gpu_memory_gib_total"]) * GIB
    step = total * (float(share or 0) - float(other["gpu_memory_utilization"]))
    stage, length = pools[0].fullest, pools[0].ask.max_model_len
    planned = step / stage.block_bytes / stage.blocks(length) * length
    return [_near(what, planned, reported, f"against {other['id']}")]


# --- whether it starts ------------------------------------------------------------------------------


def _outcome(reading: Reading, model: ModelFacts | str) -> list[Check]:
    said = str(reading["reported"].get("outcome") or "")
    what = "outcome"
    if not re.match(r"refused|started", said):
        reason = f"not a refusal at the KV check: {said or 'nothing stated'}"
        return [Check(what, None, None, Verdict.NOT_PLANNED, reason)]
    starts, reason = _would_start(reading, model)
    if starts is None:
        return [Check(what, None, None, Verdict.NOT_PLANNED, reason)]
    if said.startswith("started"):
        return [Check(what, 1, 1, Verdict.EQUAL if starts else Verdict.WRONG, reason)]
    if starts:
        return [Check(what, 1, 0, Verdict.WRONG, reason)]
    return [Check(what, 0, 0, Verdict.REFUSED_ALIKE, reason), *_needs(reading, model)]


def _would_start(reading: Reading, model: ModelFacts | str) -> tuple[bool | None, str]:
    """From the KV memory that is stated, else from the printed tokens, else from our own plan."""
    said, length = reading["reported"], reading.get("max_model_len")
    memory = said.get("available_kv_gib")
    if memory is not None and memory <= 0:
        return False, "no KV memory is left"
    if memory is not None and not isinstance(held := capacity(reading, model), str):
        return isinstance(held[1], Fits), "for the stated KV memory"
    if (needed := said.get("needed_gib")) is not None and memory is not None:
        return needed <= memory, "stated need against stated KV memory; the model is not known"
    if said.get("kv_tokens") is not None and (length or isinstance(model, ModelFacts)):
        longest = length or (model.max_position_embeddings if isinstance(model, ModelFacts) else 0)
        return said["kv_tokens"] >= longest, "printed tokens against the length"
    return _plan_starts(reading, model)


def _plan_starts(reading: Reading, model: ModelFacts | str) -> tuple[bool | None, str]:
    """With the share that is stated, or the release's own."""
    with_share = dict(reading)
    if reading.get("gpu_memory_utilization") is None:
        with_share["gpu_memory_utilization"] = max(
            defaults.utilization(release) for release in reading_pool.releases_of(reading)
        )
    planned = reading_pool.planned(with_share)
    if isinstance(planned, str):
        return None, planned
    if planned[0] <= 0:
        return False, "our plan leaves no KV memory"
    pools = pools_of(reading, model)
    if isinstance(pools, str):
        return None, pools
    return isinstance(whole(pools[0], planned[0]), Fits), "by our own plan of the pool"


def _needs(reading: Reading, model: ModelFacts | str) -> list[Check]:
    """The printed need of one sequence and the estimated length, where the report has them."""
    said = reading["reported"]
    needed, longest = said.get("needed_gib"), said.get("estimated_max_len")
    if needed is None and longest is None:
        return []
    held = capacity(reading, model)
    what = ("bytes of one request", "estimated max model len")
    if isinstance(held, str) or not isinstance(short := held[1], TooLong):
        reason = held if isinstance(held, str) else "we would not refuse"
        return [Check(what[0], None, needed * GIB if needed else None, Verdict.NOT_PLANNED, reason)]
    found = []
    if needed is not None:
        planned = short.needed_bytes / GIB
        if round(planned, max(1, len(str(needed).partition(".")[2]))) == needed:
            planned = needed
        reason = "" if planned == needed else UNSTATED
        found.append(_near(what[0], planned * GIB, needed * GIB, reason))
    if longest is not None:
        planned_length = float(short.estimated_max_model_len)
        found.append(_near(what[1], planned_length, float(longest), UNSTATED))
    return found


Plan = Callable[[Reading, "ModelFacts | str"], list[Check]]
_CHECKS: Final[Mapping[str, Plan]] = {
    "budget": _budget,
    "tokens": _tokens,
    "concurrency": _concurrency,
    "outcome": _outcome,
}
"""By the name in a reading's `checks`."""
