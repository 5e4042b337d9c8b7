"""`plimsoll explain`, from its arguments to its exit code."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
EDGE = str(EXAMPLES / "edge-assistant.yaml")
MIXED = str(EXAMPLES / "mixed-fleet.yaml")


def test_each_pool_has_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-f", MIXED]) == Exit.FITS
    said = capsys.readouterr().out
    assert "one of 4 NVIDIA-RTX-A6000, 48.0 GiB" in said
    assert said.count("0 GiB") >= 2
    assert "\x1b" not in said


def test_a_refusal_is_told_and_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-f", EDGE]) == Exit.REFUSED
    assert "Refused: KvBudgetExceeded" in capsys.readouterr().out


def test_svg_writes_a_file_beside_the_bar(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "card.svg"
    assert main(["explain", "-f", MIXED, "--svg", str(path)]) == Exit.FITS
    assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    out, err = capsys.readouterr()
    assert "Weights" in out
    assert err == f"wrote {path}\n"


def test_svg_to_standard_output_is_nothing_but_the_picture(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "-f", MIXED, "--svg", "-"]) == Exit.FITS
    first = capsys.readouterr().out
    assert first.startswith("<svg ")
    main(["explain", "-f", MIXED, "--svg", "-"])
    assert capsys.readouterr().out == first


def test_a_picture_that_cannot_be_written_is_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "card.svg"
    assert main(["explain", "-f", MIXED, "--svg", str(path)]) == Exit.BAD_INPUT
    assert f"--svg: {path} cannot be written" in capsys.readouterr().err
