"""Would the pieces of YAML be taken that the documents show?

A piece is an object, values of the chart, or fields of an InferenceDeployment: then it is put where it belongs, into an
example. Whole files of docs/ are held against the CRD by a real API server (e2e/stories/test_chart.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from plimsoll.api.v1alpha1 import InferenceDeployment

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLE: Final = yaml.safe_load((ROOT / "docs/examples/chat-and-batch.yaml").read_text("utf-8"))
CHART: Final = json.loads((ROOT / "charts/plimsoll/values.schema.json").read_text("utf-8"))
CONFIG_MAP: Final = {"apiVersion", "kind", "metadata", "data"}


def blocks() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        for text in BLOCK.findall(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), text


def judge(piece: dict[str, Any]) -> str:
    """What it is; an error when it is not what it seems to be."""
    if piece.get("kind") == "ConfigMap":
        assert set(piece) == CONFIG_MAP
        return "an object"
    if set(piece) <= CHART["properties"].keys():
        jsonschema.validate(piece, CHART)
        return "values"
    raw = deepcopy(EXAMPLE)
    fields = piece.get("spec", piece)
    for name, value in fields.items():
        there = raw["spec"].get(name)
        raw["spec"][name] = there | value if isinstance(there, dict) else value
    InferenceDeployment.model_validate(raw)
    return "fields"


def test_there_are_some_of_each_kind() -> None:
    kinds = [judge(yaml.safe_load(text)) for _, text in blocks()]
    assert {"an object", "values", "fields"} == set(kinds)


@pytest.mark.parametrize(("page", "text"), list(blocks()))
def test_every_piece_would_be_taken(page: str, text: str) -> None:
    assert judge(yaml.safe_load(text)), page


def test_a_mistake_would_be_found() -> None:
    with pytest.raises(ValidationError):
        judge({"kvCache": {"offload": {"hostMemories": "64Gi"}}})
    with pytest.raises(jsonschema.ValidationError):
        judge({"gpuTypes": [{"total": "40Gi"}]})
