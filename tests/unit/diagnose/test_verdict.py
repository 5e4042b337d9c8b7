from __future__ import annotations

import random

import pytest

from plimsoll.diagnose.records import Cause, Trend, VerdictKind
from plimsoll.diagnose.settings import DEFAULT
from plimsoll.diagnose.verdict import verdict
from plimsoll.facts.series import (
    ContainerLife,
    EngineSample,
    FloorBin,
    LatencyBin,
    WorkerHistory,
)
from plimsoll.units import GIB, MIB

START = 1_780_000_200.0
HOURS = 30
NOW = START + HOURS * 3600


def worker(
    pod: str = "chat-0",
    *,
    per_hour: float = 0.0,
    ttft: tuple[float, float] = (0.3, 0.3),
    engine: tuple[EngineSample, ...] = (),
    limit_bytes: int | None = 64 * GIB,
) -> WorkerHistory:
    """Thirty hours, flat for the first sixteen; latency before and after hour twenty-four."""
    draw = random.Random(pod)
    bins = tuple(
        FloorBin(
            START + 600 * at,
            round(9 * GIB + per_hour * MIB * max(0.0, at / 6 - 16) + draw.gauss(0, 5 * MIB)),
            load=8.0,
            peak_load=8.0,
        )
        for at in range(1, HOURS * 6 + 1)
    )
    latencies = tuple(
        LatencyBin(b.at_seconds, 50, ttft_p95_seconds=ttft[at >= 24 * 6])
        for at, b in enumerate(bins)
    )
    return WorkerHistory(
        life=ContainerLife(pod, "engine", START),
        pod=pod,
        pool="h100",
        ready_seconds=START,
        limit_bytes=limit_bytes,
        bins=bins,
        latencies=latencies,
        engine=engine,
        newest_seconds=NOW,
    )


def engine(**gauges: float) -> tuple[EngineSample, ...]:
    """Two hours of samples; counters gain 100 a minute unless given."""
    usual: dict[str, float] = {"running": 8.0, "waiting": 0.0, "kv_used": 0.5}
    found = []
    for minute in range(120):
        counters = {"generated_tokens": 100.0 * minute, "requests": 5.0 * minute}
        at = NOW - (119 - minute) * 60
        found.append(EngineSample(at, healthy=True, **(usual | counters | gauges)))
    return tuple(found)


TABLE = [
    ((0.0, (0.3, 0.3)), VerdictKind.STEADY),
    ((0.0, (0.3, 0.9)), VerdictKind.PRESSURE),
    ((100.0, (0.3, 0.3)), VerdictKind.QUIET_GROWTH),
    ((100.0, (0.3, 0.9)), VerdictKind.GROWTH),
]


@pytest.mark.parametrize(("seen", "kind"), TABLE)
def test_memory_and_latency_together_name_the_trouble(
    seen: tuple[float, tuple[float, float]], kind: VerdictKind
) -> None:
    per_hour, ttft = seen
    said = verdict(worker(per_hour=per_hour, ttft=ttft), now_seconds=NOW)
    assert kind == said.kind
    assert said.sentence.endswith(".")


def test_unknown_latency_does_not_hide_growth() -> None:
    said = verdict(worker(per_hour=100)._replace(latencies=()), now_seconds=NOW)
    assert VerdictKind.QUIET_GROWTH == said.kind


def test_growth_does_not_promise_that_latency_comes_back() -> None:
    said = verdict(worker(per_hour=100, ttft=(0.3, 0.9)), now_seconds=NOW)
    assert "not certain" in said.sentence


def test_a_queue_explains_a_latency_beside_growth() -> None:
    busy = engine(waiting=40.0)
    said = verdict(worker(per_hour=100, ttft=(0.3, 0.9), engine=busy), now_seconds=NOW)
    assert VerdictKind.QUIET_GROWTH == said.kind
    assert "the queue explains" in said.sentence


def test_most_peers_that_rise_are_a_common_cause() -> None:
    grows = [worker(f"chat-{at}", per_hour=100) for at in range(3)]
    said = verdict(grows[0], [*grows[1:], worker("chat-9")], now_seconds=NOW)
    assert Cause.COMMON_CAUSE == said.cause
    assert (3, 2) == (said.evidence.peers, said.evidence.peers_rising)
    alone = verdict(grows[0], [worker("chat-8"), worker("chat-9")], now_seconds=NOW)
    assert None is alone.cause


def test_no_token_for_a_quarter_hour_with_requests_is_hung() -> None:
    stuck = engine(generated_tokens=5000.0, requests=70.0, prompt_tokens=9000.0)
    said = verdict(worker(engine=stuck), now_seconds=NOW)
    assert (VerdictKind.HUNG, Cause.NO_PROGRESS) == (said.kind, said.cause)
    assert said.evidence.seconds_without_tokens is not None


def test_busy_is_not_dead() -> None:
    said = verdict(worker(engine=engine(running=200.0, waiting=500.0)), now_seconds=NOW)
    assert VerdictKind.PRESSURE == said.kind


def test_an_engine_that_was_not_seen_lately_is_not_hung() -> None:
    old = tuple(
        each._replace(at_seconds=each.at_seconds - 1800)
        for each in engine(generated_tokens=5000.0, requests=70.0)
    )
    assert VerdictKind.STEADY == verdict(worker(engine=old), now_seconds=NOW).kind


CAUSES = [
    (engine(waiting=9.0, kv_used=0.99), Cause.KV_FULL, "maxModelLen"),
    (engine(waiting=9.0), Cause.QUEUE, "Add a worker"),
    (
        tuple(e._replace(preemptions=2.0 * at) for at, e in enumerate(engine(waiting=9.0))),
        Cause.PREEMPTIONS,
        "maxNumSeqs",
    ),
    (
        tuple(
            e._replace(prompt_tokens=500.0 * min(at, 59) + 5000.0 * max(0, at - 59))
            for at, e in enumerate(engine(waiting=9.0))
        ),
        Cause.LONG_PROMPTS,
        "lane",
    ),
]


@pytest.mark.parametrize(("seen", "cause", "advice"), CAUSES)
def test_pressure_names_its_cause_and_what_would_help(
    seen: tuple[EngineSample, ...], cause: Cause, advice: str
) -> None:
    said = verdict(worker(engine=seen), now_seconds=NOW)
    assert (VerdictKind.PRESSURE, cause) == (said.kind, said.cause)
    assert advice in said.advice
    assert "restart would not help" in said.sentence


def test_queues_everywhere_are_too_few_workers() -> None:
    busy = engine(waiting=9.0)
    peers = [worker(f"chat-{at}", engine=busy) for at in range(1, 4)]
    said = verdict(worker(engine=busy), peers, now_seconds=NOW)
    assert Cause.TOO_FEW_WORKERS == said.cause


def test_without_data_nothing_is_said() -> None:
    nothing = worker()._replace(bins=(), latencies=())
    assert VerdictKind.UNKNOWN == verdict(nothing, now_seconds=NOW).kind
    assert VerdictKind.UNKNOWN == verdict(worker(), now_seconds=NOW + 1800).kind


def test_the_first_hour_is_warming_up() -> None:
    young = worker()._replace(ready_seconds=NOW - 1800)
    assert VerdictKind.WARMING_UP == verdict(young, now_seconds=NOW).kind
    not_ready = worker()._replace(ready_seconds=None)
    assert VerdictKind.WARMING_UP == verdict(not_ready, now_seconds=NOW).kind


def test_a_clear_rise_that_is_not_confirmed_is_warming_up_and_not_steady() -> None:
    """Until two hours after the shortest horizon; whoever is steady later than that is told that it begins."""
    climbing = tuple(
        FloorBin(START + 600 * at, round(9 * GIB + 500 * MIB * at / 6), load=8.0, peak_load=8.0)
        for at in range(1, 6 * 8)
    )
    life = worker()._replace(ready_seconds=START, latencies=(), engine=())
    unconfirmed = DEFAULT._replace(looks=12)
    for hour in (4.0, 5.5, 6.5):
        now = START + 3600 * hour
        young = life._replace(bins=tuple(b for b in climbing if b.at_seconds <= now))
        said = verdict(young, now_seconds=now, settings=unconfirmed)
        assert (VerdictKind.WARMING_UP, Trend.UNKNOWN) == (said.kind, said.finding.trend), hour
        assert "It rises" in said.sentence
    now = START + 3600 * 7.5
    older = life._replace(bins=tuple(b for b in climbing if b.at_seconds <= now))
    said = verdict(older, now_seconds=now, settings=unconfirmed)
    assert VerdictKind.STEADY == said.kind
    assert "begins to rise" in said.sentence


def test_where_bins_are_long_three_of_them_tell_a_latency() -> None:
    """Hourly readings: the newest three are compared with those before."""
    bins = tuple(
        FloorBin(START + 3600 * at, 9 * GIB, load=8.0, peak_load=8.0) for at in range(1, 31)
    )
    slow = tuple(
        LatencyBin(b.at_seconds, 50, ttft_p95_seconds=0.3 if at < 26 else 3.0)
        for at, b in enumerate(bins)
    )
    hourly = worker()._replace(bins=bins, latencies=slow)
    said = verdict(hourly, now_seconds=NOW, settings=DEFAULT._replace(bin_hours=1.0))
    assert VerdictKind.PRESSURE == said.kind


def test_a_verdict_becomes_json_and_comes_back() -> None:
    said = verdict(worker(per_hour=100, ttft=(0.3, 0.9)), now_seconds=NOW)
    data = said.to_json()
    assert "Growth" == data["kind"]
    assert said == type(said).model_validate(data)
    assert Trend.RISING == said.finding.trend
