"""Which parts does the measurement have, and what is asked of each?

A part yields its figures as they come, and tables that stand beside them.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.finding import Finding
from benchmarks.gateway import cost, counted, dilemma, moving, promise, walk
from benchmarks.gateway.peers import PEERS

Part = Callable[[Path, bool], Iterator[Finding | str]]
"""A folder, and whether it shall be short."""
SEEDS: Final = (7, 11)
"""Dice of the dilemma; the ways beside the three that have targets are measured with the first alone."""
QUIET_CHAT_PER_SECOND: Final = 4.0


def promised(folder: Path, short: bool) -> Iterator[Finding | str]:
    """Nothing beyond the plan: in the core, beside it before the counters of engines."""
    with ProcessPoolExecutor(1) as beside:
        walking = beside.submit(walk.walk, 5_000 if short else 300_000)
        kept = asyncio.run(promise.measure(folder, 1_000 if short else 100_000))
        walked = walking.result()
    yield Finding(
        "promises broken in a random walk",
        len(walked.violations),
        "of them",
        0,
        f"{walked.steps:,} looks, {walked.changes:,} limits set, lent after {walked.lent:,} looks, "
        f"{walked.crashes:,} keepers died between two changes, {walked.hand_overs:,} hand-overs",
    )
    lost = sum(
        count for (status, problem), count in kept.outcomes.items() if problem or status != 200
    )
    yield Finding(
        "engines that held more than planned",
        len(kept.violations),
        "of them",
        0,
        f"{kept.requests:,} requests, {kept.limits_set:,} limits set, {kept.drains} workers replaced under load, "
        f"{kept.crashes} keepers died, {kept.hand_overs} hand-overs, {kept.lent} engines held more of chat "
        "than its share",
    )
    yield Finding("requests lost meanwhile", lost, "of them", 0)


def refused(folder: Path, short: bool) -> Iterator[Finding | str]:
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


def moved(folder: Path, short: bool) -> Iterator[Finding | str]:
    """Drains, limits, a death, and what was lent."""
    found = asyncio.run(
        moving.moving(folder / "moving", drains=6 if short else 200, changes=10 if short else 250)
    )
    yield Finding(
        "failed or cut by drains and limits",
        found.failed,
        "requests",
        0,
        f"{found.requests:,} requests over {found.drains} drains and {found.limits_changed} limits",
    )
    killed = asyncio.run(moving.killing(folder / "killing"))
    yield Finding(
        "cut by a worker's death that were not its own",
        killed.others_cut,
        "requests",
        0,
        f"{killed.cut} of the {killed.running} that ran on it were cut; {killed.told_later} new ones were told 503 "
        "with Retry-After until the gate had seen it, for no other slot was free",
    )
    back = asyncio.run(moving.returning(folder / "returning"))
    yield Finding("a lent slot: the owner's first request runs after", back.first_seconds, "s")
    yield Finding(
        "its whole share against one response of the borrower",
        back.whole_seconds / max(back.response_seconds, 1e-9),
        "x",
        None if short else 1.25,
        f"{back.whole_seconds:.2f} s, the borrower's answers took up to {back.response_seconds:.2f} s",
    )


def costs(folder: Path, short: bool) -> Iterator[Finding | str]:
    """What the way costs."""
    found = asyncio.run(
        cost.measure(folder, requests=200 if short else 2000, peers=() if short else PEERS)
    )
    yield cost.as_table(found)
    gate, direct = found.gate, found.direct
    yield Finding(
        "added at p50",
        1000 * (gate.p50 - direct.p50),
        "ms",
        None if short else 1.5,
        f"direct {1000 * direct.p50:.2f} ms; p99 {1000 * direct.p99:.2f} and {1000 * gate.p99:.2f} ms",
    )
    yield Finding(
        "added to a chunk at p50",
        1000 * (gate.chunk_p50 - direct.chunk_p50),
        "ms",
        None if short else 0.4,
        f"direct {1000 * direct.chunk_p50:.2f} ms; p99 {1000 * direct.chunk_p99:.2f} and "
        f"{1000 * gate.chunk_p99:.2f} ms",
    )


def answered(folder: Path, short: bool) -> Iterator[Finding | str]:
    """Chat and a nightly batch on the same weights."""
    whole = dilemma.Run(seconds=24, lapse=4) if short else dilemma.Run(seconds=120, lapse=3)
    runs = [(mode, whole) for mode in (dilemma.SHORT_MODES if short else dilemma.MODES)]
    if not short:
        other = [whole._replace(seed=seed) for seed in SEEDS if seed != whole.seed]
        quiet = whole._replace(chat_per_second=QUIET_CHAT_PER_SECOND)
        runs += [(mode, run) for run in (*other, quiet) for mode in dilemma.SHORT_MODES]
    found: list[dilemma.Outcome] = []
    for number, (mode, run) in enumerate(runs):
        print(f"  {mode}, {run.chat_per_second:g} chat/s, seed {run.seed}", flush=True)
        found.append(asyncio.run(dilemma.measure(mode, folder / str(number), run)))
    yield dilemma.as_table(found)
    yield Finding(
        "workers that held more than planned", sum(each.over_plan for each in found), "of them", 0
    )
    by_rate: dict[float, list[dilemma.Outcome]] = {}
    for each in found:
        by_rate.setdefault(each.chat_per_second, []).append(each)
    for rate, outcomes in by_rate.items():
        yield from _judged(rate, outcomes, short)


def _judged(rate: float, outcomes: list[dilemma.Outcome], short: bool) -> Iterator[Finding]:
    """What is asked of lanes that are paced, of all dice together."""
    of = {(each.mode, each.seed): each for each in outcomes}
    seeds = [each.seed for each in outcomes if each.mode == "paced"]

    def beside(mode: str, figure: Callable[[dilemma.Outcome], float]) -> list[float]:
        return [figure(of["paced", seed]) / (figure(of[mode, seed]) or math.nan) for seed in seeds]

    at = f"at {rate:g} chat/s"
    slower = beside("alone", lambda each: each.ttft_p95_seconds)
    yield Finding(
        f"chat p95 TTFT with the batch, {at}",
        statistics.median(slower),
        "x",
        None if short else 2.0,
        f"median of {_listed(slower)}",
    )
    lost = [of["paced", seed].asked - of["paced", seed].served for seed in seeds]
    yield Finding(
        f"chat refused or hung with the batch, {at}",
        sum(lost),
        "requests",
        None if short else 0,
        f"of {sum(of['paced', seed].asked for seed in seeds):,}",
    )
    more = beside("split", lambda each: each.batch_per_minute)
    refuses = [of["split", seed].refused_percent for seed in seeds]
    yield Finding(
        f"batch beside that of two split deployments, {at}",
        statistics.median(more),
        "x",
        detail=f"median of {_listed(more)}; the split refuses {_listed(refuses, 0)} % of the chat",
        at_least=None if short else 1.5,  # in a short window the start counts too much
    )


def _listed(values: list[float], digits: int = 2) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def compared(_: Path, short: bool) -> Iterator[Finding | str]:
    """The same ways in counted time: other dice, other kinds of card, no machine."""
    yield counted.study(counted.SEEDS[:1] if short else counted.SEEDS)


PARTS: Final[Mapping[str, Part]] = {
    "promise": promised,
    "refusals": refused,
    "moves": moved,
    "cost": costs,
    "dilemma": answered,
    "counted": compared,
}
