"""Is every value explicit, and only in releases that know the flag?"""

from __future__ import annotations

import pytest

from plimsoll.engines.base import Release
from plimsoll.engines.vllm.flags import ROWS, VllmSettings, pinned_flags

SETTINGS = VllmSettings(
    dtype="bfloat16",
    tensor_parallel_size=4,
    gpu_memory_utilization=0.95,
    max_model_len=16384,
    max_num_seqs=31,
    max_num_batched_tokens=2048,
    kv_cache_dtype="auto",
    block_size=16,
    largest_graph=62,
)


def _args(release: str) -> list[str]:
    return [word for flag in pinned_flags(SETTINGS, Release.of(release)) for word in flag.as_args()]


def test_swap_space_is_pinned_to_zero_up_to_0_17_and_gone_from_0_18() -> None:
    old = _args("0.17.1")
    assert old[old.index("--swap-space") + 1] == "0"
    assert "--swap-space" not in _args("0.18.0")


@pytest.mark.parametrize("release", ["0.8.5", "0.17.1", "0.22.1", "0.33.0"])
def test_utilization_is_always_explicit(release: str) -> None:
    args = _args(release)
    assert args[args.index("--gpu-memory-utilization") + 1] == "0.950"


@pytest.mark.parametrize(
    ("flag", "before", "since"),
    [
        ("--shutdown-timeout", "0.17.1", "0.18.0"),
        ("--max-cudagraph-capture-size", "0.11.0", "0.11.2"),
        ("--async-scheduling", "0.13.0", "0.14.0"),
    ],
)
def test_a_flag_is_there_from_its_release_on(flag: str, before: str, since: str) -> None:
    assert flag not in _args(before)
    assert flag in _args(since)


def test_a_block_size_is_left_to_the_backend_of_mla() -> None:
    open_size = SETTINGS._replace(block_size=None)
    names = [flag.name for flag in pinned_flags(open_size, Release.of("0.33.0"))]
    assert "--block-size" not in names


def test_an_override_is_marked() -> None:
    flags = pinned_flags(SETTINGS, Release.of("0.33.0"), overrides=frozenset({"--max-num-seqs"}))
    assert [flag.name for flag in flags if flag.override] == ["--max-num-seqs"]


def test_every_pinned_flag_is_guarded_against_extra_args() -> None:
    guarded = {row.name for row in ROWS}
    for release in ("0.8.5", "0.17.1", "0.33.0"):
        assert {flag.name for flag in pinned_flags(SETTINGS, Release.of(release))} <= guarded
