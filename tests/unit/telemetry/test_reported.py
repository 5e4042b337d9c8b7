"""Is what an engine says of its pool and slots read, release by release?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import worlds
from page_box import page_box
from plimsoll.engines.base import EngineName
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan
from plimsoll.plan.reported import EngineReport
from plimsoll.plan.verify import Verified, geometry_of, verify
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.reported import ReportReader, report_of_llama_server, report_of_vllm
from plimsoll.telemetry.source import Reason, ScrapeError

DATA = Path(__file__).parents[2] / "data"
RELEASES: dict[str, dict[str, str]] = json.loads((DATA / "vllm_cache_config_info.json").read_text())
REAL = (DATA / "vllm_metrics.txt").read_bytes()
PROPS = (DATA / "llama_server_props.json").read_bytes()
SLOTS = (DATA / "llama_server_slots.json").read_bytes()
GROUP_AWARE_SINCE = (0, 24)


def page(*label_sets: dict[str, str]) -> bytes:
    lines = [
        "vllm:cache_config_info{"
        + ",".join(f'{name}="{value}"' for name, value in labels.items())
        + "} 1.0"
        for labels in label_sets
    ]
    return "\n".join(("vllm:num_requests_running 0.0", *lines, "")).encode()


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_says_blocks_and_share_and_newer_ones_what_they_hold(release: str) -> None:
    is_group_aware = tuple(map(int, release.split(".")[:2])) >= GROUP_AWARE_SINCE
    assert report_of_vllm(page(RELEASES[release])) == EngineReport(
        engine=EngineName.VLLM,
        blocks=3430,
        block_tokens=16,
        tokens=54_880 if is_group_aware else None,
        concurrency=6.69921875 if is_group_aware else None,
        utilization=0.903,
    )


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_can_be_compared_with_its_plan(release: str) -> None:
    request = worlds.eight_b_on_a_4090(release=release)
    found = plan(request)
    assert isinstance(found, Plan)
    outcome = verify(found, report_of_vllm(page(RELEASES[release])), geometry_of(request, found))
    assert isinstance(outcome, Verified)
    assert outcome.compared.tokens.reported == 3429 * 16
    assert outcome.compared.sequences.reported == 3429 // 512


def test_a_real_page_is_read() -> None:
    assert report_of_vllm(REAL) == EngineReport(
        engine=EngineName.VLLM,
        blocks=32,
        block_tokens=128,
        tokens=4096,
        concurrency=2.0,
        utilization=0.92,
        sized_by="kv_cache_memory_bytes",
    )


@pytest.mark.parametrize("name", ["num_gpu_blocks_override", "kv_cache_memory_bytes"])
def test_what_sizes_the_pool_by_hand_is_named(name: str) -> None:
    assert report_of_vllm(page(RELEASES["0.24.0"] | {name: "512"})).sized_by == name


@pytest.mark.parametrize("value", ["None", "0", "-1", "many", "nan", "inf", "1.5", ""])
def test_what_is_no_number_of_blocks_is_unknown(value: str) -> None:
    assert report_of_vllm(page(RELEASES["0.33.0"] | {"num_gpu_blocks": value})).blocks is None


def test_data_parallel_engines_are_counted() -> None:
    labels = RELEASES["0.33.0"]
    assert report_of_vllm(page(labels, labels | {"engine": "1"})).engines == 2


def test_a_page_without_the_line_is_no_report() -> None:
    with pytest.raises(ScrapeError) as caught:
        report_of_vllm(b"vllm:num_requests_running 0.0\n")
    assert caught.value.reason is Reason.ABSENT


def test_a_broken_line_is_no_report() -> None:
    with pytest.raises(ScrapeError) as caught:
        report_of_vllm(b'vllm:cache_config_info{block_size="16\n')
    assert caught.value.reason is Reason.MALFORMED


def test_the_props_of_a_real_llama_server_are_read() -> None:
    expected = EngineReport(EngineName.LLAMA_CPP, slots=2, slot_tokens=512)
    assert report_of_llama_server(PROPS, SLOTS) == expected
    assert report_of_llama_server(PROPS) == expected
    assert report_of_llama_server(b"{}", SLOTS) == expected


def test_where_props_and_slots_differ_the_smaller_counts() -> None:
    slots = json.dumps([{"n_ctx": 512}, {"n_ctx": 256}, {"n_ctx": 512}]).encode()
    found = report_of_llama_server(PROPS, slots)
    assert (found.slots, found.slot_tokens) == (2, 256)


@pytest.mark.parametrize("props", [b"", b"[]", b"null", b"<html>", b"[" * 100_000])
def test_what_is_no_props_is_no_report(props: bytes) -> None:
    with pytest.raises(ScrapeError):
        report_of_llama_server(props)


@pytest.mark.parametrize(
    "props",
    [
        b"{}",
        b'{"total_slots": true, "default_generation_settings": {"n_ctx": "512"}}',
        b'{"total_slots": 0, "default_generation_settings": []}',
    ],
)
def test_what_props_do_not_say_is_unknown(props: bytes) -> None:
    assert report_of_llama_server(props) == EngineReport(EngineName.LLAMA_CPP)


@pytest.mark.parametrize("slots", [b"", b"{}", b'[{"n_ctx": 512}, 7]', b'[{"n_ctx": null}]'])
def test_slots_that_cannot_be_read_are_passed_over(slots: bytes) -> None:
    assert report_of_llama_server(PROPS, slots).slots == 2


def _read(engine: str, pages: dict[str, bytes]) -> EngineReport:
    async def ask() -> EngineReport:
        fetcher = Fetcher()
        async with page_box() as box:
            box.answers.update(pages)
            worker = WorkerFacts(name="w", uid="w", pool="p", engine=engine, address=box.address)
            try:
                return await ReportReader(fetcher).read(worker)
            finally:
                await fetcher.close()

    return asyncio.run(ask())


def test_each_engine_is_asked_where_it_answers() -> None:
    assert _read("vllm", {"/metrics": REAL}).blocks == 32
    assert _read("llama.cpp", {"/props": PROPS, "/slots": SLOTS}).slots == 2
    assert _read("llama.cpp", {"/props": PROPS}).slots == 2
    with pytest.raises(ScrapeError):
        _read("sglang", {"/metrics": REAL})
