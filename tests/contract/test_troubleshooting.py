"""Has every reason that Plimsoll can give a line in docs/troubleshooting.md, and does every line have a reason?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

from plimsoll.agent.reading import Trouble
from plimsoll.api.conditions import ConditionReason
from plimsoll.diagnose.case import HoldReason
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.facts.gpu import GpuProblem
from plimsoll.facts.retrieval import RetrievalVerdict
from plimsoll.plan.records import Reason

ROOT: Final = Path(__file__).parents[2]
HOUSE: Final = ROOT / "operator" / "plimsoll"
PAGE: Final = ROOT / "docs" / "troubleshooting.md"
ROW: Final = re.compile(r"^\| `(\w+)` \|(.*)\|$", re.MULTILINE)
TELLERS: Final = {"Announcement", "Told"}
"""What makes an event; `_told(reason, message)` of api/deaths.py does too."""
REASONS_FROM_TABLES: Final = {
    "api/deaths.py: reason": set(),  # _told's own argument; its callers are read
    "api/news.py: told.reason": set(),  # a Told that is read where it is made
    "api/verified.py: reason": {
        "PlanVerified",
        "EngineHoldsMore",
        "EngineHoldsLess",
        "EngineUnreadable",
    },
    "api/kv_gate.py: f'Retrieval{each.state}'": {f"Retrieval{each}" for each in RetrievalVerdict},
    "api/prefix_caching.py: reason": {"PrefixCachingTurnedOff", "PrefixCachingFindsLittle"},
}
"""Events whose reason is no word in the call, with the reasons that it can be."""


def section(heading: str) -> dict[str, str]:
    """Reason to the rest of its row, of one section of the page."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    rows = ROW.findall(dict(zip(parts[::2], parts[1::2], strict=True))[heading])
    assert len(dict(rows)) == len(rows), "a reason stands there twice"
    return dict(rows)


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(HOUSE.rglob("*.py")):
        name = path.relative_to(HOUSE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield name, node


def event_reasons() -> tuple[set[str], set[str]]:
    """Reasons that stand in calls which make an event, and the places where none does."""
    words, places = set(), set()
    for name, call in calls():
        assert isinstance(call.func, ast.Name)
        given = [each.value for each in call.keywords if each.arg == "reason"]
        if name == "api/deaths.py" and call.func.id == "_told":
            given = call.args[:1]
        elif call.func.id not in TELLERS:
            continue
        for value in given:
            if isinstance(value, ast.Constant):
                words.add(str(value.value))
            else:
                places.add(f"{name}: {ast.unparse(value)}")
    return words, places


def agent_reasons() -> set[str]:
    """Words that agent/status.py gives its conditions, and what NVML's refusals are called."""
    found = {each.value for each in Trouble}
    for name, call in calls():
        assert isinstance(call.func, ast.Name)
        if name == "agent/status.py" and call.func.id == "_condition":
            constants = [each for each in ast.walk(call.args[2]) if isinstance(each, ast.Constant)]
            found |= {str(each.value) for each in constants if isinstance(each.value, str)}
    return found


@pytest.mark.parametrize(
    ("heading", "reasons"),
    [
        ("Refusals", Reason),
        ("Conditions", ConditionReason),
        ("Why a worker is left alone", HoldReason),
        ("How workers die", DeathKind),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_every_reason_has_a_line_and_every_line_a_reason(
    heading: str, reasons: type[StrEnum]
) -> None:
    assert sorted(each.value for each in reasons) == sorted(section(heading))


def test_every_event_has_a_line_and_every_line_an_event() -> None:
    words, _ = event_reasons()
    from_tables = {each for reasons in REASONS_FROM_TABLES.values() for each in reasons}
    assert sorted(words | from_tables) == sorted(section("Events"))


def test_every_way_to_make_an_event_is_known_here() -> None:
    assert set(REASONS_FROM_TABLES) == event_reasons()[1]


def test_every_word_of_an_agent_has_a_line_and_every_line_a_word() -> None:
    assert sorted(agent_reasons()) == sorted(section("What agents say of a node"))


def test_what_is_wrong_with_a_node_is_among_the_refusals() -> None:
    assert {each.value for each in GpuProblem} <= section("Refusals").keys()


def test_every_line_says_what_it_means_and_what_to_do() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [name for name, rest in rows if any(not cell.strip() for cell in rest.split("|"))] == []
