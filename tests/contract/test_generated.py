"""Do the generated files say what the code says?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from plimsoll.cli.exits import Exit
from plimsoll.cli.generate import differing_files, generated
from plimsoll.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "crds", tmp_path / "crds")
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    shutil.copytree(ROOT / "docs" / "reference", tmp_path / "docs" / "reference")
    return tmp_path


def test_generated_files_are_those_that_the_code_prints() -> None:
    """Run `make generate` after touching api/, cluster/grants.py, or words of commands, settings and metrics."""
    assert differing_files(ROOT) == ()


@pytest.mark.parametrize("is_page", [False, True], ids=["crd", "page"])
def test_check_names_a_file_that_was_edited_by_hand(
    checkout: Path, capsys: pytest.CaptureFixture[str], *, is_page: bool
) -> None:
    name = "docs/reference/cli.md" if is_page else next(iter(generated()))
    (checkout / name).write_text("edited: true\n", encoding="utf-8")
    assert main(["generate", "--check", "--root", str(checkout)]) == Exit.DIFFERS
    assert capsys.readouterr().out == f"{name}\n"


def test_generate_puts_back_what_was_edited_and_removes_what_nothing_prints(checkout: Path) -> None:
    name = next(iter(generated()))
    (checkout / name).unlink()
    left_over = (checkout / "crds" / "old.yaml", checkout / "docs" / "reference" / "old.md")
    for path in left_over:
        path.write_text("left: over\n", encoding="utf-8")
    assert main(["generate", "--root", str(checkout)]) == Exit.FITS
    assert differing_files(checkout) == ()
    assert not any(path.exists() for path in left_over)


def test_a_folder_that_is_no_checkout_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "--root", str(tmp_path)]) == Exit.BAD_INPUT
    assert "no charts/plimsoll/Chart.yaml" in capsys.readouterr().err
