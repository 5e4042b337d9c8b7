"""`make bench`: what Plimsoll costs, as ratios to kubectl and to Python, in one run on one machine.

python benchmarks/run.py                  a table; exit 1 when a target is missed
python benchmarks/run.py --json           one object a line
python benchmarks/run.py --markdown       the block for docs/measured/bench.md
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.choosing import choosing
from benchmarks.command_line import command_line
from benchmarks.finding import Finding, as_json_lines, as_markdown, as_table
from benchmarks.many import many


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    form.add_argument("--markdown", action="store_true", help="a block for docs/measured")
    parser.add_argument("--objects", type=int, default=100, help="how many at once (default: 100)")
    parser.add_argument("--rounds", type=int, default=15, help="of the command line (default: 15)")
    arguments = parser.parse_args(words)
    findings = measured(arguments.objects, arguments.rounds)
    if arguments.json:
        print(as_json_lines(findings))
    elif arguments.markdown:
        day = datetime.date.today().isoformat()  # noqa: DTZ011 - the day where it was run
        print(as_markdown(findings, command="make bench", day=day))
    else:
        print(as_table(findings))
    return 1 if any(finding.is_met is False for finding in findings) else 0


def measured(count: int, rounds: int) -> list[Finding]:
    """All of it, told on stderr as it goes."""
    began = time.monotonic()
    tell(f"`plimsoll plan` beside Python's start, {rounds} rounds")
    findings = command_line(rounds)
    tell("choosing for 60 GPU types among 6 layouts")
    findings += choosing()
    tell(f"{count} objects by Plimsoll, their children by kubectl, each in a cluster of its own")
    findings += many(count)
    tell(f"done after {time.monotonic() - began:.0f} s")
    return findings


def tell(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
