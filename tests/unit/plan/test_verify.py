"""Are an engine's own figures told apart from the plan's rightly?"""

from __future__ import annotations

from typing import Any

import pytest

import kv_rows
import worlds
from plimsoll.engines.base import EngineName, Release
from plimsoll.engines.vllm import kv
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, PlanRequest
from plimsoll.plan.reported import EngineReport
from plimsoll.plan.verify import (
    MORE_SHARE,
    SHORT_SHARE,
    Geometry,
    More,
    Outcome,
    Short,
    Unreadable,
    Verified,
    geometry_of,
    geometry_of_layout,
    verify,
)

SLIDING = "google/gemma-3-27b-it"


def _planned(request: PlanRequest) -> tuple[Plan, Geometry]:
    found = plan(request)
    assert isinstance(found, Plan), found
    geometry = geometry_of(request, found)
    assert geometry is not None
    return found, geometry


def _blocks(found: Plan, geometry: Geometry) -> int:
    return found.kv.pool_bytes_per_card // geometry.block_bytes


def _on_h100(model: str, **changes: object) -> PlanRequest:
    return worlds.eight_b_on_a_4090(
        gpu=worlds.card("h100-sxm"), model=worlds.model(model), cards=4, **changes
    )


def _report(found: Plan, geometry: Geometry, share: float, *, group_aware: bool) -> EngineReport:
    """What such an engine says when its pool has `share` of the planned blocks."""
    blocks = int(_blocks(found, geometry) * share)
    concurrency = blocks / geometry.sequence_blocks
    return EngineReport(
        EngineName.VLLM,
        blocks=blocks,
        block_tokens=geometry.block_tokens,
        tokens=int(concurrency * found.max_model_len) if group_aware else None,
        concurrency=concurrency if group_aware else None,
        utilization=found.gpu_memory_utilization,
    )


@pytest.mark.parametrize("group_aware", [True, False])
@pytest.mark.parametrize("model", [worlds.EIGHT_B, SLIDING, "openai/gpt-oss-20b"])
def test_the_planned_pool_is_verified_without_an_error(model: str, group_aware: bool) -> None:
    found, geometry = _planned(_on_h100(model, max_model_len=8192))
    outcome = verify(found, _report(found, geometry, 1, group_aware=group_aware), geometry)
    assert isinstance(outcome, Verified)
    assert outcome.compared.tokens.planned == outcome.compared.tokens.reported
    assert outcome.compared.sequences.planned == outcome.compared.sequences.reported
    assert outcome.compared.blocks is not None
    assert outcome.compared.blocks.error_percent == 0.0


@pytest.mark.parametrize(
    ("share", "kind"),
    [
        (0.5, Short),
        (1 - 2 * SHORT_SHARE, Short),
        (1 - SHORT_SHARE / 2, Verified),
        (1 + MORE_SHARE / 2, Verified),
        (1 + 2 * MORE_SHARE, More),
    ],
)
@pytest.mark.parametrize("group_aware", [True, False])
def test_noise_is_no_difference(share: float, kind: type[Outcome], group_aware: bool) -> None:
    found, geometry = _planned(worlds.eight_b_on_a_4090())
    outcome = verify(found, _report(found, geometry, share, group_aware=group_aware), geometry)
    assert isinstance(outcome, kind)


def test_blocks_times_block_size_is_no_capacity_of_a_hybrid() -> None:
    """Three quarters of Gemma 3's layers keep a window: its blocks hold more sequences than that product."""
    found, geometry = _planned(_on_h100(SLIDING, max_model_len=32_768))
    assert not geometry.is_plain
    report = _report(found, geometry, 1, group_aware=False)
    outcome = verify(found, report, geometry)
    assert isinstance(outcome, Verified)
    assert report.blocks is not None
    assert report.blocks * geometry.block_tokens != outcome.compared.tokens.reported


def test_the_engines_own_layout_counts_where_it_tells_it() -> None:
    """As many blocks as planned, but a sequence takes twice as many: half is held."""
    found, geometry = _planned(_on_h100(SLIDING, max_model_len=32_768))
    blocks = _blocks(found, geometry)
    concurrency = blocks / (2 * geometry.sequence_blocks)
    report = EngineReport(
        EngineName.VLLM, blocks=blocks, block_tokens=geometry.block_tokens,
        tokens=int(concurrency * found.max_model_len), concurrency=concurrency,
    )  # fmt: skip
    outcome = verify(found, report, geometry)
    assert isinstance(outcome, Short)
    assert outcome.compared.tokens.reported == pytest.approx(found.kv.pool_tokens / 2, rel=1e-3)


def test_other_blocks_of_one_kind_of_layers_hold_the_same() -> None:
    """The engine chose blocks of 32 tokens, so it has half as many."""
    found, geometry = _planned(worlds.eight_b_on_a_4090())
    blocks = (_blocks(found, geometry) - 1) // 2 + 1
    report = EngineReport(EngineName.VLLM, blocks=blocks, block_tokens=2 * geometry.block_tokens)
    outcome = verify(found, report, geometry)
    assert isinstance(outcome, Verified)
    assert outcome.compared.blocks is None


def test_other_blocks_of_several_kinds_of_layers_say_nothing() -> None:
    found, geometry = _planned(_on_h100(SLIDING, max_model_len=32_768))
    report = EngineReport(EngineName.VLLM, blocks=5000, block_tokens=3 * geometry.block_tokens)
    outcome = verify(found, report, geometry)
    assert isinstance(outcome, Unreadable)
    assert "several kinds of layers" in outcome.why


@pytest.mark.parametrize(
    "report",
    [
        EngineReport(EngineName.VLLM),
        EngineReport(EngineName.VLLM, tokens=4096, concurrency=2.0),
        EngineReport(EngineName.VLLM, blocks=9999, engines=2),
        EngineReport(EngineName.LLAMA_CPP, slots=8, slot_tokens=8192),
    ],
)
def test_what_is_not_said_is_never_verified(report: EngineReport) -> None:
    found, geometry = _planned(worlds.eight_b_on_a_4090())
    assert isinstance(verify(found, report, geometry), Unreadable)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.97])
@pytest.mark.parametrize("group_aware", [True, False])
@pytest.mark.parametrize("model", [worlds.EIGHT_B, SLIDING])
def test_a_plan_below_the_ceiling_is_verified_by_the_same_engine(
    model: str, group_aware: bool, share: float
) -> None:
    request = _on_h100(model, max_model_len=8192)
    found, geometry = _planned(request)
    report = _report(found, geometry, share, group_aware=group_aware)
    outcome = verify(found, report, geometry)
    assert isinstance(outcome, Short)
    lower = plan(request._replace(ceiling=outcome.ceiling))
    assert isinstance(lower, Plan)
    assert lower.kv.pool_tokens <= outcome.ceiling.tokens
    assert lower.concurrency.worst_case <= outcome.compared.sequences.reported
    assert isinstance(verify(lower, report, geometry_of(request, lower)), Verified)
    assert lower.card_bytes == sum(line.bytes for line in lower.ledger)


def _llama(**changes: object) -> tuple[PlanRequest, Plan]:
    request = worlds.eight_b_on_a_4090(
        engine=EngineName.LLAMA_CPP,
        release=None,
        gguf=worlds.gguf(worlds.EIGHT_B, "Q4_K_M"),
        **changes,
    )
    found = plan(request)
    assert isinstance(found, Plan), found
    return request, found


def test_slots_are_compared_to_the_token() -> None:
    _, found = _llama(max_model_len=8192, concurrency=4)
    exact = EngineReport(EngineName.LLAMA_CPP, slots=4, slot_tokens=8192)
    assert isinstance(verify(found, exact), Verified)
    assert isinstance(verify(found, exact._replace(slot_tokens=7936)), Short)
    assert isinstance(verify(found, exact._replace(slots=3)), Short)
    assert isinstance(verify(found, exact._replace(slots=5)), More)
    assert isinstance(verify(found, exact._replace(slot_tokens=None)), Unreadable)


def test_fewer_slots_than_asked_for_lower_the_next_plan() -> None:
    request, found = _llama(max_model_len=8192)
    report = EngineReport(EngineName.LLAMA_CPP, slots=2, slot_tokens=8192)
    assert found.concurrency.max_num_seqs > 2
    outcome = verify(found, report)
    assert isinstance(outcome, Short)
    lower = plan(request._replace(ceiling=outcome.ceiling))
    assert isinstance(lower, Plan)
    assert lower.concurrency.max_num_seqs == 2


def _rows() -> list[dict[str, Any]]:
    """Rows of vLLM's own planning code that differ in model, card and dtype alone."""
    usual = {"pp": 1, "dcp": 1, "block_size_flag": None, "hybrid_kv_cache_manager": True,
             "async_scheduling": True}  # fmt: skip
    return [
        row
        for row in kv_rows.ROWS
        if all(row[name] == value for name, value in usual.items())
        and "capacity" in row
        and row["label"] in ("base", "tp", "kv fp8", "device a100", "device 4090")
    ]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: str(row["id"]))
def test_blocks_alone_say_the_same_as_the_engines_own_words(row: dict[str, Any]) -> None:
    """What vLLM 0.33.0 makes of some memory, told in full and told as releases before 0.24 do."""
    major, _, minor = row["compute_capability"].partition(".")
    layout = kv.layout(
        kv_rows.model_of(row["config"]),
        cards=row["tp"],
        kv_dtype=row["kv_cache_dtype"],
        release=Release.of(row["vllm"]),
        max_model_len=row["max_model_len"],
        max_num_batched_tokens=row["max_num_batched_tokens"],
        capability=(int(major), int(minor)),
    )
    assert isinstance(layout, kv.PagedLayout)
    geometry = geometry_of_layout(layout, row["max_model_len"])
    any_plan, _ = _planned(worlds.eight_b_on_a_4090())
    for told in (each for each in row["capacity"] if not each.get("refused")):
        blocks = told["num_blocks"]
        usable = (blocks - 1) * row["max_model_len"] // geometry.sequence_blocks
        promised = any_plan.model_copy(
            update={
                "max_model_len": row["max_model_len"],
                "kv": any_plan.kv.model_copy(
                    update={
                        "pool_bytes_per_card": blocks * geometry.block_bytes,
                        "pool_tokens": usable,
                    }
                ),
            }
        )
        full = EngineReport(
            EngineName.VLLM,
            blocks=blocks,
            block_tokens=row["block_size"],
            tokens=told["kv_cache_size_tokens"],
            concurrency=told["max_concurrency"],
        )
        outcome = verify(promised, full, geometry)
        assert isinstance(outcome, Verified)
        assert (outcome.compared.tokens.planned, outcome.compared.tokens.reported) == (
            usable,
            usable,
        )
        old = verify(promised, full._replace(tokens=None, concurrency=None), geometry)
        assert isinstance(old, Verified)
        assert old.compared == outcome.compared
