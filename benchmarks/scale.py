"""`make bench-scale`: 1,000 nodes, 500 InferenceDeployments, 3,000 workers; Plimsoll beside `kubectl apply`.

python benchmarks/scale.py                  a table; exit 1 when a target is missed
python benchmarks/scale.py --short          a tenth of it, in about 90 s
python benchmarks/scale.py --short --check  only what must be exact on any machine: counts of writes
python benchmarks/scale.py --parts          the operator's own parts, without a cluster, in 20 s
python benchmarks/scale.py --write          the figures of docs/measured/scale.md

Real etcd, API server, controller-manager and scheduler; kwok plays nodes and pods, one process all kubelets
and engines. Needs a network namespace of its own, so root.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.finding import Finding, as_json_lines, as_markdown, as_table
from benchmarks.scale_findings import counts, findings
from benchmarks.scale_fleet import FULL, SHORT, Size
from benchmarks.scale_parts import parts
from benchmarks.scale_sides import ours, theirs

from controlplane import netns

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "measured" / "scale.md"
SITE, PARTS = "the site", "the parts"
"""Blocks of the page."""
END: Final = "<!-- end of figures -->"
QUIET_SECONDS: Final = {FULL: 120.0, SHORT: 10.0}
"""Four rounds over kubelets and engines, and two of five looks at every object (decide.LOOKS_PER_HOUR)."""
OURS_SHARE, THEIRS_SHARE = 0.5, 0.9
"""Parts of the time after which no further step of a side is begun."""


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="100 nodes, 50 objects")
    parser.add_argument("--nodes", type=int, help="of the largest step (default: 1,000)")
    parser.add_argument("--objects", type=int, help="of the largest step (default: 500)")
    parser.add_argument("--minutes", type=float, default=24.0, help="to be over by (default: 24)")
    parser.add_argument(
        "--check", action="store_true", help="only counts, and Plimsoll's side only"
    )
    parser.add_argument("--parts", action="store_true", help="without a cluster")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    form.add_argument("--write", action="store_true", help=f"into docs/measured/{PAGE.name}")
    arguments = parser.parse_args(words)
    if arguments.parts:
        return told(parts(), arguments, words, PARTS)
    if (reason := netns.why_not()) is not None and not netns.inside():
        print(f"scale: {reason}", file=sys.stderr)
        return 2
    netns.reexec_in_netns()
    usual = SHORT if arguments.short else FULL
    size = Size(arguments.nodes or usual.nodes, arguments.objects or usual.objects)
    began, whole_seconds = time.monotonic(), arguments.minutes * 60
    quiet_seconds = QUIET_SECONDS[usual]
    mine = ours(size, tell, quiet_seconds=quiet_seconds, until=began + OURS_SHARE * whole_seconds)
    if arguments.check:
        found = counts(mine)
    else:
        other = theirs(size, tell, until=began + THEIRS_SHARE * whole_seconds)
        found = findings(mine, other)
    tell(f"done after {time.monotonic() - began:.0f} s")
    return told(found, arguments, words, SITE)


def told(
    found: Sequence[Finding], arguments: argparse.Namespace, words: Sequence[str], block: str
) -> int:
    """Print, or write into the page; 1 when a target is missed."""
    if arguments.json:
        print(as_json_lines(found))
    elif arguments.write:
        day = datetime.date.today().isoformat()  # noqa: DTZ011 - the day where it was run
        options = " ".join(word for word in words if word != "--write")
        command = f"python benchmarks/scale.py {options} --write" if options else "make bench-scale"
        write(block, as_markdown(found, command=command, day=day))
    if not arguments.json:
        print(as_table(found))
    return 1 if any(finding.is_met is False for finding in found) else 0


def write(block: str, figures: str) -> None:
    """Put the figures where the page has its place for them."""
    begin = f"<!-- figures: {block} -->"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found:
        raise LookupError(f"{PAGE.name} has no {begin}")
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{begin}\n{figures}\n{END}{after}")


def tell(line: str) -> None:
    print(f"scale: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
