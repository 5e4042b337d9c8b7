"""`make bench-gateway`: real HAProxy before engines that only pretend to compute, as ratios, in one run.

    python -m benchmarks.gateway            everything, less than 20 minutes; exit 1 when a target is missed
    python -m benchmarks.gateway --write    and the figures into docs/measured/gateway.md, part by part
    python -m benchmarks.gateway --short    the same kinds in a minute; counts are judged and times only told

The engines are stand-ins (e2e/stand_ins/batching.py): a scheduler like vLLM's over simulated compute. What
is counted here is the gate's; what chat and batch gain shows direction and mechanism, not a product's speed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e"))
from benchmarks.finding import Finding, as_table
from benchmarks.gateway import page
from benchmarks.gateway.parts import PARTS


def main(words: Sequence[str]) -> int:
    """Measure; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a minute, for CI")
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts only")
    parser.add_argument("--write", action="store_true", help=f"the figures into {page.SHOWN}")
    arguments = parser.parse_args(words)
    if arguments.write and arguments.short:
        parser.error("--write is for figures that count: leave --short out")
    began = time.monotonic()
    findings: list[Finding] = []
    for name in arguments.only or PARTS:
        _say(began, f"{name} begins")
        part_began = time.monotonic()
        found: list[Finding] = []
        tables: list[str] = []
        with tempfile.TemporaryDirectory(prefix="gate-") as folder:
            for each in PARTS[name](Path(folder), arguments.short):
                if isinstance(each, Finding):
                    found.append(each)
                    _say(began, f"{each.name}: {each.shown} {each.target}")
                else:
                    tables.append(each)
                    print(each, flush=True)
        findings += found
        if arguments.write:
            page.write(name, found, tables, time.monotonic() - part_began)
    seconds = time.monotonic() - began
    if findings:
        print(as_table(findings))
    missed = [finding.name for finding in findings if finding.is_met is False]
    print(f"{seconds:.0f} s; " + (f"missed: {'; '.join(missed)}" if missed else "all targets met"))
    return int(bool(missed))


def _say(began: float, text: str) -> None:
    print(f"[{time.monotonic() - began:5.0f} s] {text}".rstrip(), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
