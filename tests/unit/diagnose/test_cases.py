"""Public reports of growth, warm-up, pressure and misread metrics, their curves made again from the numbers
that they give, and what must be said of each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from plimsoll.cli.replay import Recording, Replay, replay
from plimsoll.diagnose.records import Cause, Doubt, Rule, VerdictKind
from plimsoll.diagnose.recycle import Hold, HoldReason, Recycle
from plimsoll.diagnose.settings import DEFAULT
from plimsoll.diagnose.verdict import verdict
from plimsoll.facts.series import (
    ContainerLife,
    EngineSample,
    FloorBin,
    LatencyBin,
    Sample,
    Series,
    WorkerHistory,
)
from plimsoll.units import GB, GIB, MIB

HOUR = 3600.0
EPOCH = 1_780_000_200.0
Curve = Callable[[float], float]


def series(curve: Curve, hours: float, *, every: float = 30.0, noise: float = 0.0) -> Series:
    """A sample each `every` seconds; the curve takes hours."""
    draw = random.Random(7)
    count = int(hours * HOUR / every) + 1
    return tuple(
        Sample(EPOCH + at * every, max(0.0, curve(at * every / HOUR) + draw.gauss(0, noise)))
        for at in range(count)
    )


def straight(first: float, last: float, hours: float) -> Curve:
    return lambda hour: first + (last - first) * hour / hours


def filling(first: float, last: float, hours: float) -> Curve:
    return lambda hour: first + (last - first) * min(1.0, hour / hours)


def judged(memory: Series, **more: object) -> Replay:
    return replay(Recording(memory=memory)._replace(**more), DEFAULT)  # type: ignore[arg-type]


def kind(found: Replay) -> VerdictKind:
    return found.moments[-1].verdict.kind


def kinds(found: Replay) -> set[VerdictKind]:
    return {moment.verdict.kind for moment in found.moments}


def recycled(found: Replay) -> bool:
    return any(isinstance(moment.decision, Recycle) for moment in found.moments)


def held(found: Replay) -> HoldReason:
    decision = found.moments[-1].decision
    assert isinstance(decision, Hold), decision
    return decision.reason


# --- growth ---------------------------------------------------------------------------------------


def test_a_slope_below_one_percent_an_hour_with_a_latency_step_is_growth() -> None:
    """vllm-project/vllm#44175: 6.00 to 6.57 GiB in 12 h, latency 0.04 s for 7 h, then 0.15 s."""
    memory = series(straight(6.00 * GIB, 6.57 * GIB, 12), 12, noise=3 * MIB)
    ttft = series(lambda hour: 0.04 if hour < 7 else 0.155, 12, noise=0.006)
    found = judged(memory, ttft=ttft, load=series(lambda _: 5.0, 12, noise=0.5))
    said = found.moments[-1].verdict
    assert VerdictKind.GROWTH == said.kind
    assert recycled(found)
    assert said.finding.bytes_per_hour is not None
    assert abs(said.finding.bytes_per_hour / MIB - 48.6) < 3
    assert "not certain" in said.sentence


def test_the_same_leak_with_flat_latency_is_told_and_projected() -> None:
    """vllm-project/vllm#44490: 8 h, 4,012,263 requests at 90 bytes, p50 flat near 232 ms."""
    memory = series(straight(9 * GIB, 9 * GIB + 4_012_263 * 90, 8), 8, noise=2 * MIB)
    ttft = series(lambda _: 0.232, 8, noise=0.01)
    far = judged(memory, ttft=ttft, limit_bytes=64 * GIB)
    assert VerdictKind.QUIET_GROWTH == kind(far)
    assert not recycled(far)
    assert (hours := far.moments[-1].verdict.finding.hours_to_limit) is not None
    assert hours > 1000
    near = judged(memory, ttft=ttft, limit_bytes=round(9.45 * GIB))
    assert VerdictKind.QUIET_GROWTH == kind(near)
    assert recycled(near)


def test_the_patched_build_is_steady() -> None:
    """vllm-project/vllm#44490: after the patch resident memory is flat."""
    assert VerdictKind.STEADY == kind(judged(series(lambda _: 9 * GIB, 8, noise=2 * MIB)))


def test_twelve_hours_of_climbing_under_steady_load_are_growth() -> None:
    """vllm-project/vllm#22736, vllm-project/vllm#52089."""
    memory = series(straight(8 * GIB, 14 * GIB, 12), 12, noise=40 * MIB)
    found = judged(memory, load=series(lambda _: 16.0, 12, noise=1))
    assert VerdictKind.QUIET_GROWTH == kind(found)


def test_without_a_container_limit_the_node_is_projected_to() -> None:
    """yhfgyyf/vllm-deepseek-v4-sm89#50: a host of 251.5 GiB, no limit on the container."""
    memory = series(straight(120 * GIB, 150 * GIB, 20), 20, noise=50 * MIB)
    found = judged(memory)
    assert HoldReason.NO_LIMIT == held(found)
    history = WorkerHistory(
        life=ContainerLife("u", "engine", EPOCH),
        pod="p",
        ready_seconds=EPOCH,
        limit_bytes=round(251.5 * GIB),
        limit_is_node=True,
        bins=found.bins,
    )
    said = verdict(history, now_seconds=found.bins[-1].at_seconds)
    assert said.finding.limit_is_node
    assert "node's allocatable" in said.sentence


def test_far_above_its_cap_it_is_recycled_long_before_a_window_is_full() -> None:
    """ikawrakow/ik_llama.cpp#2320: 222 GB after 5 h with a cap of 8192 MiB."""
    memory = series(straight(30 * GB, 252 * GB, 5), 5, noise=100 * MIB)
    found = judged(memory, cache_cap_bytes=8192 * MIB)
    first = next(m for m in found.moments if isinstance(m.decision, Recycle))
    assert (first.at_seconds - EPOCH) / HOUR < 1.2
    assert Cause.OVERRUN == first.verdict.cause
    assert Rule.OVERRUN == first.verdict.finding.rule


def test_a_leak_per_token_is_seen_through_idle_hours() -> None:
    """ggml-org/llama.cpp#25953: 3.23 MB per token, 1.1 to 12.7 GB after 3,600 tokens, idle between."""

    def tokens(hour: float) -> float:
        """300 at a time, at once, with idle hours of many lengths between."""
        starts = (0.3, 1.1, 2.9, 3.2, 5.0, 5.4, 8.1, 8.6, 9.0, 11.5, 12.2, 13.9)
        return sum(300.0 * min(1.0, max(0.0, (hour - start) * 10)) for start in starts)

    memory = series(lambda hour: 1.1 * GB + 3.23e6 * tokens(hour), 15, noise=1e6)
    found = judged(memory, work=series(tokens, 15))
    assert VerdictKind.QUIET_GROWTH == kind(found)
    last = found.moments[-1].verdict.finding
    assert last.bytes_per_work is not None
    assert abs(last.bytes_per_work / 3.23e6 - 1) < 0.1
    # the same from the requests in flight alone
    load = series(lambda hour: 1.0 if tokens(hour) != tokens(hour - 0.1) else 0.0, 15)
    assert VerdictKind.QUIET_GROWTH == kind(judged(memory, load=load))


def test_a_leak_per_token_is_recycled() -> None:
    """ggml-org/llama.cpp#25953: no plateau, and more than any cache keeps unasked."""

    def tokens(hour: float) -> float:
        return 3600 * hour / 10

    memory = series(lambda hour: 1.1 * GB + 3.23e6 * tokens(hour), 10, noise=5e6)
    assert recycled(judged(memory, limit_bytes=16 * GB))


def test_a_rise_that_ends_in_the_warm_up_is_none() -> None:
    """ggml-org/llama.cpp#28933: 6.9 GiB in 1.5 h at first; 12.19 GiB, then a band of 12.4 to 12.8."""
    rise = series(lambda hour: 5.3 * GIB + 6.9 * GIB * min(1.0, hour / 1.5), 1.5, noise=10 * MIB)
    first = judged(rise)
    assert kinds(first) <= {VerdictKind.WARMING_UP, VerdictKind.UNKNOWN}
    band = series(
        lambda hour: 12.19 * GIB + min(0.4, hour) * GIB + 0.2 * GIB * math.sin(9 * hour), 8
    )
    later = judged(band)
    assert not recycled(first)
    assert not recycled(later)
    assert VerdictKind.STEADY == kind(later)


def test_eight_gib_of_growth_that_stops_is_held_then_steady() -> None:
    """ollama/ollama#17924: 0.147 GiB a request, 20.5 to 28.5 GiB, then flat for 1,790 requests."""
    for hours in (0.5, 3.0, 9.0):
        memory = series(filling(20.5 * GIB, 28.5 * GIB, hours), 24, noise=20 * MIB)
        found = judged(memory, limit_bytes=48 * GIB)
        assert not recycled(found), hours
        assert VerdictKind.STEADY == kind(found), hours


def test_anonymous_and_swap_together_show_what_rss_hides() -> None:
    """ollama/ollama#18106: 9.35 GiB in anonymous memory and swap after 5.5 h, RSS about 70 MiB."""
    both = judged(series(straight(0.4 * GIB, 9.35 * GIB, 5.5), 5.5, noise=20 * MIB))
    assert VerdictKind.QUIET_GROWTH == kind(both)
    rss = judged(series(lambda hour: 70 * MIB + 2 * GIB * max(0.0, 1 - hour), 5.5, noise=MIB))
    assert VerdictKind.STEADY == kind(rss)


def test_allocator_retention_is_growth_with_advice_on_arenas() -> None:
    """vllm-project/vllm-omni#6462: 960 aborted requests, 66 MiB, about 68 KB each, linear."""
    memory = series(straight(2.9 * GIB, 2.9 * GIB + 66 * MIB, 5), 5, noise=0.5 * MIB)
    said = judged(memory).moments[-1].verdict
    assert VerdictKind.QUIET_GROWTH == said.kind
    assert "arenas" in said.advice


def test_latency_and_memory_that_rise_together_are_recycled() -> None:
    """Blaizzy/mlx-vlm#1393: 1.7 s at first, about double after 16 requests, memory climbing."""
    memory = series(straight(20 * GIB, 26 * GIB, 6), 6, noise=30 * MIB)
    ttft = series(lambda hour: 1.7 if hour < 2 else 3.4, 6, noise=0.1)
    found = judged(memory, ttft=ttft)
    assert VerdictKind.GROWTH == kind(found)
    assert recycled(found)


# --- pressure -------------------------------------------------------------------------------------


def flat_history(
    engine: tuple[EngineSample, ...], ttft: Curve = lambda _: 0.5, hours: float = 12
) -> WorkerHistory:
    """Twelve flat hours with what the engine says of the last two."""
    count = int(hours * 6)
    bins = tuple(
        FloorBin(EPOCH + at * 600, 9 * GIB + (at % 3) * MIB, load=32.0, peak_load=33.0)
        for at in range(1, count + 1)
    )
    latencies = tuple(
        LatencyBin(b.at_seconds, 100, ttft_p95_seconds=ttft((b.at_seconds - EPOCH) / HOUR))
        for b in bins
    )
    return WorkerHistory(
        life=ContainerLife("u", "engine", EPOCH),
        pod="chat-0",
        ready_seconds=EPOCH,
        limit_bytes=64 * GIB,
        bins=bins,
        latencies=latencies,
        engine=engine,
        newest_seconds=bins[-1].at_seconds,
    )


def engine(hours: float = 12, **rates: float) -> tuple[EngineSample, ...]:
    """Two hours of samples a minute apart: gauges as they are, counters by the hour."""
    gauges = ("running", "waiting", "waiting_for_capacity", "kv_used")
    made = []
    for minute in range(120):
        values = {
            name: value if name in gauges else 1000 + value * minute / 60
            for name, value in rates.items()
        }
        at = EPOCH + hours * HOUR - (119 - minute) * 60
        made.append(EngineSample(at, healthy=True, **values))
    return tuple(made)


def said_of(history: WorkerHistory, *peers: WorkerHistory) -> tuple[VerdictKind, Cause | None, str]:
    said = verdict(history, peers, now_seconds=history.bins[-1].at_seconds)
    return said.kind, said.cause, said.advice


def test_all_slots_busy_and_slow_is_compared_at_equal_occupancy() -> None:
    """ggml-org/llama.cpp#22360: 1.98 tokens a second in a slot where 16.8 to 17.4 are usual."""
    slow = engine(running=4.0, waiting=3.0, generated_tokens=1.98 * 4 * 3600)
    well = engine(running=4.0, waiting=0.0, generated_tokens=17.1 * 4 * 3600)
    found = said_of(flat_history(slow), flat_history(well), flat_history(well))
    assert (VerdictKind.PRESSURE, Cause.SLOW_CARD) == found[:2]
    # with no more requests than the others, it is the card; with many more, the load
    full = engine(running=40.0, waiting=30.0, generated_tokens=1.98 * 40 * 3600)
    assert Cause.QUEUE == said_of(flat_history(full), flat_history(well))[1]


def test_preemptions_under_a_full_pool_are_pressure() -> None:
    """vllm-project/vllm#44594: 1,065 preemptions at 128 requests, TTFT p50 6.56 s, p99 25.5 s."""
    busy = engine(running=100.0, waiting=28.0, kv_used=0.99, preemptions=1065.0, requests=2000.0)
    kind_, cause, advice = said_of(flat_history(busy, lambda hour: 0.5 if hour < 8 else 20.0))
    assert (VerdictKind.PRESSURE, Cause.PREEMPTIONS) == (kind_, cause)
    assert "maxNumSeqs" in advice


def test_far_more_requests_than_the_pool_holds_are_pressure() -> None:
    """Tandemn-Labs/tandemn-system#11: 72 run, 184 wait, 480 preemptions in 5,000 requests."""
    busy = engine(running=72.0, waiting=184.0, kv_used=0.98, preemptions=480.0, requests=5000.0)
    assert VerdictKind.PRESSURE == said_of(flat_history(busy))[0]


def test_a_few_preemptions_are_no_incident() -> None:
    """inference-sim/inference-sim#963: 1,538 preemptions in 19,801 requests, all complete."""
    fine = engine(running=40.0, waiting=0.2, kv_used=0.8, preemptions=1538.0, requests=19801.0)
    assert VerdictKind.STEADY == said_of(flat_history(fine))[0]


def test_overload_is_told_from_a_sick_worker_by_its_load() -> None:
    """ggml-org/llama.cpp#22360: all slots busy, requests above the slots; memory flat."""
    memory = series(lambda _: 9 * GIB, 12, noise=2 * MIB)
    load = series(lambda hour: 2.0 if hour < 9 else 16.0, 12, noise=0.1)
    ttft = series(lambda hour: 0.4 if hour < 9 else 4.0, 12, noise=0.02)
    found = judged(memory, load=load, ttft=ttft)
    assert VerdictKind.PRESSURE == kind(found)
    assert HoldReason.PRESSURE == held(found)


def test_a_cache_without_a_cap_that_fills_the_host_is_replaced_before_the_kill() -> None:
    """TheTom/llama-cpp-turboquant#350: 59.7 GB resident within an hour on a 60 GB box."""
    memory = series(straight(5 * GB, 59 * GB, 1.1), 1.1)
    assert recycled(judged(memory, limit_bytes=60 * GB))


# --- memory metrics -------------------------------------------------------------------------------


def test_anonymous_memory_far_below_the_limit_is_steady() -> None:
    """starkware-libs/sequencer#14064: 24 to 46 % of the limit by RSS for 14 days, no kill."""
    memory = series(
        lambda hour: (0.35 + 0.10 * math.sin(hour / 24 * 2 * math.pi)) * 16 * GIB, 14 * 24, every=60
    )
    load = series(lambda hour: 20 + 10 * math.sin(hour / 24 * 2 * math.pi), 14 * 24, every=60)
    found = judged(memory, load=load, limit_bytes=16 * GIB)
    assert not recycled(found)
    assert VerdictKind.STEADY == kind(found)


def test_one_step_while_loading_and_then_flat_is_no_growth() -> None:
    """vllm-project/vllm#11902: 20 GB of host memory stay after the weights are on the cards;
    kubernetes/kubernetes#43916: page cache read with them is not anonymous memory at all."""
    memory = series(lambda hour: 3 * GB + 20 * GB * min(1.0, hour * 6), 24, noise=10 * MIB)
    found = judged(memory, limit_bytes=32 * GB)
    assert {VerdictKind.WARMING_UP, VerdictKind.STEADY} >= kinds(found)
    assert not recycled(found)


def test_what_happens_before_ready_is_never_a_reason_to_recycle() -> None:
    """vllm-project/vllm#28923: past its limit while the weights load."""
    memory = series(straight(1 * GIB, 250 * GIB, 0.7), 0.7)
    found = judged(memory, ready_seconds=EPOCH + HOUR, limit_bytes=256 * GIB)
    assert not recycled(found)


def test_a_rise_since_the_start_is_told_with_its_doubt() -> None:
    memory = series(straight(20 * GIB, 26 * GIB, 20), 20, noise=20 * MIB)
    said = judged(memory, load=series(lambda _: 4.0, 20)).moments[-1].verdict
    assert VerdictKind.QUIET_GROWTH == said.kind
    assert Doubt.MAY_BE_FILLING == said.finding.doubt
