"""Does Plimsoll keep its promises while everything around it fails, by chance, for half an hour?

    make soak                                    30 minutes, and docs/measured/soak.md
    python e2e/soak.py --minutes 3 --seed 7      shorter, or the same faults again

A real control plane with fake nodes, three users' objects with eight workers, some of which leak, and one
object that is refused. Faults of every kind in `soak_faults` come every few seconds. Now and then they stop,
and all must be well again and nothing be written any more. What may never happen is in `soak_checks`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from controlplane import netns
from controlplane.cluster import ControlPlane
from installation import REPOSITORY, USER, Installation
from patience import OutOfPatienceError, Patience, eventually, steadily
from soak_checks import History, Quiet, reason_of, violations
from soak_faults import Chaos, Fault, Happened
from soak_ground import (
    HOUR_SECONDS,
    LEASE_SECONDS,
    RESYNC_SECONDS,
    WATCH_CHECK_SECONDS,
    Ground,
    LyingKubelets,
)
from stand_ins.chaos_proxy import ChaosProxy

FAULTS_BETWEEN_QUIETS: Final = 12
PAUSE_SECONDS: Final = (0.5, 4.0)
UNWRITTEN_SECONDS: Final = 2 * RESYNC_SECONDS + 1.0
"""At least one whole resync, as they come every 5 s."""
REPORT: Final = REPOSITORY / "docs" / "measured" / "soak.md"
PATIENT_WITH_NODES: Final = {"kube-controller-manager": ("--node-monitor-grace-period", "10m")}
"""Of nodes that were not heard of in a long outage the pods are marked as not ready, which a kubelet puts right
and kwok does not."""
LONG_SOAK_MINUTES: Final = 12.0
"""From here on the soak has an outage of five minutes in it."""


class Outcome(NamedTuple):
    """What came of a soak."""

    seed: int
    seconds: float
    happened: tuple[Happened, ...]
    history: History
    violations: tuple[str, ...]
    exits: Counter[str]
    looks: int
    exits_in_long_outage: int | None = None

    def sequence(self) -> str:
        """Seed and faults, as they came: what a failing run prints."""
        lines = [
            f"  {each.after_seconds:7.1f} s  {each.fault}{': ' * bool(each.detail)}{each.detail}"
            f"{'' if each.could else '  (could not be brought about)'}"
            for each in self.happened
        ]
        return f"seed {self.seed}\n" + "\n".join(lines)


class Soak:
    """One run."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.ground, self.seed = ground, seed
        self.chaos = Chaos(ground, seed)
        self.exits_in_long_outage: int | None = None

    def run(self, minutes: float, *, rounds: int | None = None) -> Outcome:
        """For so long, or for so many rounds; each ends with a quiet time."""
        self.quiet()
        begun = time.monotonic()
        number = 0
        while (
            number < rounds if rounds is not None else time.monotonic() - begun < 60 * minutes
        ) and not self._gave_up:
            is_half = time.monotonic() - begun > 30 * minutes
            if is_half and minutes >= LONG_SOAK_MINUTES and self.exits_in_long_outage is None:
                self.long_outage()
            else:
                self.round()
            self.quiet()
            number += 1
        history = self.ground.history()
        return Outcome(
            seed=self.seed,
            seconds=time.monotonic() - begun,
            happened=tuple(self.chaos.happened),
            history=history,
            violations=violations(history, operator=USER),
            exits=self.ground.exits,
            looks=self.ground.looks,
            exits_in_long_outage=self.exits_in_long_outage,
        )

    @property
    def _gave_up(self) -> bool:
        """What does not get well by itself will not by more faults."""
        return any(quiet.missing or quiet.written for quiet in self.ground.quiets)

    def round(self) -> None:
        """Faults of a dozen kinds, one every few seconds; those that last overlap."""
        for _ in range(FAULTS_BETWEEN_QUIETS):
            self.chaos.bring(self.chaos.next())
            self._go_on(self.chaos.chance.uniform(*PAUSE_SECONDS))

    def long_outage(self) -> None:
        """Five minutes without an API server: nobody is restarted again and again."""
        before = self.ground.exits.total()
        self.chaos.bring(Fault.LONG_OUTAGE)
        self._go_on(300.0)
        self.exits_in_long_outage = self.ground.exits.total() - before

    def _go_on(self, seconds: float) -> None:
        steadily(self.chaos.tick, during=seconds, says="faults come and go")

    def quiet(self) -> None:
        """No fault any more: all gets well, and then nothing is written over a whole resync."""
        self.chaos.end_all()
        self.ground.scale_back()
        now = time.time()
        wrong = ""

        def is_well() -> bool:
            nonlocal wrong
            self.chaos.tick()
            wrong = self.ground.what_is_wrong()
            return not wrong

        well = 0.0

        def is_unwritten() -> bool:
            self.chaos.tick()
            since = max(well, time.time() - UNWRITTEN_SECONDS)
            return time.time() - well > UNWRITTEN_SECONDS and not self.ground.written_since(since)

        written: tuple[str, ...] = ()
        try:
            eventually(is_well, within=Patience.SOAK_QUIET, says="all is well")
            well = time.time()
            eventually(is_unwritten, within=Patience.SOAK_UNWRITTEN, says="nothing is written")
        except OutOfPatienceError:
            written = self.ground.written_since(well) if well else ()
        ended = time.time()
        after = (well or ended) - now
        still = ended - (well or ended)
        self.ground.quiets.append(Quiet(now, after, wrong, written, still))
        told = f"all well after {after:.0f} s" if not wrong else f"after {after:.0f} s: {wrong}"
        print(f"{len(self.chaos.happened)} faults, {told}", flush=True)


@contextmanager
def ground() -> Iterator[Ground]:
    """A control plane, Plimsoll by Helm, kubelets that can lie, and a wire that can break."""
    with ControlPlane(extra_args=PATIENT_WITH_NODES) as cluster:
        cluster.add_nodes(*Ground.fleet())
        installed = Installation(cluster)
        kubelets = LyingKubelets(cluster, curve=Ground.leaks, has_fine_stamps=True)
        with ChaosProxy.to(cluster) as wire, kubelets:
            made = Ground(installed, wire, kubelets)
            try:
                made.populate()
                yield made
            finally:
                made.stop()


# ---- the report ---------------------------------------------------------------------------------


def report(outcome: Outcome, command: str) -> str:
    """The page in docs/measured."""
    history = outcome.history
    brought = Counter(each.fault for each in outcome.happened if each.could)
    tried = Counter(each.fault for each in outcome.happened)
    well = sorted(quiet.after_seconds for quiet in history.quiets[1:]) or [0.0]
    still = max((quiet.still_seconds for quiet in history.quiets[1:]), default=0.0)
    reasons = Counter(
        reason.value if (reason := reason_of(each, history, operator=USER)) else "nothing"
        for each in history.departures
    )
    evicted = Counter(d.deployment for d in history.departures if d.is_eviction and d.by == USER)
    status_writes = sum(write.path.endswith("/status") for write in history.writes)
    lines = [
        "# A soak: faults by chance, promises held",
        "",
        f"`{command}`: {outcome.seconds / 60:.0f} minutes, seed {outcome.seed}, on two cores that other work",
        "shared. A real API server, etcd, controller-manager and scheduler; nodes and their kubelets are played.",
        "Three users' objects (8 to 12 workers, about half of one object's leak) and one that is refused. Hours",
        f"last {HOUR_SECONDS:.0f} s, resyncs come every {RESYNC_SECONDS:.0f} s, watches are held against a list every",
        f"{WATCH_CHECK_SECONDS:.0f} s, the Lease lasts {LEASE_SECONDS:.0f} s. A fault every "
        f"{PAUSE_SECONDS[0]} to {PAUSE_SECONDS[1]:.0f} s; those that last",
        f"overlap. After {FAULTS_BETWEEN_QUIETS} of them they stop until all is well and nothing is written over a",
        "whole resync.",
        "",
        f"**Violations: {len(outcome.violations)}.** What is checked stands in",
        "[faults.md](../faults.md#what-may-never-happen).",
        "",
        *[f"- {sentence}" for sentence in outcome.violations],
        *[""] * bool(outcome.violations),
        "| fault | brought about | could not be just then |",
        "| --- | ---: | ---: |",
        *[
            f"| {fault} | {brought[fault]} | {tried[fault] - brought[fault]} |"
            for fault in Fault
            if tried[fault]
        ],
        f"| all | {brought.total()} | {tried.total() - brought.total()} |",
        "",
        "| figure | |",
        "| --- | ---: |",
        f"| times that faults stopped | {len(well)} |",
        f"| until all was well, median | {statistics.median(well):.1f} s |",
        f"| until all was well, longest | {well[-1]:.1f} s |",
        f"| from then until nothing was written over a resync, longest | {still:.1f} s |",
        f"| writes of the operator but for its Lease | {len(history.writes)} |",
        f"| of these to a status | {status_writes} |",
        f"| looks at users' objects, each as its user left it | {outcome.looks} |",
        *[f"| operator ended: {how} | {count} |" for how, count in sorted(outcome.exits.items())],
    ]
    if outcome.exits_in_long_outage is not None:
        lines.append(
            f"| operator ended while the API server was away for 5 minutes | {outcome.exits_in_long_outage} |"
        )
    lines += [
        "",
        "| workers that went, by reason | |",
        "| --- | ---: |",
        *[f"| {reason} | {count} |" for reason, count in sorted(reasons.items())],
        *[
            f"| evictions of `{name}`, of {most} allowed | {evicted[name]} |"
            for name, most in sorted(history.budgets.items())
        ],
        "",
        "An operator ends on purpose when a watch ends in an error, is deaf, or the Lease is lost: it starts anew and",
        "writes only what differs. `exit -9` is the SIGKILL of the fault; `exit 1` is the operator's own. Two run",
        "where one was frozen for too short to lose the Lease.",
    ]
    return "\n".join(lines) + "\n"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, help="of the faults; one of chance when left out")
    parser.add_argument("--write", type=Path, nargs="?", const=REPORT, help="write the page here")
    given = parser.parse_args(words)
    if netns.why_not() is None:
        netns.reexec_in_netns()
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with ground() as made:
        outcome = Soak(made, seed).run(given.minutes)
    command = "make soak" if given.write else f"python e2e/soak.py --minutes {given.minutes:g}"
    page = report(outcome, command)
    print(page)
    if outcome.violations:
        print(outcome.sequence())
        return 1
    if given.write:
        given.write.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
