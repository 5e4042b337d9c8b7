"""How does a worker leave, so that no request is lost and no budget broken?

It is taken out of the Service by a label that only the Service looks at, finishes what it has, and is
evicted by its UID. A budget that does not allow it is obeyed; nothing is ever deleted instead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from plimsoll.api.recycle_around import Act, ActKind
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError, Conflict, Invalid, NotFound, Unavailable
from plimsoll.cluster.kinds import DISRUPTION_BUDGET, POD
from plimsoll.decide import Manifest
from plimsoll.facts.record import Record
from plimsoll.render.labels import COMPONENT_LABEL, DRAINING_COMPONENT, WORKER_COMPONENT

log = logging.getLogger(__name__)

TOO_MANY_REQUESTS: Final = 429
SERVER_ERROR: Final = 500
BUDGET_WORDS: Final = "disruption budget"
TWO_BUDGETS_WORDS: Final = "more than one PodDisruptionBudget"
"""As the API server says it (k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go, 1.37)."""
_LABEL_POINTER: Final = "/metadata/labels/" + COMPONENT_LABEL.replace("/", "~1")


class Blocked(Record):
    """An eviction that is not allowed."""

    pod: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    why: str
    """Who does not allow it."""


async def carry_out(client: Client, acts: Iterable[Act], namespace: str) -> Blocked | None:
    """Do what was recorded, in order, to pods of the namespace; what has been done
    already is left as it is. Raises ApiError where the API server did not answer."""
    for act in acts:
        match act.kind:
            case ActKind.PUT_BACK:
                await _label(client, namespace, act, DRAINING_COMPONENT, WORKER_COMPONENT)
            case ActKind.DRAIN:
                if why := await _in_the_way(client, namespace, act):
                    return Blocked(pod=act.pod, uid=act.uid, why=why)
                await _label(client, namespace, act, WORKER_COMPONENT, DRAINING_COMPONENT)
            case ActKind.EVICT:
                if why := await _evict(client, namespace, act):
                    await _label(client, namespace, act, DRAINING_COMPONENT, WORKER_COMPONENT)
                    return Blocked(pod=act.pod, uid=act.uid, why=why)
    return None


async def _label(client: Client, namespace: str, act: Act, before: str, after: str) -> None:
    """Change the one label of that very pod; one that is not as it was is left alone."""
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": act.uid},
        {"op": "test", "path": _LABEL_POINTER, "value": before},
        {"op": "replace", "path": _LABEL_POINTER, "value": after},
    ]
    try:
        await client.patch_json(POD, namespace, act.pod, operations)
    except (NotFound, Invalid, Conflict) as error:
        log.info(
            "worker left as it is",
            extra={"namespace": namespace, "pod": act.pod, "act": act.kind, "error": error.message},
        )
    else:
        log.info(
            "worker drains" if act.kind is ActKind.DRAIN else "worker is back in service",
            extra={"namespace": namespace, "pod": act.pod},
        )


async def _evict(client: Client, namespace: str, act: Act) -> str:
    """Evict that very pod; why not, when a budget does not allow it. One that is going is left to go."""
    pod = await _live(client, namespace, act)
    if pod is None:
        return ""
    try:
        await client.evict(namespace, act.pod, uid=act.uid)
    except (NotFound, Conflict):
        return ""  # gone, or another pod of that name
    except Unavailable as error:
        if _is_blocked(error):
            return f"{act.pod} is not evicted: {error.message}"
        raise
    log.info("worker evicted", extra={"namespace": namespace, "pod": act.pod})
    return ""


async def _live(client: Client, namespace: str, act: Act) -> Manifest | None:
    """The pod as it is this moment, unless it is gone, going or another one."""
    listing = await client.list_all(POD, namespace, fields=f"metadata.name={act.pod}")
    for pod in listing.items:
        metadata = pod["metadata"]
        if metadata["uid"] == act.uid and "deletionTimestamp" not in metadata:
            return pod
    return None


def _is_blocked(error: ApiError) -> bool:
    """Whether it is a budget's answer and not that of a server in trouble."""
    if error.status == TOO_MANY_REQUESTS:
        return BUDGET_WORDS in error.message
    return error.status == SERVER_ERROR and TWO_BUDGETS_WORDS in error.message


async def _in_the_way(client: Client, namespace: str, act: Act) -> str:
    """Which budget would not allow the eviction, so that a worker is not drained for nothing; empty when
    none would, as far as it can be seen. The API server has the last word."""
    pod = await _live(client, namespace, act)
    if pod is None:
        return ""
    labels = pod["metadata"].get("labels") or {}
    listing = await client.list_all(DISRUPTION_BUDGET, namespace)
    budgets = [each for each in listing.items if selects(each["spec"].get("selector"), labels)]
    names = sorted(each["metadata"]["name"] for each in budgets)
    if len(budgets) > 1:
        return (
            f"{act.pod} cannot be evicted: the PodDisruptionBudgets {', '.join(names)} all select it, and "
            "Kubernetes evicts no pod with more than one; keep one of them"
        )
    for each in budgets:
        status = each.get("status") or {}
        if status.get("disruptionsAllowed", 1) < 1:
            return (
                f"{act.pod} is not evicted: PodDisruptionBudget {names[0]} allows no disruption now "
                f"({status.get('currentHealthy')} healthy, {status.get('desiredHealthy')} needed)"
            )
    return ""


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a policy/v1 budget's selector picks these labels; an empty one picks all, none picks none."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:  # DoesNotExist
            return key not in labels
