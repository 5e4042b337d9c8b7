"""What is everything that passes between rooms made of?

A Record is frozen, refuses unknown fields and compares by value. Python speaks snake_case, JSON and
YAML speak camelCase; the same JSON stands in `plimsoll plan -o json`, in `.status` and in the golden
files.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Record(BaseModel):
    """Base of everything that passes between rooms."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        defer_build=True,
    )

    def to_json(self) -> dict[str, Any]:
        """As plain data with camelCase names and without fields that say nothing."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Named(Record):
    """A name and its value, where JSON would like a list with an order."""

    name: str
    """The name."""
    value: str
    """The value."""
