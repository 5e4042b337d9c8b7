"""Does every query of the dashboard find what the operator exports, on a real Prometheus?

`PLIMSOLL_GOLDEN=write` draws docs/dashboard.svg anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dashboard import ALL, Panel, asked, choices, past
from dashboard_picture import PICTURE, drawn
from prometheus_server import prometheus, why_not


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real Prometheus that knows the day."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with prometheus(tmp_path_factory.mktemp("prometheus"), past()) as port:
        yield port


@pytest.fixture(scope="module")
def panels(port: int) -> tuple[Panel, ...]:
    """The panels with what Prometheus answers while nothing is picked."""
    return asked(port)


def test_every_query_finds_something(panels: tuple[Panel, ...]) -> None:
    empty = [
        (panel.title, number)
        for panel in panels
        for number, lines in enumerate(panel.lines)
        if not lines
    ]
    assert empty == []


def test_the_variables_offer_what_there_is_and_picking_one_shows_no_other(port: int) -> None:
    assert {
        "namespace": ("plant", "team"),
        "deployment": ("assistant", "chat"),
    } == choices(port)
    assert ("chat",) == choices(port, {**ALL, "namespace": "team"})["deployment"]
    names = {
        line.name
        for panel in asked(port, {"namespace": "plant", "deployment": "assistant"})
        for lines in panel.lines
        for line in lines
    }
    assert any("assistant" in name for name in names)
    assert [name for name in names if "chat" in name] == []


def values(panels: tuple[Panel, ...], title: str) -> dict[str, list[float]]:
    """The points of each line of one panel."""
    (panel,) = [each for each in panels if each.title == title]
    return {
        line.name: [value for _, value in line.points] for lines in panel.lines for line in lines
    }


def test_the_gate_lends_at_the_peak_and_never_promises_more_than_a_worker_holds(
    panels: tuple[Panel, ...],
) -> None:
    lent = values(panels, "Lent to a lane")
    assert {0.0} == set(lent["team/chat batch"])
    assert max(lent["team/chat chat"]) > min(lent["team/chat chat"])
    promised = values(panels, "Promised of each worker")
    assert {"chat-h100-0", "chat-h100-1"} == set(promised)
    assert all(0 < part <= 1 for parts in promised.values() for part in parts)
    slots = values(panels, "Slots")
    running, may = slots["team/chat chat in flight"], slots["team/chat chat slots"]
    assert all(have <= most for have, most in zip(running, may, strict=True))
    assert "team/chat chat queue_full" in values(panels, "429s")


def test_planned_stands_beside_running_pool_by_pool(panels: tuple[Panel, ...]) -> None:
    (panel,) = [each for each in panels if each.title == "Planned against running"]
    planned, running, _ = ({line.name.rsplit(" ", 1)[0] for line in lines} for lines in panel.lines)
    assert {"team/chat h100", "plant/assistant gpu"} == planned == running
    chat = next(line for line in panel.lines[0] if line.name.startswith("team"))
    assert {90.0, 180.0} == {value for _, value in chat.points}


def test_the_picture_in_the_documents_is_what_the_dashboard_shows(
    panels: tuple[Panel, ...],
) -> None:
    picture = drawn(panels)
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        PICTURE.write_text(picture, encoding="utf-8")
    assert picture == PICTURE.read_text(encoding="utf-8")
