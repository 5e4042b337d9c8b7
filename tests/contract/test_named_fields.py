"""Do the fields exist that documents name in passing, such as `limits.maxModelLen`?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    ROOT / "README.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name not in ("measured", "adr")
    ),
)
"""Without pages that speak of what was, or of other objects."""
FILES: Final = (".json", ".yaml", ".py", ".md", ".safetensors", ".gguf")
FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
DOTTED: Final = re.compile(r"`((?:[a-z]\w*(?:\[\*?\])?\.)+[a-z]\w*(?:\[\*?\])?)(?:[:=][^`]*)?`")


def fields() -> dict[str, Any]:
    crd = yaml.safe_load(
        (ROOT / "crds/plimsoll.dev_inferencedeployments.yaml").read_text(encoding="utf-8")
    )
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(
        (ROOT / "charts/plimsoll/values.yaml").read_text(encoding="utf-8")
    )
    return loaded


def named(text: str) -> Iterator[str]:
    """Dotted names in code outside of blocks, without brackets."""
    for match in DOTTED.finditer(FENCE.sub("", text)):
        if not match[1].endswith(FILES):
            yield re.sub(r"\[\*?\]", "", match[1])


def is_field(node: dict[str, Any], path: list[str]) -> bool:
    for word in path:
        while node.get("type") == "array":
            node = node["items"]
        if "additionalProperties" in node or node.get("x-kubernetes-preserve-unknown-fields"):
            return True
        if word not in node.get("properties", {}):
            return False
        node = node["properties"][word]
    return True


def is_value(node: Any, path: list[str]) -> bool:
    for word in path:
        if not isinstance(node, dict) or word not in node:
            return False
        node = node[word]
    return True


def unknown(text: str) -> list[str]:
    """Names that begin as fields of the object, or as values of the chart, and go on as neither."""
    schema, chart = fields(), values()
    spec = schema["properties"]["spec"]
    missing = []
    for name in named(text):
        path = name.split(".")
        if path[0] in ("spec", "status"):
            found = is_field(schema, path)
        elif path[0] in spec["properties"] or path[0] in chart:
            found = is_field(spec, path) or is_value(chart, path)
        else:
            continue
        if not found:
            missing.append(name)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_fields_that_a_page_names_exist(page: Path) -> None:
    assert unknown(page.read_text(encoding="utf-8")) == []


def test_a_field_that_is_not_there_would_be_found() -> None:
    text = "`worker.memory` `limits.maxModelLen` `spec.pools[].gpu.perWorker: 2` `image.tagg`"
    assert unknown(text) == ["worker.memory", "image.tagg"]
