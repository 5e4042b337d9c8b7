"""What does Plimsoll cost beside `kubectl apply` of the very children that it makes? And what does an
operator write that has nothing to do?

Each side has a cluster of its own with the same nodes.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from benchmarks.finding import MIB, Finding
from benchmarks.loads import (
    ALL_THERE_SECONDS,
    NAMESPACE,
    Took,
    apply_alone,
    apply_and_wait,
    cluster_with_cards,
    objects,
    remove,
    rendered,
)

from installation import CHART, Installation, Operator
from patience import Patience, eventually, steadily
from world import World

ALONE: Final = 5
"""Objects that are applied one by one; the median counts."""
AT_MOST: Final = 3.0
_VISITS: Final = re.compile(r'^plimsoll_reconciles_total\{result="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class OperatorSide:
    """What was measured of Plimsoll."""

    alone: tuple[Took, ...]
    many: Took
    cpu_seconds: float
    visits: dict[str, int]
    idle_mib: float
    full_mib: float
    restarted_mib: float
    writes_after_restart: int
    visits_after_restart: int
    writes_after_touch: int
    visits_after_touch: int


def many(count: int) -> list[Finding]:
    """Both sides, one after the other."""
    ours = operator_side(count)
    alone, theirs, server_side = kubectl_side(count)
    return list(findings(count, ours, alone, theirs, server_side))


def findings(
    count: int, ours: OperatorSide, alone: Sequence[Took], theirs: Took, server_side: Took
) -> Iterator[Finding]:
    """The ratios, and what they are made of."""
    one = statistics.median(took.done for took in ours.alone)
    one_pods = statistics.median(took.pods for took in ours.alone)
    one_theirs = statistics.median(took.command for took in alone)
    one_theirs_pods = statistics.median(took.pods for took in alone)
    told = ", ".join(f"{number} {result}" for result, number in sorted(ours.visits.items()))
    base = "`kubectl apply` of the same children"
    yield Finding(
        f"1 object: planned, children made / {base}",
        one / one_theirs,
        "x",
        detail=f"{one:.2f} s against {one_theirs:.2f} s, medians of {ALONE}",
    )
    yield Finding(
        "1 object: pods made / pods made after that",
        one_pods / one_theirs_pods,
        "x",
        detail=f"{one_pods:.2f} s against {one_theirs_pods:.2f} s, medians of {ALONE}",
    )
    yield Finding(
        f"{count} objects: all planned, children made / {base}",
        ours.many.done / theirs.command,
        "x",
        AT_MOST,
        f"{ours.many.done:.1f} s, of which kubectl {ours.many.command:.1f} s, against {theirs.command:.1f} s",
    )
    yield Finding(
        f"{count} objects: the same / `kubectl apply --server-side`",
        ours.many.done / server_side.command,
        "x",
        detail=f"against {server_side.command:.1f} s",
    )
    yield Finding(
        f"{count} objects: pods made / pods made after that",
        ours.many.pods / theirs.pods,
        "x",
        detail=f"{ours.many.pods:.1f} s against {theirs.pods:.1f} s",
    )
    yield Finding(
        "operator's CPU time per object",
        ours.cpu_seconds / count,
        "s",
        detail=f"{ours.cpu_seconds:.1f} s until nothing moved any more; reconciles: {told}",
    )
    yield Finding(
        f"writes of a restarted operator over {count} objects",
        ours.writes_after_restart,
        "writes",
        0,
        f"in {ours.visits_after_restart} reconciles; its Lease is not counted",
    )
    yield Finding(
        f"writes after a label on each of {count} objects",
        ours.writes_after_touch,
        "writes",
        0,
        f"in {ours.visits_after_touch} reconciles",
    )
    yield Finding(
        f"operator's resident memory with {count} objects",
        ours.full_mib,
        "MiB",
        memory_limit_mib(),
        f"{ours.idle_mib:.0f} MiB with none, {ours.restarted_mib:.0f} MiB restarted over {count}; "
        "the target is the chart's limit",
    )


# ---- the two sides ------------------------------------------------------------------------------


def operator_side(count: int) -> OperatorSide:
    """Plimsoll makes the children."""
    with cluster_with_cards() as cluster:
        installed = Installation(cluster)
        operator = started(installed)
        world = World(installed, NAMESPACE)
        idle_mib = resident_mib(operator.process.pid)
        alone = tuple(apply_alone(world, one) for one in objects(ALONE, "alone"))
        cpu_before, before = operator.process.cpu_seconds(), visits(operator)
        wanted = objects(count, "many")
        many_took = apply_and_wait(world, wanted, rendered(wanted), objects_are=True)
        await_quiet(world, count)
        cpu_seconds = operator.process.cpu_seconds() - cpu_before
        results = Counter(visits(operator)) - Counter(before)
        full_mib = resident_mib(operator.process.pid)

        installed.stop()
        restarted_at = time.time()
        operator = started(installed)
        restarted = visits_after(operator, count, before=0)
        writes_restarted = len(world.writes(restarted_at))
        restarted_mib = resident_mib(operator.process.pid)

        touched_at = time.time()
        world.kubectl("label", "infd", "--all", "example.test/touched=yes")
        touched = visits_after(operator, count, before=restarted)
        writes_touched = len(world.writes(touched_at))
        installed.stop()
    return OperatorSide(
        alone=alone,
        many=many_took,
        cpu_seconds=cpu_seconds,
        visits=dict(results),
        idle_mib=idle_mib,
        full_mib=full_mib,
        restarted_mib=restarted_mib,
        writes_after_restart=writes_restarted,
        visits_after_restart=restarted,
        writes_after_touch=writes_touched,
        visits_after_touch=touched - restarted,
    )


def started(installed: Installation, **settings: str) -> Operator:
    """The operator with the Lease of a shipped one; stories have a shorter one."""
    lease = {
        "PLIMSOLL_LEASE_SECONDS": "15",
        "PLIMSOLL_RENEW_DEADLINE_SECONDS": "10",
        "PLIMSOLL_RETRY_SECONDS": "2",
    }
    return installed.start(kubeconfig=None, **(lease | settings))


def kubectl_side(count: int) -> tuple[tuple[Took, ...], Took, Took]:
    """kubectl makes the same children: one object's at a time, all, and all by server-side apply."""
    one_by_one = [rendered([each]) for each in objects(ALONE, "alone")]
    all_of_them = rendered(objects(count, "many"))
    with cluster_with_cards() as cluster:
        world = World(Installation(cluster), NAMESPACE)
        alone = []
        for children in one_by_one:
            alone.append(apply_and_wait(world, children, children, objects_are=False))
            remove(world, children)
        took = apply_and_wait(world, all_of_them, all_of_them, objects_are=False)
    with cluster_with_cards() as cluster:
        world = World(Installation(cluster), NAMESPACE)
        server_side = apply_and_wait(
            world, all_of_them, all_of_them, "--server-side", objects_are=False
        )
    return tuple(alone), took, server_side


def await_quiet(world: World, count: int) -> None:
    """Until all workers of all objects serve and the operator has had nothing to write for a while."""

    def all_ready() -> bool:
        found = world.items("plimsoll.dev/v1alpha1:inferencedeployments")
        ready = [each.get("status", {}).get("readyReplicas", 0) for each in found]
        return [2] * count == ready

    eventually(all_ready, within=ALL_THERE_SECONDS, says=f"{count} objects have two workers each")
    eventually(
        lambda: not world.writes(time.time() - Patience.NOTHING_HAPPENS),
        within=Patience.POOL_ROLLOUT,
        says="the operator writes no more",
    )


def visits_after(operator: Operator, count: int, *, before: int) -> int:
    """Wait for `count` more visits than `before`, and until nothing goes on; visits in all."""

    def all_visited() -> bool:
        return sum(visits(operator).values()) >= before + count

    eventually(all_visited, within=Patience.POOL_ROLLOUT, says=f"all {count} objects were visited")
    steadily(all_visited, during=Patience.NOTHING_HAPPENS, says="visits are counted")
    return sum(visits(operator).values())


def visits(operator: Operator) -> dict[str, int]:
    """Reconciles so far, by what came of them."""
    return {result: round(float(number)) for result, number in _VISITS.findall(operator.metrics())}


# ---- memory -------------------------------------------------------------------------------------


def resident_mib(pid: int) -> float:
    """VmRSS of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / MIB


def memory_limit_mib() -> float:
    """What the chart lets the operator have."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    limit = values["operator"]["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    return float(limit.removesuffix("Mi"))
