"""The simulation gives the same weeks each time, and its report says what was missed."""

from __future__ import annotations

import json

import pytest
from benchmarks import slope
from benchmarks.slope_scenarios import ONSET_HOURS, QUIET, SAMPLES, TIMES, week

from plimsoll.diagnose.robust import Line, theil_sen


def test_a_seed_is_a_week() -> None:
    assert week("mix", 3) == week("mix", 3)
    assert week("mix", 3) != week("mix", 4)


@pytest.mark.parametrize("kind", QUIET)
def test_every_kind_has_a_whole_week(kind: str) -> None:
    made = week(kind, 1)
    assert [SAMPLES] * 3 == [len(made.memory), len(made.load), len(made.seen)]
    assert min(made.memory) > 0
    assert min(made.load) >= 0
    assert 0.0 == made.lives[0].started_hours


def test_a_leak_grows_at_its_rate_from_its_onset() -> None:
    """A week with a leak and none differ in more than the leak; the slope after the onset is its own."""
    made = week("leak", 2, 500)
    after = [(t, m) for t, m in zip(TIMES, made.memory, strict=True) if t > ONSET_HOURS][::600]
    slope_found = theil_sen(Line([t for t, _ in after], [m for _, m in after])).middle
    assert abs(slope_found - 500) < 30


def test_one_week_of_a_fast_leak_is_found_once_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    slope.main(["--seeds", "2", "--only", "plateau", "--no-plain", "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert 1 == found["podWeeks"]
    assert 0.0 == found["falseRecyclesPerPodWeek"]


def test_misses_are_named() -> None:
    late = slope.Leak("leak", 500, 1, {"Plimsoll": 0.9}, {"Plimsoll": 9.0}, {}, {})
    noisy = slope.Quiet("steps", 1, {"Plimsoll": 0.5}, {})
    results = slope.Results((noisy,), (late,), 2, False)
    assert 3 == len(results.misses)
