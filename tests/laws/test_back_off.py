"""After a death of any hidden cost a pool comes to run in four steps, and keeps most of what would have fitted."""

from __future__ import annotations

import pytest
from benchmarks.back_off import (
    KEPT,
    LARGEST_PART,
    REFLEXES,
    WORLDS,
    Reflex,
    by_reflex,
    ours,
    solvable,
    tallies,
    trial,
    would_have_fitted,
)
from benchmarks.back_off_engine import Args, Phase, Runs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.api.deaths_moves import MOST_STEPS, MOVES, MoveName
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.engines.base import EngineName


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    at=st.integers(0, len(WORLDS) - 1),
    phase=st.sampled_from(Phase),
    part=st.floats(0.01, LARGEST_PART),
    pieces=st.sampled_from((1, 4, 16, 64)),
)
def test_it_runs_within_four_steps_and_keeps_four_fifths_of_what_would_have_fitted(
    at: int, phase: Phase, part: float, pieces: int
) -> None:
    hidden = trial(at, phase, part, pieces)
    best = would_have_fitted(hidden)
    assume(best is not None)
    assert best is not None
    ended = ours(hidden)
    assert ended.runs is not None, ended
    assert MOST_STEPS >= ended.steps
    assert best.pool_bytes * KEPT <= ended.runs.pool_bytes, ended
    first = hidden.engine.start(Args.of(hidden.plan.args()), hidden.plan.host_memory_bytes)
    assert isinstance(first, Runs) == (ended.steps == 0)  # what runs is left alone


@pytest.mark.parametrize(("name", "reflex"), REFLEXES, ids=[name for name, _ in REFLEXES])
def test_no_reflex_does_as_well(name: str, reflex: Reflex) -> None:
    trials = solvable(range(1, 61))
    mine = sum(ours(each).runs is not None for each, _ in trials)
    theirs = sum(by_reflex(each, reflex).runs is not None for each, _ in trials)
    assert len(trials) == mine
    assert mine > 2 * theirs


def test_the_same_arguments_never_run_and_lower_utilization_never_helps_a_cache_that_is_too_small() -> (
    None
):
    trials = [
        each for each in solvable(range(1, 121)) if each[0].engine.hidden.phase is Phase.WEIGHTS
    ]
    plimsoll, same, *lower = tallies(trials)
    assert (plimsoll.of, 0) == (plimsoll.runs, same.runs)
    assert [0, 0] == [each.runs for each in lower]


def test_too_little_for_the_cache_is_never_answered_with_a_smaller_share() -> None:
    for kind in (DeathKind.NO_ROOM_FOR_BLOCKS, DeathKind.LENGTH_TOO_LONG):
        names = [move.name for move in MOVES[kind, EngineName.VLLM]]
        assert MoveName.MORE_RESERVE not in names
    at_capture = [move.name for move in MOVES[DeathKind.CUDA_OOM_AT_CAPTURE, EngineName.VLLM]]
    assert MoveName.MORE_BUDGET not in at_capture
    assert MoveName.NO_GRAPHS == at_capture[-1]
