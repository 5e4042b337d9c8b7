"""What does `plimsoll plan` cost beside the start of Python with the libraries that it cannot do without?

Runs take turns, so that whatever else the machine does falls on all alike.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.finding import Finding

ROOT: Final = Path(__file__).resolve().parents[1]
PLIMSOLL: Final = str(Path(sys.executable).with_name("plimsoll"))
QUICK_START: Final = "edge-assistant"
"""The example of the README's first line; it is refused, and to say so is all the work."""
OTHERS: Final = ("chat-and-batch", "mixed-fleet")
BARE: Final = (sys.executable, "-c", "import pydantic, yaml")
FITS, REFUSED = 0, 3
AT_MOST: Final = 3.0


class Cost(NamedTuple):
    """Of one run."""

    wall_seconds: float
    cpu_seconds: float


def command_line(rounds: int) -> list[Finding]:
    """Medians of so many rounds, after one that warms the disk cache."""
    commands = {"": BARE} | {name: plan_of(name) for name in (QUICK_START, *OTHERS)}
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            cost = cost_of(command, allowed=(FITS, REFUSED) if name else (FITS,))
            if turn > 0:
                taken[name].append(cost)
    medians = {name: median(costs) for name, costs in taken.items()}
    bare, plan = medians[""], medians[QUICK_START]
    return [
        Finding(
            f"`plimsoll plan`, {QUICK_START} / `python -c 'import pydantic, yaml'`",
            plan.wall_seconds / bare.wall_seconds,
            "x",
            AT_MOST,
            f"{milliseconds(plan.wall_seconds)} against {milliseconds(bare.wall_seconds)}, medians of {rounds} "
            "in turns",
        ),
        Finding(
            "the same in CPU time",
            plan.cpu_seconds / bare.cpu_seconds,
            "x",
            detail=f"{milliseconds(plan.cpu_seconds)} against {milliseconds(bare.cpu_seconds)}",
        ),
        *(
            Finding(
                f"`plimsoll plan`, {name}: CPU time / the same",
                medians[name].cpu_seconds / bare.cpu_seconds,
                "x",
                detail=f"{milliseconds(medians[name].cpu_seconds)}, "
                f"{milliseconds(medians[name].wall_seconds)} by the clock",
            )
            for name in OTHERS
        ),
    ]


def plan_of(example: str) -> tuple[str, ...]:
    """The command that a person types."""
    return (PLIMSOLL, "plan", "-f", f"docs/examples/{example}.yaml")


def cost_of(command: Sequence[str], *, allowed: Collection[int]) -> Cost:
    """Run it once; raises RuntimeError when it ends in another way than allowed."""
    before, began = cpu_of_children(), time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    wall_seconds = time.perf_counter() - began
    if done.returncode not in allowed:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return Cost(wall_seconds, cpu_of_children() - before)


def cpu_of_children() -> float:
    """User and system time of all children that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def median(costs: Sequence[Cost]) -> Cost:
    """Of each part by itself."""
    return Cost(*(statistics.median(part) for part in zip(*costs, strict=True)))


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
