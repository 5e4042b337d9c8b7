"""Would the commands be taken that documents and help texts show, also those that no test can run?

Blocks that run without a cluster are run by test_docs.py. The others need a cluster or files that only the reader
has: every `plimsoll` line in them is given to that command's own parser, and every value that `helm` sets is looked
up in the chart. Who runs the rest, or why nobody can, stands in `RUN_ELSEWHERE`.
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
FENCED: Final = re.compile(
    r"^(?P<before>[^\n]*)\n(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
RUN_ELSEWHERE: Final = {
    "kubectl get ": "test_install.py runs these among the examples, as far as they name no object of the reader's",
    "kubectl describe ": "the same",
    "helm install ": "test_install.py and test_upgrade.py; every value is looked up in the chart",
    "helm upgrade ": "test_upgrade.py, and the same of values",
    "kubectl apply ": "test_install.py",
    "kubectl create namespace ": "test_install.py",
    "kubectl scale ": "of the reader's own objects; test_life.py scales",
    "kubectl delete ": "of the reader's own objects; test_install.py deletes",
    "kubectl annotate infd ": "asks for another look at files: test_inspection.py sets the annotation",
    "kubectl logs ": "needs a worker that died",
    "pip ": "needs a package index",
    "docker buildx ": "needs a registry, and the network that pulls the base",
    "cosign ": "needs a registry",
    "haproxy -db -f haproxy.cfg ": "benchmarks and stories of the gate start it so",
    ".venv/bin/pytest ": "part of `make unit`",
    ".venv/bin/python ": "part of CI or a measurement; the file is looked up",
    "make ": "the target is looked up",
}
"""Beginning of a line, and who runs it (in e2e/stories) or why nobody does."""
NAMES: Final = {command.name for command in COMMANDS} - {"version"}


def lines(path: Path) -> Iterator[str]:
    """Lines of the document's blocks, those that end with a backslash joined."""
    for block in BLOCK.findall(path.read_text(encoding="utf-8")):
        yield from re.sub(r" *\\\n *", " ", block).splitlines()


def shown(path: Path) -> Iterator[str]:
    """Command lines that test_docs.py does not run: of `sh` blocks, and of blocks that name no language."""
    for found in FENCED.finditer(path.read_text(encoding="utf-8")):
        if found["kind"] in ("", "sh") and not found["before"].startswith("<!-- runs"):
            for line in re.sub(r" *\\\n *", " ", found["text"]).splitlines():
                if (stripped := line.strip()) and not stripped.startswith("#"):
                    yield stripped


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


def is_plimsolls(line: str) -> bool:
    found = PLIMSOLL.search(line)
    return found is not None and found[1].split()[0] in NAMES


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_other_line_is_run_somewhere_or_has_a_reason_why_not(path: Path) -> None:
    others = [line for line in shown(path) if not is_plimsolls(line)]
    assert [line for line in others if not line.startswith(tuple(RUN_ELSEWHERE))] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = [line.split() for line in others]
    targets = {each[1] for each in words if each[0] == "make"}
    assert {each for each in targets if f"\n{each}:" not in makefile} == set()
    files = {each[1] for each in words if each[0] == ".venv/bin/python" and each[1] != "-m"}
    assert {each for each in files if not (ROOT / each).exists()} == set()


def test_contributing_names_every_target_that_measures() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^((?:bench|accuracy|soak)[a-z-]*):", makefile, re.MULTILINE))
    assert len(targets) >= 5
    told = {line.split()[1] for line in shown(ROOT / "CONTRIBUTING.md") if line.startswith("make")}
    assert targets - told == set()


def test_every_reason_is_of_a_line() -> None:
    lines_ = [line for path in DOCUMENTS for line in shown(path)]
    assert {b for b in RUN_ELSEWHERE if not any(line.startswith(b) for line in lines_)} == set()


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
