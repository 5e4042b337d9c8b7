"""Does the stand-in schedule as vLLM does, step by step, and is its counted time the same each time?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.gateway import counted, dilemma, page
from benchmarks.gateway.parts import PARTS

from stand_ins.batching import Engine, Pinned, Seq

RECORD: Final = Path(__file__).resolve().parents[2] / "data" / "vllm_scheduler.json"
CASES: Final[list[dict[str, Any]]] = json.loads(RECORD.read_text())["cases"]


def scheduled(engine: Engine, requests: list[list[int]]) -> Iterator[str]:
    """Each step as the record has it: request:tokens, the first request first."""
    number: dict[Seq, int] = {}
    arriving = list(enumerate(requests))
    step = 0
    while arriving or engine.running or engine.waiting:
        while arriving and arriving[0][1][0] == step:
            place, (_, prompt, answer, priority) = arriving.pop(0)
            number[engine.submit(prompt, answer, priority)] = place
        work = engine.schedule()
        yield " ".join(f"{number[each]}:{each.scheduled}" for each in work)
        for each in work:
            engine.advance(each)
        step += 1


def in_order(step: str) -> list[str]:
    return sorted(step.split())


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_each_step_is_that_of_vllm(case: dict[str, Any]) -> None:
    pinned = Pinned(
        kv_tokens=case["kv_tokens"],
        max_num_seqs=case["max_num_seqs"],
        step_tokens=case["step"],
        long_prefill_tokens=case["threshold"],
        long_prefill_adaptive=case["adaptive"],
        by_priority=case["by_priority"],
    )
    engine = Engine("engine", pinned)
    ours = [in_order(step) for step in scheduled(engine, case["requests"])]
    assert [in_order(step) for step in case["steps"]] == ours[: len(case["steps"])]
    assert not any(ours[len(case["steps"]) :])
    assert ("too small" in case["name"]) == (engine.preempted > 0)


def test_lanes_that_are_paced_keep_chat_and_serve_more_of_the_batch_than_a_split() -> None:
    """In counted time, so no other work on the machine has a say."""
    run = dilemma.Run(seconds=60, lapse=1)
    alone, paced, split = (
        counted.measure(counted.Question(mode, "sum", run)) for mode in dilemma.SHORT_MODES
    )
    assert paced == counted.measure(counted.Question("paced", "sum", run))
    assert paced.asked == alone.asked == split.asked > 300
    assert 0 == paced.asked - paced.served
    assert paced.ttft_p95_seconds <= 2 * alone.ttft_p95_seconds < split.ttft_p95_seconds
    assert split.refused > 0
    assert paced.batch_per_minute >= 1.3 * split.batch_per_minute
    assert 0 == alone.batch_per_minute


def test_figures_stand_between_their_marks_and_nothing_else_is_touched() -> None:
    first, last = page.marks("cost")
    text = f"above\n\n{first}\n\nold\n\n{last}\n\nbelow\n"
    once = page.with_figures(text, "cost", "new")
    assert text.replace("old", "new") == once
    assert once == page.with_figures(once, "cost", "new")
    with pytest.raises(SystemExit, match="has no place for figures of moves"):
        page.with_figures(text, "moves", "new")


@pytest.mark.parametrize("part", PARTS)
def test_the_page_has_a_place_for_each_parts_figures(part: str) -> None:
    assert "| new |" in page.with_figures(page.PAGE.read_text(), part, "| new |")
