"""What is wrong in a manifest, said so that a person can put it right: field, value, way out?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from plimsoll.api.forms import ManifestError

Context = Mapping[str, Any]
Place = tuple[int | str, ...]

LONGEST_VALUE: Final = 60
"""Characters of a wrong value that are shown."""


def explain_errors(error: ValidationError) -> tuple[str, ...]:
    """One line per problem: "spec.limits.maxModelLen: 'abc' is not a whole number; write ..."."""
    return tuple(dict.fromkeys(_line(each) for each in error.errors(include_url=False)))


def _line(each: Any) -> str:
    context: Context = each.get("ctx", {})
    place: Place = each["loc"]
    cause = context.get("error")
    if isinstance(cause, ManifestError):
        return f"{_path(place)}{cause.field}: {cause}".removeprefix(".")
    if each["type"] == "missing":
        return f"{_path(place)}: nothing is written here, and it is needed; write {place[-1]}"
    if each["type"] == "extra_forbidden":
        return f"{_path(place)}: {shown(each['input'])} is under a name that is not known here; {_nearest(place)}"
    says = SENTENCES.get(each["type"])
    if says is None:
        return f"{_path(place)}: {shown(each['input'])} cannot be read; {each['msg']}"
    return f"{_path(place)}: {shown(each['input'])} {says(context)}"


SENTENCES: Final[Mapping[str, Callable[[Context], str]]] = {
    "int_type": lambda _: "is not a whole number; write one without quotes, e.g. 4",
    "int_parsing": lambda _: "is not a whole number; write one without quotes, e.g. 4",
    "int_from_float": lambda _: "is not a whole number; write one without a fraction, e.g. 4",
    "float_type": lambda _: "is not a number; write one without quotes, e.g. 0.9",
    "float_parsing": lambda _: "is not a number; write one without quotes, e.g. 0.9",
    "bool_type": lambda _: "is not a yes or no; write true or false without quotes",
    "string_type": lambda _: 'is not text; put it in quotes, e.g. "1"',
    "greater_than_equal": lambda c: f"is too small; write {c['ge']} or more",
    "greater_than": lambda c: f"is too small; write a number above {c['gt']}",
    "less_than_equal": lambda c: f"is too large; write {c['le']} or less",
    "less_than": lambda c: f"is too large; write a number below {c['lt']}",
    "enum": lambda c: f"is not known here; write {c['expected']}",
    "literal_error": lambda c: f"is not known here; write {c['expected']}",
    "too_long": lambda c: f"has {c['actual_length']} entries; keep at most {c['max_length']}",
    "string_too_long": lambda c: f"is too long; keep to {c['max_length']} characters",
    "model_type": lambda _: "is not a block of fields; write its fields below it, indented",
    "model_attributes_type": lambda _: (
        "is not a block of fields; write its fields below it, indented"
    ),
    "dict_type": lambda _: "is not a block of keys and values; write them below it, indented",
    "tuple_type": lambda _: "is not a list; begin each entry with -",
}
"""By pydantic's type of error: what is wrong with the value, and the way out."""


def shown(value: object) -> str:
    """The value as one short piece of text."""
    if isinstance(value, dict):
        text = "{" + ", ".join(map(str, value)) + "}"
    elif value is None:
        text = "an empty value"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _path(place: Place) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(
        "."
    )


def _nearest(place: Place) -> str:
    """The name that was probably meant, or all names that are known there."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    from plimsoll.api.v1alpha1 import InferenceDeployment  # noqa: PLC0415 - it imports this module

    known = _names(InferenceDeployment, place[:-1])
    near = get_close_matches(str(place[-1]), known, n=1)
    if near:
        return f"write {near[0]}"
    return f"write one of {', '.join(known)}" if known else "take it out"


def _names(model: type[BaseModel], place: Place) -> tuple[str, ...]:
    """Names of the fields at a place."""
    for step in place:
        if isinstance(step, int):
            continue
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        inner = tuple(_models(fields[step].annotation)) if step in fields else ()
        if not inner:
            return ()
        model = inner[0]
    return tuple(info.alias or name for name, info in model.model_fields.items())


def _models(annotation: object) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
