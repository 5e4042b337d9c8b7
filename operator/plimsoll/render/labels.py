"""By which names and labels do we find what is ours?

Nothing of the user's metadata is copied: a copied `app.kubernetes.io/instance` makes GitOps tools take
our children for their own and prune them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

DEPLOYMENT_LABEL: Final = "plimsoll.dev/deployment"
"""Which InferenceDeployment an object belongs to; its namespace is the object's own."""
POOL_LABEL: Final = "plimsoll.dev/pool"
"""Which pool of it."""
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_VALUE: Final = "plimsoll"
NAME_LABEL: Final = "app.kubernetes.io/name"
"""The engine, as people know it: vllm, llama.cpp."""
VERSION_LABEL: Final = "app.kubernetes.io/version"
"""The engine's release; on the Deployment only, so that it alone never moves a pod."""
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
WORKER_COMPONENT: Final = "worker"
"""Told apart from whatever else may carry DEPLOYMENT_LABEL one day, a gateway for example."""
DRAINING_COMPONENT: Final = "worker-draining"
"""A worker that is to leave. The Service picks workers by COMPONENT_LABEL, while neither ReplicaSet nor
budget does: with this value a worker gets no new requests and keeps everything else."""

FLOORS_COMPONENT: Final = "memory-floors"
INSPECTION_COMPONENT: Final = "inspection"
INSPECTION_LABEL: Final = "plimsoll.dev/inspection"
"""Which question about the model's files a pod of an inspection answers."""
PROBE_COMPONENT: Final = "probe"
PROBE_LABEL: Final = "plimsoll.dev/probe"
"""Which question about retrieval a pod of a probe answers."""

PLAN_ANNOTATION: Final = "plimsoll.dev/plan"
"""Digest of what the plan pins, on the Deployment and on its pods: which plan does this pod run?"""
TEMPLATE_ANNOTATION: Final = "plimsoll.dev/template"
"""Digest of the pod template as we wrote it, on the Deployment: will this apply start a rollout?"""
REVISION_ANNOTATION: Final = "plimsoll.dev/template-revision"
"""Which of our pod templates the Deployment was made with; read back so that an upgrade keeps it."""

LABEL_VALUE_LENGTH: Final = 63
"""k8s.io/apimachinery util/validation LabelValueMaxLength; also the length of a DNS label."""
POOL_NAME_LENGTH: Final = 52
"""A ReplicaSet adds a dash and ten characters: 52 + 11 = 63, so no name is cut further down."""

_HASH_LENGTH: Final = 8
_NOT_IN_LABEL_VALUE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_DNS_LABEL: Final = re.compile(r"[^a-z0-9-]+")


def short_hash(*parts: str) -> str:
    """Eight hex digits; where one part ends and the next begins counts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HASH_LENGTH]


def label_value(text: str) -> str:
    """The text as a label's value: itself where it can be, else shortened, with a hash at the end."""
    cleaned = _NOT_IN_LABEL_VALUE.sub("-", text).strip("._-")
    if cleaned == text and len(text) <= LABEL_VALUE_LENGTH:
        return text
    return _shortened(cleaned, LABEL_VALUE_LENGTH, short_hash(text))


def pool_object_name(deployment: str, pool: str) -> str:
    """Name of a pool's Deployment and PodDisruptionBudget: `<deployment>-<pool>`, at most 52 long.

    Longer ones end in a hash of both. Deployment `a` with pool `b-c` and `a-b` with pool `c` share a
    name; the API server then refuses the second for having two controllers.
    """
    plain = f"{deployment}-{pool}"
    if len(plain) <= POOL_NAME_LENGTH:
        return plain
    return _shortened(plain, POOL_NAME_LENGTH, short_hash(deployment, pool))


def service_name(deployment: str) -> str:
    """Name of the Service: the deployment's own where DNS allows, else a near one with a hash.

    A Service's name starts with a letter, has no dots and at most 63 characters (RFC 1035), while an
    InferenceDeployment may be called `3.3-chat`.
    """
    cleaned = _NOT_IN_DNS_LABEL.sub("-", deployment).strip("-")
    if not cleaned[:1].isalpha():
        cleaned = f"infd-{cleaned}"
    if cleaned == deployment and len(deployment) <= LABEL_VALUE_LENGTH:
        return deployment
    return _shortened(cleaned, LABEL_VALUE_LENGTH, short_hash(deployment))


def inspection_name(deployment: str, inspection: str) -> str:
    """Name of the Job that reads the model's files: `<deployment>-inspect-<inspection>`, at most 52 long."""
    plain = f"{deployment}-inspect-{inspection}"
    if len(plain) <= POOL_NAME_LENGTH:
        return plain
    return _shortened(deployment, POOL_NAME_LENGTH, short_hash(deployment, inspection))


def facts_name(deployment: str) -> str:
    """Name of the ConfigMap with what the model's files said: `<deployment>-model-facts`."""
    plain = f"{deployment}-model-facts"
    if len(plain) <= LABEL_VALUE_LENGTH:
        return plain
    return _shortened(plain, LABEL_VALUE_LENGTH, short_hash(deployment))


def floors_name(deployment: str) -> str:
    """Name of the ConfigMap with its workers' memory so far: `<deployment>-memory-floors`."""
    plain = f"{deployment}-memory-floors"
    if len(plain) <= LABEL_VALUE_LENGTH:
        return plain
    return _shortened(plain, LABEL_VALUE_LENGTH, short_hash(deployment, "memory-floors"))


def inspection_labels(deployment: str, inspection: str) -> dict[str, str]:
    """Labels of an inspection's Job and pod: no worker, so no Service and no budget picks them."""
    return deployment_labels(deployment) | {
        COMPONENT_LABEL: INSPECTION_COMPONENT,
        INSPECTION_LABEL: inspection,
    }


def probe_name(deployment: str, probe: str) -> str:
    """Name of the Job that probes a dtype: `<deployment>-probe-<probe>`, at most 52 long."""
    plain = f"{deployment}-probe-{probe}"
    if len(plain) <= POOL_NAME_LENGTH:
        return plain
    return _shortened(deployment, POOL_NAME_LENGTH, short_hash(deployment, "probe", probe))


def retrieval_name(deployment: str) -> str:
    """Name of the ConfigMap with what probes found: `<deployment>-retrieval`."""
    plain = f"{deployment}-retrieval"
    if len(plain) <= LABEL_VALUE_LENGTH:
        return plain
    return _shortened(plain, LABEL_VALUE_LENGTH, short_hash(deployment, "retrieval"))


def probe_labels(deployment: str, probe: str) -> dict[str, str]:
    """Labels of a probe's Job and pod: no worker, so no Service, Deployment or budget picks them."""
    return deployment_labels(deployment) | {COMPONENT_LABEL: PROBE_COMPONENT, PROBE_LABEL: probe}


def deployment_labels(deployment: str) -> dict[str, str]:
    """Labels of every object that we make for one InferenceDeployment."""
    return {DEPLOYMENT_LABEL: label_value(deployment), MANAGED_BY_LABEL: MANAGED_BY_VALUE}


def pool_selector(deployment: str, pool: str) -> dict[str, str]:
    """The labels that pick the workers of one pool. A Deployment's selector can never change."""
    return {DEPLOYMENT_LABEL: label_value(deployment), POOL_LABEL: label_value(pool)}


def worker_selector_labels(deployment: str) -> dict[str, str]:
    """The labels that pick the workers of all pools of one InferenceDeployment."""
    return {DEPLOYMENT_LABEL: label_value(deployment), COMPONENT_LABEL: WORKER_COMPONENT}


def worker_selector(deployment_name: str) -> str:
    """The same as one string, for `kubectl get -l` and the scale subresource."""
    labels = worker_selector_labels(deployment_name)
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _shortened(text: str, length: int, suffix: str) -> str:
    """The beginning of the text and the suffix, joined by a dash, at most `length` characters."""
    kept = text[: length - len(suffix) - 1].rstrip("._-")
    return f"{kept}-{suffix}" if kept else suffix
