"""`plimsoll run`: how is the operator started?

One option for each setting; the settings themselves, with defaults and checks, are in
controller/settings.py.
"""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.cli.exits import BadInputError
from plimsoll.controller.settings import PREFIX, Settings, read_settings

EPILOG: Final = """\
examples:
  plimsoll run                                     in a pod: by its service account
  plimsoll run --kubeconfig ~/.kube/config         from a laptop
  plimsoll run --namespaces team-a,team-b          look after these namespaces only

Every option can stand in the environment instead, under the name in brackets; the command line wins.

exit codes:
  0  told to stop, and stopped in good order
  1  something ended unasked: the log says what, and starting anew is right
  2  a setting cannot be read as meant
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each setting. Values are checked by the settings themselves."""
    properties = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
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
            help=f"{said.rstrip('.')}{default} [{PREFIX}{name.upper()}]",
        )


def run(arguments: argparse.Namespace) -> int:
    """Start the operator and wait until it ends."""
    given = {name: getattr(arguments, name) for name in Settings.model_fields}
    try:
        settings = read_settings(os.environ, default_identity=_identity(), **given)
    except ValidationError as error:
        raise BadInputError(_explained(error)) from error
    from plimsoll.controller.main import run as run_operator  # noqa: PLC0415 - after the settings

    return run_operator(settings)


def _identity() -> str:
    """Different for two operators on one laptop."""
    return f"{platform.node() or 'plimsoll'}-{os.getpid()}"


def _explained(error: ValidationError) -> str:
    """One line per setting: its option, its variable, the value and what is wrong with it."""
    lines = []
    for each in error.errors(include_url=False):
        place = str(each["loc"][0]) if each["loc"] else ""
        name = next((n for n, f in Settings.model_fields.items() if place in (n, f.alias)), "")
        if not name:
            lines.append(each["msg"].removeprefix("Value error, "))
            continue
        option = f"--{name.replace('_', '-')} ({PREFIX}{name.upper()})"
        lines.append(f"{option}: {each['input']!r}: {each['msg']}")
    return "\n  ".join(lines)
