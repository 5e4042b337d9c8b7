"""What brings code beside the image, and which words nobody can read."""

from __future__ import annotations

import pytest

from plimsoll.engines.base import EngineName
from plimsoll.engines.foreign import FOREIGN, FOREIGN_BY_NAME
from plimsoll.engines.guard import foreign_code, unreadable_words

VLLM, LLAMA = EngineName.VLLM, EngineName.LLAMA_CPP


def test_flags_are_named_in_full_and_variables_as_written_once_each() -> None:
    found = foreign_code(
        VLLM,
        extra_args=["--trust-rem", "--tool_parser_plugin=/models/p.py"],
        env_names=["LD_PRELOAD", "LD_PRELOAD", "PYTHONPATH", "HF_HOME"],
    )
    assert ("--trust-remote-code", "--tool-parser-plugin", "LD_PRELOAD", "PYTHONPATH") == found


@pytest.mark.parametrize(
    "name",
    ["PYTHONHASHSEED", "PYTHONUNBUFFERED", "HF_HOME", "VLLM_PLUGINS", "NCCL_DEBUG", "OLD_PATH"],
)
def test_variables_that_load_nothing_pass(name: str) -> None:
    assert () == foreign_code(VLLM, extra_args=(), env_names=(name,), lists_images=True)


@pytest.mark.parametrize(
    "word", ["--tool-call-parser", "--reasoning-parser", "--tokenizer", "--seed"]
)
def test_a_parser_by_its_name_is_no_foreign_code(word: str) -> None:
    assert () == foreign_code(VLLM, extra_args=(word,), env_names=(), lists_images=True)


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT"])
def test_where_images_are_listed_their_code_is_not_led_elsewhere(name: str) -> None:
    assert () == foreign_code(VLLM, extra_args=(), env_names=(name,))
    assert (name,) == foreign_code(VLLM, extra_args=(), env_names=(name,), lists_images=True)


def test_an_engines_own_words_are_its_own() -> None:
    assert ("--tools",) == foreign_code(LLAMA, extra_args=("--tools",), env_names=())
    assert () == foreign_code(VLLM, extra_args=("--tools",), env_names=("LLAMA_ARG_TOOLS",))


@pytest.mark.parametrize(
    "word", ["--", " -- ", "$(A)", "--$(A)", "-$(A)=1", "--a$(B)=c", "a\0", "\x1b"]
)
def test_a_word_that_could_be_any_flag_is_found(word: str) -> None:
    assert (word,) == unreadable_words(("--seed", word, "1"))


@pytest.mark.parametrize(
    "word",
    ["--a=$(B)", "$$(A)", "a$(B)", '{"a": "$(B)"}', "a -- b", "-", "a\nb", "\u2010\u2010", "100%"],
)
def test_a_word_that_can_be_read_passes(word: str) -> None:
    assert () == unreadable_words((word,))


def test_every_row_says_where_it_is_from() -> None:
    rows = {row for rows in FOREIGN.values() for row in rows} | set(FOREIGN_BY_NAME)
    assert all(row.source for row in rows)
    assert all(row.env or row.name.startswith("--") for row in rows)
