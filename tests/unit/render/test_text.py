from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.render.text import to_yaml


def test_each_object_is_a_document_and_fields_keep_their_order() -> None:
    assert to_yaml([{"b": 1, "a": 2}, {"c": 3}]) == "---\nb: 1\na: 2\n---\nc: 3\n"


def test_what_is_shared_in_memory_is_written_out_twice() -> None:
    shared = {"x": "z"}
    assert to_yaml([{"a": shared, "b": shared}]) == "---\na:\n  x: z\nb:\n  x: z\n"


@pytest.mark.parametrize(
    "text", ["1e3", "12e45678", "0o17", "y", "N", "8000", "0.92", "true", "1_0"]
)
def test_text_that_another_reader_takes_for_a_number_is_quoted(text: str) -> None:
    assert f"---\na: '{text}'\n" == to_yaml([{"a": text}])


@pytest.mark.parametrize(
    "text", ["--max-model-len", "26880Mi", "vllm/vllm-openai:v0.22.1", "b11434"]
)
def test_plain_text_stays_plain(text: str) -> None:
    assert f"---\na: {text}\n" == to_yaml([{"a": text}])


def test_a_long_value_stays_on_one_line() -> None:
    assert len(to_yaml([{"a": "word " * 400 + "end"}]).splitlines()) == 2


@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
        st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.lists(st.text())),
    )
)
def test_what_is_written_is_read_back(value: dict[str, object]) -> None:
    assert value == yaml.safe_load(to_yaml([value]))
