"""A golden file is read by its reader: HAProxy itself, the oldest release and the current one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from controlplane.haproxy import SUITES, gate_possible, haproxy

pytestmark = pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible()))
GOLDENS: Final = sorted((Path(__file__).parents[2] / "tests" / "golden").glob("**/*.cfg"))


def test_there_are_goldens() -> None:
    assert len(GOLDENS) >= 6


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_haproxy_reads_what_we_render(golden: Path, suite: str, tmp_path: Path) -> None:
    for name in ("keys.map", "bytes-per-token.map", "gate.map"):
        (tmp_path / name).touch()
    text = golden.read_text().replace("/run/plimsoll", str(tmp_path))
    (tmp_path / "haproxy.cfg").write_text(text)
    ran = subprocess.run(
        [haproxy(suite), "-c", "-V", "-f", tmp_path / "haproxy.cfg"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert 0 == ran.returncode, said
    assert "Configuration file is valid" in said
    assert "WARNING" not in said
