"""Does what the documents show still happen?

A `sh` block below `<!-- runs -->` is run without a network; the `text` block below `<!-- prints -->` is what it
printed. `PLIMSOLL_GOLDEN=write` (make golden) rewrites those blocks, and the diff is the review.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from plimsoll.api.schema import COLUMNS

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
DOCUMENTS: Final = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
)
DECISIONS: Final = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
DECISION_PARTS: Final = ("Context", "Decision", "What it costs", "What would change our mind")
ONE_SCREEN_LINES: Final = 60
FIRST_WORDS: Final = ("uvx --from . ", ".venv/bin/")
"""What stands before a command in the documents, and not where the tests run."""

BLOCK: Final = re.compile(
    r"<!-- runs(?:: exit (?P<code>\d+))? -->\n```sh\n(?P<script>.*?)```\n"
    r"(?:(?P<between>(?:(?!<!-- (?:runs|prints)).)*?)"
    r"<!-- prints(?:: lines (?P<first>\d+)-(?P<last>\d+))? -->\n```text\n(?P<printed>.*?)```\n)?",
    re.DOTALL,
)
KUBECTL: Final = re.compile(r"<!-- kubectl get: .*? -->\n```text\n(.*?)```\n", re.DOTALL)
PRINTED: Final = re.compile(r"^```text\n.*?^```$", re.DOTALL | re.MULTILINE)
LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")
CODE: Final = re.compile(r"`([^`\n]+)`")
FORBIDDEN: Final = {
    "a machine's own path": r"(?<![\w.])/(?:work|root|tmp|mnt|builds?)/",
    "a registry's host": r"(?i)\b(?:pypi\.org|pythonhosted\.org|proxy\.golang\.org|deb\.debian\.org)\b",
    "a task's number": r"(?<![\w/])#\d+\b",
    "how it was made": r"\b(?:sessions?|Sessions)\b",  # Session is a value of the API
    "unfinished work": r"\b(?:TODO|FIXME|XXX|TBD)\b",
    "fog": r"(?i)\b(?:seamless(?:ly)?|effortless(?:ly)?|blazing|cutting-edge|revolutionary|world-class|"
    r"next-generation|game-chang\w+|unlock(?:s|ing)? the|supercharge\w*|best-in-class|turnkey)\b",
}


@dataclass(frozen=True)
class Example:
    """One block that runs, and what stands below it."""

    document: Path
    code: int
    script: str
    printed: str | None
    lines: tuple[int, int] | None

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}: {self.script.splitlines()[0]}"

    def command(self) -> str:
        """The script with commands as they are called here."""
        return "\n".join(_without_first_words(line) for line in self.script.splitlines())

    def shown(self, output: str) -> str:
        """The part of the output that the document shows."""
        if self.lines is None:
            return output
        first, last = self.lines
        return "".join(output.splitlines(keepends=True)[first - 1 : last])


def _without_first_words(line: str) -> str:
    return next((line[len(words) :] for words in FIRST_WORDS if line.startswith(words)), line)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def examples() -> tuple[Example, ...]:
    return tuple(
        Example(
            document=path,
            code=int(match["code"] or 0),
            script=match["script"],
            printed=match["printed"],
            lines=(int(match["first"]), int(match["last"])) if match["first"] else None,
        )
        for path in DOCUMENTS
        for match in BLOCK.finditer(text_of(path))
    )


def run(example: Example, folder: Path) -> str:
    """Standard output, in a folder that looks like a checkout, with no way to the network."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and not (folder / entry.name).exists():
            (folder / entry.name).symlink_to(entry)
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.command()],
        cwd=folder,
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == example.code, ran.stdout + ran.stderr
    return ran.stdout


def test_golden_examples_run_and_print_what_stands_below_them(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, example in enumerate(examples()):
        with subtests.test(str(example)):
            folder = tmp_path / str(number)
            folder.mkdir()
            output = example.shown(run(example, folder))
            if example.printed is None:
                continue
            if os.environ.get("PLIMSOLL_GOLDEN") == "write":
                write_down(example, output)
            else:
                assert example.printed == output


def write_down(example: Example, output: str) -> None:
    """Put the output where the document has another."""
    text = text_of(example.document)
    match = next(m for m in BLOCK.finditer(text) if m["script"] == example.script)
    start, end = match.span("printed")
    example.document.write_text(text[:start] + output + text[end:], encoding="utf-8")


def test_the_readme_shows_plans_that_run() -> None:
    shown = [each for each in examples() if each.document.name == "README.md" and each.printed]
    assert len(shown) >= 3


def test_the_kubectl_view_has_the_columns_of_the_crd() -> None:
    match = KUBECTL.search(text_of(ROOT / "README.md"))
    assert match is not None
    shown = tuple(re.split(r" {3,}", match[1].splitlines()[0].strip()))
    columns = tuple(name.upper() for name, _, _, priority in COLUMNS if priority == 0)
    assert ("NAMESPACE", "NAME", *columns) == shown


def test_the_tokens_of_the_kubectl_view_are_those_of_the_plans() -> None:
    """So that a plan that comes out different is seen without a cluster too."""
    workers = {"a6000-tp4": 2, "a6000-single": 1, "h100-tp2": 2}  # as the demo's fleet has room
    planned: dict[str, int] = {}
    for name in ("mixed-fleet", "chat-and-batch"):
        told = subprocess.run(
            [BIN / "plimsoll", "plan", "-f", f"docs/examples/{name}.yaml", "-o", "json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for each in json.loads(told.stdout):
            deployment = each["deployment"].partition("/")[2]
            tokens = each["outcome"]["kv"]["poolTokens"] * workers[each["pool"]]
            planned[deployment] = planned.get(deployment, 0) + tokens
    match = KUBECTL.search(text_of(ROOT / "README.md"))
    assert match is not None
    rows = [line.split() for line in match[1].splitlines()[1:]]
    shown = {row[1]: int(row[6]) for row in rows}
    assert planned | {"plant-assistant": 0} == shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_named_paths_exist(path: Path) -> None:
    missing = [
        target
        for target in links(text_of(path))
        if not (path.parent / target).exists() and "://" not in target
    ]
    missing += [name for name in named_paths(text_of(path)) if not list(ROOT.glob(name))]
    assert missing == []


def links(text: str) -> Iterator[str]:
    for match in LINK.finditer(text):
        yield match["target"]


def named_paths(text: str) -> Iterator[str]:
    """Inline code that begins with a folder or file of the checkout; what is made in `build` may not be there."""
    tops = {entry.name for entry in ROOT.iterdir()} - {".venv", "build"}
    for match in CODE.finditer(text):
        word = match[1].split("::")[0].rstrip("/")
        if word.partition("/")[0] in tops and re.fullmatch(r"[\w.*/-]+", word):
            yield word


def test_paths_that_the_code_points_to_exist() -> None:
    pointed = {
        name
        for folder in ("operator", "e2e", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"docs/[a-z]+/[a-z0-9-]+\.md", text_of(path))
    }
    assert {name for name in pointed if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_says_what_does_not_belong_there(path: Path) -> None:
    said = PRINTED.sub("", text_of(path))
    found = {
        why: match[0] for why, pattern in FORBIDDEN.items() if (match := re.search(pattern, said))
    }
    assert found == {}


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name.partition("-")[0]) for path in DECISIONS]
    assert list(range(1, len(numbers) + 1)) == numbers


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_fits_on_one_screen_and_has_its_four_parts(path: Path) -> None:
    text = text_of(path)
    assert DECISION_PARTS == tuple(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert text.startswith(f"# {path.name[:4]} ")
    assert len(text.splitlines()) <= ONE_SCREEN_LINES


def test_the_changelog_has_what_comes_and_what_is() -> None:
    """The version in the tree is that of the newest release, or of the one that Unreleased becomes."""
    settings = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    coming, *released = re.findall(
        r"^## \[?([^\]\s]+)", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE
    )
    assert "Unreleased" == coming
    numbers = [[int(part) for part in each.split(".")] for each in released]
    assert sorted(numbers, reverse=True) == numbers
    assert [int(part) for part in settings["project"]["version"].split(".")] >= numbers[0]


def test_contributing_names_every_room() -> None:
    settings = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = {room.strip() for layer in layers for room in layer.split("|")}
    text = text_of(ROOT / "CONTRIBUTING.md")
    assert {room for room in rooms if f"**{room}**" not in text} == set()
