"""What does a worker's pod look like? This is revision 1 of the template: its bytes are pinned.

The pod passes Pod Security `restricted` (a hostPath volume is the one exception). The root file system
is read-only for both engines: all that they write is below HOME, which is an emptyDir, or in /tmp.
vLLM keeps its compile caches in ~/.cache and ~/.triton, and torch in /tmp/torchinductor_$USER
(vllm-project/vllm#40275; vllm-project/vllm-omni#7303 ran it so under an arbitrary UID).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import GpuVendor
from plimsoll.facts.record import Named
from plimsoll.plan.records import Plan
from plimsoll.render import lifecycle
from plimsoll.render.labels import (
    COMPONENT_LABEL,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    NAME_LABEL,
    PLAN_ANNOTATION,
    WORKER_COMPONENT,
    pool_selector,
)
from plimsoll.render.records import EnvVar, Manifest, PoolWorkload
from plimsoll.render.source import SourceKind
from plimsoll.units import GIB, MIB, quantity

CONTAINER_NAME: Final = "engine"
PORT: Final = 8000
"""vLLM's default; llama.cpp's is 8080 and announced to become 9931, so both are told."""
PORT_NAME: Final = "http"

ENGINE_TITLES: Final = {EngineName.VLLM: "vllm", EngineName.LLAMA_CPP: "llama.cpp"}
"""As people know them, for the app.kubernetes.io/name label."""

VENDOR_TAINTS: Final = {
    GpuVendor.NVIDIA: "nvidia.com/gpu",
    GpuVendor.AMD: "amd.com/gpu",
    GpuVendor.INTEL: "gpu.intel.com/i915",
}
"""The taint that keeps other pods off nodes with cards; MIG slices share their node's."""

WHOLE_CARD: Final = "nvidia.com/gpu"
CARDS_LABEL: Final = "nvidia.com/gpu.count"
"""Cards of a node as GPU feature discovery counts them."""

NCCL_SHM_BYTES: Final = GIB
"""NVIDIA asks for --shm-size=1g (NCCL user guide, Troubleshooting, Shared Memory)."""
QUEUE_SHM_BYTES: Final = 256 * MIB
"""Rings between vLLM's processes: 10 slots of 16 MiB to the workers, 10 of 24 MiB back from each
(VLLM_MQ_MAX_CHUNK_BYTES_MB and MessageQueue in vllm/distributed/device_communicators/shm_broadcast.py)."""

HOME_PATH: Final = "/home/plimsoll"
_TMP_PATH: Final = "/tmp"  # noqa: S108 - a mount point inside the container, not a file of ours
_SHM_PATH: Final = "/dev/shm"  # noqa: S108 - the same


def pod_template_1(workload: PoolWorkload, digest: str) -> Manifest:
    """The pod template, first revision; `digest` names the plan."""
    labels = {entry.name: entry.value for entry in workload.pod_labels}
    labels |= pool_selector(workload.owner.name, workload.pool)
    labels |= {
        COMPONENT_LABEL: WORKER_COMPONENT,
        MANAGED_BY_LABEL: MANAGED_BY_VALUE,
        NAME_LABEL: ENGINE_TITLES[workload.plan.engine],
    }
    annotations = {entry.name: entry.value for entry in workload.pod_annotations}
    annotations[PLAN_ANNOTATION] = digest
    return {
        "metadata": {
            "labels": dict(sorted(labels.items())),
            "annotations": dict(sorted(annotations.items())),
        },
        "spec": _pod_spec(workload),
    }


def shm_bytes(engine: EngineName, cards: int) -> int:
    """Size of /dev/shm, an upper bound; llama.cpp is one process and needs none of its own."""
    if engine is EngineName.LLAMA_CPP:
        return 0
    return NCCL_SHM_BYTES + QUEUE_SHM_BYTES * (1 + cards)


def container_memory_bytes(workload: PoolWorkload) -> int:
    """Host memory of the container, request and limit: the plan's part, and /dev/shm."""
    plan = workload.plan
    return plan.host_memory_bytes + _shm_of(plan)


def _shm_of(plan: Plan) -> int:
    """Shared memory as the plan has it: KV blocks that lie there count beside the engine's own."""
    offloaded = plan.kv_offload.shared_memory_bytes if plan.kv_offload else 0
    return shm_bytes(plan.engine, plan.cards) + offloaded


def engine_command(workload: PoolWorkload) -> tuple[str, ...]:
    """The program, where the image's own entrypoint cannot be relied on.

    vLLM's image started with `python -m ...api_server --model`, later with `vllm serve`, which takes
    the model by position and calls --model deprecated (vllm/utils/argparse_utils.py, 0.23); other
    people's images start a shell. `vllm serve` itself is in all of them. llama-server lies elsewhere
    in each image (/app, /usr/bin), so there the entrypoint stays.
    """
    return ("vllm", "serve") if workload.plan.engine is EngineName.VLLM else ()


def engine_args(workload: PoolWorkload) -> tuple[str, ...]:
    """All arguments: the model, the user's own, then ours and the plan's, because the last one counts."""
    source = workload.source
    address = ("--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104 - a pod serves its whole network
    if workload.plan.engine is EngineName.VLLM:
        revision = () if source.revision is None else ("--revision", source.revision)
        name = ("--served-model-name", workload.model_name)
        return (
            source.model,
            *workload.extra_args,
            *name,
            *address,
            *revision,
            *workload.plan.args(),
        )
    model: tuple[str, ...] = ("--model", source.model)
    if source.kind is SourceKind.HUB:
        # Without --no-mmproj a vision projector that lies beside the file is loaded too, onto the card.
        model = ("--hf-repo", source.model, "--hf-file", source.file or "", "--no-mmproj")
    name = ("--alias", workload.model_name)
    return (*workload.extra_args, *model, *name, *address, *workload.plan.args())


def cpu_quantity(text: str) -> str:
    """Cores in Kubernetes' canonical spelling: "1.5" is "1500m", "2000m" is "2"."""
    millis = Decimal(text.removesuffix("m")) * (1 if text.endswith("m") else 1000)
    whole = int(millis.to_integral_value(rounding="ROUND_CEILING"))
    return f"{whole}m" if whole % 1000 else str(whole // 1000)


def _pod_spec(workload: PoolWorkload) -> Manifest:
    spec: Manifest = {
        "automountServiceAccountToken": False,  # the engine has no business with the API server
        # A Service called vllm would set VLLM_PORT=tcp://..., which vLLM reads (vllm-project/vllm#34199).
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": lifecycle.grace_period_seconds(workload.plan),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": workload.run_as_user,
            # No runAsGroup: group 0 remains, to which images made for any UID give their files.
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            {"key": VENDOR_TAINTS[workload.gpu.vendor], "operator": "Exists"},
            *workload.tolerations,
        ],
    }
    affinity = _node_affinity(workload.match_labels) | _tight_fit(workload)
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    if workload.node_selector:
        spec["nodeSelector"] = {
            e.name: e.value for e in sorted(workload.node_selector, key=_by_name)
        }
    if workload.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in workload.image_pull_secrets]
    for field, value in (
        ("priorityClassName", workload.priority_class_name),
        ("runtimeClassName", workload.runtime_class_name),
        ("schedulerName", workload.scheduler_name),
    ):
        if value is not None:
            spec[field] = value
    return spec | {"containers": [_container(workload)], "volumes": _volumes(workload)}


def _container(workload: PoolWorkload) -> Manifest:
    container: Manifest = {"name": CONTAINER_NAME, "image": workload.image}
    if workload.image_pull_policy is not None:
        container["imagePullPolicy"] = workload.image_pull_policy
    command = engine_command(workload)
    if command:
        container["command"] = list(command)
    return container | {
        "args": list(engine_args(workload)),
        "env": [entry.to_manifest() for entry in _env(workload)],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "resources": _resources(workload),
        **_probes(workload),
        "lifecycle": {"preStop": {"sleep": {"seconds": lifecycle.PRE_STOP_SECONDS}}},
        # The last lines of an engine that died tell CUDA out of memory from the rest.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": _mounts(workload),
    }


def _env(workload: PoolWorkload) -> list[EnvVar]:
    """Ours, which the user's may replace, then the user's, then the plan's, which nothing replaces."""
    ours = [
        EnvVar(name="HOME", value=HOME_PATH),
        # torch asks getpass for a name at import, and our UID has no passwd entry (vllm-project/vllm#44548).
        EnvVar(name="USER", value="plimsoll"),
    ]
    if workload.plan.engine is EngineName.VLLM:
        # docs.vllm.ai, Usage Stats Collection: off, since nobody asked the people in this cluster.
        ours.append(EnvVar(name="VLLM_NO_USAGE_STATS", value="1"))
        if workload.source.kind is SourceKind.HUB:
            ours.append(EnvVar(name="HF_HOME", value=f"{HOME_PATH}/.cache/huggingface"))
        else:
            # The files are here: never wait for a hub that an air-gapped site does not have.
            ours.append(EnvVar(name="HF_HUB_OFFLINE", value="1"))
    if workload.hf_token_secret is not None:
        ours.append(EnvVar(name="HF_TOKEN", secret=workload.hf_token_secret))
    pinned = [EnvVar(name=entry.name, value=entry.value) for entry in workload.plan.env]
    merged = {entry.name: entry for entry in (*ours, *workload.env, *pinned)}
    return list(merged.values())


def _resources(workload: PoolWorkload) -> Manifest:
    """Memory and cards as request and limit alike; CPU is asked for and never throttled."""
    fixed = {
        "memory": quantity(container_memory_bytes(workload)),
        workload.gpu.resource: str(workload.plan.cards),
    }
    cpu = workload.cpu_request or _default_cpu(workload)
    return {"requests": {"cpu": cpu_quantity(cpu)} | fixed, "limits": fixed}


def _default_cpu(workload: PoolWorkload) -> str:
    """vLLM spins in one process for HTTP, one for the engine, one per card (docs.vllm.ai, Optimization:
    at least 2 + N cores). llama.cpp's loop is one busy thread while its layers are on the card."""
    return str(2 + workload.plan.cards) if workload.plan.engine is EngineName.VLLM else "1"


def _probes(workload: PoolWorkload) -> Manifest:
    """All ask /health: 503 while llama.cpp loads and once vLLM's engine is dead, 200 while busy.

    A dead engine ends its process by itself within seconds, so liveness is for hangs only and waits two
    minutes: a busy event loop answers late.
    """
    get = {"httpGet": {"path": "/health", "port": PORT_NAME}}
    return {
        "startupProbe": get
        | {
            "periodSeconds": lifecycle.PROBE_PERIOD_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": lifecycle.startup_failures(workload.plan),
        },
        "readinessProbe": get | {"periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": get
        | {
            "periodSeconds": 15,
            "timeoutSeconds": 10,
            "failureThreshold": 8,
            "terminationGracePeriodSeconds": lifecycle.LIVENESS_GRACE_SECONDS,
        },
    }


def _volumes(workload: PoolWorkload) -> list[Manifest]:
    volumes: list[Manifest] = []
    if workload.source.volume is not None:
        volumes.append({"name": "model"} | workload.source.volume)
    shm = _shm_of(workload.plan)
    if shm:
        memory = {"medium": "Memory", "sizeLimit": quantity(shm)}
        volumes.append({"name": "shm", "emptyDir": memory})
    return [*volumes, {"name": "home", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]


def _mounts(workload: PoolWorkload) -> list[Manifest]:
    mounts: list[Manifest] = []
    if workload.source.mount_path is not None:
        mounts.append({"name": "model", "mountPath": workload.source.mount_path, "readOnly": True})
    if _shm_of(workload.plan):
        mounts.append({"name": "shm", "mountPath": _SHM_PATH})
    return [
        *mounts,
        {"name": "home", "mountPath": HOME_PATH},
        {"name": "tmp", "mountPath": _TMP_PATH},
    ]


def _node_affinity(labels: tuple[Named, ...]) -> Manifest:
    """Only nodes that carry one of the given values of each label; in whatever order they came."""
    values: dict[str, set[str]] = {}
    for entry in labels:
        values.setdefault(entry.name, set()).add(entry.value)
    if not values:
        return {}
    expressions = [
        {"key": name, "operator": "In", "values": sorted(values[name])} for name in sorted(values)
    ]
    term = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": term}


def _tight_fit(workload: PoolWorkload) -> Manifest:
    """Rather a node with just as many cards: one card taken from four leaves no room for a worker of
    four, and the default scheduler spreads pods over the emptiest nodes."""
    if workload.gpu.resource != WHOLE_CARD:
        return {}
    just_enough = {"key": CARDS_LABEL, "operator": "In", "values": [str(workload.plan.cards)]}
    preference = {"weight": 100, "preference": {"matchExpressions": [just_enough]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}


def _by_name(entry: Named) -> str:
    return entry.name
