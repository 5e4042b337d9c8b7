"""Does the house stand as CONTRIBUTING says: rooms, doors, and no package named operator?"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "operator" / "plimsoll"
ROOMS = {
    "units", "facts", "catalog", "engines", "plan", "render", "diagnose", "gate", "api", "decide",
    "cluster", "telemetry", "hub", "controller", "agent", "keeper", "cli",
}  # fmt: skip
LONGEST_MODULE_LINES = 450
OFFLINE = ("plan", "explain", "render", "facts", "offline", "documents", "report", "bar", "svg")
"""Modules of the command line that a laptop without a cluster runs."""
SHELL_LIBRARIES = {
    "kopf", "kubernetes", "aiohttp", "prometheus_client", "pynvml", "huggingface_hub",
}  # fmt: skip


def sources() -> list[Path]:
    return sorted(HOUSE.rglob("*.py"))


def test_operator_is_a_folder_and_no_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_pythons_own_operator_is_still_itself() -> None:
    import operator

    assert operator.add(2, 2) == 4
    assert operator.__file__ is not None
    assert not Path(operator.__file__).is_relative_to(ROOT / "operator")


def test_every_python_file_belongs_to_a_room() -> None:
    rooms = {path.relative_to(HOUSE).parts[0].removesuffix(".py") for path in sources()}
    assert set() == rooms - ROOMS - {"__init__"}


def test_the_contract_on_doors_names_every_room() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert {room.strip() for layer in layers for room in layer.split("|")} == ROOMS


def test_doors_open_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(HOUSE)))
def test_a_module_has_one_subject(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, f"{path.relative_to(ROOT)} has no docstring that says what it answers"
    assert len(text.splitlines()) <= LONGEST_MODULE_LINES


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_commands_reach_no_client(name: str) -> None:
    code = (
        f"import plimsoll.cli.{name}, sys; "
        f"print(*sorted({SHELL_LIBRARIES!r} & {{m.partition('.')[0] for m in sys.modules}}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "operator"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == []
