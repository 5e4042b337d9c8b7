"""What does the Job look like that asks a worker, and beside it one with fewer bits, for numbers in long contexts?

One pod with a card of its own: the engine with the plan that is tried runs beside the probe (a sidecar, Kubernetes
1.29), and nobody else is sent to it. The probe asks it and a worker that serves at 16 bit the very same, and
leaves what it found as its termination message. The pod has no token and passes Pod Security `restricted`, as
workers do.
"""

from typing import Any, Final, NamedTuple

from plimsoll.render import lifecycle
from plimsoll.render.config_map import owned_config_map
from plimsoll.render.labels import (
    PROBE_COMPONENT,
    probe_labels,
    probe_name,
    retrieval_name,
)
from plimsoll.render.pod import PORT
from plimsoll.render.records import EnvVar, Manifest, OwnerRef, PoolWorkload
from plimsoll.render.workload import REVISIONS, owned_metadata, plan_digest

REPORT_PATH: Final = "/dev/termination-log"
PROBE_CONTAINER: Final = "probe"
TOKENS_PER_SECOND: Final = 500
"""Of prompts, as a low bound by which the Job's time is counted: small cards read a long prompt of a large model
at a few hundred a second."""
LENGTHS_READ: Final = 14
"""A probe of 20 contexts reads about so many times the longest, on each of two servers."""
LONGEST_PROBE_SECONDS: Final = 6 * 3600
KEPT_SECONDS: Final = 3600
RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"memory": "512Mi"},
}
KEY_VARIABLES: Final = ("VLLM_API_KEY", "LLAMA_API_KEY")
"""By which engines are given the key that they ask for (vLLM envs.py; llama-server --help)."""
_OF_WORKERS_ONLY: Final = ("livenessProbe", "readinessProbe", "lifecycle")


class ProbeJob(NamedTuple):
    """What it takes to write down a probe."""

    owner: OwnerRef
    """The InferenceDeployment."""
    probe: str
    """Which question it answers; part of the Job's name."""
    workload: PoolWorkload
    """The pool with the plan that is tried."""
    against: str
    """Host and port of a worker at 16 bit."""
    length_tokens: int
    """Longest context."""
    image: str
    """Plimsoll's own image."""
    image_pull_policy: str | None = None
    """None leaves it to Kubernetes."""


def probe_manifest(job: ProbeJob) -> Manifest:
    """The Job. It is made once and never changed; it goes by itself, or with its owner."""
    workload = job.workload
    template = REVISIONS[workload.template_revision](workload, plan_digest(workload))
    labels = probe_labels(job.owner.name, job.probe)
    spec: Manifest = dict(template["spec"])
    (engine,) = spec.pop("containers")
    beside = {key: value for key, value in engine.items() if key not in _OF_WORKERS_ONLY}
    metadata: Manifest = {"labels": dict(sorted(labels.items()))}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owned_metadata(job.owner, probe_name(job.owner.name, job.probe), labels),
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": deadline_seconds(job),
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": metadata,
                "spec": spec
                | {
                    "restartPolicy": "Never",
                    "initContainers": [beside | {"restartPolicy": "Always"}],
                    "containers": [_probe(job)],
                },
            },
        },
    }


def deadline_seconds(job: ProbeJob) -> int:
    """How long image, loading and asking may take together."""
    asking = 2 * LENGTHS_READ * job.length_tokens // TOKENS_PER_SECOND
    start = lifecycle.startup_seconds(job.workload.plan) + lifecycle.IMAGE_PULL_SECONDS
    return min(LONGEST_PROBE_SECONDS, start + 600 + asking)


def retrieval_manifest(owner: OwnerRef, data: dict[str, str]) -> Manifest:
    """The ConfigMap with what probes found; it goes with its owner."""
    return owned_config_map(owner, retrieval_name(owner.name), PROBE_COMPONENT, data)


def _probe(job: ProbeJob) -> Manifest:
    container: dict[str, Any] = {"name": PROBE_CONTAINER, "image": job.image}
    if job.image_pull_policy is not None:
        container["imagePullPolicy"] = job.image_pull_policy
    return container | {
        "args": [
            *("probe", "retrieval", "--quiet", "--output", "json"),
            *("--url", f"http://127.0.0.1:{PORT}", "--against", f"http://{job.against}"),
            *("--model", job.workload.model_name, "--length", str(job.length_tokens)),
            *("--report", REPORT_PATH),
        ],
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - in the container; nothing is written
            *(each.to_manifest() for each in _keys(job.workload)),
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
    }


def _keys(workload: PoolWorkload) -> tuple[EnvVar, ...]:
    """The engine's key under the names by which the probe takes it, for both servers."""
    found = next((each for each in workload.env if each.name in KEY_VARIABLES), None)
    if found is None:
        return ()
    names = ("PLIMSOLL_API_KEY", "PLIMSOLL_AGAINST_API_KEY")
    return tuple(found.model_copy(update={"name": name}) for name in names)
