"""What does Plimsoll do with a site that grows by quarters, and what does kubectl with the very same children?

Each side has a cluster of its own. A side is a quarter of the nodes and objects first, then half of them, then all:
so each step's cost for one object can be put beside that of the first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from benchmarks import scale_fleet as site
from benchmarks.many import started
from benchmarks.scale_fleet import Size
from benchmarks.scale_log import (
    Log,
    Took,
    Used,
    counted,
    cpu_of,
    gauge,
    resident_mib,
    took,
    used,
)
from benchmarks.scale_stand_ins import stand_ins

from controlplane.cluster import ControlPlane, Manifest
from installation import Installation, Operator
from patience import Patience, eventually

CHANGES: Final = 3
"""Of each kind; the median counts."""
OBJECTS: Final = "/apis/plimsoll.dev/v1alpha1/inferencedeployments"
NEW_NODES: Final = 10
SETTINGS: Final = {
    # as shipped; stories are less patient
    "PLIMSOLL_VERIFY_SECONDS": "5",
    "PLIMSOLL_VERIFY_GRACE_SECONDS": "120",
    # two full cores may leave a renewal without an answer for longer than the 10 s of a shipped one
    "PLIMSOLL_LEASE_SECONDS": "60",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "45",
    # one process plays all kubelets and has one certificate
    "PLIMSOLL_KUBELET_INSECURE_TLS": "true",
}

LIGHT_LEASES: Final = {
    "kwok": ("--node-lease-duration-seconds", "160"),
    "kube-controller-manager": ("--node-monitor-grace-period", "10m"),
}
"""A lease of a node is renewed every quarter of its duration: 25 writes a second of 1,000 nodes, not 100. Those that
come too late on two full cores must not take nodes away."""
NOTHING: Final = Used({}, 0.0, 0.0)

Tell = Callable[[str], None]
ROUND_SECONDS: Final = 31.0
"""One round over kubelets and engines, as shipped, and a little."""
NEXT_STEP: Final = 2.2
"""A step is twice as large as the one before and takes twice as long, if all is well."""


class Step(NamedTuple):
    """One quarter, half or whole of one side."""

    size: Size
    """Everything that is there after it."""
    added: int
    """Objects that it added."""
    took: Took
    writes: dict[str, int]
    """The operator's own by kind; none on kubectl's side."""
    used: Used
    """CPU from `kubectl apply` until nothing moved any more."""
    resident_mib: float = 0.0
    visit: Used = NOTHING
    """What a visit to everyone took that found nothing to do."""
    visit_writes: int = 0
    rounds_share: float = 0.0
    """Cores that the rounds over kubelets and engines took during the step."""
    rounds_share_after: float = 0.0
    """And after it, with all of its workers."""

    @property
    def cpu_without_rounds(self) -> float:
        """The operator's, until nothing moved."""
        return self.used.cpu["operator"] - self.rounds_share * self.used.seconds

    @property
    def visit_cpu_without_rounds(self) -> float:
        """The operator's, for a visit to everyone that found nothing to do."""
        return self.visit.cpu["operator"] - self.rounds_share_after * self.visit.seconds


class Change(NamedTuple):
    """Seconds from a change until the last new pod is Ready."""

    ready: float
    first: float
    """Until the first new pod has a node."""
    pods: int
    """New pods that are Ready."""

    @property
    def is_over(self) -> bool:
        """Whether all workers of an object are new."""
        return self.pods >= site.WORKERS


class Quiet(NamedTuple):
    """A while in which nobody changed anything."""

    seconds: float
    used: Used
    writes: dict[str, int]
    stand_ins_cpu: float
    round_seconds: float


class Restart(NamedTuple):
    """The operator anew over everything."""

    ready: float
    """Until it is ready."""
    visited: float
    """Until it has seen every object once."""
    used: Used
    writes: dict[str, int]
    resident_mib: float
    peak_mib: float


class Ours(NamedTuple):
    """Plimsoll's side."""

    steps: tuple[Step, ...]
    idle_mib: float
    quiet: Quiet
    changes: dict[str, tuple[Change, ...]]
    joined: Change
    joined_used: Used
    joined_writes: dict[str, int]
    restart: Restart
    peak_mib: float


class Theirs(NamedTuple):
    """kubectl's side."""

    steps: tuple[Step, ...]
    changes: dict[str, tuple[Change, ...]]


@contextmanager
def clusters() -> Iterator[tuple[ControlPlane, Log]]:
    """A cluster with the teams' namespaces and nothing in them."""
    with ControlPlane(extra_args=LIGHT_LEASES) as cluster:
        for team in site.TEAMS:
            cluster.ensure_namespace(team)
        cluster.apply(*site.claims())
        yield cluster, Log(cluster.audit_log)


# ---- Plimsoll -----------------------------------------------------------------------------------


def ours(size: Size, tell: Tell, *, quiet_seconds: float, until: float) -> Ours:
    """All of it; raises AssertionError where a state is not reached. A step that would not be over at
    `until` (seconds of the monotonic clock) is not begun, and what follows is measured without it."""
    with clusters() as (cluster, log), stand_ins(cluster) as players:
        installed = Installation(cluster)
        operator = started(installed, **SETTINGS)
        idle_mib = resident_mib(operator.process.pid)
        side = _Plimsoll(cluster, log, operator, tell, has_rounds=quiet_seconds > ROUND_SECONDS)
        steps = tuple(side.steps(size, until))
        operator.process.must_run()
        size = steps[-1].size
        tell(f"nothing is changed for {quiet_seconds:.0f} s")
        quiet = side.quiet(quiet_seconds, players)
        tell("some objects are changed")
        changes = {what: changed(cluster, log, edited) for what, edited in edits()}
        tell("a new GPU type joins")
        joined, joined_used, joined_writes = side.join(size.nodes)
        peak_mib = resident_mib(operator.process.pid, "VmHWM")
        tell("the operator starts anew")
        restart = side.restart(installed, size)
        installed.stop()
    return Ours(
        steps=steps,
        idle_mib=idle_mib,
        quiet=quiet,
        changes=changes,
        joined=joined,
        joined_used=joined_used,
        joined_writes=joined_writes,
        restart=restart,
        peak_mib=peak_mib,
    )


class _Plimsoll:
    """What is done with a cluster in which the operator runs."""

    def __init__(
        self,
        cluster: ControlPlane,
        log: Log,
        operator: Operator,
        tell: Tell,
        *,
        has_rounds: bool,
    ) -> None:
        """`has_rounds`: whether there is the time to see what a round costs."""
        self.cluster, self.log, self.operator, self.tell = cluster, log, operator, tell
        self._has_rounds = has_rounds
        self._rounds_share = 0.0

    def steps(self, size: Size, until: float) -> Iterator[Step]:
        """A quarter, a half, all."""
        before = Size(0, 0)
        for now in in_time(site.growing(size), until, self.tell):
            yield self._step(before, now)
            before = now

    def _step(self, before: Size, now: Size) -> Step:
        began = time.time()
        site.add_nodes(self.cluster, list(site.nodes(before.nodes, now.nodes - before.nodes)))
        self._await_visits(began, before.objects)
        await_no_writes(self.log)
        added = now.objects - before.objects
        text = site.text_of(site.objects(before.objects, added))
        began, already = time.time(), used(self.cluster, self.operator)
        self.cluster.kubectl("apply", "-f", "-", input=text)
        command = time.time() - began
        await_ready_pods(self.log, now.workers)
        await_no_writes(self.log)
        await_ready_objects(self.cluster, now.objects)
        until = time.time()
        spent = used(self.cluster, self.operator).since(already)
        lines = self.log.since(began, until)
        step = Step(
            size=now,
            added=added,
            took=took(lines, began, command),
            writes=counted(self.log.our_writes(began, until)),
            used=spent,
            resident_mib=resident_mib(self.operator.process.pid),
        )
        self.tell(
            f"Plimsoll, {now}: {step.took.told}; "
            f"operator {spent.cpu['operator']:.1f} s of CPU in {spent.visits:.0f} visits"
        )
        visit, writes = self._visit_everyone(now)
        before_share, self._rounds_share = self._rounds_share, self._share_of_rounds()
        return step._replace(
            visit=visit,
            visit_writes=writes,
            rounds_share=(before_share + self._rounds_share) / 2,
            rounds_share_after=self._rounds_share,
        )

    def _share_of_rounds(self) -> float:
        """Cores that are used while nobody is looked at."""
        if not self._has_rounds:
            return 0.0
        spent = self._left_alone(ROUND_SECONDS)
        return spent.cpu["operator"] / spent.seconds

    def _left_alone(self, seconds: float) -> Used:
        """What was used while nobody changed anything."""
        before = used(self.cluster, self.operator)
        time.sleep(seconds)  # what is measured is time in which nothing happens
        return used(self.cluster, self.operator).since(before)

    def _visit_everyone(self, now: Size) -> tuple[Used, int]:
        """A label of the user on every object: all are looked at, and nothing is to be done."""
        began, before = time.time(), used(self.cluster, self.operator)
        self.cluster.kubectl(
            "label", "infd", "-A", "--all", "--overwrite", f"example.test/touched=at-{now.objects}"
        )
        self._await_visits(began, now.objects)
        await_no_writes(self.log)
        return used(self.cluster, self.operator).since(before), len(self.log.our_writes(began))

    def _await_visits(self, began: float, count: int) -> None:
        """Until so many objects were looked at since then."""
        eventually(
            lambda: len(self.log.visited(began)) >= count,
            within=site.THERE_SECONDS,
            says=f"{count} objects were looked at",
        )

    def quiet(self, seconds: float, players: int) -> Quiet:
        """Steady state, with rounds of kubelets and engines."""
        began, players_before = time.time(), cpu_of(players)
        spent = self._left_alone(seconds)
        return Quiet(
            seconds=spent.seconds,
            used=spent,
            writes=counted(self.log.our_writes(began)),
            stand_ins_cpu=cpu_of(players) - players_before,
            round_seconds=gauge(self.operator, "plimsoll_watch_round_seconds"),
        )

    def join(self, first: int) -> tuple[Change, Used, dict[str, int]]:
        """An object waits for a type that no node has; then ten nodes with it come."""
        waits = site.waiting_for_new_type()
        self.cluster.kubectl("apply", "-f", "-", input=site.text_of([waits]))
        name, namespace = waits["metadata"]["name"], waits["metadata"]["namespace"]
        eventually(
            lambda: is_refused(self.cluster.get(f"{_in(namespace)}/{name}")),
            within=Patience.CONDITION_SEEN,
            says="no plan for a type that nobody knows",
        )
        await_no_writes(self.log)
        began, before = time.time(), used(self.cluster, self.operator)
        site.add_nodes(self.cluster, list(site.nodes(first, NEW_NODES, site.NEW_TYPE)))
        workers = site.WORKERS_OF_A_POOL
        eventually(
            lambda: (
                self.cluster.get(f"{_in(namespace)}/{name}")["status"].get("readyReplicas", 0)
                == workers
            ),
            within=site.THERE_SECONDS,
            says="workers run on the new type",
        )
        await_no_writes(self.log)
        spent = used(self.cluster, self.operator).since(before)
        writes = counted(self.log.our_writes(began))
        return change_of(self.log, name, began), spent, writes

    def restart(self, installed: Installation, size: Size) -> Restart:
        """Stop and start; until every object was looked at and nothing moves."""
        installed.stop()
        began, before = time.time(), self.cluster.cpu_seconds()
        self.operator = started(installed, **SETTINGS)
        ready = time.time() - began
        self._await_visits(began, size.objects + 1)
        visited = time.time() - began
        await_no_writes(self.log)
        now = used(self.cluster, self.operator)
        return Restart(
            ready=ready,
            visited=visited,
            used=now.since(Used(before, 0.0, 0.0)),
            writes=counted(self.log.our_writes(began)),
            resident_mib=resident_mib(self.operator.process.pid),
            peak_mib=resident_mib(self.operator.process.pid, "VmHWM"),
        )


def _in(namespace: str) -> str:
    return f"/apis/plimsoll.dev/v1alpha1/namespaces/{namespace}/inferencedeployments"


def _length(spec: dict[str, Any]) -> None:
    spec["limits"] = {"maxModelLen": 8192}


def _image(spec: dict[str, Any]) -> None:
    spec["engines"]["vllm"]["image"] = site.NEXT_IMAGE


# ---- kubectl ------------------------------------------------------------------------------------


def theirs(size: Size, tell: Tell, *, until: float) -> Theirs:
    """The children that `plimsoll render` prints, applied by kubectl, in the same steps."""
    steps: list[Step] = []
    before = Size(0, 0)
    with clusters() as (cluster, log):
        for now in in_time(site.growing(size), until, tell):
            site.add_nodes(cluster, list(site.nodes(before.nodes, now.nodes - before.nodes)))
            added = now.objects - before.objects
            children = site.rendered(site.objects(before.objects, added))
            began, already = time.time(), used(cluster)
            cluster.kubectl("apply", "-f", "-", input=site.text_of(children))
            command = time.time() - began
            await_ready_pods(log, now.workers)
            spent = used(cluster).since(already)
            seen = took(log.since(began), began, command)
            steps.append(Step(size=now, added=added, took=seen, writes={}, used=spent))
            tell(f"kubectl, {now}: {seen.told}")
            before = now
        changes = {what: changed(cluster, log, edited, render=True) for what, edited in edits()}
    return Theirs(tuple(steps), changes)


# ---- time and waits --------------------------------------------------------------------------------------


def in_time(sizes: Sequence[Size], until: float, tell: Tell) -> Iterator[Size]:
    """Each, unless it would take us beyond `until`."""
    began, took_seconds = time.monotonic(), 0.0
    for size in sizes:
        if began + NEXT_STEP * took_seconds > until:
            tell(f"{size} would not be over in time: not done")
            return
        yield size
        took_seconds = time.monotonic() - began
        began = time.monotonic()


def await_ready_pods(log: Log, count: int) -> None:
    """Until kwok has made so many pods Ready."""

    def there() -> bool:
        if (ready := len(log.ready_pods(0.0))) < count:
            raise LookupError(f"{ready} are")
        return True

    eventually(there, within=site.THERE_SECONDS, says=f"{count} pods are Ready")


def await_ready_objects(cluster: ControlPlane, count: int) -> None:
    """Until each says that all its workers serve."""

    def all_say_so() -> bool:
        found = cluster.get(OBJECTS)["items"]
        ready = [each.get("status", {}).get("readyReplicas", 0) for each in found]
        return ready == [site.WORKERS] * count

    eventually(all_say_so, within=site.THERE_SECONDS, says=f"{count} objects are Ready")


def await_no_writes(log: Log) -> None:
    """Until the operator has had nothing to write for a while."""
    eventually(
        lambda: not log.our_writes(time.time() - Patience.NOTHING_HAPPENS),
        within=site.THERE_SECONDS,
        says="the operator writes no more",
    )


def is_refused(thing: Manifest) -> bool:
    """Whether its status says that it has no plan."""
    conditions = thing.get("status", {}).get("conditions", [])
    return any(c["type"] == "Planned" and c["status"] == "False" for c in conditions)


# ---- changes ------------------------------------------------------------------------------------


def edits() -> Iterator[tuple[str, list[Manifest]]]:
    """What is changed, and the objects with the change; each is another object."""
    kinds: tuple[tuple[str, Callable[[dict[str, Any]], None]], ...] = (
        ("model length", _length),
        ("image", _image),
    )
    for offset, (what, edit) in enumerate(kinds):
        edited = site.objects(offset * CHANGES, CHANGES)
        for one in edited:
            edit(one["spec"])
        yield what, edited


def changed(
    cluster: ControlPlane, log: Log, edited: Sequence[Manifest], *, render: bool = False
) -> tuple[Change, ...]:
    """Apply one after another, each when the first new pod of the one before has a node; then wait until
    all workers of all are new and Ready. With `render` their children are applied."""
    begun: list[tuple[str, float]] = []
    for one in edited:
        name = one["metadata"]["name"]
        text = site.text_of(site.rendered([one]) if render else [one])
        begun.append((name, time.time()))
        cluster.kubectl("apply", "-f", "-", input=text)
        eventually(
            lambda: change_of(log, *begun[-1]).pods > 0,
            within=site.THERE_SECONDS,
            says=f"a new pod of {name} has a node",
        )
    for name, began in begun:
        eventually(
            lambda name=name, began=began: change_of(log, name, began).is_over,  # type: ignore[misc]
            within=site.THERE_SECONDS,
            says=f"all workers of {name} are new",
        )
    return tuple(change_of(log, name, began) for name, began in begun)


def change_of(log: Log, name: str, began: float) -> Change:
    """Pods of one object since then."""
    lines = [line for line in log.since(began) if line.name.startswith(f"{name}-")]
    bound = {line.name: line.at_seconds for line in lines if line.resource == "pods/binding"}
    ready = {line.name: line.at_seconds for line in lines if line.is_ready_pod}
    return Change(
        ready=max(ready.values(), default=began) - began,
        first=min(bound.values(), default=began) - began,
        pods=len(bound.keys() & ready.keys()),
    )


def median(changes: Sequence[Change]) -> float:
    """Seconds until all were Ready."""
    return statistics.median(change.ready for change in changes)
