"""Which config.json has a model that a case only names?

The catalogue's shapes, the same that Plimsoll plans from, so that a peer gets what we get.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

CATALOGUE: Final = (
    Path(__file__).resolve().parents[3] / "operator/plimsoll/catalog/data/models.json"
)


def config_of(model_id: str | None) -> Mapping[str, Any] | None:
    """By public identity, letter case aside; None where the catalogue has none."""
    row = _rows().get((model_id or "").lower())
    if row is None:
        return None
    base = row.get("shapeOf")
    own: Mapping[str, Any] = row["config"]
    return {**_rows()[base.lower()]["config"], **own} if base else own


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    rows = json.loads(CATALOGUE.read_text(encoding="utf-8"))["models"]
    return {name.lower(): row for row in rows for name in (row["id"], *row.get("aliases", ()))}
