"""Is the image small in rights, and exactly what requirements.lock says?

No container engine is asked: these are rules about the text, and about what the tests' own image takes from it.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import pytest
import yaml

from own_image import CONTAINERFILE, entry, environment, instructions
from plimsoll import __version__
from plimsoll.cli.main import COMMANDS

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = CONTAINERFILE.read_text(encoding="utf-8")
STEPS: Final = instructions(TEXT)
DIGEST: Final = re.compile(r"^[a-z0-9.]+/[a-z0-9/._-]+:[\w.-]+@sha256:[0-9a-f]{64}$")
BLOCK: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?:.*\\\n(?:    --hash=.*\n?)+)", re.MULTILINE)


def rest_of(word: str) -> list[str]:
    return [rest for name, rest in STEPS if name == word]


def locked(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each package in a lock file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {
        match[1]: (match[2], frozenset(re.findall(r"--hash=(\S+)", match[0])))
        for match in BLOCK.finditer(text)
    }


def needed() -> set[str]:
    """What Plimsoll asks for when it runs, as far as it is installed here."""
    names, wanted = set[str](), ["plimsoll"]
    while wanted:
        for each in distribution(wanted.pop()).requires or ():
            requirement, _, marker = each.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            assert match is not None
            name = re.sub(r"[-_.]+", "-", match[0]).lower()
            if "extra" in marker or name in names:
                continue
            try:
                distribution(name)
            except PackageNotFoundError:
                continue  # of another platform or Python
            names.add(name)
            wanted.append(name)
    return names


def test_every_base_is_pinned_by_digest() -> None:
    (base,) = {rest.split()[0] for rest in rest_of("FROM")}
    assert DIGEST.match(base)
    assert ":latest" not in TEXT


def test_nobody_is_root() -> None:
    assert ["65532:65532"] == rest_of("USER")
    after = [name for name, _ in STEPS][[name for name, _ in STEPS].index("USER") :]
    assert "RUN" not in after
    values = yaml.safe_load((ROOT / "charts/plimsoll/values.yaml").read_text(encoding="utf-8"))
    assert 65532 == values["operator"]["runAsUser"] == values["agent"]["runAsUser"]


def test_nothing_is_fetched_by_address_and_nothing_runs_in_a_shell() -> None:
    assert rest_of("ADD") == []
    assert [rest for rest in rest_of("RUN") if not isinstance(json.loads(rest), list)] == []
    assert isinstance(json.loads(*rest_of("ENTRYPOINT")), list)
    assert {json.loads(rest)[0] for rest in rest_of("RUN")} == {"python3"}


def test_packages_come_from_the_lock_alone_with_their_hashes() -> None:
    (install,) = [json.loads(rest) for rest in rest_of("RUN") if '"install"' in rest]
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= set(install)
    assert "--requirement=/build/requirements.runtime.lock" in install


def test_everything_is_compiled_for_a_read_only_file_system() -> None:
    compiled = [json.loads(rest) for rest in rest_of("RUN") if "compileall" in rest]
    folders = {step[-1] for step in compiled}
    version = re.search(r"python:(\d+\.\d+)", TEXT)
    assert version is not None
    assert {environment()["PYTHONPATH"], f"/usr/local/lib/python{version[1]}"} == folders
    assert "1" == environment()["PYTHONDONTWRITEBYTECODE"]
    assert "/tmp" == environment()["HOME"]


def test_the_user_has_a_name_for_those_who_ask() -> None:
    assert environment()["USER"]


def test_the_command_is_the_program() -> None:
    assert ("-m", "plimsoll.cli.main") == entry()[1:]
    assert {"run", "agent", "facts", "probe", "healthy"} <= {each.name for each in COMMANDS}


def test_the_image_says_its_version() -> None:
    assert f"VERSION={__version__}" in rest_of("ARG")


def test_only_what_is_copied_goes_to_the_builder() -> None:
    lines = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source.partition("/")[0]
        for rest in rest_of("COPY")
        if "--from=" not in rest
        for source in rest.split()[:-1]
    }
    assert sent == copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_images_lock_is_a_part_of_the_whole_one() -> None:
    whole, part = locked("requirements.lock"), locked("requirements.runtime.lock")
    assert {name: whole.get(name) for name in part} == part
    assert all(hashes for _, hashes in part.values())


def test_the_images_lock_is_complete_and_has_no_tools() -> None:
    part = set(locked("requirements.runtime.lock"))
    assert len(needed()) > 20
    assert needed() - part == set()
    assert part & {"pytest", "mypy", "ruff", "hypothesis", "hatchling", "import-linter"} == set()


@pytest.mark.parametrize("word", ["USER", "ENTRYPOINT"])
def test_it_is_said_once(word: str) -> None:
    assert len(rest_of(word)) == 1
