"""What engines say of themselves, release by release."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from page_box import Counts, page_box
from plimsoll.facts.series import EngineSample
from plimsoll.facts.watched import EngineReading, WatchedWorker, quantile
from plimsoll.telemetry.engines import EngineSource, figures, fold, slots_used
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.source import Reason, Rounds, ScrapeError, Seen

DATA = Path(__file__).parents[2] / "data"
VLLM = (DATA / "vllm_metrics.txt").read_bytes()
LLAMA = (DATA / "llama_server_metrics.txt").read_bytes()
SLOTS = (DATA / "llama_server_slots.json").read_bytes()
NOW = 1_796_040_000.0


def sample(engine: str, page: bytes) -> EngineSample:
    return fold(engine, figures(engine, page), NOW)[0]


def test_a_real_page_of_vllm_is_read_whole() -> None:
    assert EngineSample(
        at_seconds=NOW,
        running=0.0,
        waiting=0.0,
        waiting_for_capacity=0.0,
        preemptions=3.0,
        kv_used=0.0,
        prompt_tokens=160.0,
        generated_tokens=5600.0,
        requests=8.0,
        prefix_queries=160.0,
        prefix_hits=0.0,
    ) == sample("vllm", VLLM)


def test_times_to_first_token_come_from_the_buckets_that_are_there() -> None:
    _, ttft = fold("vllm", figures("vllm", VLLM), NOW)
    assert 23 == len(ttft)
    assert (0.001, float("inf")) == (ttft[0].bound, ttft[-1].bound)
    # seven of eight lie between 0.25 and 0.5 s
    assert 0.25 + 0.25 * 3 / 7 == quantile(ttft, 0.5)


def test_a_real_page_of_llama_server_is_read_whole_and_has_no_time_to_first_token() -> None:
    read, ttft = fold("llama.cpp", figures("llama.cpp", LLAMA), NOW)
    assert (
        EngineSample(
            at_seconds=NOW,
            running=2.0,
            waiting=3.0,
            waiting_for_capacity=3.0,
            prompt_tokens=14.0,
            generated_tokens=0.0,
        )
        == read
    )
    assert () == ttft


def test_slots_say_how_much_of_the_cells_is_in_use() -> None:
    assert 0.0 == slots_used(SLOTS)
    slot = {
        "n_ctx": 512, "is_processing": True, "n_prompt_tokens_cache": 100,
        "n_prompt_tokens_processed": 20, "next_token": [{"n_decoded": 8}],
    }  # fmt: skip
    idle = slot | {"is_processing": False}
    assert 0.125 == slots_used(json.dumps([slot, idle]).encode())
    for unknown in (b"[]", b"{}", b"no", b'[{"n_ctx": 512}]', b'{"error": {"code": 501}}'):
        assert slots_used(unknown) is None


def page(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def test_names_of_older_releases_are_known() -> None:
    older = page('vllm:gpu_cache_usage_perc{model_name="m"} 0.25', "vllm:num_requests_running 4")
    assert (0.25, 4.0) == (sample("vllm", older).kv_used, sample("vllm", older).running)
    both = older + page('vllm:kv_cache_usage_perc{model_name="m"} 0.5')
    assert 0.5 == sample("vllm", both).kv_used


def test_data_parallel_engines_are_added_up_and_shares_averaged() -> None:
    two = page(
        'vllm:num_requests_running{engine="0"} 3',
        'vllm:num_requests_running{engine="1"} 4',
        'vllm:kv_cache_usage_perc{engine="0"} 0.2',
        'vllm:kv_cache_usage_perc{engine="1"} 0.6',
    )
    assert 7.0 == sample("vllm", two).running
    assert 0.4 == sample("vllm", two).kv_used


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_what_is_no_number_is_unknown_and_the_rest_stands(value: str) -> None:
    odd = page(f"vllm:num_requests_running {value}", "vllm:num_requests_waiting 2")
    assert (None, 2.0) == (sample("vllm", odd).running, sample("vllm", odd).waiting)


@pytest.mark.parametrize(
    "lines",
    [
        ('{le="0.1"} 3', '{le="1.0"} 2', '{le="+Inf"} 3'),
        ('{le="0.1"} 3', '{le="1.0"} NaN', '{le="+Inf"} 3'),
        ('{le="0.1"} 3', '{le="1.0"} 3'),
        ('{le="often"} 3', '{le="+Inf"} 3'),
    ],
)
def test_buckets_that_make_no_sense_are_none(lines: tuple[str, ...]) -> None:
    odd = page(*(f"vllm:time_to_first_token_seconds_bucket{line}" for line in lines))
    assert () == fold("vllm", figures("vllm", odd), NOW)[1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (VLLM[:-1000].rstrip(b"\n"), Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (b"<html></html>\n", Reason.ABSENT),
        (b"vllm:num_requests_running{engine=\n", Reason.MALFORMED),
        (b"vllm:num_requests_running many\n", Reason.MALFORMED),
        (b'vllm:num_requests_running{x="\xff"} 1\n', Reason.MALFORMED),
        (LLAMA, Reason.ABSENT),
    ],
)
def test_what_is_no_page_of_ours_is_refused(body: bytes, reason: Reason) -> None:
    with pytest.raises(ScrapeError) as refused:
        sample("vllm", body)
    assert reason == refused.value.reason


def scraping(*workers: WatchedWorker, **answers: Any) -> tuple[Seen, Counts, list[str]]:
    """Scrape workers whose engines all answer at one address."""

    async def run() -> tuple[Seen, Counts, list[str]]:
        async def no_pause(_: float) -> None:
            return None

        counts, fetcher = Counts(), Fetcher(timeout_seconds=30.0)
        async with page_box() as box:
            box.answers = {f"/{path}": answer for path, answer in answers.items()}
            source = EngineSource(
                fetcher,
                rounds=Rounds(
                    in_flight=2, round_seconds=30.0, clock=lambda: 0.0,
                    chance=lambda: 0.5, pause=no_pause,
                ),
                tally=counts,
                clock=lambda: 0.0,
                wall_clock=lambda: NOW,
            )  # fmt: skip
            seen = await source.read(
                [w._replace(address=w.address and box.address) for w in workers]
            )
            await fetcher.close()
            return seen, counts, [request.path for request in box.asked]

    return asyncio.run(run())


def test_an_engine_is_scraped_once_it_has_started(worker: WatchedWorker) -> None:
    started = worker._replace(address="here")
    seen, counts, _ = scraping(started, worker._replace(pod_uid="uid-2"), metrics=VLLM)
    (reading,) = seen.engines
    assert isinstance(reading, EngineReading)
    assert ("uid-1", 5600.0, True) == (
        reading.pod_uid, reading.sample.generated_tokens, reading.sample.healthy,
    )  # fmt: skip
    assert ["engine"] == counts.answered


def test_llama_servers_slots_are_asked_for_too_and_may_be_missing(worker: WatchedWorker) -> None:
    llama = worker._replace(engine="llama.cpp", address="here")
    seen, _, asked = scraping(llama, metrics=LLAMA, slots=SLOTS)
    assert (["/metrics", "/slots"], 0.0) == (asked, seen.engines[0].sample.kv_used)
    seen, counts, _ = scraping(llama, metrics=LLAMA, slots=501)
    assert (None, 2.0) == (seen.engines[0].sample.kv_used, seen.engines[0].sample.running)
    assert [] == counts.reasons


def test_an_engine_of_a_kind_that_is_not_known_is_left_alone(worker: WatchedWorker) -> None:
    seen, _, asked = scraping(worker._replace(engine="sglang", address="here"), metrics=VLLM)
    assert (Seen(), []) == (seen, asked)


def test_an_engine_that_fails_leaves_its_neighbours_alone(worker: WatchedWorker) -> None:
    llama = worker._replace(pod_uid="uid-2", engine="llama.cpp", address="here")
    seen, counts, _ = scraping(worker._replace(address="here"), llama, metrics=VLLM)
    assert (["uid-1"], [Reason.ABSENT]) == ([r.pod_uid for r in seen.engines], counts.reasons)
