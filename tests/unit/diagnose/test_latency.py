from __future__ import annotations

from collections.abc import Sequence

from plimsoll.diagnose.latency import Latency, latency_of
from plimsoll.facts.series import FloorBin, LatencyBin

HOURS = 12


def looked(levels: Sequence[float | None], loads: Sequence[float | None] | None = None) -> Latency:
    """One level an hour, six bins each."""
    latencies = [
        LatencyBin((hour * 6 + at) * 600.0, 10, ttft_p95_seconds=level)
        for hour, level in enumerate(levels)
        for at in range(1, 7)
    ]
    bins = [
        FloorBin((hour * 6 + at) * 600.0, 1, load=load)
        for hour, load in enumerate(loads or [])
        for at in range(1, 7)
    ]
    return latency_of(latencies, bins, now_seconds=len(levels) * 3600.0, since_seconds=0)


def test_a_lasting_step_is_up() -> None:
    found = looked([0.04] * 7 + [0.15] * 5)
    assert (0.15, 0.04, True) == (found.now, found.before, found.is_up)


def test_an_early_step_is_up_too() -> None:
    assert looked([1.7] + [3.4] * 11).is_up


def test_the_same_level_is_not_up() -> None:
    assert looked([0.2] * 12).is_up is False


def test_a_millisecond_is_nothing() -> None:
    assert looked([0.004] * 6 + [0.009] * 6).is_up is False


def test_more_load_is_compared_with_more_load_only() -> None:
    loads: list[float | None] = [4, 4, 30, 30, 4, 4, 4, 4, 4, 4, 4, 30]
    busy = [0.2, 0.2, 0.6, 0.6, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.6]
    assert looked(list(busy), loads).is_up is False
    assert looked([*busy[:-1], 1.5], loads).is_up is True


def test_a_load_never_seen_before_has_nothing_to_compare_with() -> None:
    found = looked([0.2] * 11 + [0.9], [4.0] * 11 + [60.0])
    assert (0.9, None, None) == (found.now, found.before, found.is_up)
    assert found.rose_with_load


def test_a_days_tide_is_no_rise_with_load() -> None:
    assert not looked([0.2] * 11 + [0.4], [4.0] * 11 + [60.0]).rose_with_load


def test_unknown_is_unknown() -> None:
    assert Latency() == looked([None] * 12)
    assert looked([0.2, 0.2]).is_up is False
    assert looked([0.2]).is_up is None


def test_the_median_stands_in_where_there_is_no_p95() -> None:
    bins = [LatencyBin(at * 600.0, 3, ttft_p50_seconds=0.3) for at in range(1, 13)]
    assert 0.3 == latency_of(bins, (), now_seconds=7200, since_seconds=0).now
