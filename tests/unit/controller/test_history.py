"""What is remembered of workers, and what ends when a container starts anew."""

from __future__ import annotations

import math
from typing import Any

from plimsoll.controller.history import Histories
from plimsoll.controller.kept import pack, unpack
from plimsoll.controller.life import Terms
from plimsoll.decide import Key
from plimsoll.facts.series import EngineSample, FloorBin, LatencyBin, WorkerHistory
from plimsoll.facts.watched import (
    Bucket,
    Buckets,
    EngineReading,
    MemorySample,
    PastLife,
    WatchedWorker,
)

KEY = Key(namespace="team", name="chat")
T0 = 1_796_040_000.0  # a whole multiple of ten minutes
MIB = 1 << 20
WORKER = WatchedWorker("team", "chat", "h100", "chat-1", "uid-1", "engine", "vllm", node="n")


def house(**terms: Any) -> Histories:
    """Histories with one worker."""
    histories = Histories(Terms(**terms))
    histories.watch(KEY, [WORKER])
    return histories


def memory(at: float, mib: int, *, started: float = T0, uid: str = "uid-1") -> MemorySample:
    return MemorySample(uid, "engine", started, T0 + at, mib * MIB)


def ttft(quick: float, slow: float) -> Buckets:
    """Up to a second, up to ten."""
    totals = (quick, quick + slow, quick + slow)
    return tuple(Bucket(b, t) for b, t in zip((1.0, 10.0, math.inf), totals, strict=True))


def engine(at: float, *, buckets: Buckets = (), **fields: Any) -> EngineReading:
    return EngineReading("uid-1", EngineSample(T0 + at, **fields), buckets)


def one(histories: Histories) -> WorkerHistory:
    (history,) = histories.of(KEY)
    return history


def watched(histories: Histories, seconds: int, *, mib: int = 100, **fields: Any) -> None:
    """Samples every 30 s, and a look at the clock after each."""
    for at in range(30, seconds + 1, 30):
        histories.take([memory(at, mib)], [engine(at, **fields)])
        histories.close_bins(T0 + at)


def test_ten_minutes_of_samples_make_a_floor() -> None:
    histories = house()
    for number, at in enumerate(range(30, 601, 30)):
        histories.take([memory(at, 100 + number)], [engine(at, running=4.0, generated_tokens=at)])
    histories.close_bins(T0 + 659)
    assert () == one(histories).bins
    histories.close_bins(T0 + 660)
    assert (FloorBin(T0 + 600, round(101.9 * MIB), load=4.0, peak_load=4.0, work=600.0),) == one(
        histories
    ).bins


def test_too_few_samples_make_none_but_their_load_counts_for_the_peak() -> None:
    histories = house()
    histories.take([], [engine(at, running=9.0) for at in (100, 200, 300)])
    histories.take([memory(at, 100) for at in (100, 200, 300)], [])
    for at in range(630, 1201, 30):
        histories.take([memory(at, 100)], [engine(at, running=2.0)])
        histories.close_bins(T0 + at)
    histories.close_bins(T0 + 1300)
    assert [(2.0, 9.0)] == [(b.load, b.peak_load) for b in one(histories).bins]


def test_the_same_sample_twice_counts_once() -> None:
    histories = house()
    for _ in range(10):
        histories.take([memory(30, 100)], [])
    assert 1 == len(one(histories).resident)


def test_a_container_that_starts_anew_has_another_life() -> None:
    histories = house()
    watched(histories, 700)
    assert 1 == len(one(histories).bins)
    histories.take([memory(800, 10, started=T0 + 790)], [])
    fresh = one(histories)
    assert (T0 + 790, ()) == (fresh.life.started_seconds, fresh.bins)
    assert 1 == len(fresh.resident)
    histories.take([memory(810, 100)], [])
    assert 1 == len(one(histories).resident), "a late sample of the life before"


def test_the_pods_status_may_be_first_to_tell_of_a_restart() -> None:
    histories = house()
    histories.watch(KEY, [WORKER._replace(started_seconds=T0 + 40)])
    watched(histories, 700)
    histories.watch(KEY, [WORKER._replace(started_seconds=T0 + 900)])
    assert () == one(histories).bins
    histories.take([memory(895, 100)], [])
    assert () == one(histories).resident
    histories.take([memory(930, 10, started=T0 + 860)], [])
    assert T0 + 860 == one(histories).life.started_seconds


def test_two_sources_may_differ_by_seconds_on_one_start() -> None:
    histories = house()
    histories.take([memory(30, 100)], [])
    histories.take([memory(60, 100, started=T0 + 2)], [])
    assert (T0, 2) == (one(histories).life.started_seconds, len(one(histories).resident))


def test_latencies_are_what_the_histogram_gained_in_the_bin() -> None:
    histories = house()
    histories.take([], [engine(10, buckets=ttft(1000, 0)), engine(300, buckets=ttft(1090, 10))])
    histories.close_bins(T0 + 660)
    assert (LatencyBin(T0 + 600, 100, 0.5 / 0.9, 5.5),) == one(histories).latencies


def test_a_histogram_that_began_anew_says_nothing_of_the_time_between() -> None:
    histories = house()
    histories.take([], [engine(10, buckets=ttft(50, 0)), engine(40, buckets=ttft(3, 0))])
    histories.close_bins(T0 + 660)
    assert () == one(histories).latencies


def test_work_that_falls_belongs_to_no_bin_after_it() -> None:
    histories = house()
    watched(histories, 600, generated_tokens=5000.0)
    for at in range(630, 1290, 30):
        histories.take([memory(at, 100)], [engine(at, generated_tokens=10.0)])
        histories.close_bins(T0 + at)
    assert [5000.0, None] == [each.work for each in one(histories).bins]


def test_where_no_tokens_are_counted_requests_are_the_work() -> None:
    histories = house()
    watched(histories, 660, requests=17.0)
    assert [17.0] == [each.work for each in one(histories).bins]


def test_what_is_stale_is_not_known_now() -> None:
    histories = house()
    histories.take([memory(30, 100)], [engine(30, kv_used=0.5, buckets=ttft(1, 0))])
    histories.take([], [engine(60, kv_used=0.5, buckets=ttft(11, 0))])
    (now,) = histories.now(T0 + 150)
    assert (100 * MIB, 0.95, 0.5) == (now.resident_bytes, now.ttft_p95_seconds, now.kv_used)
    (now,) = histories.now(T0 + 181)
    assert (None, None, None) == (now.resident_bytes, now.ttft_p95_seconds, now.kv_used)


def test_a_worker_that_is_gone_is_forgotten() -> None:
    histories = house()
    histories.watch(KEY, [])
    assert ((), (), ()) == (histories.of(KEY), histories.now(T0), histories.workers())
    histories.take([memory(30, 100)], [engine(30)])
    histories.forget(KEY)
    assert () == histories.keys


def test_a_sidecars_memory_is_not_the_workers() -> None:
    histories = house()
    histories.take([memory(30, 100)._replace(container="proxy")], [])
    assert () == one(histories).resident


def test_what_is_remembered_is_bounded() -> None:
    histories = house(keep_seconds=3600.0, resident_seconds=600.0, engine_seconds=600.0)
    watched(histories, 3 * 3600, running=1.0)
    history = one(histories)
    assert 6 >= len(history.bins) >= 5
    assert 21 >= len(history.resident)
    assert 12 >= len(history.engine), "one a minute"
    assert T0 + 3 * 3600 == history.engine[-1].at_seconds, "and always the newest"


def test_engine_samples_come_back_as_they_were() -> None:
    histories = house()
    reading = engine(30, running=3.0, kv_used=0.25, preemptions=7.0, healthy=True)
    histories.take([], [reading])
    assert (reading.sample,) == one(histories).engine


def test_after_a_restart_of_ours_the_floors_go_on() -> None:
    before = house()
    watched(before, 1300, mib=100, running=8.0, generated_tokens=70.0)
    kept = unpack(pack(before.lives(KEY), bin_seconds=600.0))
    after = house()
    assert 0 == after.remember(KEY, kept), "not before a source says that it is the same life"
    assert before.lives(KEY) == after.lives(KEY) or kept == after.lives(KEY)
    for at in range(1310, 1900, 30):
        after.take([memory(at, 200)], [engine(at, running=2.0)])
        after.close_bins(T0 + at)
    bins = one(after).bins
    assert [T0 + 600, T0 + 1200, T0 + 1800] == [each.at_seconds for each in bins]
    assert [8.0, 8.0, 8.0] == [each.peak_load for each in bins], "the mark of before holds"


def test_what_was_kept_of_another_life_is_left_out() -> None:
    before = house()
    watched(before, 700)
    after = house()
    after.remember(KEY, before.lives(KEY))
    after.take([memory(800, 10, started=T0 + 790)], [])
    assert () == one(after).bins
    assert 0 == after.remember(KEY, [PastLife("uid-9", "engine", T0)])


def test_of_very_many_workers_only_the_newest_bins_are_worth_keeping() -> None:
    histories = house()
    watched(histories, 3 * 600 + 60)
    (life,) = histories.lives(KEY, most_bins=2)
    assert [T0 + 1200, T0 + 1800] == [each.at_seconds for each in life.bins]
