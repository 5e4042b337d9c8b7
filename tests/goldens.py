"""Golden files: what a reader once agreed to. `make golden` rewrites them, the diff is the review."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """The file of that name has this text; with PLIMSOLL_GOLDEN=write it gets it instead."""
    assert_same_file(FOLDER / name, text)


def assert_same_file(path: Path, text: str) -> None:
    """The same for a file that lives elsewhere, where its readers look for it."""
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
