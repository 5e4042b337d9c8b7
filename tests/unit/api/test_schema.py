"""Does a type become the structural schema that it should?"""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from plimsoll.api.schema import gpu_node_crd, inference_deployment_crd, structural
from plimsoll.engines.base import EngineName
from plimsoll.facts.record import Record


class Inner(Record):
    """Something inside."""

    name: str
    """Its name."""


class Outer(Record):
    """Something around it,
    in two lines."""

    engine: EngineName
    """Which engine."""
    inner: Inner | None = None
    """What is inside."""
    many: tuple[Inner, ...] = ()
    """More of it."""
    fraction: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """A part."""
    count: int = 7
    """A number."""


def test_a_field_that_may_be_none_is_not_required() -> None:
    schema = structural(Outer, strict=True)
    assert schema["required"] == ["engine"]
    assert schema["properties"]["inner"]["type"] == "object"


def test_references_are_written_out_with_the_fields_own_words() -> None:
    inner = structural(Outer, strict=True)["properties"]["inner"]
    assert inner["description"] == "What is inside."
    assert inner["properties"]["name"] == {
        "description": "Its name.",
        "type": "string",
        "maxLength": 4096,
    }


def test_lists_are_bounded() -> None:
    assert structural(Outer, strict=True)["properties"]["many"]["maxItems"] == 64


def test_defaults_stay_in_python() -> None:
    count = structural(Outer, strict=True)["properties"]["count"]
    assert count == {"description": "A number.", "type": "integer", "format": "int64", "minimum": 0}


def test_fractions_are_bounded_by_a_rule() -> None:
    fraction = structural(Outer, strict=True)["properties"]["fraction"]
    (rule,) = fraction["x-kubernetes-validations"]
    assert {"self > 0.0", "self <= 0.5"} == set(rule["rule"].split(" && "))
    assert not {"minimum", "maximum"} & set(fraction)


def test_a_spec_knows_the_words_and_a_status_only_tells_them() -> None:
    """An older CRD must take a newer operator's words."""
    spec = structural(Outer, strict=True)["properties"]["engine"]
    status = structural(Outer, strict=False)["properties"]["engine"]
    assert spec["enum"] == ["vllm", "llamaCpp"]
    assert "enum" not in status
    assert status["description"] == "Which engine. One of vllm, llamaCpp."


def test_a_status_requires_nothing() -> None:
    assert "required" not in structural(Outer, strict=False)


def test_descriptions_are_one_line() -> None:
    assert structural(Outer, strict=True)["description"] == "Something around it, in two lines."


class Choice(Record):
    """Something with a choice of types."""

    either: int | str
    """One or the other."""


def test_a_choice_of_types_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'either'"):
        structural(Choice, strict=True)


@pytest.mark.parametrize("crd", [inference_deployment_crd(), gpu_node_crd()])
def test_the_name_of_a_crd_is_plural_and_group(crd: dict[str, dict[str, object]]) -> None:
    names = crd["spec"]["names"]
    assert isinstance(names, dict)
    assert f"{names['plural']}.{crd['spec']['group']}" == crd["metadata"]["name"]
