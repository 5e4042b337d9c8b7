"""How do the figures of a whole run get into docs/measured/gateway.md, without a hand between?"""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.finding import Finding, machine

from controlplane.haproxy import OLDEST_SUITE, haproxy

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "measured" / "gateway.md"
SHOWN: Final = "docs/measured/gateway.md"
BEGIN: Final = "<!-- figures: make bench-gateway -->"
END: Final = "<!-- end of the figures -->"


def write(findings: Sequence[Finding], tables: Sequence[str], seconds: float) -> None:
    """Replace what stands between the two marks; the rest is of hands."""
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{SHOWN} has no place for figures: put {BEGIN} and {END} into it")
    text = "\n\n".join([BEGIN, _told(findings, tables, seconds), END])
    PAGE.write_text(before + text + after, encoding="utf-8")


def _told(findings: Sequence[Finding], tables: Sequence[str], seconds: float) -> str:
    """Where and how, the figures, the tables."""
    rows = [f"| {each.name} | {each.shown} | {each.target} | {each.detail} |" for each in findings]
    head = [
        f"- machine: {machine()}; load {os.getloadavg()[0]:.1f} at the end, the measurement's own included",
        f"- HAProxy {_release()}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {seconds / 60:.0f} minutes",
        "",
        "| what | value | target | made of |",
        "| --- | ---: | --- | --- |",
        *rows,
    ]
    return "\n\n".join(["\n".join(head), *tables])


def _release() -> str:
    said = subprocess.run([haproxy(OLDEST_SUITE), "-v"], capture_output=True, text=True, check=True)
    return said.stdout.split()[2].partition("-")[0]
