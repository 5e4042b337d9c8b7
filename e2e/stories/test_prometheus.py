"""Does a real Prometheus understand our questions? Its past is written for it, so nobody waits for hours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from plimsoll.facts.watched import PastLife, WatchedWorker
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.prometheus import PrometheusSource, Server
from plimsoll.telemetry.source import Seen
from prometheus_server import prometheus, why_not

GIB, MIB = 1 << 30, 1 << 20
HOURS = 6
STEP_SECONDS = 30
WORKER = WatchedWorker(
    "team", "chat", "h100", "chat-h100-1", "uid-1", "engine", "vllm", is_healthy=True
)
PLACE = 'container="engine",id="/kubepods/b",namespace="team",pod="chat-h100-1"'
BEFORE = PLACE.replace("/kubepods/b", "/kubepods/a")  # the container that died an hour into it
POD = 'namespace="team",pod="chat-h100-1"'


class Told(NamedTuple):
    """A Prometheus, and when its past ends."""

    url: str
    end_seconds: float

    @property
    def restarted_seconds(self) -> float:
        """Start of the container that runs now."""
        return self.end_seconds - (HOURS - 1) * 3600


class Nobody:
    """Counts nothing."""

    def scraped(self, source: str, seconds: float) -> None:
        """One was answered."""

    def missed(self, source: str, reason: str, count: int = 1) -> None:
        """One was not."""
        raise AssertionError(f"{source}: {count} x {reason}")


def past(end: float) -> str:
    """Six hours: memory grows by 60 MiB an hour, half of it in swap, 10 requests a minute in half a second."""
    families: dict[str, list[str]] = {}

    def add(name: str, kind: str, line: str) -> None:
        families.setdefault(f"# TYPE {name} {kind}", []).append(line)

    start = end - HOURS * 3600
    for step in range(HOURS * 3600 // STEP_SECONDS + 1):
        at = start + step * STEP_SECONDS
        is_new = at >= start + 3600
        here, hours = (PLACE if is_new else BEFORE), (at - start) / 3600
        half = int(30 * MIB * hours)
        began = start + 3600 if is_new else start
        add("container_memory_rss", "gauge", f"container_memory_rss{{{here}}} {GIB + half} {at}")
        add("container_memory_swap", "gauge", f"container_memory_swap{{{here}}} {half} {at}")
        add(
            "container_start_time_seconds", "gauge",
            f"container_start_time_seconds{{{here}}} {began} {at}",
        )  # fmt: skip
        add("vllm:num_requests_running", "gauge", f"vllm:num_requests_running{{{POD}}} 4 {at}")
        done = 5 * (step if not is_new else step - 3600 // STEP_SECONDS)
        add(
            "vllm:generation_tokens", "counter",
            f"vllm:generation_tokens_total{{{POD}}} {100 * done} {at}",
        )  # fmt: skip
        ttft = "vllm:time_to_first_token_seconds"
        for bound, count in (("0.25", 0), ("0.5", done), ("+Inf", done)):
            add(ttft, "histogram", f'{ttft}_bucket{{{POD},le="{bound}"}} {count} {at}')
        add(ttft, "histogram", f"{ttft}_count{{{POD}}} {done} {at}")
    lines = [line for head, body in families.items() for line in (head, *body)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A real Prometheus that knows the past of one worker."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    end = time.time() // STEP_SECONDS * STEP_SECONDS
    with prometheus(tmp_path_factory.mktemp("prometheus"), past(end)) as port:
        yield Told(f"http://127.0.0.1:{port}", end)


def ask(told: Told) -> tuple[Seen, tuple[PastLife, ...]]:
    """What the source makes of it: now, and six hours back."""

    async def all_of_it() -> tuple[Seen, tuple[PastLife, ...]]:
        fetcher = Fetcher()
        source = PrometheusSource(
            fetcher,
            Server(told.url),
            tally=Nobody(),
            clock=time.monotonic,
            wall_clock=lambda: told.end_seconds + 1,
        )
        until = told.end_seconds // 600 * 600
        try:
            seen = await source.read([WORKER])
            back = await source.history(
                [WORKER], since_seconds=until - HOURS * 3600, until_seconds=until
            )
        finally:
            await fetcher.close()
        return seen, back

    return asyncio.run(all_of_it())


def test_prometheus_tells_memory_with_its_own_stamp_and_start(told: Told) -> None:
    (sample,) = ask(told)[0].memory
    assert "uid-1" == sample.pod_uid
    assert GIB + 60 * MIB * HOURS == sample.resident_bytes
    assert (told.end_seconds, told.restarted_seconds) == (
        sample.at_seconds, sample.started_seconds,
    )  # fmt: skip


def test_prometheus_tells_what_the_engine_said(told: Told) -> None:
    (reading,) = ask(told)[0].engines
    done = 10 * (HOURS - 1) * 60
    assert told.end_seconds == reading.sample.at_seconds
    assert (4.0, 100.0 * done) == (reading.sample.running, reading.sample.generated_tokens)
    assert [(0.25, 0.0), (0.5, done), (float("inf"), done)] == list(reading.ttft)


def test_prometheus_gives_the_days_before_back_as_floors(told: Told) -> None:
    (life,) = ask(told)[1]
    assert told.restarted_seconds == life.started_seconds
    # bins that lie wholly in the life of the container that runs now
    assert (HOURS - 1) * 6 - 2 <= len(life.bins) <= (HOURS - 1) * 6
    assert all(each.at_seconds % 600 == 0 for each in life.bins)
    for each in life.bins:
        end_bytes = GIB + 60 * MIB * (each.at_seconds - told.end_seconds + HOURS * 3600) / 3600
        # the 10th percentile of ten minutes lies near their beginning
        assert end_bytes - 10 * MIB <= each.floor_bytes <= end_bytes - 7 * MIB
    assert {4.0} == {each.load for each in life.bins} == {each.peak_load for each in life.bins}
    work = [each.work for each in life.bins if each.work is not None]
    assert sorted(work) == work
    assert len(life.bins) == len(work)


def test_prometheus_gives_the_latencies_before_back(told: Told) -> None:
    (life,) = ask(told)[1]
    assert len(life.bins) == len(life.latencies)
    for each in life.latencies[1:]:
        assert 95 <= each.requests <= 105
        assert each.ttft_p50_seconds is not None
        assert abs(0.375 - each.ttft_p50_seconds) < 1e-6
        assert each.ttft_p95_seconds is not None
        assert abs(0.4875 - each.ttft_p95_seconds) < 1e-6
