"""Is the user's table of cards read from its file, and an error in it told before anything starts?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.controller.gpu_types import read_gpu_types
from plimsoll.controller.main import MISREAD, run
from plimsoll.controller.settings import Settings
from plimsoll.units import GIB


def test_no_file_is_no_table() -> None:
    assert () == read_gpu_types(None)


@pytest.mark.parametrize(
    "text", [json.dumps([{"product": "X", "total": "4Gi"}]), "- {product: X, total: 4Gi}"]
)
def test_yaml_and_json_are_the_same(text: str, tmp_path: Path) -> None:
    path = tmp_path / "types"
    path.write_text(text, encoding="utf-8")
    (row,) = read_gpu_types(str(path))
    assert ("X", 4 * GIB) == (row.product, row.total)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {product: X, total: much}", r"gpuTypes\[0\].total"),
        ("a: [", "not YAML"),
        (None, "cannot be read"),
    ],
)
def test_an_error_names_the_file_and_the_field(text: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "types.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"types.yaml: .*{says}"):
        read_gpu_types(str(path))


def test_a_table_with_an_error_is_not_half_believed(tmp_path: Path) -> None:
    path = tmp_path / "types.yaml"
    path.write_text("- {product: X, total: much}", encoding="utf-8")
    assert MISREAD == run(Settings(identity="me", gpu_types_file=str(path)))
