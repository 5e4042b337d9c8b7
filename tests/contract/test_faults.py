"""Does every fault of docs/faults.md name a test that exists, and does every fault have a row?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from soak_checks import CHECKS
from soak_faults import FAULTS, Fault

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "faults.md"
TEST: Final = re.compile(r"`(?P<file>(?:e2e|tests)/[\w/]+\.py)::(?P<name>test_\w+)`")
FAMILIES: Final = (
    "API server restarted", "API server away for 5 minutes", "etcd restored", "410", "ERROR event of 500",
    "silent", "409", "422", "429 on an eviction", "operator killed at any write", "two leaders",
    "node deleted", "clock an hour", "metrics down", "metrics that lie", "counters", "rise together",
    "rises as fast", "PodDisruptionBudget deleted", "allows none", "single replica", "policy absent",
    "CRD missing", "CRD upgraded", "GPUNode",
)  # fmt: skip
"""What a cluster is known to do to an operator; each has a row, whoever edits the page."""


def rows(heading: str) -> Iterator[tuple[str, ...]]:
    """Cells of the table under a heading, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index(f"\n## {heading}\n") :].split("\n## ", 2)[1]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield tuple(cell.strip() for cell in line.strip("|").split("|"))


ONE_BY_ONE: Final = tuple(rows("Faults one by one"))


@cache
def collected(file: str) -> frozenset[str]:
    """Names of the tests that pytest collects from a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and each.name.startswith("test_")
    )


def missing(cell: str) -> list[str]:
    """Tests that a cell names and that are not there; the cell itself when it names none."""
    named = list(TEST.finditer(cell))
    if not named:
        return [cell or "no test"]
    return [
        each[0]
        for each in named
        if not (ROOT / each["file"]).exists() or each["name"] not in collected(each["file"])
    ]


@pytest.mark.parametrize("row", ONE_BY_ONE, ids=lambda row: row[0])
def test_every_row_says_what_happens_and_names_a_test_that_exists(row: tuple[str, ...]) -> None:
    fault, does, tests = row
    assert fault
    assert does
    assert [] == missing(tests)


def test_a_row_whose_test_is_gone_would_be_found() -> None:
    gone = "`tests/contract/test_faults.py::test_of_yesterday`"
    assert [gone] == missing(gone)
    assert ["no test"] == missing("")
    assert [] == missing(
        "`tests/contract/test_faults.py::test_a_row_whose_test_is_gone_would_be_found`"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_known_fault_has_a_row(family: str) -> None:
    assert any(family in fault for fault, _, _ in ONE_BY_ONE)


def test_every_kind_of_the_soak_has_a_row_and_every_row_a_kind() -> None:
    kinds, as_in = zip(*rows("Faults by chance"), strict=True)
    assert [str(fault) for fault in Fault] == list(kinds)
    assert set(FAULTS) == set(Fault)
    assert set(as_in) <= {fault for fault, _, _ in ONE_BY_ONE}


def test_what_is_checked_is_what_the_page_says() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## What may never happen\n")[2]
    assert [check.__name__ for check in CHECKS] == re.findall(r"^- `(\w+)`:", section, re.MULTILINE)
