"""How do manifests look as text, the same text every time?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

from plimsoll.render.records import Manifest

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_NUMBER_ELSEWHERE: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0[oO][0-7]+|[yYnN]"
)
"""Text that PyYAML leaves bare and Kubernetes' reader takes for a number or a truth value: 1e3, 0o17."""


class _Plain(_Dumper):  # type: ignore[misc] # chosen at run time
    """Without anchors, because what is shared in memory is not shared in meaning."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "'" if _NUMBER_ELSEWHERE.fullmatch(value) else None
    if "\n" in value:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Plain.add_representer(str, _text)


def to_yaml(manifests: Iterable[Manifest]) -> str:
    """The manifests as one YAML stream, fields in the order in which they were written."""
    return yaml.dump_all(
        manifests,
        Dumper=_Plain,
        sort_keys=False,
        explicit_start=True,
        default_flow_style=False,
        allow_unicode=True,
        width=4096,  # no folded lines: a flag's value stays on one line, and diffs stay small
    )
