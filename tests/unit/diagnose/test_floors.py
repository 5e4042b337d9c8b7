from __future__ import annotations

import math

from plimsoll.diagnose.floors import clean, floors, percentile
from plimsoll.facts.series import FloorBin, Sample


def minute(values: list[float], start: float = 0.0) -> tuple[Sample, ...]:
    """A value a minute, the first at `start` + 60."""
    return tuple(Sample(start + 60 * at, value) for at, value in enumerate(values, start=1))


def test_a_bin_is_the_tenth_percentile_of_ten_minutes() -> None:
    bins = floors(minute([100.0 + at for at in range(10)]), now_seconds=600)
    assert (FloorBin(600.0, 101),) == bins  # 100.9, to a whole byte


def test_a_bin_of_four_samples_is_none() -> None:
    assert () == floors(minute([1.0] * 4), now_seconds=600)
    assert 1 == len(floors(minute([1.0] * 5), now_seconds=600))


def test_a_bin_that_has_not_ended_waits() -> None:
    memory = minute([5.0] * 15)
    assert [600.0] == [b.at_seconds for b in floors(memory, now_seconds=1199)]
    assert [600.0, 1200.0] == [b.at_seconds for b in floors(memory, now_seconds=1200)]


def test_a_hole_stays_a_hole() -> None:
    memory = minute([5.0] * 10) + minute([6.0] * 10, start=3600)
    assert [600.0, 4200.0] == [b.at_seconds for b in floors(memory, now_seconds=4200)]


def test_what_makes_no_sense_is_left_out() -> None:
    odd = (
        Sample(10, math.nan),
        Sample(20, math.inf),
        Sample(30, -5.0),
        Sample(40, 7.0),
        Sample(35, 8.0),  # stamped before what came before it
        Sample(40, 9.0),
        Sample(math.nan, 9.0),
        Sample(5000, 9.0),  # far ahead of our clock
    )
    assert (Sample(40, 7.0),) == clean(odd, -math.inf, 600)


def test_samples_from_before_the_start_belong_to_another_life() -> None:
    memory = minute([5.0] * 20)
    bins = floors(memory, now_seconds=1200, started_seconds=600)
    assert [600.0, 1200.0] == [b.at_seconds for b in floors(memory, now_seconds=1200)]
    assert [1200.0] == [b.at_seconds for b in bins]


def test_the_peak_of_the_load_counts_bins_without_memory_too() -> None:
    load = minute([9.0] * 10) + minute([2.0] * 10, start=600)
    bins = floors(minute([5.0] * 10, start=600), load=load, now_seconds=1200)
    assert (FloorBin(1200.0, 5, load=2.0, peak_load=9.0),) == bins


def test_unknown_load_is_none_and_not_zero() -> None:
    assert None is floors(minute([5.0] * 10), now_seconds=600)[0].load


def test_work_after_a_reset_is_unknown() -> None:
    work = minute([1.0, 2.0, 3.0]) + minute([1.0] * 10, start=600)
    bins = floors(minute([5.0] * 20), work=work, now_seconds=1200)
    assert [3.0, None] == [b.work for b in bins]


def test_percentiles_lie_between_neighbours() -> None:
    assert 1.0 == percentile([1.0, 2.0], 0)
    assert 1.5 == percentile([1.0, 2.0], 0.5)
    assert 2.0 == percentile([1.0, 2.0], 1)
    assert 4.0 == percentile([4.0], 0.9)
