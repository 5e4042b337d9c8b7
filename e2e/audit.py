"""Does the operator ask the API server for exactly what its RBAC grants? The audit log knows.

    log = AuditLog(cluster.audit_log)
    used = log.verbs_used(OPERATOR)
    comparison = compare(granted(manifests, OPERATOR), used, denied=log.denied(OPERATOR))
    assert comparison.is_exact, comparison

A verb denied and a verb never used are both failures: the first breaks the operator, the second is
power that nobody needs.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

READS: Final = frozenset({"get", "list", "watch"})
FORBIDDEN: Final = 403
CREATED: Final = 201
ANY: Final = "*"
EVERYWHERE: Final = ""  # the namespace of what is cluster-scoped or asked over all namespaces
# Every authenticated user may do these (the role system:basic-user); no chart grants them.
GIVEN_TO_ALL: Final = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)


class Use(NamedTuple):
    """One thing that was asked of the API server, or of a kubelet."""

    group: str
    resource: str  # with its subresource: pods/eviction
    verb: str
    namespace: str = EVERYWHERE
    name: str = ""

    @property
    def is_namespaced(self) -> bool:
        return self.namespace != EVERYWHERE


class Grant(NamedTuple):
    """One verb on one resource that a role gives, in one namespace or everywhere."""

    group: str
    resource: str
    verb: str
    namespace: str = EVERYWHERE
    name: str = ""  # empty: any

    def covers(self, use: Use) -> bool:
        return (
            self.group in (ANY, use.group)
            and _resource_covers(self.resource, use.resource)
            and self.verb in (ANY, use.verb)
            and self.namespace in (EVERYWHERE, use.namespace)
            and self.name in ("", use.name)
        )


@dataclass(frozen=True)
class Request:
    """One line of the audit log about a resource."""

    user: str
    use: Use
    code: int
    at_seconds: float
    is_allowed: bool = True  # by RBAC; a namespace that is going refuses with the same 403
    message: str = ""
    question: Mapping[str, Any] | None = None  # of a SubjectAccessReview

    @property
    def is_write(self) -> bool:
        return self.use.verb not in READS


@dataclass(frozen=True)
class Comparison:
    """What was refused or ungranted, and what was granted and left lying."""

    denied: frozenset[Use]
    unused: frozenset[Grant]

    @property
    def is_exact(self) -> bool:
        return not self.denied and not self.unused

    def unused_lines(self) -> str:
        """A line for each grant that nobody used."""
        return "".join(f"{_words(grant)}\n" for grant in sorted(self.unused))

    def __str__(self) -> str:
        lines = [f"denied: {_words(use)}" for use in sorted(self.denied)]
        lines += [f"never used: {_words(grant)}" for grant in sorted(self.unused)]
        return "\n".join(lines) or "used exactly as granted"


class AuditLog:
    """The log of one API server, read anew at each question."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def requests(self, user: str = "", since_seconds: float = 0.0) -> tuple[Request, ...]:
        """Of one user (all when empty), received since then (seconds of the epoch)."""
        return tuple(
            request
            for line in self.path.read_text().splitlines()
            if (request := read_line(line)) is not None
            and user in ("", request.user)
            and request.at_seconds >= since_seconds
        )

    def writes_by(self, user: str, since_seconds: float = 0.0) -> tuple[Request, ...]:
        """What this user tried to change, refused or not."""
        return tuple(r for r in self.requests(user, since_seconds) if r.is_write)

    def verbs_used(self, user: str, since_seconds: float = 0.0) -> frozenset[Use]:
        """What this user was let do, and what a kubelet asked on its account."""
        used: set[Use] = set()
        for request in self.requests(since_seconds=since_seconds):
            asked = request.question
            if asked is not None and asked["user"] == user and asked["is_allowed"]:
                used.add(asked["use"])
            if request.user != user or not request.is_allowed:
                continue
            used.add(request.use)
            if request.use.verb == "patch" and request.code == CREATED:
                used.add(request.use._replace(verb="create"))  # an apply that makes needs both
        return frozenset(use for use in used if (use.group, use.resource) not in GIVEN_TO_ALL)

    def denied(self, user: str, since_seconds: float = 0.0) -> frozenset[Use]:
        """What this user has no right to but asked for, of the API server or of a kubelet."""
        refused = {r.use for r in self.requests(user, since_seconds) if not r.is_allowed}
        for request in self.requests(since_seconds=since_seconds):
            asked = request.question
            if asked is not None and asked["user"] == user and not asked["is_allowed"]:
                refused.add(asked["use"])
        return frozenset(refused)


def read_line(line: str) -> Request | None:
    """None for a line about no resource (discovery, health), or one that is being written."""
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return None
    about = event.get("objectRef")
    if about is None or "resource" not in about:
        return None
    use = Use(
        group=about.get("apiGroup", ""),
        resource=_with_subresource(about["resource"], about.get("subresource", "")),
        verb=event["verb"],
        namespace=about.get("namespace", EVERYWHERE),
        name=about.get("name", ""),
    )
    if use.resource == "namespaces":  # the API server calls a namespace its own namespace
        use = use._replace(namespace=EVERYWHERE)
    status = event.get("responseStatus", {})
    received = datetime.datetime.fromisoformat(event["requestReceivedTimestamp"])
    return Request(
        user=event["user"]["username"],
        use=use,
        code=int(status.get("code", 0)),
        at_seconds=received.timestamp(),
        is_allowed=_is_allowed(event),
        message=status.get("message", ""),
        question=_question(event) if use.resource == "subjectaccessreviews" else None,
    )


def _is_allowed(event: Mapping[str, Any]) -> bool:
    """What the authoriser decided; without its word a 403 counts as refused."""
    decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
    if decision is None:
        return bool(event.get("responseStatus", {}).get("code") != FORBIDDEN)
    return bool(decision == "allow")


def granted(manifests: Iterable[Mapping[str, Any]], user: str) -> frozenset[Grant]:
    """What RBAC manifests give a service account (`system:serviceaccount:NAMESPACE:NAME`)."""
    _, _, namespace, name = user.split(":")
    documents = [document for document in manifests if document]
    rules = {
        (d["kind"], d["metadata"].get("namespace", EVERYWHERE), d["metadata"]["name"]): d["rules"]
        for d in documents
        if d["kind"] in ("ClusterRole", "Role")
    }
    grants: set[Grant] = set()
    for binding in documents:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        if not any(_is_subject(s, namespace, name) for s in binding.get("subjects", ())):
            continue
        where = binding["metadata"].get("namespace", EVERYWHERE)
        role = binding["roleRef"]
        home = where if role["kind"] == "Role" else EVERYWHERE
        for rule in rules[role["kind"], home, role["name"]]:
            grants |= grants_of(rule, where)
    return frozenset(grants)


def grants_of(rule: Mapping[str, Any], namespace: str = EVERYWHERE) -> set[Grant]:
    """One rule, one grant for each verb on each resource; rules about plain URLs give none."""
    return {
        Grant(group, resource, verb, namespace, name)
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    }


def compare(grants: Iterable[Grant], used: Iterable[Use], denied: Iterable[Use] = ()) -> Comparison:
    """Denied: refused, or done without a grant. Unused: a grant that covers nothing of the used."""
    have, did = frozenset(grants), frozenset(used)
    ungranted = {use for use in did if not any(grant.covers(use) for grant in have)}
    unused = {grant for grant in have if not any(grant.covers(use) for use in did)}
    return Comparison(denied=frozenset(denied) | ungranted, unused=frozenset(unused))


def _resource_covers(granted_resource: str, resource: str) -> bool:
    if granted_resource in (ANY, resource):
        return True
    kind, _, subresource = granted_resource.partition("/")
    return kind == ANY and bool(subresource) and resource.endswith(f"/{subresource}")


def _with_subresource(resource: str, subresource: str) -> str:
    return f"{resource}/{subresource}" if subresource else resource


def _is_subject(subject: Mapping[str, Any], namespace: str, name: str) -> bool:
    wanted = ("ServiceAccount", namespace, name)
    return wanted == (subject["kind"], subject.get("namespace"), subject["name"])


def _question(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Whom a SubjectAccessReview asked about, what for, and the answer."""
    spec = event.get("requestObject", {}).get("spec", {})
    asked = spec.get("resourceAttributes")
    if asked is None:
        return None
    use = Use(
        group=asked.get("group", ""),
        resource=_with_subresource(asked["resource"], asked.get("subresource", "")),
        verb=asked["verb"],
        namespace=asked.get("namespace", EVERYWHERE),
        name=asked.get("name", ""),
    )
    answer = event.get("responseObject", {}).get("status", {})
    return {"user": spec.get("user", ""), "use": use, "is_allowed": answer.get("allowed", False)}


def _words(thing: Use | Grant) -> str:
    where = f" in {thing.namespace}" if thing.namespace else ""
    named = f" named {thing.name}" if thing.name else ""
    group = f".{thing.group}" if thing.group else ""
    return f"{thing.verb} {thing.resource}{group}{named}{where}"
