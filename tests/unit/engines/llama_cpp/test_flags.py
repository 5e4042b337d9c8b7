"""Flags by release, and what a plan pins."""

from __future__ import annotations

import pytest

from plimsoll.engines.base import Flag, Release
from plimsoll.engines.llama_cpp.flags import (
    ROWS,
    LlamaCppSettings,
    pinned_flags,
    release_row,
)
from plimsoll.units import MIB

SETTINGS = LlamaCppSettings(
    ctx_size=16384,
    slots=2,
    gpu_layers=63,
    shares=(1,),
    batch_tokens=2048,
    ubatch_tokens=512,
    cache_type="f16",
    cache_ram_bytes=5120 * MIB,
    checkpoints_per_slot=0,
)
NEWEST = Release.of("b11669")


def words(flags: tuple[Flag, ...]) -> str:
    return " ".join(word for flag in flags for word in flag.as_args())


def test_everything_is_explicit() -> None:
    """Accepted word for word by Debian's llama-server 0.7.0, build 11669."""
    assert words(pinned_flags(SETTINGS, NEWEST)) == (
        "--ctx-size 16384 --parallel 2 --no-kv-unified --n-gpu-layers 63 --batch-size 2048 "
        "--ubatch-size 512 --flash-attn on --cache-type-k f16 --cache-type-v f16 --cache-ram 5120 "
        "--fit off --no-context-shift --warmup --metrics --slots --log-verbosity 4"
    )


def test_several_cards_are_split_by_layers_in_equal_shares() -> None:
    flags = pinned_flags(SETTINGS._replace(shares=(1, 1, 1, 1)), NEWEST)
    assert "--split-mode layer --tensor-split 1,1,1,1" in words(flags)


def test_cards_that_hold_unequal_parts_get_as_many_layers_as_they_hold() -> None:
    flags = pinned_flags(SETTINGS._replace(shares=(33, 30)), NEWEST)
    assert "--split-mode layer --tensor-split 33,30" in words(flags)
    assert ["layers of each card, so that the fullest holds its part"] == [
        flag.reason for flag in flags if flag.name == "--tensor-split"
    ]


def test_experts_in_host_memory_are_pinned_with_their_reason() -> None:
    flags = pinned_flags(SETTINGS._replace(host_experts=12), NEWEST)
    (flag,) = [flag for flag in flags if flag.name == "--n-cpu-moe"]
    assert "12" == flag.value
    assert "experts stay in host memory" in flag.reason
    assert "--n-cpu-moe" not in words(pinned_flags(SETTINGS, NEWEST))


def test_checkpoints_are_pinned_where_a_model_takes_them() -> None:
    flags = pinned_flags(SETTINGS._replace(checkpoints_per_slot=2), NEWEST)
    assert "--ctx-checkpoints 2" in words(flags)


def test_older_builds_get_only_what_they_know() -> None:
    flags = words(pinned_flags(SETTINGS, Release.of("b7410")))
    assert "--fit off" in flags
    assert [] == [
        name for name in ("--no-kv-unified", "--warmup", "--log-verbosity") if name in flags
    ]


def test_an_override_is_shown_as_one() -> None:
    flags = pinned_flags(SETTINGS, NEWEST, overrides=frozenset({"--n-gpu-layers"}))
    assert ["--n-gpu-layers"] == [flag.name for flag in flags if flag.override]


def test_paths_and_ports_are_left_to_the_renderer() -> None:
    names = {flag.name for flag in pinned_flags(SETTINGS, NEWEST)}
    assert set() == names & {"--model", "--alias", "--host", "--port"}
    assert {"--model", "--alias", "--host", "--port"} <= {row.name for row in ROWS}


def test_every_pinned_flag_has_a_row_and_every_row_a_source() -> None:
    several = SETTINGS._replace(shares=(1, 1), checkpoints_per_slot=1, host_experts=1)
    assert {flag.name for flag in pinned_flags(several, NEWEST)} <= {row.name for row in ROWS}
    assert all(row.source for row in ROWS)


def test_no_spelling_belongs_to_two_rows() -> None:
    spellings = [spelling for row in ROWS for spelling in (row.name, *row.aliases, *row.env)]
    assert sorted(set(spellings)) == sorted(spellings)


@pytest.mark.parametrize(
    ("written", "row"),
    [
        ("b11434", "b11434"),
        ("b11669", "b11669"),
        ("11549", "b11549"),
        ("server-cuda-b11434", "b11434"),
        ("full-cuda12-b11669", "b11669"),
        ("0.7.0", "b11669"),
        ("v0.6.0", "b11434"),
        ("0.9.2", "b11669"),
    ],
)
def test_a_release_is_read_from_what_people_write(written: str, row: str) -> None:
    assert (row, None) == (release_row(written).text, release_row(written).note)


@pytest.mark.parametrize(
    ("written", "row"),
    [
        (None, "b11669"),
        ("server-cuda", "b11669"),
        ("server-2026-10-06", "b11669"),
        ("0.1.0", "b11669"),
        ("b12345", "b11669"),
        ("b9993", "b9500"),
        ("b5000", "b7410"),
    ],
)
def test_a_release_that_is_not_in_the_table_is_said(written: str | None, row: str) -> None:
    found = release_row(written)
    assert row == found.text
    assert found.note is not None
    assert row in found.note
