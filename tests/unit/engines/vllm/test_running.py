"""Settings of a vLLM that runs."""

from __future__ import annotations

import pytest

from plimsoll.engines.base import EngineName, Release
from plimsoll.engines.reading import read_words
from plimsoll.engines.vllm.running import VllmRun, choices, human_int, vllm_run
from plimsoll.units import GIB


def run(line: str) -> VllmRun:
    return vllm_run(read_words(EngineName.VLLM, line.split()))


@pytest.mark.parametrize(
    ("text", "number"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("1M", 2**20), ("2g", 2 * 10**9),
     ("x", None), ("-1", None)],
)  # fmt: skip
def test_small_letters_are_decimal_and_capitals_binary(text: str, number: int | None) -> None:
    assert number == human_int(text)


@pytest.mark.parametrize("written", ["-1", "auto"])
def test_a_length_may_be_left_to_the_engine(written: str) -> None:
    found = run(f"a/b --max-model-len {written}")
    assert (None, True) == (found.max_model_len, found.is_length_fitted)
    assert () == found.unreadable


def test_the_last_word_counts_and_graphs_may_be_off() -> None:
    found = run(
        "a/b -tp 2 -pp 4 --enforce-eager --max-cudagraph-capture-size 64 --max-num-seqs 4 --max-num-seqs 8"
    )
    assert (8, 0, 8) == (found.cards, found.most_graph_rows, found.max_num_seqs)


@pytest.mark.parametrize(
    "written",
    [
        "--gpu-memory-utilization nan",
        "--gpu-memory-utilization 7",
        "--max-num-seqs 0",
        "--max-num-seqs many",
        "-tp $(N)",
    ],
)
def test_what_is_no_value_is_kept_apart(written: str) -> None:
    assert [written] == [said.written for said in run(f"a/b {written}").unreadable]


def test_kserves_own_names_of_the_model_are_read() -> None:
    assert ("a/b", ("x",)) == (
        run("--model_id=a/b --model_name=x").model,
        run("--model_name=x").served,
    )


def test_switched_off_is_not_set() -> None:
    assert () == run("a/b --disable-lora --cpu-offload-gb 0 -dcp 1").beyond
    assert ("--cpu-offload-gb", "--enable-lora") == run(
        "a/b --enable-lora --cpu-offload-gb 4"
    ).beyond


@pytest.mark.parametrize(
    ("release", "share", "swap"), [("0.17.1", "0.9", True), ("0.18.0", "0.9", False), ("0.20.0", "0.92", False)]
)  # fmt: skip
def test_choices_follow_the_release(release: str, share: str, swap: bool) -> None:
    chosen = dict(choices(Release.of(release), total_bytes=24 * GIB, product="x", longest=4096))
    assert share == chosen["--gpu-memory-utilization"].value
    assert swap is ("--swap-space" in chosen)
    assert ("256", "4096") == (chosen["--max-num-seqs"].value, chosen["--max-model-len"].value)
