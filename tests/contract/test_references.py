"""Do the pages that are printed from the code have all of it, and nothing of the machine that printed them?"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pydantic import BaseModel

from plimsoll.agent.settings import AgentSettings
from plimsoll.cli.main import COMMANDS, command_module
from plimsoll.cli.references import references
from plimsoll.controller.settings import Settings, read_settings
from plimsoll.keeper.settings import Duty
from plimsoll.render.reference import anchor
from plimsoll.telemetry.export import Metrics
from plimsoll.telemetry.families import families

ROOT: Final = Path(__file__).parents[2]
NAME: Final = re.compile(r"\bplimsoll_[a-z_]+\b")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name.rpartition("/")[2]: text for name, text in references().items()}


def paths(node: dict[str, Any], path: str) -> Iterator[str]:
    """Every field below a node of a CRD."""
    while node.get("type") == "array":
        node, path = node["items"], f"{path}[]"
    for name, below in node.get("properties", {}).items():
        dotted = f"{path}.{name}" if path else name
        if dotted not in ("apiVersion", "kind", "metadata"):
            yield dotted
            yield from paths(below, dotted)


@pytest.mark.parametrize("file", sorted((ROOT / "crds").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_field_of_the_crds_has_a_row_that_can_be_linked_to(
    file: Path, pages: dict[str, str]
) -> None:
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = list(paths(schema, ""))
    assert len(fields) > 20
    shown = re.findall(r'<a id="([^"]+)">', pages["api.md"])
    assert len(shown) == len(set(shown))
    assert {anchor(crd["spec"]["names"]["kind"], each) for each in fields} <= set(shown)


def test_a_field_says_type_default_bounds_and_what_it_is(pages: dict[str, str]) -> None:
    row = next(
        each for each in pages["api.md"].splitlines() if 'id="spec-pools-gpu-perworker"' in each
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert ["integer", "`1`"] == cells[1:3]
    assert re.match(r"(at least 1|1 to \d+)", cells[3])
    assert len(cells[4]) > 10


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_every_option_of_a_command_stands_on_the_page(command: Any, pages: dict[str, str]) -> None:
    part = re.split(rf"^## {command.name}$", pages["cli.md"], flags=re.MULTILINE)[1]
    part = re.split(r"^## ", part, flags=re.MULTILINE)[0]
    if command.name == "version":
        return
    parser = argparse.ArgumentParser(prog=f"plimsoll {command.name}")
    command_module(command.name).add_arguments(parser)
    helped = parser.format_help()
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", helped)) - {"--help"}
    assert {name for name in options if name not in part} == set()
    assert command_module(command.name).EPILOG.strip() in part


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [(Settings, "PLIMSOLL_"), (AgentSettings, "PLIMSOLL_"), (Duty, "PLIMSOLL_KEEPER_")],
)
def test_every_setting_has_a_row_with_words(
    settings: type[BaseModel], prefix: str, pages: dict[str, str]
) -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", pages["settings.md"], re.MULTILINE)
    named = {name for name, words in rows if len(words) > 10}
    assert {f"{prefix}{name.upper()}" for name in settings.model_fields} <= named


def test_a_default_on_the_page_can_be_set_and_changes_nothing(pages: dict[str, str]) -> None:
    operator = pages["settings.md"].partition("## Operator")[2].partition("## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", operator, re.MULTILINE))
    assert len(rows) > 20
    assert read_settings({}, default_identity="a") == read_settings(rows, default_identity="a")


def test_every_metric_that_documents_and_alerts_name_is_exported(pages: dict[str, str]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", pages["metrics.md"], re.MULTILINE)
    exported = {name for name, _ in rows}
    exported |= {
        f"{name}{end}"
        for name, kind in rows
        if kind == "histogram"
        for end in ("_bucket", "_count", "_sum")
    }
    files = [ROOT / "charts/plimsoll/alerts.yaml", *(ROOT / "docs").glob("*.md")]
    named = {each for file in files for each in NAME.findall(file.read_text(encoding="utf-8"))}
    assert {name for name in named if name not in exported and not name.endswith("_")} == set()


def test_every_metric_that_the_code_names_stands_on_the_page(pages: dict[str, str]) -> None:
    """A name in quotes, so that a further exporter cannot be forgotten."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "operator").rglob("*.py"))
    quoted = re.findall(r'"(plimsoll_[a-z_]+[a-z])"', code)
    named = {re.sub(r"_(bucket|count|sum|total)$", "", each) for each in quoted}
    assert len(named) > 30
    rows = re.findall(r"^\| `(\w+)` \|", pages["metrics.md"], re.MULTILINE)
    assert named <= {each.removesuffix("_total") for each in rows}


def test_labels_are_those_that_a_scrape_shows() -> None:
    metrics = Metrics()
    metrics.visited("done", 1.0)
    metrics.called("patch", "Deployment", 200)
    shown = {
        sample.name: set(sample.labels) - {"le"}
        for family in metrics.registry.collect()
        for sample in family.samples
    }
    listed = {each.name: set(each.labels) for each in families()}
    for name, seen in (
        ("plimsoll_reconciles_total", {"result"}),
        ("plimsoll_api_requests_total", {"verb", "status"}),
        ("plimsoll_api_writes_total", {"verb", "kind"}),
        ("plimsoll_build_info", {"version"}),
    ):
        assert seen == shown[name] == listed[name]


def test_neither_terminal_nor_environment_change_a_letter(pages: dict[str, str]) -> None:
    program = (
        "import sys; from plimsoll.cli.references import references; "
        "sys.stdout.write(''.join(references().values()))"
    )
    elsewhere = {"COLUMNS": "31", "HOME": "/nowhere", "USER": "x", "PLIMSOLL_WORKERS": "3"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), **elsewhere},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "".join(pages.values()) == ran.stdout
