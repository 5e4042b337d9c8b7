"""Do alerts and dashboard ask for numbers that somebody exports, and is there a page for each alert?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import CollectorRegistry

from plimsoll.api.conditions import ConditionName, ConditionReason, Tristate
from plimsoll.diagnose.case import HoldReason
from plimsoll.diagnose.records import VerdictKind
from plimsoll.gate.tally import Tally
from plimsoll.keeper.loop import Told
from plimsoll.keeper.page import metrics_text
from plimsoll.telemetry.engines import ROWS
from plimsoll.telemetry.export import Metrics
from plimsoll.telemetry.workers import WorkerMetrics

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "plimsoll"
RUNBOOKS: Final = ROOT / "docs" / "alerts.md"
NAME: Final = re.compile(r"(?:plimsoll_|vllm:|llamacpp:)\w+")
SELECTED: Final = re.compile(r"(\w+)(=~|!~|!=|=)\"([^\"]*)\"")
ENDINGS: Final = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_count", "_sum"),
    "gauge": ("",),
}
VALUES: Final = {
    "type": {name.value for name in ConditionName},
    "verdict": {kind.value for kind in VerdictKind},
}
"""What a label can be, where the code has a list of it."""


def alerts() -> list[dict[str, Any]]:
    text = (CHART / "alerts.yaml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    text = (CHART / "dashboard.json").read_text(encoding="utf-8")
    return [panel for panel in json.loads(text)["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Where it stands, and the expression."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def exported() -> dict[str, set[str]]:
    """Every series that operator, keeper and engines tell, and the labels that ours have."""
    metrics = Metrics()
    WorkerMetrics(workers := CollectorRegistry())
    found: dict[str, set[str]] = {}
    for registry in (metrics.registry, workers):
        for family in registry.collect():
            for ending in ENDINGS[family.type]:
                found[family.name + ending] = set()
    page = metrics_text(Told(), Tally(), ())
    gate = re.findall(r'"(plimsoll_gate_\w+)": \("(\w+)"', keeper_source())
    assert len(gate) >= 10
    assert "plimsoll_gate_answers" in page
    for name, kind in gate:
        for ending in ("",) if kind == "counter" else ENDINGS[kind]:
            found[name + ending] = set()
    for rows in ROWS.values():
        found |= {name: set() for row in rows for name in row.names}
    return found


def keeper_source() -> str:
    path = ROOT / "operator" / "plimsoll" / "keeper" / "page.py"
    return path.read_text(encoding="utf-8")


def anchors() -> set[str]:
    headings = re.findall(r"^#+ (.+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_query_asks_for_what_is_exported() -> None:
    names = set(exported())
    asked = {name for _, expression in queries() for name in NAME.findall(expression)}
    assert len(asked) >= 30
    assert asked - names == set()


def test_every_query_asks_for_something_of_ours_or_of_an_engine() -> None:
    assert [where for where, expression in queries() if not NAME.findall(expression)] == []


@pytest.mark.parametrize("label", sorted(VALUES))
def test_a_label_is_compared_with_what_it_can_be(label: str) -> None:
    compared = {
        value
        for _, expression in queries()
        for name, operator, value in SELECTED.findall(expression)
        if name == label and operator == "="
    }
    assert compared != set()
    assert compared - VALUES[label] == set()


def test_holds_and_reasons_that_are_named_exist() -> None:
    reasons = {reason.value for reason in HoldReason} | {each.value for each in ConditionReason}
    named = {
        word
        for _, expression in queries()
        for name, _, value in SELECTED.findall(expression)
        if name == "reason"
        for word in value.split("|")
    }
    assert {"RecycleBlocked", "ScaledToZero"} <= named
    assert named - reasons == set()
    statuses = {each.value for each in Tristate}
    told = {
        value
        for _, expression in queries()
        if "plimsoll_condition" in expression
        for name, _, value in SELECTED.findall(expression)
        if name == "status"
    }
    assert told - statuses == set()


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    names = {rule["alert"].lower() for rule in alerts()}
    assert len(names) == len(alerts()) >= 15
    assert names - anchors() == set()
    assert {each for each in anchors() if each.startswith("plimsoll")} == names


def test_links_within_the_runbooks_lead_somewhere() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) - anchors() == set()


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_bad_it_is_and_what_was_seen(rule: dict[str, Any]) -> None:
    assert {"severity"} == set(rule["labels"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description"} == set(rule["annotations"])
    assert rule["for"]


def test_what_is_said_names_only_labels_that_are_there() -> None:
    """A label that was summed away is empty in the text."""
    for rule in alerts():
        grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
        if not grouped or rule["expr"].lstrip().startswith("histogram"):
            continue
        there = {label.strip() for label in grouped[0].split(",")}
        said = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert said - there == set(), rule["alert"]


def test_the_dashboard_shows_what_plans_promise_and_what_becomes_of_them() -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    for name in (
        "plimsoll_planned_tokens", "plimsoll_reported_tokens", "plimsoll_headroom_bytes",
        "plimsoll_planned_sequences", "plimsoll_worker_slope_bytes_per_hour",
        "plimsoll_worker_verdict", "plimsoll_recycles_total", "plimsoll_gate_requests_total",
    ):  # fmt: skip
        assert name in shown


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    text = (CHART / "dashboard.json").read_text(encoding="utf-8")
    every = json.loads(text)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells = [
        (x, y)
        for panel in every
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_the_page_of_the_dashboard_has_every_panel() -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| (.+?) \| (.+?) \|$", page, re.MULTILINE))
    assert {(panel["title"], panel["description"]) for panel in panels()} <= told
