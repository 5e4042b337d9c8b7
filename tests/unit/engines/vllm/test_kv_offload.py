"""Do the scheduler's and the memory manager's views come out as vLLM itself has them?"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

import kv_rows
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import kv, kv_offload
from plimsoll.facts.gpu import GpuVendor
from plimsoll.units import GIB

ROWS: Final[list[dict[str, Any]]] = json.loads(
    (kv_rows.DATA / "vllm_kv_offload.json").read_text(encoding="utf-8")
)["rows"]
ANSWERED: Final = [row for row in ROWS if "refused" not in row]
NEWEST: Final = Release.of("0.33.0")


def _name(row: dict[str, Any]) -> str:
    model = row["config"].rpartition("/")[2].removesuffix(".json")
    extra = ",".join(f"{key}={value}" for key, value in row["extra"].items())
    return f"{model}-tp{row.get('tp', 1)}-{row['max_model_len']}-{extra}"


def layout_of(row: dict[str, Any], release: Release = NEWEST) -> kv.PagedLayout:
    """The layout that the plan stands on."""
    found = kv.layout(
        kv_rows.model_of(row["config"]),
        cards=row.get("tp", 1),
        kv_dtype=row.get("kv_cache_dtype", "auto"),
        release=release,
        max_model_len=row["max_model_len"],
        max_num_batched_tokens=8192,
        capability=(9, 0),
        has_prefix_caching=row.get("enable_prefix_caching"),
    )
    assert isinstance(found, kv.PagedLayout), found
    return found


def kept_of(
    row: dict[str, Any], release: Release = NEWEST, vendor: GpuVendor = GpuVendor.NVIDIA
) -> kv_offload.Kept:
    """The memory manager's view."""
    return kv_offload.kept(
        layout_of(row),
        kv_rows.model_of(row["config"]),
        row["host_bytes"],
        cards=row.get("tp", 1),
        release=release,
        vendor=vendor,
        blocks_per_chunk=row["blocks_per_chunk"],
    )


def row_of(config: str, **extra: int) -> dict[str, Any]:
    """The first row of that model with those keys."""
    return next(row for row in ANSWERED if config in row["config"] and row["extra"] == extra)


@pytest.mark.parametrize("row", ANSWERED, ids=_name)
def test_the_scheduler_takes_chunks_as_we_say(row: dict[str, Any]) -> None:
    found = kv_offload.schedule(layout_of(row), NEWEST, row["blocks_per_chunk"])
    assert sorted(row["tokens_per_block"]) == sorted(found.group_block_tokens)
    assert row["tokens_per_hash"] == found.hash_tokens
    assert all(block % found.hash_tokens == 0 for block in found.group_block_tokens)


@pytest.mark.parametrize("row", ANSWERED, ids=_name)
def test_the_memory_manager_keeps_as_many_chunks_of_as_many_bytes(row: dict[str, Any]) -> None:
    found = kept_of(row)
    copies = 1 if row["one_copy"] else row.get("tp", 1)
    assert (copies, row["chunk_bytes"], row["chunks"]) == (
        found.copies,
        found.chunk_bytes,
        found.chunks,
    )
    assert row["chunks"] * row["chunk_bytes"] == found.shared_bytes <= row["host_bytes"]


@pytest.mark.parametrize("row", ANSWERED, ids=_name)
def test_no_more_tokens_are_promised_than_the_engine_counts(row: dict[str, Any]) -> None:
    schedule = kv_offload.schedule(layout_of(row), NEWEST, row["blocks_per_chunk"])
    found = kept_of(row).tokens(schedule, row["max_model_len"])
    if row["window_chunks"] == [None]:
        assert row["tokens"] == found
    assert 0 < found <= row["tokens"]


@pytest.mark.parametrize(
    "row",
    [row for row in ANSWERED if len(set(row["tokens_per_block"])) == 1],
    ids=_name,
)
def test_capacity_is_divided_by_the_number_of_groups(row: dict[str, Any]) -> None:
    schedule = kv_offload.schedule(layout_of(row), NEWEST, row["blocks_per_chunk"])
    found = kept_of(row).tokens(schedule, row["max_model_len"])
    undivided = kept_of(row).chunks * schedule.chunk_tokens[0]
    share = found * len(row["tokens_per_block"]) / undivided
    assert 0.9 < share <= 1  # the last chunk of a sequence is seldom full


def test_memory_is_pinned_at_up_to_twice_its_size_up_to_0_26_and_shared_from_0_27() -> None:
    row = row_of("llama-3.1-8b")
    older, newer = kept_of(row, Release.of("0.26.0")), kept_of(row, Release.of("0.27.0"))
    assert (0, 128 * GIB) == (older.shared_bytes, older.pinned_bytes)
    assert (64 * GIB, 0) == (newer.shared_bytes, newer.pinned_bytes)


@pytest.mark.parametrize(
    ("release", "vendor", "is_shared"),
    [
        ("0.26.0", GpuVendor.NVIDIA, False),
        ("0.27.0", GpuVendor.NVIDIA, True),
        ("0.27.0", GpuVendor.AMD, True),
        ("0.30.0", GpuVendor.AMD, True),
        ("0.31.0", GpuVendor.AMD, False),
        ("0.31.0", GpuVendor.INTEL, False),
        ("0.32.0", GpuVendor.INTEL, True),
        ("0.33.0", GpuVendor.NVIDIA, True),
    ],
)
def test_where_chunks_lie(release: str, vendor: GpuVendor, is_shared: bool) -> None:
    assert is_shared == kv_offload.is_in_shared_memory(Release.of(release), vendor)


def test_twice_covers_what_was_measured_on_four_kv_groups() -> None:
    """vllm-project/vllm#53042, 0.26.0 over four cards: 769 GiB for 400, 385 GiB for 200."""
    row = row_of("qwen3-next") | {"tp": 4, "host_bytes": 400 * GIB}
    found = kept_of(row, Release.of("0.26.0"))
    assert 769 * GIB <= found.pinned_bytes <= 800 * GIB


@pytest.mark.parametrize(
    ("config", "release", "copies"),
    [
        ("deepseek-v3.json", "0.26.0", 8),
        ("deepseek-v3.json", "0.27.0", 1),
        ("deepseek-v3.2.json", "0.30.0", 8),
        ("deepseek-v3.2.json", "0.31.0", 1),
        ("qwen3-30b-a3b.json", "0.33.0", 8),
    ],
)
def test_latents_are_kept_once_from_the_release_that_can(
    config: str, release: str, copies: int
) -> None:
    assert copies == kept_of(row_of(config), Release.of(release)).copies


@pytest.mark.parametrize(
    ("release", "key", "value"),
    [("0.25.1", "block_size", 256), ("0.26.0", "blocks_per_chunk", 16)],
)
def test_a_chunk_is_told_in_the_words_of_the_release(release: str, key: str, value: int) -> None:
    layout = layout_of(row_of("llama-3.1-8b"))
    schedule = kv_offload.schedule(layout, Release.of(release), 16)
    found = json.loads(kv_offload.connector_config(64 * GIB, schedule, Release.of(release)))
    assert {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 64 * GIB, key: value},
    } == found


def test_one_block_is_nobodys_business() -> None:
    layout = layout_of(row_of("llama-3.1-8b"))
    schedule = kv_offload.schedule(layout, NEWEST, 1)
    found = json.loads(kv_offload.connector_config(GIB, schedule, NEWEST))
    assert {"cpu_bytes_to_use": GIB} == found["kv_connector_extra_config"]


def test_before_0_22_the_attention_block_is_the_hash_unit() -> None:
    layout = layout_of(row_of("deepseek-v4-flash"))
    older = kv_offload.schedule(layout, Release.of("0.21.0"), 1)
    assert 256 == older.hash_tokens
    assert any(block % older.hash_tokens for block in older.group_block_tokens)
    newer = kv_offload.schedule(layout, Release.of("0.22.0"), 1)
    assert all(block % newer.hash_tokens == 0 for block in newer.group_block_tokens)


@pytest.mark.parametrize(
    ("release", "needs"), [("0.14.1", False), ("0.15.0", True), ("0.27.1", True), ("0.28.0", False)]
)
def test_states_are_asked_to_the_ends_of_blocks_where_that_is_no_default(
    release: str, needs: bool
) -> None:
    assert needs == kv_offload.needs_align_flag(Release.of(release))
