"""Recorded deaths: what each engine said, and what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.deaths_moves import MOVES
from plimsoll.diagnose.death import Books, classify, phase_by_bytes
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.engines.base import EngineName
from plimsoll.facts.worker import ContainerEnd
from plimsoll.units import GIB, MIB

DATA = Path(__file__).parents[2] / "data"
ROWS: list[dict[str, Any]] = json.loads((DATA / "deaths.json").read_text(encoding="utf-8"))
KEPT_OF_A_LOG, KEPT_OF_A_MESSAGE = 2048, 4096
ENGINES = {"vllm": EngineName.VLLM, "llama.cpp": EngineName.LLAMA_CPP}


def end_of(row: dict[str, Any], **changes: Any) -> ContainerEnd:
    return ContainerEnd.model_validate(row["end"] | changes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_recorded_death_is_what_it_was(row: dict[str, Any]) -> None:
    death = classify(end_of(row))
    assert row["kind"] == death.kind.value
    assert row["numbers"] == death.numbers
    assert death.sentence.endswith(".")
    assert "\n" not in death.sentence


def test_every_kind_has_a_recorded_death() -> None:
    assert {kind.value for kind in DeathKind} == {row["kind"] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_message_cut_off_at_its_beginning_never_becomes_another_death_that_is_moved_for(
    row: dict[str, Any],
) -> None:
    """A kubelet keeps the end; where the cut falls depends on the length of paths."""
    message = row["end"]["message"]
    engine = ENGINES[row["end"]["engine"]]
    whole = MOVES.get((DeathKind(row["kind"]), engine), ())
    for at in range(0, len(message), 7):
        kind = classify(end_of(row, message=message[at:])).kind
        cut = MOVES.get((kind, engine), ())
        assert not cut or cut[:1] == whole[:1], f"{kind.value}: {message[at:]}"


def test_the_end_of_a_log_hides_what_the_engine_said_and_the_sentence_says_where_it_is() -> None:
    (row,) = (row for row in ROWS if row["name"] == "the server's words hide the engine's")
    assert KEPT_OF_A_LOG == len(row["end"]["message"].encode())
    death = classify(end_of(row))
    assert DeathKind.UNKNOWN is death.kind
    assert "kubectl logs --previous" in death.sentence


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [(row["end"]["message"], row["kind"]) for row in ROWS
     if row["kind"] in ("NoRoomForBlocks", "LengthTooLong", "MemoryHeldByOthers")
     and "cut off" not in row["name"]],
)  # fmt: skip
def test_what_a_rank_said_is_still_there_in_the_termination_message(
    refusal: str, kind: str
) -> None:
    """The words of a real start that failed on a rank, with another last line for the rank."""
    words = (DATA / "vllm_last_words.txt").read_text(encoding="utf-8")
    said = "AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'\n"
    assert said in words
    last_line = refusal.strip().rpartition("ValueError: ")[2] + "\n"
    kept = words.replace(said, f"ValueError: {last_line}").encode()[-KEPT_OF_A_MESSAGE:].decode()
    end = ContainerEnd(exit_code=1, reason="Error", message=kept, was_ready=False, engine="vllm")
    assert kind == classify(end).kind.value


BOOKS = Books(weights=15 * GIB, activation=GIB, pool=6 * GIB)


@pytest.mark.parametrize(
    ("allocated", "kind"),
    [
        (9 * GIB, DeathKind.CUDA_OOM_AT_LOAD),
        (16 * GIB, DeathKind.CUDA_OOM_AT_START),
        (21 * GIB, DeathKind.CUDA_OOM_AT_CAPTURE),
    ],
)
def test_what_was_allocated_tells_the_phase_that_the_text_does_not(
    allocated: int, kind: DeathKind
) -> None:
    assert kind is phase_by_bytes(allocated, BOOKS)
    words = f"CUDA out of memory. Tried to allocate 64.00 MiB. {allocated / GIB:.2f} GiB is allocated by PyTorch"
    end = ContainerEnd(exit_code=1, reason="Error", message=words, was_ready=False, engine="vllm")
    assert kind is classify(end, BOOKS).kind
    assert DeathKind.CUDA_OOM_AT_START is classify(end).kind


def test_a_cache_smaller_than_a_step_tells_no_phase() -> None:
    small = Books(weights=15 * GIB, activation=2 * GIB, pool=512 * MIB)
    assert DeathKind.CUDA_OOM_AT_START is phase_by_bytes(17 * GIB, small)
