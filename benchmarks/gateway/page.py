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


def write(part: str, findings: Sequence[Finding], tables: Sequence[str], seconds: float) -> None:
    """Replace what stands between the marks of that part; the rest is of hands."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_figures(page, part, _told(findings, tables, seconds)), encoding="utf-8")


def marks(part: str) -> tuple[str, str]:
    """Where its figures begin and end."""
    return f"<!-- figures: {part} -->", f"<!-- end of figures: {part} -->"


def with_figures(page: str, part: str, figures: str) -> str:
    """The page with these figures between the marks of that part."""
    first, last = marks(part)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(
            f"{SHOWN} has no place for figures of {part}: put {first} and {last} into it"
        )
    return "".join((before, "\n\n".join([first, figures, last]), after))


def _told(findings: Sequence[Finding], tables: Sequence[str], seconds: float) -> str:
    """When and where, the figures, the tables."""
    where = (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {seconds:.0f} s, {machine()}, "
        f"load {os.getloadavg()[0]:.1f} at the end with its own, HAProxy {_release()}"
    )
    rows = [f"| {each.name} | {each.shown} | {each.target} | {each.detail} |" for each in findings]
    head = ["| what | value | target | made of |", "| --- | ---: | --- | --- |"]
    return "\n\n".join([where, *(["\n".join([*head, *rows])] if rows else []), *tables])


def _release() -> str:
    said = subprocess.run([haproxy(OLDEST_SUITE), "-v"], capture_output=True, text=True, check=True)
    return said.stdout.split()[2].partition("-")[0]
