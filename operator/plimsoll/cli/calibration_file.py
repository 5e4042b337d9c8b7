"""What does a file say of a calibration: the text itself, or a ConfigMap with it?"""

from __future__ import annotations

import json
import sys
from typing import Any

from plimsoll.cli.documents import read_text
from plimsoll.cli.exits import BadInputError
from plimsoll.plan.calibration_text import Calibration, calibration_of
from plimsoll.render.calibration import DATA_KEY


def read_calibration(path: str, option: str) -> Calibration:
    """The calibration in a file; "-" is standard input. What is passed over is told on stderr. Raises
    BadInputError where the file holds none."""
    found = calibration_of(_text(read_text(path), path, option))
    if found.is_foreign:
        raise BadInputError(
            f"{option}: {path}: {'; '.join(found.warnings)}; give what `plimsoll calibration export` printed"
        )
    for warning in found.warnings:
        print(f"plimsoll: {path}: {warning}", file=sys.stderr)
    return found


def _text(text: str, path: str, option: str) -> str:
    """The calibration's own text, taken out of a ConfigMap where it stands in one."""
    try:
        body: Any = json.loads(text)
    except ValueError:
        import yaml  # noqa: PLC0415 - only where it is no JSON

        try:
            body = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise BadInputError(f"{option}: {path}: neither JSON nor YAML: {error}") from error
    if isinstance(body, dict) and body.get("kind") == "ConfigMap":
        inner = (body.get("data") or {}).get(DATA_KEY)
        if not isinstance(inner, str):
            raise BadInputError(f"{option}: {path}: the ConfigMap has no {DATA_KEY} under data")
        return inner
    return json.dumps(body)
