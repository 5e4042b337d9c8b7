"""What is read out of Prometheus' answers. A real Prometheus is asked in e2e/stories/test_prometheus.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from page_box import Counts, PageBox, page_box
from plimsoll.facts.watched import MemorySample, PastLife, WatchedWorker
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.prometheus import PrometheusSource, Server, read_answer
from plimsoll.telemetry.source import Freshness, Reason, ScrapeError, Seen

NOW = 1_796_040_000.0
GIB = 1 << 30
PLACE = {"namespace": "team", "pod": "chat-h100-1", "container": "engine"}


def answer(*series: tuple[dict[str, str], Any]) -> bytes:
    """An instant vector."""
    result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in series]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


def asking(
    worker: WatchedWorker, answers: dict[str, bytes], *, token: str | None = None
) -> tuple[Seen, Counts, list[dict[str, str]]]:
    """Look once; an answer belongs to the queries that begin so, the longest beginning first."""

    async def run() -> tuple[Seen, Counts, list[dict[str, str]]]:
        asked: list[dict[str, str]] = []

        async def query(request: web.BaseRequest) -> web.StreamResponse:
            asked.append(dict(request.query) | {"token": request.headers.get("Authorization", "")})
            text = request.query["query"]
            fits = [begin for begin in answers if text.startswith(begin)]
            return web.Response(body=answers[max(fits, key=len)] if fits else answer())

        counts, fetcher = Counts(), Fetcher(timeout_seconds=30.0)
        async with page_box() as box:
            box.answers["/api/v1/query"] = query
            source = _source(box, fetcher, counts, token)
            seen = await source.read([worker])
            await fetcher.close()
        return seen, counts, asked

    return asyncio.run(run())


def _source(
    box: PageBox, fetcher: Fetcher, counts: Counts, token: str | None = None
) -> PrometheusSource:
    return PrometheusSource(
        fetcher,
        Server(f"http://{box.address}/", token=lambda: token),
        tally=counts,
        clock=lambda: 0.0,
        wall_clock=lambda: NOW,
        freshness=Freshness(),
    )


def memory(
    *, at: float = NOW - 20, resident: Any = 3 * GIB, swap: Any = GIB, **labels: str
) -> dict[str, bytes]:
    """Answers about one container."""
    here = PLACE | {"id": "/kubepods/a"} | labels
    return {
        "container_memory_rss": answer((here | {"__name__": "container_memory_rss"}, resident)),
        "timestamp(container_memory_rss": answer((here, at)),
        "container_memory_swap": answer((here | {"__name__": "container_memory_swap"}, swap)),
        "container_start_time_seconds": answer((here, NOW - 7200)),
    }


def test_memory_is_anonymous_and_swap_with_cadvisors_own_stamp(worker: WatchedWorker) -> None:
    seen, counts, _ = asking(worker, memory())
    assert (MemorySample("uid-1", "engine", NOW - 7200, NOW - 20, 4 * GIB),) == seen.memory
    assert (["prometheus"], []) == (counts.answered, counts.reasons)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (memory(at=NOW - 121), Reason.STALE),
        (memory(at=NOW + 61), Reason.CLOCK_SKEW),
        (memory(resident="NaN"), Reason.ABSENT),
        (memory(resident=0), Reason.ABSENT),
        (memory(pod="another"), Reason.ABSENT),
        ({}, Reason.ABSENT),
    ],
)
def test_what_cannot_be_believed_is_unknown(
    worker: WatchedWorker, answers: dict[str, bytes], reason: Reason
) -> None:
    seen, counts, _ = asking(worker, answers)
    assert ((), [reason]) == (seen.memory, counts.reasons)


def test_of_a_container_and_the_one_before_it_the_newer_counts(worker: WatchedWorker) -> None:
    old, new = PLACE | {"id": "/kubepods/old"}, PLACE | {"id": "/kubepods/new"}
    both = {
        "container_memory_rss": answer((old, 9 * GIB), (new, GIB)),
        "timestamp(container_memory_rss": answer((old, NOW - 100), (new, NOW - 10)),
        "container_start_time_seconds": answer((old, NOW - 7200), (new, NOW - 60)),
    }
    (sample,) = asking(worker, both)[0].memory
    assert (GIB, NOW - 60) == (sample.resident_bytes, sample.started_seconds)


def test_engines_are_read_by_the_same_table_as_their_own_pages(worker: WatchedWorker) -> None:
    pod = {"namespace": "team", "pod": "chat-h100-1"}

    def named(name: str, **labels: str) -> dict[str, str]:
        return pod | {"__name__": name} | labels

    bucket = "vllm:time_to_first_token_seconds_bucket"
    figures = answer(
        (named("vllm:num_requests_running"), 7),
        (named("vllm:kv_cache_usage_perc"), 0.5),
        (named(bucket, le="0.5"), 8),
        (named(bucket, le="+Inf"), 10),
    )
    stamps = answer((pod, NOW - 12))
    seen, _, _ = asking(worker, memory() | {"{__name__": figures, "timestamp(vllm": stamps})
    (reading,) = seen.engines
    assert (NOW - 12, 7.0, 0.5, True) == (
        reading.sample.at_seconds, reading.sample.running, reading.sample.kv_used,
        reading.sample.healthy,
    )  # fmt: skip
    assert [(0.5, 8.0), (float("inf"), 10.0)] == list(reading.ttft)


def test_the_token_goes_with_each_query(worker: WatchedWorker) -> None:
    _, _, asked = asking(worker, memory(), token="abc")
    assert {"Bearer abc"} == {each["token"] for each in asked}
    assert {f"{NOW:.3f}"} == {each["time"] for each in asked}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", Reason.MALFORMED),
        (b"[]", Reason.MALFORMED),
        (b'{"status": "success"}', Reason.MALFORMED),
        (b'{"status": "error", "error": "query timed out"}', Reason.STATUS),
        (answer((PLACE, 1))[:-9], Reason.MALFORMED),
    ],
)
def test_what_is_no_answer_is_refused(body: bytes, reason: Reason) -> None:
    with pytest.raises(ScrapeError) as refused:
        read_answer(body)
    assert reason == refused.value.reason


def test_a_server_that_is_away_leaves_everything_unknown(worker: WatchedWorker) -> None:
    async def run() -> tuple[Seen, tuple[PastLife, ...], list[str]]:
        counts, fetcher = Counts(), Fetcher(timeout_seconds=30.0)
        async with page_box() as box:
            source = _source(box, fetcher, counts)
        seen = await source.read([worker])
        past = await source.history([worker], since_seconds=NOW - 3600, until_seconds=NOW)
        await fetcher.close()
        return seen, past, counts.reasons

    assert (Seen(), (), [Reason.UNREACHABLE] * 2) == asyncio.run(run())
