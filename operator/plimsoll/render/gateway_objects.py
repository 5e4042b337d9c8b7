"""What does a gate look like in the cluster, and which Service leads to it?

A Deployment with HAProxy and its keeper, and a PodDisruptionBudget. The pod has no token: what its keeper has
to know stands in annotations of the pod, which the kubelet shows it as files within a second of a change; a
ConfigMap would take up to a minute. It passes Pod Security `restricted`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from plimsoll.render.gateway import ALIVE_PATH, READY_PATH
from plimsoll.render.labels import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    NAME_LABEL,
    deployment_labels,
    label_value,
    pool_object_name,
    short_hash,
)
from plimsoll.render.lifecycle import PRE_STOP_SECONDS
from plimsoll.render.pod import PORT, PORT_NAME, VENDOR_TAINTS
from plimsoll.render.records import NONROOT_USER, Manifest, OwnerRef
from plimsoll.render.service import service_manifest
from plimsoll.render.workload import KEPT_REPLICA_SETS, owned_metadata
from plimsoll.units import GIB, MIB, quantity

GATE_COMPONENT: Final = "gateway"
GATE_ANNOTATION: Final = "plimsoll.dev/gate"
"""Which question the gate answers; a gate whose question is the same is left as it is."""
TEXT_ANNOTATION: Final = "plimsoll.dev/gate-haproxy"
"""HAProxy's configuration, in the pod's template."""
ROOMS_ANNOTATION: Final = "plimsoll.dev/gate-rooms"
WORKERS_ANNOTATION: Final = "plimsoll.dev/gate-workers"
STANDING_ANNOTATION: Final = "plimsoll.dev/gate-standing"
"""What is promised, for whom, and which of several gates this one is: told to each pod."""
TOLD: Final = (ROOMS_ANNOTATION, WORKERS_ANNOTATION, STANDING_ANNOTATION)

HAPROXY: Final = "haproxy"
KEEPER: Final = "keeper"
METRICS_PORT: Final = 8405
PAGE_PORT: Final = 8406
DUTY_FOLDER: Final = "/etc/plimsoll"
KEYS_FOLDER: Final = "/etc/plimsoll-keys"
RUN_FOLDER: Final = "/run/plimsoll"
FILES: Final = {
    "haproxy.cfg": TEXT_ANNOTATION,
    "rooms.json": ROOMS_ANNOTATION,
    "workers.json": WORKERS_ANNOTATION,
    "standing.json": STANDING_ANNOTATION,
}
STREAMS_SECONDS: Final = 120
"""For answers that run when a gate is to go. The next gate of that place waits for as long, so that no slot is
promised twice."""
MOST_TEXT_BYTES: Final = 160 << 10
"""All annotations of an object together have at most 256 KiB (k8s.io/apimachinery, api/validation,
TotalAnnotationSizeLimitB); the rest is for rooms and workers."""

LEAVING: Final = "leaving"
"""The pod ends."""
LEFT: Final = "left"
"""Proxies have forgotten it."""
RETIRED: Final = "retired"
"""The keeper knows, and raises nothing any more."""
EMPTY: Final = "empty"
"""Nobody is served any more."""
KEEPER_SECONDS: Final = 3
"""In which a keeper that lives has answered."""

_PRE_STOP: Final = (
    f": > {RUN_FOLDER}/{LEAVING}; sleep {PRE_STOP_SECONDS}; : > {RUN_FOLDER}/{LEFT}; n=0; "
    f"while [ ! -e {RUN_FOLDER}/{EMPTY} ] && [ $n -lt {STREAMS_SECONDS} ] && "
    f"{{ [ -e {RUN_FOLDER}/{RETIRED} ] || [ $n -lt {KEEPER_SECONDS} ]; }}; do sleep 1; n=$((n+1)); done; "
    f"kill -USR1 1; sleep {STREAMS_SECONDS}"
)
"""Proxies forget the pod; the keeper sees to it that slots are given up one by one; then HAProxy takes no more
connections and ends with its last stream. Not before, for a stopping HAProxy tells its keeper nothing (measured
on 2.6.12 and 3.2.26: its admin socket is closed with the signal); at once where no keeper answers. By signal,
for the image's own stop signal is not known, and SIGTERM would cut the streams."""
_OWN: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


class GateObjects(NamedTuple):
    """What it takes to write a gate down."""

    owner: OwnerRef
    """The InferenceDeployment."""
    question: str
    """Digest of what the user asked for."""
    text: str
    """HAProxy's configuration."""
    image: str
    """HAProxy's image."""
    keeper_image: str
    """Plimsoll's own."""
    keeper_pull_policy: str | None = None
    """How that is pulled; None leaves it to Kubernetes."""
    replicas: int = 1
    """Gates."""
    buffers_bytes: int = GIB
    """What HAProxy's buffers take at most."""
    memory_limit: str | None = None
    """HAProxy's memory limit where it is there already; else it follows from the buffers."""
    keys_secret: str | None = None
    """Secret with API keys."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, the workers' own."""
    tolerations: tuple[Manifest, ...] = ()
    """The user's; taints of nodes with cards are tolerated anyway, for some sites have no other node."""


def gate_selector(deployment: str) -> dict[str, str]:
    """The labels that pick the gates of one InferenceDeployment."""
    return {DEPLOYMENT_LABEL: label_value(deployment), COMPONENT_LABEL: GATE_COMPONENT}


def gate_name(deployment: str) -> str:
    """Name of the gate's Deployment and PodDisruptionBudget; with a hash, for a pool may be called `gate`."""
    return pool_object_name(deployment, f"gate-{short_hash(deployment, GATE_COMPONENT)}")


def gate_service(owner: OwnerRef) -> Manifest:
    """The Service that leads to the gates in place of the workers; all else of it is the same."""
    manifest = service_manifest(owner)
    return manifest | {"spec": manifest["spec"] | {"selector": gate_selector(owner.name)}}


def gate_manifests(gate: GateObjects) -> tuple[Manifest, Manifest]:
    """The Deployment and the PodDisruptionBudget. Equal gates give equal bytes."""
    selector = gate_selector(gate.owner.name)
    labels = deployment_labels(gate.owner.name) | selector | {NAME_LABEL: HAPROXY}
    name = gate_name(gate.owner.name)
    metadata = owned_metadata(gate.owner, name, labels)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata | {"annotations": {GATE_ANNOTATION: gate.question}},
        "spec": {
            "replicas": gate.replicas,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _one_after_the_other(gate)},
            "revisionHistoryLimit": KEPT_REPLICA_SETS,
            "template": {
                "metadata": {
                    "labels": dict(sorted(labels.items())),
                    "annotations": {GATE_ANNOTATION: gate.question, TEXT_ANNOTATION: gate.text},
                },
                "spec": _pod_spec(gate),
            },
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
    return deployment, budget


def _one_after_the_other(gate: GateObjects) -> Manifest:
    """The only gate stays until the next one serves; of two, one serves while the other is replaced."""
    is_alone = gate.replicas == 1
    return {"maxSurge": int(is_alone), "maxUnavailable": int(not is_alone)}


def _pod_spec(gate: GateObjects) -> Manifest:
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": PRE_STOP_SECONDS + STREAMS_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NONROOT_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            *({"key": taint, "operator": "Exists"} for taint in VENDOR_TAINTS.values()),
            *gate.tolerations,
        ],
    }
    if gate.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in gate.image_pull_secrets]
    return spec | {
        "initContainers": [_keeper(gate, "prepare", "--prepare")],
        "containers": [_haproxy(gate), _keeper(gate, KEEPER)],
        "volumes": _volumes(gate),
    }


def _haproxy(gate: GateObjects) -> Manifest:
    probe = {"timeoutSeconds": 5}
    alive = {"httpGet": {"path": ALIVE_PATH, "port": "metrics"}} | probe
    ready = {"httpGet": {"path": READY_PATH, "port": "metrics"}} | probe
    return {
        "name": HAPROXY,
        "image": gate.image,
        "command": [HAPROXY, "-db", "-f", f"{DUTY_FOLDER}/haproxy.cfg"],
        "ports": [
            {"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": gate.memory_limit or quantity(128 * MIB + gate.buffers_bytes)},
        },
        "readinessProbe": ready | {"periodSeconds": 2},
        "livenessProbe": alive | {"periodSeconds": 15, "failureThreshold": 4},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _PRE_STOP]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _OWN,
        "volumeMounts": [_DUTY, _RUN],
    }


def _keeper(gate: GateObjects, name: str, *args: str) -> Manifest:
    """The keeper, or its first step. It gets no probe: while it is away, limits stay."""
    env = [{"name": "PLIMSOLL_KEEPER_STANDING", "value": f"{DUTY_FOLDER}/standing.json"}]
    mounts = [_DUTY, _RUN]
    if gate.keys_secret is not None:
        env.append({"name": "PLIMSOLL_KEEPER_KEYS", "value": KEYS_FOLDER})
        mounts.append({"name": "keys", "mountPath": KEYS_FOLDER, "readOnly": True})
    container: Manifest = {"name": name, "image": gate.keeper_image}
    if gate.keeper_pull_policy is not None:
        container["imagePullPolicy"] = gate.keeper_pull_policy
    if not args:
        container["ports"] = [{"name": "page", "containerPort": PAGE_PORT, "protocol": "TCP"}]
    return container | {
        "args": ["keeper", *args],
        "env": env,
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _OWN,
        "volumeMounts": mounts,
    }


_DUTY: Final[Manifest] = {"name": "duty", "mountPath": DUTY_FOLDER, "readOnly": True}
_RUN: Final[Manifest] = {"name": "run", "mountPath": RUN_FOLDER}


def _volumes(gate: GateObjects) -> list[Manifest]:
    items = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}
        for path, name in FILES.items()
    ]
    volumes: list[Manifest] = [
        {"name": "duty", "downwardAPI": {"items": items}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    ]
    if gate.keys_secret is not None:
        volumes.append({"name": "keys", "secret": {"secretName": gate.keys_secret}})
    return volumes
