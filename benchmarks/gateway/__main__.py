"""`make bench-gateway`: real HAProxy before engines that only pretend to compute, as ratios, in one run.

    python -m benchmarks.gateway            everything, about 20 minutes; exit 1 when a target is missed
    python -m benchmarks.gateway --short    the same kinds in less than a minute, for CI

The engines are stand-ins (e2e/stand_ins/batching.py): a scheduler like vLLM's over simulated compute. What
is counted here is the gate's; what chat and batch gain shows direction and mechanism, not a product's speed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e"))
from benchmarks.finding import Finding, as_table
from benchmarks.gateway import cost, dilemma, moving, promise, walk

Part = Iterator[Finding]


def promised(folder: Path, short: bool) -> Part:
    """Nothing beyond the plan, in the core and before real engines' counters."""
    walked = walk.walk(5_000 if short else 300_000)
    yield Finding(
        "promises broken in a random walk",
        len(walked.violations),
        "of them",
        0,
        f"{walked.steps:,} looks",
    )
    kept = asyncio.run(promise.measure(folder, 1_000 if short else 100_000))
    lost = sum(
        count for (status, problem), count in kept.outcomes.items() if problem or status != 200
    )
    detail = (
        f"{kept.requests:,} requests, {kept.limits_set:,} limits set, {kept.drains} workers replaced, "
        f"{kept.crashes} keepers died, {kept.hand_overs} hand-overs"
    )
    yield Finding("engines that held more than planned", len(kept.violations), "of them", 0, detail)
    yield Finding("requests lost meanwhile", lost, "of them", 0)


def refused(folder: Path, short: bool) -> Part:
    """Beyond capacity."""
    found = asyncio.run(moving.refusing(folder, seconds=2 if short else 20))
    told = 100 * found.refused_with_retry_after / found.asked
    yield Finding(
        "not told 429 with Retry-After",
        100 - told,
        "%",
        0,
        f"{found.asked} requests to a full lane",
    )
    yield Finding(
        "a full lane answers, p99 at 100/s",
        1000 * found.p99_seconds,
        "ms",
        None if short else 10,  # a short run shares its machine
        f"p50 {1000 * found.p50_seconds:.1f} ms",
    )
    harmed = found.running_harmed + sum(
        count for (status, problem), count in found.flooded.items() if status != 429 or problem
    )
    yield Finding("harmed by a flood of 2,000", harmed, "streams and answers", 0)


def moved(folder: Path, short: bool) -> Part:
    """Drains, limits, and what was lent."""
    found = asyncio.run(
        moving.moving(folder, drains=6 if short else 200, changes=10 if short else 250)
    )
    detail = (
        f"{found.requests:,} requests over {found.drains} drains and {found.limits_changed} limits"
    )
    yield Finding("failed or cut by drains and limits", found.failed, "requests", 0, detail)
    back = asyncio.run(moving.returning(folder / "returning"))
    yield Finding("a lent slot: the owner's first request runs after", back.first_seconds, "s")
    yield Finding(
        "its whole share against one response of the borrower",
        back.whole_seconds / max(back.response_seconds, 1e-9),
        "x",
        1.25,
        f"{back.whole_seconds:.2f} s, the borrower's answers took up to {back.response_seconds:.2f} s",
    )


def costs(folder: Path, short: bool) -> Part:
    """What the way costs."""
    found = asyncio.run(cost.measure(folder, requests=200 if short else 2000))
    yield Finding(
        "added at p50",
        1000 * (found.gate_p50 - found.direct_p50),
        "ms",
        1.5,
        f"direct {1000 * found.direct_p50:.2f} ms; p99 {1000 * found.direct_p99:.2f} and "
        f"{1000 * found.gate_p99:.2f} ms",
    )
    yield Finding(
        "added to a chunk at p50",
        1000 * (found.gate_chunk_p50 - found.direct_chunk_p50),
        "ms",
        0.4,
        f"direct {1000 * found.direct_chunk_p50:.2f} ms; p99 {1000 * found.direct_chunk_p99:.2f} and "
        f"{1000 * found.gate_chunk_p99:.2f} ms",
    )


def answered(folder: Path, short: bool) -> Part:
    """Chat and a nightly batch on the same weights."""
    run = dilemma.Run(seconds=24, lapse=4) if short else dilemma.Run(seconds=120, lapse=3)
    modes = dilemma.SHORT_MODES if short else dilemma.MODES
    found = {
        mode: asyncio.run(dilemma.measure(mode, folder / mode.replace(" ", "-"), run))
        for mode in modes
    }
    print(dilemma.as_table(list(found.values())), flush=True)
    alone, paced, split = found["alone"], found["paced"], found["split"]
    yield Finding(
        "chat p95 TTFT with the batch", paced.ttft_p95_seconds / alone.ttft_p95_seconds, "x", 2.0
    )
    yield Finding("chat refused or hung with the batch", paced.asked - paced.served, "requests", 0)
    yield Finding(
        "batch of two split deployments against this one's",
        split.batch_per_minute / max(paced.batch_per_minute, 1e-9),
        "x",
        None if short else 1 / 1.5,  # in a short window the start counts too much
        f"{split.batch_per_minute:.1f} and {paced.batch_per_minute:.1f} a minute; the split refuses "
        f"{split.refused_percent:.0f} % of the chat",
    )


PARTS = {
    "promise": promised,
    "refusals": refused,
    "moves": moved,
    "cost": costs,
    "dilemma": answered,
}


def main(words: Sequence[str]) -> int:
    """Measure; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="less than a minute, for CI")
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts only")
    arguments = parser.parse_args(words)
    findings: list[Finding] = []
    for name in arguments.only or PARTS:
        with tempfile.TemporaryDirectory(prefix="gate-") as folder:
            findings.extend(PARTS[name](Path(folder), arguments.short))
    print(as_table(findings))
    return int(any(finding.is_met is False for finding in findings))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
