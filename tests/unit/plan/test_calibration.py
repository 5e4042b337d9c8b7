"""What is learnt from a pool's size, and how far does a plan believe it?"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worlds
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.engines.vllm import kv
from plimsoll.facts.source import Confidence
from plimsoll.plan.calibration import (
    LEAST_SHARE,
    PLAUSIBLE,
    CalibrationKey,
    Measurement,
    merged,
    problem_of,
)
from plimsoll.plan.calibration_reading import reading_of
from plimsoll.plan.calibration_text import MOST_ENTRIES, SCHEMA, calibration_of, text_of
from plimsoll.plan.paged_ask import calibration_key, prepare
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, PlanRequest, Refusal
from plimsoll.plan.reported import EngineReport
from plimsoll.plan.verify import Geometry, geometry_of

GIB = 1 << 30
INSIDE = (ByteOwner.ACTIVATION, ByteOwner.COLLECTIVES, ByteOwner.GRAPHS)
DAY = "2026-11-30T00:00:00Z"


def _planned(request: PlanRequest) -> tuple[Plan, Geometry]:
    found = plan(request)
    assert isinstance(found, Plan), found
    geometry = geometry_of(request, found)
    assert geometry is not None
    return found, geometry


def _taken(found: Plan, owners: tuple[ByteOwner, ...] = INSIDE) -> int:
    return sum(found.line(owner) for owner in owners)


def _report(found: Plan, geometry: Geometry, rest_bytes: int, **changes: Any) -> EngineReport:
    """What an engine says that takes `rest_bytes` beside weights and pool: vLLM's own sum."""
    assert found.gpu_memory_utilization is not None
    usable = found.card_bytes - found.line(ByteOwner.DRIVER)
    requested = math.ceil(usable * found.gpu_memory_utilization)
    pool = requested - found.line(ByteOwner.WEIGHTS) - rest_bytes
    report = EngineReport(
        EngineName.VLLM,
        blocks=pool // geometry.block_bytes,
        block_tokens=geometry.block_tokens,
        utilization=found.gpu_memory_utilization,
    )
    return report._replace(**changes)


def _learnt(request: PlanRequest, rest_share: float) -> Measurement:
    found, geometry = _planned(request)
    report = _report(found, geometry, int(_taken(found) * rest_share))
    reading = reading_of(found, request, report, geometry, at_text=DAY)
    assert isinstance(reading, Measurement), reading
    return reading


# ---- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest_share", [0.4, 0.9, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("request_", [worlds.eight_b_on_a_4090(), worlds.seventy_b_on_four_a6000()])
def test_the_rest_is_learnt_to_the_block_and_never_too_small(
    request_: PlanRequest, rest_share: float
) -> None:
    found, geometry = _planned(request_)
    rest = int(_taken(found) * rest_share)
    learnt = _learnt(request_, rest_share)
    assert 0 <= learnt.measured_bytes - rest < geometry.block_bytes
    assert learnt.bound_bytes == _taken(found)


def test_graphs_outside_the_share_are_not_learnt() -> None:
    """Before 0.18 the pool says nothing of graphs."""
    request = worlds.eight_b_on_a_4090(release="0.17.1")
    found, geometry = _planned(request)
    owners = INSIDE[:2]
    report = _report(found, geometry, _taken(found, owners))
    learnt = reading_of(found, request, report, geometry)
    assert isinstance(learnt, Measurement)
    assert learnt.bound_bytes == _taken(found, owners)
    again = plan(request._replace(calibration=(learnt,)))
    assert isinstance(again, Plan)
    graphs = {line.owner: line.confidence for line in again.ledger}[ByteOwner.GRAPHS]
    assert graphs is Confidence.BOUND


@pytest.mark.parametrize(
    "changes",
    [
        {"sized_by": "num_gpu_blocks_override"},
        {"sized_by": "kv_cache_memory_bytes"},
        {"engines": 2},
        {"utilization": 0.5},
        {"utilization": None},
        {"blocks": None},
        {"block_tokens": 32},
        {"block_tokens": None},
    ],
)
def test_nothing_is_learnt_from_what_hides_it(changes: dict[str, Any]) -> None:
    request = worlds.eight_b_on_a_4090()
    found, geometry = _planned(request)
    report = _report(found, geometry, _taken(found), **changes)
    assert isinstance(reading_of(found, request, report, geometry), str)


@pytest.mark.parametrize("rest_share", [-0.1, 0.0, PLAUSIBLE[0] / 2, PLAUSIBLE[1] * 1.1])
def test_nothing_is_learnt_from_what_cannot_be(rest_share: float) -> None:
    request = worlds.eight_b_on_a_4090()
    found, geometry = _planned(request)
    report = _report(found, geometry, int(_taken(found) * rest_share))
    why = reading_of(found, request, report, geometry)
    assert isinstance(why, str)
    assert "facts of model or card are wrong" in why


def test_llama_server_teaches_nothing() -> None:
    request = worlds.eight_b_on_a_4090(
        engine=EngineName.LLAMA_CPP, release=None, gguf=worlds.gguf(worlds.EIGHT_B, "Q4_K_M")
    )
    found = plan(request)
    assert isinstance(found, Plan)
    report = EngineReport(EngineName.LLAMA_CPP, slots=8, slot_tokens=8192)
    assert isinstance(reading_of(found, request, report, None), str)


# ---- using ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest_share", [0.76, 0.9, 1.2, 1.8])
def test_a_later_plan_promises_what_that_engine_holds(rest_share: float) -> None:
    request = worlds.eight_b_on_a_4090()
    found, geometry = _planned(request)
    report = _report(found, geometry, int(_taken(found) * rest_share))
    again, _ = _planned(request._replace(calibration=(_learnt(request, rest_share),)))
    assert report.blocks is not None
    held = (report.blocks - kv.NULL_BLOCKS) * geometry.block_tokens
    assert 0 <= held - again.kv.pool_tokens <= 2 * geometry.block_tokens
    assert {Confidence.MEASURED} == {
        line.confidence for line in again.ledger if line.owner in INSIDE
    }
    assert again.card_bytes == sum(line.bytes for line in again.ledger)


@settings(deadline=None, max_examples=60)
@given(st.floats(PLAUSIBLE[0] * 1.01, PLAUSIBLE[1] * 0.99), st.integers(1, 256))
def test_no_calibration_takes_more_than_its_margin_off_the_bounds(
    rest_share: float, concurrency: int
) -> None:
    request = worlds.seventy_b_on_four_a6000(lanes=(), max_model_len=2048)
    one = Measurement(_key(request), int(GIB * rest_share), GIB)
    asked = request._replace(concurrency=concurrency)
    plain = plan(asked)
    again = plan(asked._replace(calibration=(one,)))
    if isinstance(plain, Refusal) or isinstance(again, Refusal):
        return
    assert _taken(again) >= LEAST_SHARE * _taken(plain)
    assert abs(_taken(again) - max(rest_share, LEAST_SHARE) * _taken(plain)) <= 3


def _key(request: PlanRequest) -> CalibrationKey:
    ask = prepare(request)
    assert not isinstance(ask, Refusal)
    return calibration_key(ask)


@pytest.mark.parametrize("field", CalibrationKey._fields[:-1])
def test_another_key_is_not_used(field: str) -> None:
    request = worlds.eight_b_on_a_4090()
    key = _key(request)
    other: Any = key.cards + 1 if field == "cards" else "other"
    one = Measurement(key._replace(**{field: other}), GIB, GIB * 3 // 4)
    assert plan(request._replace(calibration=(one,))) == plan(request)


def test_facts_that_lie_about_weights_teach_only_themselves() -> None:
    request = worlds.eight_b_on_a_4090()
    assert request.model is not None
    weights = request.model.weights
    lying = request._replace(
        model=request.model.model_copy(
            update={
                "weights": weights.model_copy(update={"total_bytes": weights.total_bytes - GIB})
            }
        )
    )
    assert _key(lying) != _key(request)


def test_an_entry_out_of_bounds_changes_no_plan() -> None:
    request = worlds.eight_b_on_a_4090()
    for measured in (GIB * 4, GIB // 100, -GIB):
        one = Measurement(_key(request), measured, GIB)
        assert problem_of(one) is not None
        assert plan(request._replace(calibration=(one,))) == plan(request)


# ---- keeping -------------------------------------------------------------------------------------

KEY = CalibrationKey(
    "vllm", "0.22.1", "NVIDIA-L40S", "LlamaForCausalLM", "32x4096/1/2", 1, "kv=auto"
)


def test_of_two_the_larger_counts_and_their_numbers_add_up() -> None:
    one = Measurement(KEY, 3 * GIB, 4 * GIB, 2, "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z")
    other = Measurement(KEY, 5 * GIB, 5 * GIB, 1, "2026-10-01T00:00:00Z", "2026-10-01T00:00:00Z")
    expected = Measurement(KEY, 5 * GIB, 5 * GIB, 3, "2026-10-01T00:00:00Z", "2026-11-02T00:00:00Z")
    assert merged((one,), (other,)) == merged((other,), (one,)) == (expected,)


def test_what_is_written_is_read_again() -> None:
    many = tuple(
        Measurement(KEY._replace(gpu=f"gpu-{n}", extras="ab" * (n % 2)), GIB, GIB, n + 1, DAY, DAY)
        for n in range(5)
    )
    found = calibration_of(text_of(many[::-1]))
    assert found.measured == tuple(sorted(many))
    assert not found.warnings


def test_the_oldest_go_when_there_are_too_many() -> None:
    many = tuple(
        Measurement(KEY._replace(gpu=f"gpu-{n:04}"), GIB, GIB, until=f"2026-01-01T00:{n:05}")
        for n in range(MOST_ENTRIES + 10)
    )
    text = text_of(many)
    assert calibration_of(text).measured == many[10:]
    assert len(text.encode()) < 1 << 20


def test_a_poisoned_entry_is_ignored_with_a_warning_and_the_others_count() -> None:
    good = Measurement(KEY, GIB, GIB, 1, DAY, DAY)
    raw = json.loads(text_of((good,)))
    for change in (
        {"measuredBytes": 1},
        {"measuredBytes": 1 << 60, "boundBytes": 1 << 60},
        {"measuredBytes": -GIB},
        {"measuredBytes": "1Gi"},
        {"measuredBytes": 1.5},
        {"boundBytes": 0},
        {"boundBytes": True},
        {"plans": 0},
        {"gpu": 7},
        {"gpu": "x" * 10_000},
        {"cards": None},
        {"flags": None},
    ):
        entry = raw["entries"][0] | {"release": "0.23.0"} | change
        found = calibration_of(json.dumps(raw | {"entries": [entry, *raw["entries"]]}))
        assert found.measured == (good,), change
        assert len(found.warnings) == 1, change
        assert "entries[0] is ignored" in found.warnings[0]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"schema": 2, "entries": []}', '{"schema": 1}', "[" * 100_000,
     '{"schema": 1, "entries": "' + "x" * 1_000_000 + '"}'],
)  # fmt: skip
def test_a_text_that_is_not_ours_is_not_believed_nor_written_over(text: str) -> None:
    found = calibration_of(text)
    assert found.measured == ()
    assert found.is_foreign
    assert found.warnings


@pytest.mark.parametrize("entry", [None, 7, [], "x", {}])
def test_an_entry_that_is_no_object_is_ignored(entry: Any) -> None:
    found = calibration_of(json.dumps({"schema": SCHEMA, "entries": [entry]}))
    assert (found.measured, len(found.warnings), found.is_foreign) == ((), 1, False)
