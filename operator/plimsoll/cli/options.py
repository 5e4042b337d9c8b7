"""How do a long-lived command's settings become its options, and its complaints?

One option for each setting; the settings themselves, with defaults and checks, are with the command that
they set.
"""

from __future__ import annotations

import argparse
from typing import Any

from pydantic import ValidationError

from plimsoll.facts.record import Record


def add_options(parser: argparse.ArgumentParser, settings: type[Record], prefix: str) -> None:
    """One option for each setting; `prefix` begins its name in the environment. Values are checked by the
    settings themselves."""
    properties = settings.model_json_schema()["properties"]
    for name, field in settings.model_fields.items():
        words: dict[str, Any] = properties[field.alias or name]
        said = " ".join(str(words.get("description", "")).split()).replace("%", "%%")
        default = (
            ""
            if field.is_required() or field.default in (None, ())
            else f"; default {field.default}"
        )
        parser.add_argument(
            "--" + name.replace("_", "-"),
            dest=name,
            metavar=name.rpartition("_")[2].upper(),
            help=f"{said.rstrip('.')}{default} [{prefix}{name.upper()}]",
        )


def given_options(arguments: argparse.Namespace, settings: type[Record]) -> dict[str, object]:
    """What the command line says of each setting; None where it says nothing."""
    return {name: getattr(arguments, name) for name in settings.model_fields}


def explained(error: ValidationError, settings: type[Record], prefix: str) -> str:
    """One line per setting: its option, its variable, the value and what is wrong with it."""
    lines = []
    for each in error.errors(include_url=False):
        place = str(each["loc"][0]) if each["loc"] else ""
        name = next((n for n, f in settings.model_fields.items() if place in (n, f.alias)), "")
        if not name:
            lines.append(each["msg"].removeprefix("Value error, "))
            continue
        option = f"--{name.replace('_', '-')} ({prefix}{name.upper()})"
        lines.append(f"{option}: {each['input']!r}: {each['msg']}")
    return "\n  ".join(lines)
