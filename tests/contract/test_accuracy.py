"""Is the accuracy report that is committed the one that the plans give now?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def test_the_committed_accuracy_report_is_what_is_planned_now() -> None:
    """`make accuracy` writes it anew; the diff is the review."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.accuracy", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
