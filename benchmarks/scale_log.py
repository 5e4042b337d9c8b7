"""What happened when, and who asked for how much? Read from the API server's audit log afterwards, so that
looking costs the measured nothing; and what each process has used, from /proc."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.finding import MIB
from benchmarks.scale_fleet import TEAMS

from controlplane.cluster import ControlPlane
from installation import USER, Operator

CREATED: Final = 201
KWOK: Final = "kwok"
"""The user as whom it writes."""
CHILD_RESOURCES: Final = frozenset({"services", "deployments", "poddisruptionbudgets"})
READS: Final = frozenset({"get", "list", "watch"})


class Line(NamedTuple):
    """One line of the audit log about our namespaces."""

    at_seconds: float
    """When it was answered."""
    user: str
    verb: str
    resource: str
    """With its subresource: pods/binding."""
    namespace: str
    name: str
    code: int

    @property
    def is_write(self) -> bool:
        """Whether it changed something."""
        return self.verb not in READS and self.code < 300

    @property
    def is_made_pod(self) -> bool:
        """Whether a pod was made; its name is not known to the log then."""
        return self.resource == "pods" and self.code == CREATED

    @property
    def is_ready_pod(self) -> bool:
        """Whether kwok played a pod's kubelet: our stages make it Ready in one go."""
        return self.resource == "pods/status" and self.user == KWOK and self.code < 300


class Log:
    """The audit log, read on from where it was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines: list[Line] = []

    def since(self, seconds: float, until: float = float("inf")) -> list[Line]:
        """What was answered then, in order."""
        self._read_on()
        return [line for line in self._lines if seconds <= line.at_seconds < until]

    def our_writes(self, seconds: float, until: float = float("inf")) -> list[Line]:
        """The operator's writes, but for its Lease."""
        return [
            line
            for line in self.since(seconds, until)
            if line.user == USER and line.is_write and line.resource != "leases"
        ]

    def ready_pods(self, seconds: float) -> set[tuple[str, str]]:
        """Pods that became Ready since then."""
        return {(each.namespace, each.name) for each in self.since(seconds) if each.is_ready_pod}

    def all_made_ready(self, seconds: float) -> bool:
        """Whether as many became Ready as were made."""
        made = sum(line.is_made_pod for line in self.since(seconds))
        return len(self.ready_pods(seconds)) >= made

    def visited(self, seconds: float) -> set[tuple[str, str]]:
        """Objects that the operator looked at since then: a visit reads its object first."""
        return {
            (each.namespace, each.name)
            for each in self.since(seconds)
            if each.user == USER and (each.verb, each.resource) == ("get", "inferencedeployments")
        }

    def _read_on(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                self._offset += len(raw)
                if (line := read(raw)) is not None:
                    self._lines.append(line)


def read(raw: bytes) -> Line | None:
    """None for what is not of our namespaces, or tells of no resource."""
    event = json.loads(raw)
    about = event.get("objectRef") or {}
    namespace = about.get("namespace", "")
    if "resource" not in about or (namespace and namespace not in _OURS):
        return None
    sub = about.get("subresource")
    return Line(
        at_seconds=datetime.datetime.fromisoformat(event["stageTimestamp"]).timestamp(),
        user=event["user"]["username"],
        verb=event["verb"],
        resource=about["resource"] + (f"/{sub}" if sub else ""),
        namespace=namespace,
        name=about.get("name", ""),
        code=int(event.get("responseStatus", {}).get("code", 0)),
    )


_OURS: Final = frozenset(TEAMS)


class Took(NamedTuple):
    """Seconds from the start of `kubectl apply` until the last of each."""

    command: float
    """kubectl ended."""
    planned: float
    """First status of an object; 0 on kubectl's side."""
    children: float
    """Child made."""
    pods: float
    """Pod made."""
    bound: float
    """Pod given a node, by the scheduler."""
    ready: float
    """Pod made Ready, by kwok."""

    @property
    def done(self) -> float:
        """All planned, all children made."""
        return max(self.planned, self.children)

    @property
    def told(self) -> str:
        """All of it in words."""
        return ", ".join(f"{what} {seconds:.1f}" for what, seconds in self._asdict().items()) + " s"


def took(lines: Iterable[Line], began: float, command: float) -> Took:
    """Read off the log."""
    first_status: dict[tuple[str, str], float] = {}
    last = dict.fromkeys(("children", "pods", "bound", "ready"), 0.0)
    for line in lines:
        seconds = line.at_seconds - began
        if line.resource == "inferencedeployments/status" and line.user == USER:
            first_status.setdefault((line.namespace, line.name), seconds)
        elif line.resource in CHILD_RESOURCES and line.code == CREATED:
            last["children"] = seconds
        elif line.is_made_pod:
            last["pods"] = seconds
        elif line.resource == "pods/binding":
            last["bound"] = seconds
        elif line.is_ready_pod:
            last["ready"] = seconds
    return Took(
        command=command,
        planned=max(first_status.values(), default=0.0),
        children=last["children"],
        pods=last["pods"],
        bound=last["bound"],
        ready=last["ready"],
    )


def counted(lines: Iterable[Line], *, but: Collection[str] = ()) -> dict[str, int]:
    """How often each kind of write was made, most first: "patch deployments"."""
    found = Counter(f"{line.verb} {line.resource}" for line in lines if line.resource not in but)
    return dict(found.most_common())


# ---- processes ----------------------------------------------------------------------------------

_VISITS: Final = re.compile(r'^plimsoll_reconciles_total\{result="(\w+)"\} (\S+)$', re.MULTILINE)
_REQUESTS: Final = re.compile(
    r'^plimsoll_api_requests_total\{status="\d+",verb="(\w+)"\} (\S+)$', re.MULTILINE
)


class Used(NamedTuple):
    """CPU seconds so far, by process, and the operator's own counters."""

    cpu: dict[str, float]
    visits: float
    requests: float
    seconds: float = 0.0
    """Of the monotonic clock."""

    def since(self, before: Used) -> Used:
        """What was added."""
        return Used(
            {name: now - before.cpu.get(name, 0.0) for name, now in self.cpu.items()},
            *(now - then for now, then in zip(self[1:], before[1:], strict=True)),
        )


def used(cluster: ControlPlane, operator: Operator | None = None) -> Used:
    """Now."""
    cpu, seconds = cluster.cpu_seconds(), time.monotonic()
    if operator is None:
        return Used(cpu, 0.0, 0.0, seconds)
    page = operator.metrics()
    return Used(
        cpu | {"operator": operator.process.cpu_seconds()},
        visits=sum(float(n) for _, n in _VISITS.findall(page)),
        requests=sum(float(n) for _, n in _REQUESTS.findall(page)),
        seconds=seconds,
    )


def gauge(operator: Operator, name: str) -> float:
    """One figure without labels of the operator's own page."""
    found = re.search(rf"^{name} (\S+)$", operator.metrics(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def cpu_of(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int, name: str = "VmRSS") -> float:
    """VmRSS of a process, or VmHWM, the most that it ever was."""
    found = re.search(
        rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    assert found is not None
    return int(found[1]) * 1024 / MIB
