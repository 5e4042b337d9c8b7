"""What deaths taught, in a plan and in its ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import worlds
from plimsoll.engines.base import ByteOwner
from plimsoll.engines.vllm import memory
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, PlanRequest
from plimsoll.plan.steps import (
    HEADROOMS,
    NOTHING,
    SHARE_NOTCHES,
    Steps,
    settings_of,
    share_of,
    steps_of,
)
from plimsoll.units import GIB, MIB


def planned(request: PlanRequest, steps: Steps) -> Plan:
    outcome = plan(request._replace(steps=steps))
    assert isinstance(outcome, Plan), outcome
    assert outcome.card_bytes == sum(line.bytes for line in outcome.ledger)
    return outcome


EDGE = worlds.eight_b_on_a_4090()


def test_the_usual_headroom_is_the_planners_own() -> None:
    assert memory.HEADROOM_BYTES == HEADROOMS[0]
    assert 0.0 == SHARE_NOTCHES[0]
    assert len(HEADROOMS) == len(SHARE_NOTCHES)


@pytest.mark.parametrize("card", ["rtx-4090", "h100-sxm", "rtx-a6000"])
def test_a_reserve_comes_off_the_share_even_where_the_share_is_at_its_largest(card: str) -> None:
    request = EDGE._replace(gpu=worlds.card(card))
    before, after = planned(request, NOTHING), planned(request, Steps(reserve_bytes=GIB))
    kept = after.line(ByteOwner.HEADROOM) - before.line(ByteOwner.HEADROOM)
    assert kept == pytest.approx(GIB, rel=0.2)
    assert before.gpu_memory_utilization is not None
    assert after.gpu_memory_utilization is not None
    assert after.gpu_memory_utilization < before.gpu_memory_utilization


def test_memory_that_card_and_host_share_keeps_its_lower_ceiling() -> None:
    share = share_of(
        Steps(budget_notches=2),
        usable_bytes=120 * GIB, free_bytes=119 * GIB, largest_share=0.85, step=1000,
    )  # fmt: skip
    assert 0.88 == share


def test_what_the_engine_found_taken_is_in_the_ledger() -> None:
    before, after = planned(EDGE, NOTHING), planned(EDGE, Steps(found_bytes=2 * GIB))
    assert 2 * GIB == after.line(ByteOwner.ACTIVATION) - before.line(ByteOwner.ACTIVATION)
    (line,) = (each for each in after.ledger if each.owner is ByteOwner.ACTIVATION)
    assert "2.0 GiB that the engine found taken" in line.source


def test_what_others_held_at_start_is_theirs_in_the_ledger() -> None:
    after = planned(EDGE, Steps(held_bytes=3 * GIB))
    assert 3 * GIB == after.line(ByteOwner.OTHERS)
    more = EDGE.gpu.model_copy(update={"held_by_others_bytes": 4 * GIB})
    assert 4 * GIB == planned(EDGE._replace(gpu=more), Steps(held_bytes=3 * GIB)).line(
        ByteOwner.OTHERS
    )


def test_no_graphs_is_a_switch_and_no_bytes() -> None:
    after = planned(EDGE, Steps(largest_graph=0))
    assert 0 == after.line(ByteOwner.GRAPHS)
    assert "--enforce-eager" in after.args()
    assert "--max-cudagraph-capture-size" not in after.args()


def test_every_setting_but_a_plans_own_length_is_told_in_its_notes() -> None:
    for steps in (
        Steps(reserve_bytes=GIB), Steps(budget_notches=1), Steps(held_bytes=GIB), Steps(max_num_seqs=2),
        Steps(max_num_batched_tokens=1024), Steps(largest_graph=4), Steps(largest_graph=0),
        Steps(host_bytes=GIB), Steps(max_model_len=4096),
    ):  # fmt: skip
        notes = planned(EDGE, steps).notes
        assert any(
            "since a worker" in n or "a worker found" in n or "a worker died" in n for n in notes
        )


@given(
    st.builds(
        Steps,
        reserve_bytes=st.integers(0, 4 * GIB), budget_notches=st.integers(0, 2),
        largest_graph=st.integers(-1, 512), host_bytes=st.integers(0, 64 * GIB),
    )
)  # fmt: skip
def test_settings_are_read_back_as_they_were_told(steps: Steps) -> None:
    assert steps == steps_of(settings_of(steps))
    assert steps == steps_of(settings_of(steps) | {"a_later_one": 1})


@given(st.integers(0, 8 * GIB), st.integers(0, 8 * GIB))
def test_more_reserve_is_never_a_larger_share(one: int, other: int) -> None:
    less, more = sorted((one, other))
    shares = [
        share_of(
            Steps(reserve_bytes=reserve),
            usable_bytes=24 * GIB, free_bytes=23 * GIB, largest_share=0.95, step=1000,
        )
        for reserve in (less, more)
    ]  # fmt: skip
    assert shares[0] >= shares[1]
    if more - less > 24 * GIB // 1000 + MIB and shares[1] > 0:
        assert shares[0] > shares[1]
