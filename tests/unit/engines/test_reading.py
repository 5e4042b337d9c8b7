"""Command lines, as the engines' own parsers read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_parsers import Ended, llama_flags, llama_reads, vllm_actions, vllm_reads
from plimsoll.engines.base import EngineName
from plimsoll.engines.options import ROWS
from plimsoll.engines.reading import Reading, Trouble, read_words

VLLM, LLAMA_CPP = EngineName.VLLM, EngineName.LLAMA_CPP
FATAL = {
    Trouble.AMBIGUOUS,
    Trouble.VALUE_OF_SWITCH,
    Trouble.NO_VALUE,
    Trouble.UNKNOWN_FLAG,
    Trouble.ENDED,
    Trouble.STRAY,
}


def vllm(line: str) -> Reading:
    return read_words(VLLM, line.split())


def troubles(reading: Reading) -> dict[str, Trouble]:
    return {doubt.written: doubt.trouble for doubt in reading.doubts}


@pytest.mark.parametrize(
    "written",
    [
        "--max-model-len 8192",
        "--max-model-len=8192",
        "--max_model_len=8192",
        "--max_model_len 8192",
        "--max-model-l 8192",
        "--max-model-len 4096 --max-model-len 8192",
    ],
)
def test_every_spelling_says_the_same(written: str) -> None:
    assert "8192" == vllm(written).value("--max-model-len")


@pytest.mark.parametrize(
    ("written", "flag", "is_on"),
    [
        ("--enforce-eager", "--enforce-eager", True),
        ("--no-enforce-eager", "--enforce-eager", False),
        ("--enable-prefix-caching", "--enable-prefix-caching", True),
        ("--no-enable-prefix-caching", "--enable-prefix-caching", False),
        ("--disable-prefix-caching", "--enable-prefix-caching", False),
        ("--enable-chunked-prefill=false", "--enable-chunked-prefill", False),
        ("--enable-chunked-prefill=true", "--enable-chunked-prefill", True),
        ("--disable-hybrid-kv-cache-manager", "--disable-hybrid-kv-cache-manager", True),
        ("--no-disable-hybrid-kv-cache-manager", "--disable-hybrid-kv-cache-manager", False),
        ("--max-num-seqs 4", "--enforce-eager", None),
    ],
)
def test_switches_are_on_off_or_not_spoken_of(written: str, flag: str, is_on: bool | None) -> None:
    assert is_on is vllm(written).switch(flag)


def test_short_names_and_glued_levels_are_read() -> None:
    reading = vllm("a/b -tp 2 -pp=2 -O3")
    sizes = ("--tensor-parallel-size", "--pipeline-parallel-size")
    assert ["2", "2"] == [reading.value(flag) for flag in sizes]
    assert ("a/b",) == reading.positional
    assert () == reading.doubts


def test_a_value_that_is_a_negative_number_is_a_value() -> None:
    assert "-1" == vllm("--max-model-len -1").value("--max-model-len")


def test_the_model_is_told_from_values_before_it() -> None:
    assert ("a/b",) == vllm("--enforce-eager a/b").positional
    assert ("a/b",) == vllm("--port 8000 a/b --served-model-name x y z --host h").positional


@pytest.mark.parametrize(
    ("line", "word", "trouble"),
    [
        ("--max-num-batched-token=8", "--max-num-batched-token=8", Trouble.SHORTENED),
        ("--max-num 8", "--max-num", Trouble.AMBIGUOUS),
        ("--frobnicate 8", "--frobnicate", Trouble.UNKNOWN_FLAG),
        ("--swap-space 4", "--swap-space", Trouble.ENDED),
        ("--num-scheduler-steps=8", "--num-scheduler-steps=8", Trouble.ENDED),
        ("--enforce-eager=true", "--enforce-eager=true", Trouble.VALUE_OF_SWITCH),
        ("--max-model-len", "--max-model-len", Trouble.NO_VALUE),
        ("--max-model-len --port 1", "--max-model-len", Trouble.NO_VALUE),
        ("a/b c/d", "c/d", Trouble.STRAY),
        ("--max-model-len $(LEN)", "--max-model-len $(LEN)", Trouble.UNREAD),
    ],
)
def test_what_the_parser_stumbles_over_is_said(line: str, word: str, trouble: Trouble) -> None:
    assert trouble == troubles(vllm(line))[word]


def test_options_that_are_said_twice_are_told_with_the_one_that_counts() -> None:
    line = "--gpu-memory-utilization 0.9 --gpu_memory_utilization=0.95 --port 1 --port 1"
    ((first, last),) = vllm(line).repeated()
    assert ("0.9", "0.95") == (first.value, last.value)


def test_an_argument_of_llama_server_wins_over_its_variable() -> None:
    env = {
        "LLAMA_ARG_CTX_SIZE": "4096",
        "LLAMA_ARG_UBATCH": "256",
        "LLAMA_ARG_NO_CONTEXT_SHIFT": "1",
    }
    reading = read_words(LLAMA_CPP, ["-c", "8192", "-ngl", "99"], env)
    assert ("8192", "256", "99") == tuple(
        reading.value(flag) for flag in ("--ctx-size", "--ubatch-size", "--n-gpu-layers")
    )
    assert reading.switch("--no-context-shift")


def test_an_old_build_takes_flash_attention_as_a_switch_and_a_new_one_with_a_value() -> None:
    assert "8" == read_words(LLAMA_CPP, ["-fa", "-c", "8"]).value("--ctx-size")
    assert "off" == read_words(LLAMA_CPP, ["-fa", "off", "-c", "8"]).value("--flash-attn")


def test_llama_server_takes_no_equals_sign() -> None:
    assert Trouble.GLUED == troubles(read_words(LLAMA_CPP, ["--ctx-size=8"]))["--ctx-size=8"]


@pytest.mark.parametrize("engine", list(EngineName))
def test_every_flag_of_the_table_is_read_by_each_of_its_spellings(engine: EngineName) -> None:
    for row in ROWS[engine]:
        for spelling in (row.name, *row.aliases):
            reading = read_words(engine, [spelling])
            assert [row.name] == [said.flag for said in reading.said], spelling


# ---- the engines' own parsers judge -----------------------------------------------------------------

_VLLM = [
    row
    for row in vllm_actions()
    if row["flags"] and row["is"] in ("switch", "pair", "value") and row["dest"] != "model"
]


def _vllm_words(draw: Any) -> tuple[dict[str, Any], list[str]]:
    row = draw(st.sampled_from(_VLLM))
    name = draw(st.sampled_from(row["flags"]))
    if name.startswith("--") and draw(st.booleans()):
        name = "--" + name[2:].replace("-", "_")
    if name.startswith("--") and draw(st.integers(0, 5)) == 0:
        name = name[: draw(st.integers(4, len(name)))]
    if row["is"] != "value":
        return row, [name]
    if row.get("nargs") == "+":
        return row, [name, *draw(st.lists(st.sampled_from(["a", "b1"]), min_size=1, max_size=3))]
    value = draw(st.sampled_from(["8", "0.5", "a/b", "-1"]))
    return row, draw(st.sampled_from([[name, value], [f"{name}={value}"]]))


@st.composite
def vllm_lines(draw: Any) -> tuple[list[dict[str, Any]], list[str]]:
    parts = [_vllm_words(draw) for _ in range(draw(st.integers(1, 4)))]
    return [row for row, _ in parts], ["a/model", *(word for _, words in parts for word in words)]


def _by_dest(reading: Reading, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was read, by the parser's own names."""
    found: dict[str, Any] = {}
    for row in rows:
        name = next(
            (name for said in reading.said for name in (said.flag,) if name in row["flags"]), None
        )
        if name is None:
            continue
        said = reading.last(name)
        assert said is not None
        if row["is"] == "value":
            found[row["dest"]] = said.value
        else:
            # the table's name of a switch may be its negation: --disable-hybrid-kv-cache-manager
            found[row["dest"]] = (name in row.get("off", ())) is said.is_off
    return found


@settings(max_examples=150, deadline=None)
@given(line=vllm_lines())
def test_a_line_of_vllm_is_read_as_its_own_parser_reads_it(
    line: tuple[list[dict[str, Any]], list[str]],
) -> None:
    rows, words = line
    reading = read_words(VLLM, words)
    try:
        theirs = vllm_reads(words)
    except Ended:
        assert FATAL.intersection(troubles(reading).values()), words
        return
    assert not FATAL.intersection(troubles(reading).values()), (words, reading.doubts)
    for dest, value in _by_dest(reading, rows).items():
        expected = theirs[dest]
        if isinstance(expected, list):
            expected = " ".join(str(each) for each in expected)
        assert expected == value, (dest, words)


_LLAMA = [row for row in llama_flags() if row["flags"][0] not in ("-v", "--log-disable")]
"""Without the switches that say the same as --log-verbosity, which the table takes for one."""


@st.composite
def llama_lines(draw: Any) -> list[str]:
    words: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        row = draw(st.sampled_from(_LLAMA))
        name = draw(st.sampled_from(row["flags"]))
        if name.startswith("--") and draw(st.booleans()):
            name = "--" + name[2:].replace("-", "_")
        values = ["on"] if "-fa" in row["flags"] else ["8", "on", "a/b.gguf"]
        words += [name, *(draw(st.sampled_from(values)) for _ in range(row["values"]))]
    return words


@settings(max_examples=150, deadline=None)
@given(words=llama_lines())
def test_a_line_of_llama_server_is_read_as_its_own_parser_reads_it(words: list[str]) -> None:
    reading = read_words(LLAMA_CPP, words)
    theirs = llama_reads(words)
    assert () == reading.doubts
    assert () == reading.positional
    for row in llama_flags():
        value = theirs.get(row["flags"][0])
        said = next((s for name in row["flags"] if (s := reading.last(name)) is not None), None)
        if isinstance(value, tuple) and len(value) == 1:
            assert said is not None
            assert value[0] == said.value, (row["flags"], words)
