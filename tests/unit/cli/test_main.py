"""The words after `plimsoll`, and what each of them loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll import __version__
from plimsoll.cli.exits import Exit
from plimsoll.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[3]
EDGE = str(ROOT / "docs" / "examples" / "edge-assistant.yaml")
MIXED = str(ROOT / "docs" / "examples" / "mixed-fleet.yaml")
CLIENTS = {"kopf", "kubernetes", "aiohttp", "prometheus_client", "pynvml", "asyncio"}

Capture = pytest.CaptureFixture[str]


def run(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """A process of its own, as from a shell."""
    return subprocess.run(
        [sys.executable, "-m", "plimsoll.cli.main", *words],
        env={"PYTHONPATH": str(ROOT / "operator"), "PATH": "", "PYTHONWARNINGS": "error"},
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def loaded_by(*words: str) -> set[str]:
    """Modules in memory after a command."""
    code = (
        "import json, sys; from plimsoll.cli.main import main; "
        f"main({list(words)!r}); print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "operator"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(ran.stderr.splitlines()[-1]))


def test_a_process_exits_as_main_says() -> None:
    assert [
        run("version").returncode,
        run("plan", "-f", MIXED).returncode,
        run("plan", "-f", EDGE).returncode,
        run("plan", "-f", "nowhere.yaml").returncode,
        run("plan").returncode,
        run("plan", "-f", MIXED, "--no-such-option").returncode,
        run("plam").returncode,
        run().returncode,
    ] == [0, 0, 3, 2, 2, 2, 2, 2]


def test_a_process_prints_all_before_it_leaves() -> None:
    ran = run("plan", "-f", "-", "-o", "json", text=Path(MIXED).read_text(encoding="utf-8"))
    assert [answer["fits"] for answer in json.loads(ran.stdout)] == [True, True]
    assert ran.stderr == ""


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "plimsoll.cli.main", "plan", "-f", MIXED]
    with subprocess.Popen(
        command,
        env={"PYTHONPATH": str(ROOT / "operator"), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == Exit.FITS


def test_version_is_that_of_the_package(capsys: Capture) -> None:
    assert main(["version"]) == Exit.FITS
    assert main(["--version"]) == Exit.FITS
    assert capsys.readouterr().out == f"plimsoll {__version__}\n" * 2


def test_help_names_every_command(capsys: Capture) -> None:
    assert main(["--help"]) == Exit.FITS
    said = capsys.readouterr().out
    assert [c.name for c in COMMANDS if f"\n    {c.name}" not in said] == []


@pytest.mark.parametrize("name", [c.name for c in COMMANDS if c.name != "version"])
def test_help_of_a_command_teaches_by_examples_and_exit_codes(name: str, capsys: Capture) -> None:
    assert main([name, "--help"]) == Exit.FITS
    said = capsys.readouterr().out
    assert f"\n  plimsoll {name}" in said
    assert "exit codes:\n  0  " in said


@pytest.mark.parametrize("name", ["plan", "explain", "render"])
def test_offline_commands_load_no_client(name: str) -> None:
    assert loaded_by(name, "-f", MIXED) & CLIENTS == set()


def test_plan_loads_no_rich_and_facts_no_planner(tmp_path: Path) -> None:
    assert "rich" not in loaded_by("plan", "-f", MIXED)
    assert "rich" not in loaded_by("plan", "-f", MIXED, "-o", "json")
    assert "plimsoll.plan.planner" not in loaded_by("facts", str(tmp_path))


def test_plan_loads_no_status_and_no_workload() -> None:
    unused = {"plimsoll.api.status_types", "plimsoll.render.records", "plimsoll.decide"}
    assert unused & loaded_by("plan", "-f", MIXED) == set()


def test_version_and_help_load_next_to_nothing() -> None:
    assert {"pydantic", "yaml"} & loaded_by("version") == set()
    assert {"pydantic", "yaml"} & loaded_by("--help") == set()
