"""Does every query of the dashboard find what the operator exports, on a real Prometheus?

`PLIMSOLL_GOLDEN=write` draws docs/dashboard.svg anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dashboard import PICTURE, Panel, asked, drawn, past
from prometheus_server import prometheus, why_not


@pytest.fixture(scope="module")
def panels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Panel, ...]]:
    """The panels with what a real Prometheus answers."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with prometheus(tmp_path_factory.mktemp("prometheus"), past()) as port:
        yield asked(port)


def test_every_query_finds_something(panels: tuple[Panel, ...]) -> None:
    empty = [
        (panel.title, number)
        for panel in panels
        for number, lines in enumerate(panel.lines)
        if not lines
    ]
    assert empty == []


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
