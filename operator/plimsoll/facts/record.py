"""What is everything that passes between rooms made of?

A Record is frozen, refuses unknown fields and compares by value. Python speaks snake_case, JSON and
YAML speak camelCase; the same JSON stands in `plimsoll plan -o json`, in `.status` and in the golden
files. What never becomes JSON is a NamedTuple: just as frozen, at a third of the cost to define.

Modules with Records or NamedTuples that `plimsoll plan` loads do without `from __future__ import
annotations`: it would make each annotation a text that has to be compiled, field by field, at every start.
"""

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Record(BaseModel):
    """Base of everything that passes between rooms."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
    )

    def to_json(self) -> dict[str, Any]:
        """As plain data with camelCase names and without fields that say nothing."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """The schema with the strings below the fields as their descriptions.

        Pydantic's own `use_attribute_docstrings` parses every class's source at every import, a third
        of what `plimsoll plan` may cost; here only who asks for a schema pays.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, words in _field_docstrings(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", words)
        return schema


class Named(Record):
    """A name and its value, where JSON would like a list with an order."""

    name: str
    """The name."""
    value: str
    """The value."""


def _field_docstrings(record: type[Record]) -> dict[str, str]:
    """By field: the string that stands right below it, in the class or in those it comes from."""
    found: dict[str, str] = {}
    for owner in reversed(record.__mro__):
        if issubclass(owner, Record):
            found |= _own_docstrings(owner)
    return {name: words for name, words in found.items() if name in record.model_fields}


@cache
def _own_docstrings(owner: type[Record]) -> dict[str, str]:
    """The same of one class alone: to find its source takes long, and each is asked for many times."""
    import ast  # noqa: PLC0415 - only for schemas
    import inspect  # noqa: PLC0415
    import textwrap  # noqa: PLC0415

    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = inspect.cleandoc(words)
    return found
