"""What does the Job look like that reads the headers of a model's files, and the ConfigMap that keeps them?

The pod has no token and asks for no network; the files are mounted read-only. What it finds comes back as the
termination message of its containers, one for each source. It passes Pod Security `restricted` (a hostPath
volume is the one exception).
"""

from typing import Any, Final, NamedTuple

from plimsoll.facts.record import Named
from plimsoll.render.config_map import owned_config_map
from plimsoll.render.labels import (
    INSPECTION_COMPONENT,
    facts_name,
    inspection_labels,
    inspection_name,
)
from plimsoll.render.pod import VENDOR_TAINTS
from plimsoll.render.records import Manifest, OwnerRef
from plimsoll.render.source import ModelSource
from plimsoll.render.workload import owned_metadata

REPORT_PATH: Final = "/dev/termination-log"
DEADLINE_SECONDS: Final = 600
"""Headers are read in seconds; what is not done by then waits for a volume or an image."""
KEPT_SECONDS: Final = 3600
"""A finished Job stays this long, for an operator that was away."""
RESOURCES: Final = {
    # The headers of 160 files with 90,000 tensors are parsed in about 300 MiB.
    "requests": {"cpu": "50m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


class Source(NamedTuple):
    """One place to read."""

    name: str
    """Name of its container: model or gguf."""
    source: ModelSource
    """A volume; hubs are not read in the cluster."""


class InspectionJob(NamedTuple):
    """What it takes to write down an inspection."""

    owner: OwnerRef
    """The InferenceDeployment."""
    inspection: str
    """Which question it answers; part of the Job's name."""
    image: str
    """Plimsoll's own image."""
    sources: tuple[Source, ...]
    """What is read."""
    identity: str
    """The model's public identity, or the name it is served under."""
    run_as_user: int
    """UID of the workers, who can read the files too."""
    image_pull_policy: str | None = None
    """None leaves it to Kubernetes."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets, the workers' own."""
    node_selector: tuple[Named, ...] = ()
    """The user's demands on nodes."""
    tolerations: tuple[Manifest, ...] = ()
    """The user's tolerations; taints of nodes with cards are tolerated anyway."""
    near: tuple[Named, ...] = ()
    """Node labels, one of which the node must have: files of a node or an image are where workers run."""


def inspection_manifest(job: InspectionJob) -> Manifest:
    """The Job. It is made once and never changed; it goes by itself, or with its owner."""
    labels = inspection_labels(job.owner.name, job.inspection)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owned_metadata(
            job.owner, inspection_name(job.owner.name, job.inspection), labels
        ),
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {"labels": dict(sorted(labels.items()))},
                "spec": _pod_spec(job),
            },
        },
    }


def facts_manifest(owner: OwnerRef, data: dict[str, str]) -> Manifest:
    """The ConfigMap with what the files said; it goes with its owner."""
    return owned_config_map(owner, facts_name(owner.name), INSPECTION_COMPONENT, data)


def _pod_spec(job: InspectionJob) -> Manifest:
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": job.run_as_user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            *({"key": taint, "operator": "Exists"} for taint in VENDOR_TAINTS.values()),
            *job.tolerations,
        ],
    }
    if job.near:
        terms = [
            {"matchExpressions": [{"key": e.name, "operator": "In", "values": [e.value]}]}
            for e in sorted(set(job.near), key=lambda e: (e.name, e.value))
        ]
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
    if job.node_selector:
        spec["nodeSelector"] = {e.name: e.value for e in job.node_selector}
    if job.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in job.image_pull_secrets]
    return spec | {
        "containers": [_container(job, each) for each in job.sources],
        "volumes": [{"name": each.name} | (each.source.volume or {}) for each in job.sources],
    }


def _container(job: InspectionJob, each: Source) -> Manifest:
    container: dict[str, Any] = {"name": each.name, "image": job.image}
    if job.image_pull_policy is not None:
        container["imagePullPolicy"] = job.image_pull_policy
    return container | {
        "args": ["facts", each.source.model, "--id", job.identity, "--report", REPORT_PATH],
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - in the container; nothing is written
            {"name": "HF_HUB_OFFLINE", "value": "1"},
        ],
        "resources": RESOURCES,
        "terminationMessagePath": REPORT_PATH,
        # Where the report is missing, the last lines say why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": each.name, "mountPath": each.source.mount_path, "readOnly": True}
        ],
    }
