"""The simulation gives the same weeks each time, and its report says what was missed."""

from __future__ import annotations

import json
import random

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


def test_the_corrected_score_is_the_one_of_a_known_library() -> None:
    """z of pymannkendall 1.4.3, hamed_rao_modification_test, on the same autocorrelated lines."""
    known = (3.084819142751493, 1.0161779112522469, 2.2059826096719113, 0.9805549038168924)
    for seed, score in enumerate(known):
        draw, level, values = random.Random(seed), 0.0, []
        for at in range(72):
            level = 0.8 * level + draw.gauss(0, 1)
            values.append(round(level + 0.05 * at, 3))
        line = Line([at / 6 for at in range(72)], values)
        assert abs(score - slope.mann_kendall_z(line, theil_sen(line).middle)) < 1e-9


@pytest.mark.parametrize(("kind", "seed"), [("mix", 4009), ("mix", 4026), ("ratchet", 5018)])
def test_a_step_that_the_tide_hides_is_no_growth(kind: str, seed: int) -> None:
    """Healthy weeks that a rule without the comparison with a step recycles."""
    assert {slope.OURS: []} == slope.alarms_of(week(kind, seed), {slope.OURS: slope.ours})
