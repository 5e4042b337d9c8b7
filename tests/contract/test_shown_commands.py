"""Would the commands be taken that documents and help texts show, also those that no test can run?

Blocks that run without a cluster are run by test_docs.py. The others need a cluster or files that only the reader
has: every `plimsoll` line in them is given to that command's own parser, and every value that `helm` sets is looked
up in the chart.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from plimsoll.cli.main import COMMANDS, command_module

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
BLOCK: Final = re.compile(r"^ *```(?:sh|text)?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PLIMSOLL: Final = re.compile(
    r"(?:^|\| )(?:uvx --from \. |\.venv/bin/|kubectl )?plimsoll ([a-z]+\b.*)"
)
ENDS: Final = re.compile(r"\s(?:\||<<|>|&&|#)|;| {3,}")
"""Where a command ends: a pipe, a file, a comment, or the words that a help text sets beside it."""
NAMES: Final = {command.name for command in COMMANDS} - {"version"}


def lines(path: Path) -> Iterator[str]:
    """Lines of the document's blocks, those that end with a backslash joined."""
    for block in BLOCK.findall(path.read_text(encoding="utf-8")):
        yield from re.sub(r" *\\\n *", " ", block).splitlines()


def commands(path: Path) -> Iterator[list[str]]:
    for line in lines(path):
        found = PLIMSOLL.search(line.strip())
        if found is None or any(word in line for word in ("[OPTION", "COMMAND", "--help")):
            continue
        text = re.sub(r"<\(.*?\)", "FILE", found[1])
        words = shlex.split(ENDS.split(text)[0])
        if words[0] in NAMES:
            yield words


def refusal(words: list[str]) -> str:
    """What the command's parser says against it; empty when it takes it."""
    parser = argparse.ArgumentParser(prog=words[0], exit_on_error=False)
    command_module(words[0]).add_arguments(parser)
    try:
        parser.parse_args(words[1:])
    except (argparse.ArgumentError, SystemExit) as error:
        return f"{shlex.join(words)}: {error}"
    return ""


def test_there_are_many() -> None:
    assert sum(1 for path in DOCUMENTS for _ in commands(path)) > 60


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_plimsoll_line_is_one_that_its_parser_takes(path: Path) -> None:
    assert [told for words in commands(path) if (told := refusal(words))] == []


def test_a_line_with_an_option_that_is_not_there_would_be_found() -> None:
    assert refusal(["plan", "-f", "chat.yaml", "--cards", "l40s"])
    assert refusal(["plan", "-f", "chat.yaml", "--gpu", "l40s"]) == ""


def test_every_value_that_a_helm_line_sets_is_in_the_chart() -> None:
    values: dict[str, Any] = yaml.safe_load(
        (ROOT / "charts/plimsoll/values.yaml").read_text(encoding="utf-8")
    )
    set_there = [
        name
        for path in DOCUMENTS
        for line in lines(path)
        if "helm " in line
        for given in re.findall(r"--set(?:-string)? (\S+)", line)
        for name in re.findall(r"(?:^|,)([A-Za-z.]+)[=\[{]", given)
    ]
    assert len(set_there) >= 2
    assert [name for name in set_there if not _has(values, name.split("."))] == []


def _has(values: Any, path: list[str]) -> bool:
    for word in path:
        if not isinstance(values, dict) or word not in values:
            return False
        values = values[word]
    return True
