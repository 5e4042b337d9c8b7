"""Are fields read with their class behind them, and is it known which were asked for?"""

from __future__ import annotations

import pytest

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError


def test_a_field_that_is_left_out_has_the_value_of_its_class() -> None:
    assert 8 == Fields({}, model_type="mistral").count("num_key_value_heads")
    assert 4096 == Fields({}, model_type="mistral").count("sliding_window")
    assert 0 == Fields({}).count("sliding_window")


def test_null_switches_off_what_may_be_null_and_is_refused_elsewhere() -> None:
    assert 0 == Fields({"sliding_window": None}, model_type="mistral").count("sliding_window")
    with pytest.raises(NotUnderstoodError, match="num_hidden_layers is None; it must be a whole"):
        Fields({"num_hidden_layers": None}, model_type="mistral").whole("num_hidden_layers")


def test_another_name_of_a_field_is_the_field() -> None:
    fields = Fields({"n_head": 12}, model_type="gpt2")
    assert 12 == fields.whole("n_head")
    other = Fields({"num_attention_heads": 16}, model_type="gpt2")
    assert 16 == other.whole("n_head")
    assert [] == list(other.rest())


def test_two_names_of_one_field_must_agree() -> None:
    fields = Fields({"n_head": 12, "num_attention_heads": 16}, model_type="gpt2")
    with pytest.raises(NotUnderstoodError, match="n_head = 12 and num_attention_heads = 16"):
        fields.whole("n_head")


def test_what_nobody_asked_for_is_known() -> None:
    fields = Fields({"a": 1, "b": 2, "c": 3})
    fields.whole("a")
    fields.skip("c")
    assert [("b", 2)] == list(fields.rest())


@pytest.mark.parametrize("value", ["8", 8.5, -1, True, [8]])
def test_a_number_must_be_whole_and_not_below_zero(value: object) -> None:
    with pytest.raises(NotUnderstoodError, match=r"heads is .*; it must be a whole number"):
        Fields({"heads": value}).count("heads")


def test_where_a_field_stands_is_said() -> None:
    part = Fields({"text_config": {"layers": 0}}).part("text_config")
    assert part is not None
    with pytest.raises(NotUnderstoodError, match=r"text_config\.layers is 0"):
        part.whole("layers")


@pytest.mark.parametrize(
    ("value", "read", "words"),
    [
        ("yes", Fields.flag, "true or false"),
        (7, Fields.text, "a word"),
        ("abc", Fields.listed, "a list"),
        ([1, -1], Fields.numbers, "whole numbers"),
        ([1, 2], Fields.part, "a group of fields"),
    ],
)
def test_a_value_of_another_type_is_refused(value: object, read: object, words: str) -> None:
    assert callable(read)
    with pytest.raises(NotUnderstoodError, match=words):
        read(Fields({"x": value}), "x")


def test_a_list_for_each_layer_must_have_as_many() -> None:
    assert (1, 0) == Fields({"x": [1, 0]}).per_layer("x", 2)
    assert Fields({}).per_layer("x", 2) is None
    with pytest.raises(NotUnderstoodError, match="x has 2 entries for 3 layers"):
        Fields({"x": [1, 0]}).per_layer("x", 3)
