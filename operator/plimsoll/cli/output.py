"""How is plain data printed for the next program in the pipe?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final


class Form(StrEnum):
    """What -o takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


ALL_FORMS: Final = tuple(form.value for form in Form)


def add_output(
    parser: argparse.ArgumentParser,
    *,
    says: str,
    forms: Iterable[str] = ALL_FORMS,
    default: str = Form.TABLE.value,
) -> None:
    """The option -o, the same in every command; `says` is its help."""
    parser.add_argument(
        "-o", "--output", metavar="FORM", choices=list(forms), default=default, help=says
    )


def as_text(data: Any, form: Form) -> str:
    """The data as JSON or YAML, keys in the order they were put in. Ends with a newline."""
    if form is Form.JSON:
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    return as_yaml(data)


def as_yaml(data: Any) -> str:
    """One YAML document."""
    import yaml  # noqa: PLC0415 - JSON output does without

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(
        data,
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=False,
    )
