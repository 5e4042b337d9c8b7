"""What do the two sides say beside each other, and does anything grow faster than the site?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.finding import Finding
from benchmarks.many import memory_limit_mib
from benchmarks.scale_fleet import CHILDREN, WORKERS
from benchmarks.scale_sides import Change, Ours, Step, Theirs, median

LINEAR: Final = 1.5
"""At most so many times the cost of one object in the first quarter, or something grows with the site."""
AT_MOST: Final = 3.0
PARTS: Final = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok")
NEVER: Final = 0.0


def counts(mine: Ours) -> list[Finding]:
    """What must be so on any machine."""
    return list(_counts(mine))


def findings(mine: Ours, other: Theirs) -> list[Finding]:
    """All of it."""
    return [
        *_converged(mine, other),
        *_counts(mine),
        *_grown(mine, other),
        *_steady(mine),
        *_changed(mine, other),
        *_restarted(mine),
        *_where_time_goes(mine, other),
    ]


def _converged(mine: Ours, other: Theirs) -> Iterator[Finding]:
    for step, theirs in zip(mine.steps, other.steps, strict=False):
        took, their = step.took, theirs.took
        yield Finding(
            f"{step.added} more, then {step.size}: all planned and made / `kubectl apply` of the same children",
            took.done / their.command,
            "x",
            AT_MOST if step is mine.steps[-1] else None,
            f"{took.done:.1f} s against {their.command:.1f} s",
        )
        yield Finding(
            "all workers Ready / all Ready after that",
            took.ready / their.ready,
            "x",
            detail=f"{took.ready:.1f} s against {their.ready:.1f} s; pods made {took.pods:.1f} and "
            f"{their.pods:.1f}, bound {took.bound:.1f} and {their.bound:.1f}",
        )


def _counts(mine: Ours) -> Iterator[Finding]:
    objects = sum(step.added for step in mine.steps)
    made = {kind: sum(s.writes.get(kind, 0) for s in mine.steps) for kind in _kinds(mine.steps)}
    children = sum(n for kind, n in made.items() if kind.split()[1] in _CHILDREN)
    statuses = made.get("patch inferencedeployments/status", 0)
    told = ", ".join(f"{n} x {kind}" for kind, n in made.items())
    yield Finding(
        "writes per object until it is Ready", sum(made.values()) / objects, "", detail=told
    )
    yield Finding(
        f"of these to its {CHILDREN} children",
        children / objects,
        "",
        CHILDREN + WORKERS / 2,
        "each is made once, and each pool follows its first worker once",
    )
    yield Finding("of these to its status", statuses / objects, "")
    yield Finding(
        "writes when everyone is looked at and nothing has changed",
        sum(step.visit_writes for step in mine.steps),
        "writes",
        NEVER,
    )
    yield Finding(
        f"writes in {mine.quiet.seconds:.0f} s of steady state",
        sum(mine.quiet.writes.values()),
        "writes",
        NEVER,
        _listed(mine.quiet.writes),
    )
    yield Finding(
        "writes of a restarted operator",
        sum(mine.restart.writes.values()),
        "writes",
        NEVER,
        _listed(mine.restart.writes),
    )
    yield Finding(
        "writes when a GPU type joins for which one object waited",
        sum(mine.joined_writes.values()),
        "writes",
        detail=_listed(mine.joined_writes),
    )


_CHILDREN: Final = frozenset({"services", "deployments", "poddisruptionbudgets"})


def _kinds(steps: Sequence[Step]) -> list[str]:
    return list(dict.fromkeys(kind for step in steps for kind in step.writes))


def _listed(writes: dict[str, int]) -> str:
    return ", ".join(f"{n} x {kind}" for kind, n in writes.items())


def _grown(mine: Ours, other: Theirs) -> Iterator[Finding]:
    """Cost of one object, beside that in the first quarter."""
    for name, unit, value in _COSTS:
        yield growth(name, unit, [value(step) for step in mine.steps], target=LINEAR)
    yield growth(
        "kubectl's side: seconds per object until all are Ready",
        "s",
        [step.took.ready / step.added for step in other.steps],
    )
    rounds = [1000 * s.rounds_share_after / s.size.workers for s in mine.steps]
    if all(rounds):
        yield growth("rounds over kubelets and engines, per worker", "m of a core", rounds, LINEAR)
    memory = [(s.resident_mib - mine.idle_mib) / s.size.objects for s in mine.steps]
    yield growth("operator's memory above idle, per object", "MiB", memory, target=LINEAR)


def growth(
    name: str,
    unit: str,
    costs: Sequence[float],
    target: float | None = None,
    *,
    at: str = "1/4, 1/2, 1/1",
) -> Finding:
    """The cost at the last of three sizes over that at the first; `at` names the sizes."""
    shown = ", ".join(f"{cost:.3g}" for cost in costs)
    return Finding(
        f"growth from a quarter to all: {name}",
        costs[-1] / costs[0],
        "x",
        target,
        f"{shown} {unit} at {at}",
    )


def _of_visit(value: Callable[[Step], float]) -> Callable[[Step], float]:
    def per_visit(step: Step) -> float:
        return value(step) / step.visit.visits

    return per_visit


_COSTS: Final = (
    ("seconds per object until all are Ready", "s", lambda s: s.took.ready / s.added),
    (
        "operator's CPU per object until nothing moves, but for its rounds",
        "s",
        lambda s: s.cpu_without_rounds / s.added,
    ),
    ("requests per object until nothing moves", "", lambda s: s.used.requests / s.added),
    (
        "CPU of a visit that finds nothing to do, but for the rounds",
        "s",
        _of_visit(lambda s: s.visit_cpu_without_rounds),
    ),
    ("requests of such a visit", "", _of_visit(lambda s: s.visit.requests)),
)


def _steady(mine: Ours) -> Iterator[Finding]:
    quiet, size = mine.quiet, mine.steps[-1].size
    cpu = quiet.used.cpu["operator"]
    yield Finding(
        f"operator's CPU in steady state, {size.workers:,} workers watched",
        100 * cpu / quiet.seconds,
        "% of one core",
        detail=f"{cpu:.1f} s in {quiet.seconds:.0f} s: {quiet.used.visits:.0f} visits, "
        f"{quiet.used.requests:.0f} requests; a round over all kubelets and engines took "
        f"{quiet.round_seconds:.1f} s",
    )
    yield Finding(
        "operator's resident memory",
        mine.steps[-1].resident_mib,
        "MiB",
        memory_limit_mib(),
        f"{mine.idle_mib:.0f} MiB with nothing, at most {mine.peak_mib:.0f}; restarted "
        f"{mine.restart.resident_mib:.0f}, at most {mine.restart.peak_mib:.0f}; the target is the chart's limit",
    )


def _changed(mine: Ours, other: Theirs) -> Iterator[Finding]:
    for what, changes in mine.changes.items():
        their = median(other.changes[what])
        yield Finding(
            f"one object's {what} changes: its {WORKERS} workers new and Ready / the same by kubectl",
            median(changes) / their,
            "x",
            detail=f"{median(changes):.2f} s against {their:.2f} s, medians of {len(changes)}; first new pod bound "
            f"after {_first(changes):.2f} s and {_first(other.changes[what]):.2f} s",
        )
    yield Finding(
        "a GPU type that nobody knew joins: until the workers that waited for it are Ready",
        mine.joined.ready,
        "s",
        detail=f"first pod after {mine.joined.first:.2f} s; {mine.joined_used.visits:.0f} visits, "
        f"{mine.joined_used.cpu['operator']:.1f} s of the operator's CPU",
    )


def _first(changes: Sequence[Change]) -> float:
    return sorted(change.first for change in changes)[len(changes) // 2]


def _restarted(mine: Ours) -> Iterator[Finding]:
    restart = mine.restart
    yield Finding(
        "operator's restart: until every object was looked at",
        restart.visited,
        "s",
        detail=f"ready after {restart.ready:.1f} s; {restart.used.cpu['operator']:.1f} s of its CPU in "
        f"{restart.used.visits:.0f} visits until nothing moved",
    )


def _where_time_goes(mine: Ours, other: Theirs) -> Iterator[Finding]:
    """CPU of each process in the last step."""
    step, their = mine.steps[-1], other.steps[-1]
    for part in ("operator", *PARTS):
        theirs = their.used.cpu.get(part)
        beside = "" if theirs is None else f" against {theirs:.1f} s beside kubectl"
        yield Finding(
            f"CPU of {part} in the last step",
            step.used.cpu[part],
            "s",
            detail=f"{step.used.cpu[part]:.1f} s{beside}, {step.added} objects",
        )
