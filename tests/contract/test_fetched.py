"""Is a machine that cannot fetch HAProxy told so, and does nothing else fail there?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCH = ROOT / "e2e" / "controlplane" / "haproxy.py"
STORIES = ROOT / "e2e" / "stories"


def fetched(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With an empty cache, where there is no apt."""
    return subprocess.run(
        [sys.executable, str(FETCH), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": str(tmp_path), "PLIMSOLL_CACHE": str(tmp_path / "cache")},
    )


def test_a_machine_without_apt_is_told_what_is_left_out(tmp_path: Path) -> None:
    told = fetched(tmp_path, "--or-say-why")
    assert 0 == told.returncode
    assert ["bookworm", "sid"] == re.findall(
        r"no HAProxy of Debian (\w+), so the gate's", told.stderr
    )
    assert "apt-get" in told.stderr


def test_without_the_word_it_is_a_failure(tmp_path: Path) -> None:
    assert 0 != fetched(tmp_path).returncode


@pytest.mark.parametrize("file", ["Makefile", "tests/everything.py"])
def test_who_runs_everything_asks_to_be_told(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(r"controlplane/haproxy\.py[\", ]+--or-say-why", text)


def test_every_story_that_starts_a_gate_is_skipped_with_the_reason(tmp_path: Path) -> None:
    starts = ("controlplane.haproxy", "gate_box", "gate_played")
    stories = [
        path
        for path in sorted(STORIES.glob("test_gateway*.py"))
        if any(word in path.read_text(encoding="utf-8") for word in starts)
    ]
    assert len(stories) >= 4
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", *map(str, stories)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PLIMSOLL_CACHE": str(tmp_path)},
        timeout=120,
    )
    assert re.search(r"^\d+ skipped in [^,]+$", ran.stdout, re.MULTILINE), ran.stdout[-2000:]
    told = re.findall(r"^SKIPPED \[\d+\] (\S+?):\d+: (.*)$", ran.stdout, re.MULTILINE)
    assert {path.name for path in stories} == {Path(where).name for where, _ in told}
    assert "a gate needs `python e2e/controlplane/haproxy.py` before" in {why for _, why in told}
