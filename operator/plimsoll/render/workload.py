"""Which Kubernetes objects is one pool of workers?

A Deployment and a PodDisruptionBudget. The pod template comes in numbered revisions: a Deployment
keeps the one it was made with, so that a newer Plimsoll moves no pods. To change a template, add the
next revision to REVISIONS and leave the old ones as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from plimsoll.plan.records import Plan
from plimsoll.render import lifecycle
from plimsoll.render.labels import (
    COMPONENT_LABEL,
    NAME_LABEL,
    PLAN_ANNOTATION,
    REVISION_ANNOTATION,
    TEMPLATE_ANNOTATION,
    VERSION_LABEL,
    WORKER_COMPONENT,
    deployment_labels,
    label_value,
    pool_object_name,
    pool_selector,
)
from plimsoll.render.last_words import pod_template_2
from plimsoll.render.plan_labels import pod_template_3
from plimsoll.render.pod import ENGINE_TITLES, pod_template_1
from plimsoll.render.records import Manifest, OwnerRef, PoolWorkload
from plimsoll.render.source import source_problem

REVISIONS: Final[dict[int, Callable[[PoolWorkload, str], Manifest]]] = {
    1: pod_template_1,
    2: pod_template_2,
    3: pod_template_3,
}
"""Revision of the pod template -> what writes it, given the workload and the plan's digest."""
NEWEST_REVISION: Final = max(REVISIONS)
"""For pools that do not exist yet."""

MIN_READY_SECONDS: Final = 10
"""A worker that answers /health and dies of its first request is not counted as available."""
KEPT_REPLICA_SETS: Final = 3
"""Enough for a look back; the plan is the source, not the history."""


def pool_manifests(workload: PoolWorkload) -> tuple[Manifest, ...]:
    """The pool's Deployment and PodDisruptionBudget. Equal workloads give equal bytes.

    Raises ValueError when the template revision is unknown or the engine cannot load the source.
    """
    problem = source_problem(workload.source, workload.plan.engine)
    if problem is not None:
        raise ValueError(problem)
    return (_deployment(workload), _disruption_budget(workload))


def owned_metadata(owner: OwnerRef, name: str, labels: dict[str, str]) -> Manifest:
    """Metadata of a child, with the one owner that lets the garbage collector do our deleting.

    `blockOwnerDeletion` is false: where OwnerReferencesPermissionEnforcement is on, true would need
    `update` on the owner's finalizers, a right we can do without. What is lost is only the order of
    a foreground deletion: the InferenceDeployment may be gone a moment before its workers.
    Offline there is no UID, and so no owner.
    """
    metadata: Manifest = {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(sorted(labels.items())),
    }
    if owner.uid is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
    return metadata


def plan_digest(workload: PoolWorkload) -> str:
    """Digest of what the plan pins: "sha256:" and 16 hex digits.

    Only what reaches the pod by other ways too: a better worded explanation moves no pods.
    """
    return digest_of_plan(workload.plan)


def digest_of_plan(plan: Plan) -> str:
    """The same from the plan alone."""
    pinned = {
        "engine": plan.engine.value,
        "cards": plan.cards,
        "args": plan.args(),
        "env": [[entry.name, entry.value] for entry in plan.env],
        "hostMemoryBytes": plan.host_memory_bytes,
    }
    return _digest(pinned)


def _digest(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _metadata(workload: PoolWorkload) -> Manifest:
    labels = deployment_labels(workload.owner.name) | pool_selector(
        workload.owner.name, workload.pool
    )
    labels[NAME_LABEL] = ENGINE_TITLES[workload.plan.engine]
    labels[COMPONENT_LABEL] = WORKER_COMPONENT
    if workload.release is not None:
        labels[VERSION_LABEL] = label_value(workload.release.text)
    name = pool_object_name(workload.owner.name, workload.pool)
    return owned_metadata(workload.owner, name, labels)


def _deployment(workload: PoolWorkload) -> Manifest:
    template = REVISIONS.get(workload.template_revision)
    if template is None:
        known = ", ".join(str(number) for number in sorted(REVISIONS))
        raise ValueError(
            f"template revision {workload.template_revision} is not known here, only {known}; "
            "it was made by a newer Plimsoll, upgrade to it again"
        )
    digest = plan_digest(workload)
    pods = template(workload, digest)
    metadata = _metadata(workload)
    metadata["annotations"] = {
        PLAN_ANNOTATION: digest,
        TEMPLATE_ANNOTATION: _digest(pods),
        REVISION_ANNOTATION: str(workload.template_revision),
    }
    waits = {"paused": True} if workload.is_paused else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            **waits,
            "replicas": workload.replicas,
            "selector": {"matchLabels": pool_selector(workload.owner.name, workload.pool)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling_update(workload)},
            "minReadySeconds": MIN_READY_SECONDS,
            "progressDeadlineSeconds": lifecycle.progress_deadline_seconds(workload.plan),
            "revisionHistoryLimit": KEPT_REPLICA_SETS,
            "template": pods,
        },
    }


def _rolling_update(workload: PoolWorkload) -> dict[str, Any]:
    """New worker first where cards are free; else the old one must give its cards up first."""
    if workload.spare_card:
        return {"maxSurge": 1, "maxUnavailable": 0}
    return {"maxSurge": 0, "maxUnavailable": 1}


def _disruption_budget(workload: PoolWorkload) -> Manifest:
    """One worker of the pool at a time may be drained away; one that is down already never blocks."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(workload),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": pool_selector(workload.owner.name, workload.pool)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
