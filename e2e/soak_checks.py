"""What may never happen, whatever fails: asked of the history of a soak.

A history is what was done to the cluster on purpose (deeds), what the operator sent (writes, from the wire
before it), which workers went and who asked for it (departures, from the audit log), and what the user's
objects looked like. Each check gives sentences; a history without any is sound. Nothing here knows a
cluster, so that a bad history can be written down in a test.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

OBJECTS: Final = "inferencedeployments"
CONTROLLERS: Final = "system:serviceaccount:kube-system:"
REACH_SECONDS: Final = 5.0
"""A departure that no line of the audit log names may be one whose line died with the API server."""


class Cause(enum.Enum):
    """Why a worker may go, or an object may change."""

    EDITED = "the user changed the spec"
    SCALED_DOWN = "the user wants fewer"
    CHILD_CHANGED = "a stranger changed or deleted a child"
    WORKER_KILLED = "somebody deleted the pod"
    NODE_GONE = "its node was deleted"
    API_SERVER_KILLED = "the API server was killed"
    RECYCLED = "recycled, as the status had said before"


class Deed(NamedTuple):
    """What was done on purpose."""

    at_seconds: float
    cause: Cause
    deployment: str = ""
    """Which InferenceDeployment's; empty for all."""
    pod: str = ""


class Write(NamedTuple):
    """What the operator sent over the wire."""

    at_seconds: float
    method: str
    path: str
    body: Any = None


class Departure(NamedTuple):
    """A worker that went, or was asked to."""

    at_seconds: float
    pod: str
    deployment: str
    """Its InferenceDeployment."""
    by: str
    """User of the first request; empty when no line of the audit log names it."""
    is_eviction: bool = False


class Sight(NamedTuple):
    """The user's part of an object (spec, labels, annotations, finalizers): as left, and as seen."""

    at_seconds: float
    deployment: str
    left: Mapping[str, Any]
    seen: Mapping[str, Any]


class Quiet(NamedTuple):
    """A time without faults: whether all was well again, and whether nothing was written any more."""

    at_seconds: float
    after_seconds: float
    missing: str = ""
    """What was still wrong when patience ended; empty when all was well."""
    written: tuple[str, ...] = ()
    """All that was written from then on, when patience ended before it ceased."""
    still_seconds: float = 0.0
    """From when all was well until nothing had been written for a whole resync."""


class History(NamedTuple):
    """All that is known of a soak."""

    deeds: tuple[Deed, ...] = ()
    writes: tuple[Write, ...] = ()
    departures: tuple[Departure, ...] = ()
    sights: tuple[Sight, ...] = ()
    quiets: tuple[Quiet, ...] = ()
    budgets: Mapping[str, int] = {}
    """By InferenceDeployment: recycles that are right at most. A soak is shorter than the day of maxPerDay."""

    def converged_before(self, at_seconds: float) -> float:
        """When all was well for the last time before then."""
        well = [q.at_seconds + q.after_seconds for q in self.quiets if not q.missing]
        return max((t for t in well if t <= at_seconds), default=0.0)

    def has(self, causes: Iterable[Cause], deployment: str, at_seconds: float) -> bool:
        """Whether one of these was done to it since all was well for the last time."""
        since = self.converged_before(at_seconds)
        return any(
            deed.cause in causes
            and deed.deployment in ("", deployment)
            and since <= deed.at_seconds <= at_seconds
            for deed in self.deeds
        )


REASONS: Final[Mapping[str, tuple[Cause, ...]]] = {
    CONTROLLERS + "replicaset-controller": (Cause.EDITED, Cause.SCALED_DOWN, Cause.CHILD_CHANGED),
    CONTROLLERS + "generic-garbage-collector": (Cause.CHILD_CHANGED, Cause.EDITED),
    CONTROLLERS + "pod-garbage-collector": (Cause.NODE_GONE,),
    CONTROLLERS + "node-controller": (Cause.NODE_GONE,),
    CONTROLLERS + "taint-eviction-controller": (Cause.NODE_GONE,),
}
"""Who deletes pods by itself, and what must have been done before."""


def reason_of(departure: Departure, history: History, *, operator: str) -> Cause | None:
    """Why this worker went; None when nothing explains it."""
    if departure.by == operator:
        recorded = departure.is_eviction and was_recorded(departure, history)
        return Cause.RECYCLED if recorded else None
    killed = [d for d in history.deeds if d.cause is Cause.WORKER_KILLED]
    if any(d.pod == departure.pod and d.at_seconds <= departure.at_seconds + 1 for d in killed):
        return Cause.WORKER_KILLED
    if not departure.by:
        return _lost_line(departure, history)
    for cause in REASONS.get(departure.by, ()):
        if history.has((cause,), departure.deployment, departure.at_seconds):
            return cause
    return None


def _lost_line(departure: Departure, history: History) -> Cause | None:
    near = [d for d in history.deeds if d.cause is Cause.API_SERVER_KILLED]
    if any(abs(d.at_seconds - departure.at_seconds) <= REACH_SECONDS for d in near):
        return Cause.API_SERVER_KILLED
    return None


def was_recorded(departure: Departure, history: History) -> bool:
    """Whether the status that was written last before the eviction says that this pod is being evicted."""
    said = [
        write.body
        for write in history.writes
        if write.path.endswith(f"/{OBJECTS}/{departure.deployment}/status")
        and write.at_seconds <= departure.at_seconds
    ]
    past = _recycles(said[-1]) if said else ()
    return any(entry.get("pod") == departure.pod for entry in past)


def _recycles(status_body: Any) -> tuple[Mapping[str, Any], ...]:
    status = status_body.get("status", {}) if isinstance(status_body, Mapping) else {}
    return tuple((status.get("recycling") or {}).get("history") or ())


# ---- the checks ---------------------------------------------------------------------------------


def departures_have_reasons(history: History, operator: str) -> list[str]:
    return [
        f"worker {each.pod} went, by {each.by or 'nobody that the audit log names'}, "
        f"{each.at_seconds - history.converged_before(each.at_seconds):.1f} s after all was well for the last time, "
        "and nothing explains it"
        for each in history.departures
        if reason_of(each, history, operator=operator) is None
    ]


def evictions_keep_to_the_budget(history: History, operator: str) -> list[str]:
    found = []
    for name, most in history.budgets.items():
        evicted = {
            d.pod
            for d in history.departures
            if d.deployment == name and d.is_eviction and d.by == operator
        }
        if len(evicted) > most:
            found.append(f"{name} may have {most} recycles and had {len(evicted)}")
    return found


ALLOWED: Final = (
    ("PATCH", rf"/{OBJECTS}/[^/]+/status"),
    ("PATCH", r"/(deployments|services|poddisruptionbudgets|configmaps|pods)/[^/]+"),
    ("POST", r"/pods/[^/]+/eviction"),
    ("DELETE", r"/(deployments|services|poddisruptionbudgets)/[^/]+"),
    ("POST", r"/(events|configmaps)"),
    ("PATCH", r"/events/[^/]+"),
)
"""All that an operator may send in a soak, but for its Lease."""


def nothing_else_is_written(history: History, operator: str) -> list[str]:
    allowed = [(method, re.compile(f".*/namespaces/[^/]+{path}$")) for method, path in ALLOWED]
    return [
        f"the operator sent {write.method} {write.path}"
        for write in history.writes
        if not any(write.method == method and path.match(write.path) for method, path in allowed)
    ]


def pods_get_one_label(history: History, operator: str) -> list[str]:
    """Of a pod nothing is changed but the label that takes it out of the Service and puts it back."""
    found = []
    for write in history.writes:
        if write.method != "PATCH" or not re.search(r"/pods/[^/]+$", write.path):
            continue
        changed = {each["path"] for each in write.body if each.get("op") != "test"}
        if changed != {"/metadata/labels/app.kubernetes.io~1component"}:
            found.append(f"the operator changed {sorted(changed)} of {write.path}")
    return found


def the_users_part_is_the_users(history: History, operator: str) -> list[str]:
    return [
        f"{sight.deployment} is not as its user left it: {difference(sight.left, sight.seen)}"
        for sight in history.sights
        if sight.left != sight.seen
    ]


def pools_change_for_a_reason(history: History, operator: str) -> list[str]:
    """Fewer workers or another template in what the operator applies need a change by the user."""
    found = []
    before: dict[str, Mapping[str, Any]] = {}
    for write in history.writes:
        at = re.search(r"/deployments/([^/]+)$", write.path)
        if at is None:
            continue
        pool, body = at[1], write.body
        owner = owner_of(pool, history)
        if write.method == "DELETE":
            if not history.has((Cause.EDITED,), owner, write.at_seconds):
                found.append(f"the operator deleted Deployment {pool}, and nothing explains it")
            continue
        if not isinstance(body, Mapping) or "spec" not in body:
            continue  # a JSON patch, which puts the same pod spec back
        spec, old = body["spec"], before.get(pool)
        before[pool] = spec
        if old is None:
            continue
        fewer = (spec.get("replicas"), old.get("replicas"))
        if None not in fewer and fewer[0] < fewer[1]:
            causes: tuple[Cause, ...] = (Cause.SCALED_DOWN, Cause.EDITED, Cause.CHILD_CHANGED)
            if not history.has(causes, owner, write.at_seconds):
                found.append(f"{pool} was to have {fewer[0]} workers after {fewer[1]}, unasked")
        was_asked = history.has((Cause.EDITED,), owner, write.at_seconds)
        if spec.get("template") != old.get("template") and not was_asked:
            changed = difference(old.get("template"), spec.get("template"))
            found.append(f"{pool} got another template, unasked: {changed}")
    return found


def it_is_well_when_quiet(history: History, operator: str) -> list[str]:
    return [
        f"{quiet.after_seconds:.0f} s without faults and {quiet.missing}"
        for quiet in history.quiets
        if quiet.missing
    ]


def nothing_is_written_when_quiet(history: History, operator: str) -> list[str]:
    return [
        f"all was well and there was still written: {', '.join(quiet.written)}"
        for quiet in history.quiets
        if quiet.written
    ]


Check = Callable[[History, str], list[str]]
CHECKS: Final[tuple[Check, ...]] = (
    departures_have_reasons,
    evictions_keep_to_the_budget,
    nothing_else_is_written,
    pods_get_one_label,
    the_users_part_is_the_users,
    pools_change_for_a_reason,
    it_is_well_when_quiet,
    nothing_is_written_when_quiet,
)


def violations(history: History, *, operator: str) -> tuple[str, ...]:
    """Everything that should not have been; `operator` is its user name in the audit log."""
    return tuple(sentence for check in CHECKS for sentence in check(history, operator))


def owner_of(child: str, history: History) -> str:
    """The InferenceDeployment whose name a child's name begins with."""
    names = {*history.budgets, *(deed.deployment for deed in history.deeds if deed.deployment)}
    return max((n for n in names if child.startswith(f"{n}-") or child == n), key=len, default="")


def difference(old: Any, new: Any, where: str = "") -> str:
    """The first place where two things differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return difference(old.get(key), new.get(key), f"{where}.{key}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            if one != other:
                return difference(one, other, f"{where}[{place}]")
    return f"{where or 'it'} was {json.dumps(old)[:200]} and is {json.dumps(new)[:200]}"
