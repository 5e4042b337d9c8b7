"""Which verbs does the operator use, and why each?

This is the only list; the chart's RBAC is printed from it. A verb that is missing shows as a refusal, a
verb too many as one that the API server's audit log never names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from plimsoll.facts.record import Record


class Scope(StrEnum):
    """Where a grant holds."""

    CLUSTER = "Cluster"
    """Objects without a namespace: always a ClusterRole."""
    WATCHED = "Watched"
    """Namespaces that we look after: a ClusterRole, or a Role in each of them."""
    OWN = "Own"
    """The namespace in which the operator runs: a Role."""


class Grant(Record):
    """One verb on one resource."""

    group: str
    """API group; empty for the core group."""
    resource: str
    """Plural, with a subresource after a slash."""
    verb: str
    """The verb."""
    scope: Scope
    """Where it holds."""
    why: str
    """What for."""
    logged_as: str
    """The verb by which the audit log names its use."""


def _grants(group: str, resource: str, scope: Scope, **why: str) -> tuple[Grant, ...]:
    return tuple(
        Grant(group=group, resource=resource, verb=verb, scope=scope, why=reason, logged_as=verb)
        for verb, reason in why.items()
    )


def _applied(group: str, resource: str, what: str) -> tuple[Grant, ...]:
    """What server-side apply needs. The API server checks `create` when an apply makes a new object, and
    logs the request as the patch that it is."""
    create, patch = _grants(
        group,
        resource,
        Scope.WATCHED,
        create=f"server-side apply of {what} that is not there yet",
        patch=f"server-side apply of {what}",
    )
    return create.model_copy(update={"logged_as": "patch"}), patch


def _child(
    group: str, resource: str, what: str, *, may_go_first: bool = False
) -> tuple[Grant, ...]:
    """What a kind of children needs. Children that go only with their owner, which the garbage collector
    sees to, need no `delete`."""
    ends = {"delete": f"remove {what} that is no longer wanted"} if may_go_first else {}
    return (
        *_grants(
            group,
            resource,
            Scope.WATCHED,
            list=f"see {what} of a deployment, and who has the name that it needs",
            watch=f"put {what} right soon after somebody changed it",
            **ends,
        ),
        *_applied(group, resource, what),
    )


OUR_GROUP: Final = "plimsoll.dev"

GRANTS: Final[tuple[Grant, ...]] = (
    *_grants(
        OUR_GROUP,
        "inferencedeployments",
        Scope.WATCHED,
        get="look again before each decision",
        list="find them all at start, at each resync and to test the watch",
        watch="hear of changes",
    ),
    *_grants(
        OUR_GROUP,
        "inferencedeployments/status",
        Scope.WATCHED,
        patch="server-side apply of the status; nothing else of the object is ever written",
    ),
    *_child("apps", "deployments", "the pool", may_go_first=True),
    *_child("policy", "poddisruptionbudgets", "the disruption budget", may_go_first=True),
    *_child("", "services", "the address"),
    *_grants(
        "",
        "pods",
        Scope.WATCHED,
        list="see workers, and which cards are taken",
        watch="hear when a worker becomes ready or fails",
        patch="take a worker out of the Service before it is recycled, by one label; tell a gate its workers, "
        "by annotations",
    ),
    *_grants(
        "",
        "pods/eviction",
        Scope.WATCHED,
        create="recycle a worker, as budgets allow",
    ),
    *_grants(
        "",
        "configmaps",
        Scope.WATCHED,
        get="read the facts of a model where one is named, those that were read from its files, the "
        "memory of workers before our start, and what engines took",
    ),
    *_applied(
        "",
        "configmaps",
        "what the model's files said, workers' memory so far, or what engines took",
    ),
    *_grants(
        "batch",
        "jobs",
        Scope.WATCHED,
        get="see whether the model's files are being read or a dtype is probed, or could not be",
        create="read the headers of a model's files, or probe a KV cache dtype, once for each question",
    ),
    *_grants("", "events", Scope.WATCHED, create="tell the person at kubectl"),
    *_grants(
        "",
        "nodes",
        Scope.CLUSTER,
        list="see which cards there are",
        watch="hear of new nodes and changed cards",
    ),
    *_grants(
        "",
        "nodes/stats",
        Scope.CLUSTER,
        get="ask kubelets how much memory workers hold; of the kubelet itself, never through nodes/proxy",
    ),
    *_grants(
        OUR_GROUP,
        "gpunodes",
        Scope.CLUSTER,
        list="read what the agents say of the cards",
        watch="hear when they say something new",
    ),
    *_grants(
        "resource.k8s.io",
        "resourceslices",
        Scope.CLUSTER,
        list="read what a DRA driver says of the cards, where there is one",
        watch="hear when it says something new",
    ),
    *_grants(
        "coordination.k8s.io",
        "leases",
        Scope.OWN,
        get="see who leads",
        create="lead where nobody did yet",
        update="take, renew and give back the lead",
    ),
)


def cluster_role_rules(*, watches_all_namespaces: bool = True) -> list[dict[str, Any]]:
    """Rules of the ClusterRole: what has no namespace and, when all namespaces are looked after, what is
    needed in each."""
    scopes = {Scope.CLUSTER, Scope.WATCHED} if watches_all_namespaces else {Scope.CLUSTER}
    return rules_of(grant for grant in GRANTS if grant.scope in scopes)


def watched_role_rules() -> list[dict[str, Any]]:
    """Rules of the Role in each namespace that is looked after, when not all are."""
    return rules_of(grant for grant in GRANTS if grant.scope is Scope.WATCHED)


def own_role_rules() -> list[dict[str, Any]]:
    """Rules of the Role in the operator's own namespace."""
    return rules_of(grant for grant in GRANTS if grant.scope is Scope.OWN)


def rules_of(grants: Iterable[Grant]) -> list[dict[str, Any]]:
    """Grants as RBAC rules: resources of one group with the same verbs share a rule, all sorted."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for grant in grants:
        verbs[grant.group, grant.resource].add(grant.verb)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), granted in sorted(verbs.items()):
        resources[group, tuple(sorted(granted))].append(resource)
    return [
        {"apiGroups": [group], "resources": names, "verbs": list(granted)}
        for (group, granted), names in sorted(resources.items(), key=lambda i: (i[0][0], i[1]))
    ]
