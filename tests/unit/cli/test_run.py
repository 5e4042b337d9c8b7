"""`plimsoll run`: options, variables and what is wrong with them."""

from __future__ import annotations

import pytest

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.controller.settings import Settings

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Settings with which the operator would have been started."""
    given: list[Settings] = []

    def start(settings: Settings) -> int:
        given.append(settings)
        return 0

    monkeypatch.setattr("plimsoll.controller.main.run", start)
    return given


def test_every_setting_has_an_option_and_its_variable_in_the_help(capsys: Capture) -> None:
    assert main(["run", "--help"]) == Exit.FITS
    said = " ".join(capsys.readouterr().out.split())
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')} " in said
        assert f"[PLIMSOLL_{name.upper()}]" in said


def test_the_command_line_wins_over_the_environment(
    started: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_WORKERS", "3")
    monkeypatch.setenv("PLIMSOLL_METRICS_PORT", "9000")
    assert main(["run", "--workers", "5", "--namespaces", "team-a,team-b"]) == Exit.FITS
    (settings,) = started
    assert (settings.workers, settings.metrics_port) == (5, 9000)
    assert settings.namespaces == ("team-a", "team-b")


def test_a_setting_that_cannot_be_read_is_named_with_its_value(
    started: list[Settings], capsys: Capture
) -> None:
    assert main(["run", "--workers", "many"]) == Exit.BAD_INPUT
    assert "--workers (PLIMSOLL_WORKERS): 'many'" in capsys.readouterr().err
    assert started == []
