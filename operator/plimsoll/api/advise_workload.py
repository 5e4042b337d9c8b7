"""Which workloads are there in somebody else's manifests, and what do they run?

Deployments and their kin, LeaderWorkerSets, and what KServe and KubeAI call a model. Nothing here knows an engine's
flags.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from plimsoll.api.advise_pod import (
    SHM,
    STORAGE_INITIALIZER,
    Json,
    Workload,
    gpu_request,
    mapping,
    plain_env,
    sequence,
    strings,
    texts,
    whole,
)
from plimsoll.catalog.gpus import find_gpu

MODELS_MOUNT: Final = "/mnt/models"
"""Where KServe's storage initializer puts a model (kserve/kserve pkg/constants)."""
KUBEAI_GROUP: Final = "kubeai.org/"
KSERVE_GROUP: Final = "serving.kserve.io/"
_TEMPLATED: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"})
KINDS: Final = (
    *sorted(_TEMPLATED), "Pod", "LeaderWorkerSet", "InferenceService", "LLMInferenceService", "Model",
)  # fmt: skip
"""What can be looked at."""
MAKERS: Final = (
    ("serving.kserve.io/inferenceservice", "KServe"),
    ("app.kubernetes.io/part-of=llminferenceservice", "KServe"),
    ("app.kubernetes.io/managed-by=kubeai", "KubeAI"),
    ("helm-release-name", "vLLM production-stack"),
    ("plimsoll.dev/", "Plimsoll"),
)
"""Labels by which it can be told who made an object: a key, the beginning of one, or key=value."""


def workloads(documents: Sequence[Json]) -> tuple[Workload, ...]:
    """Every workload among the objects, one for each container that asks for a card or has the only say."""
    runtimes = [
        each
        for each in documents
        if each.get("kind") in ("ServingRuntime", "ClusterServingRuntime")
    ]
    return tuple(found for each in documents for found in _of(each, runtimes))


def _of(document: Json, runtimes: Sequence[Json]) -> Iterator[Workload]:
    kind, spec = str(document.get("kind", "")), mapping(document.get("spec"))
    group = str(document.get("apiVersion", ""))
    if kind in _TEMPLATED:
        template = mapping(spec.get("template"))
        yield from _pods(document, mapping(template.get("spec")), mapping(template.get("metadata")))
    elif kind == "Pod":
        yield from _pods(document, spec, mapping(document.get("metadata")))
    elif kind == "LeaderWorkerSet":
        both = mapping(spec.get("leaderWorkerTemplate"))
        template = mapping(both.get("leaderTemplate") or both.get("workerTemplate"))
        size = whole(both.get("size")) or 1
        for found in _pods(
            document, mapping(template.get("spec")), mapping(template.get("metadata"))
        ):
            yield found._replace(nodes=size)
    elif kind == "InferenceService" and group.startswith(KSERVE_GROUP):
        yield from _inference_service(document, spec, runtimes)
    elif kind == "LLMInferenceService" and group.startswith(KSERVE_GROUP):
        yield _llm_inference_service(document, spec)
    elif kind == "Model" and group.startswith(KUBEAI_GROUP):
        yield _kubeai(document, spec)


def _pods(document: Json, pod: Json, metadata: Json) -> Iterator[Workload]:
    base = _base(document, metadata)
    for container in _engines(sequence(pod.get("containers"))):
        yield base._replace(pod=pod, container=container)


def _base(document: Json, pod_metadata: Json) -> Workload:
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    labels = {**strings(metadata.get("labels")), **strings(pod_metadata.get("labels"))}
    replicas = spec.get("replicas", mapping(spec.get("predictor")).get("minReplicas"))
    return Workload(
        kind=str(document.get("kind", "")),
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name") or metadata.get("generateName") or "unnamed"),
        replicas=1 if (found := whole(replicas)) is None else found,
        made_by=_maker(labels),
        labels=labels,
    )


def _maker(labels: Mapping[str, str]) -> str:
    pairs = [f"{key}={value}" for key, value in labels.items()]
    return next((who for mark, who in MAKERS if any(pair.startswith(mark) for pair in pairs)), "")


def _engines(containers: Sequence[Json]) -> Sequence[Json]:
    """Containers that ask for cards; else those of the known names; else the first."""
    containers = [each for each in containers if isinstance(each, dict)]
    asking = [each for each in containers if gpu_request(each) is not None]
    named = [
        each
        for each in containers
        if each.get("name") in ("vllm", "main", "kserve-container", "server")
    ]
    return asking or named or list(containers[:1])


def _inference_service(document: Json, spec: Json, runtimes: Sequence[Json]) -> Iterator[Workload]:
    """KServe's: predictor.model with a runtime, or predictor.containers."""
    predictor = mapping(spec.get("predictor"))
    base = _base(document, {})
    own = sequence(predictor.get("containers"))
    model = mapping(predictor.get("model") or predictor.get("huggingface"))
    if not model:
        for container in _engines(own):
            yield base._replace(pod=predictor, container=container)
        return
    runtime = _runtime(model, runtimes)
    theirs = mapping(next(iter(sequence(mapping(runtime.get("spec")).get("containers"))), None))
    format_name = str(mapping(model.get("modelFormat")).get("name") or "huggingface")
    is_known = bool(theirs) or format_name in ("huggingface", "vllm")
    image = model.get("image") or theirs.get("image") or ("huggingfaceserver" if is_known else "")
    container = {
        **theirs,
        **{
            key: model[key]
            for key in (
                "resources",
                "command",
                "volumeMounts",
                "readinessProbe",
                "livenessProbe",
                "startupProbe",
            )
            if key in model
        },
        "image": image,
        "args": [*texts(theirs.get("args")), *texts(model.get("args"))],
        "env": [*sequence(theirs.get("env")), *sequence(model.get("env"))],
    }
    notes = () if theirs else (
        f"the {'runtime ' + str(model['runtime']) if model.get('runtime') else 'ServingRuntime for ' + format_name} "
        "adds its own arguments and image: give its manifest in the same file, or advise the Deployment "
        f"{base.name}-predictor that KServe made",
    )  # fmt: skip
    pod = {**mapping(runtime.get("spec")), **predictor}
    pod["initContainers"] = [
        *sequence(predictor.get("initContainers")),
        *_storage(model.get("storageUri")),
    ]
    yield base._replace(pod=pod, container=container, notes=notes, made_by="KServe")


def _storage(uri: Any) -> list[Json]:
    """The init container that KServe adds for a storageUri."""
    if not isinstance(uri, str):
        return []
    return [{"name": STORAGE_INITIALIZER, "args": [uri, MODELS_MOUNT]}]


def _runtime(model: Json, runtimes: Sequence[Json]) -> Json:
    """The runtime that is named, else the first that takes the format by itself."""
    name, format_name = model.get("runtime"), mapping(model.get("modelFormat")).get("name")
    for each in runtimes:
        if name is not None and mapping(each.get("metadata")).get("name") == name:
            return each
    if name is not None:
        return {}
    for each in runtimes:
        formats = [
            mapping(one) for one in sequence(mapping(each.get("spec")).get("supportedModelFormats"))
        ]
        if any(one.get("name") == format_name and one.get("autoSelect") for one in formats):
            return each
    return {}


def _llm_inference_service(document: Json, spec: Json) -> Workload:
    """KServe's for language models: vLLM on /mnt/models (config/llmisvcconfig/config-llm-template.yaml)."""
    model, parallel = mapping(spec.get("model")), mapping(spec.get("parallelism"))
    pod = mapping(spec.get("template"))
    own = mapping(next(iter(_engines(sequence(pod.get("containers")))), None))
    args = [
        "--served-model-name",
        str(model.get("name") or mapping(document.get("metadata")).get("name", "")),
    ]
    for field, flag in (
        ("tensor", "--tensor-parallel-size"),
        ("pipeline", "--pipeline-parallel-size"),
    ):
        if (size := whole(parallel.get(field))) is not None:
            args += [flag, str(size)]
    env = plain_env(own)
    words = [*args, *texts(own.get("args"))]
    if not own.get("command"):
        own = {**own, "command": ["vllm", "serve", MODELS_MOUNT],
               "args": [*words, *env.get("VLLM_ADDITIONAL_ARGS", "").split()]}  # fmt: skip
    pod = {
        **pod,
        "initContainers": [*sequence(pod.get("initContainers")), *_storage(model.get("uri"))],
    }
    notes = (
        "KServe's LLMInferenceServiceConfig adds to it; the Deployment that it made shows all",
    )
    return _base(document, {})._replace(pod=pod, container=own, notes=notes, made_by="KServe")


def _kubeai(document: Json, spec: Json) -> Workload:
    """KubeAI's Model: the pod as its controller makes it (internal/modelcontroller/engine_vllm.go)."""
    base = _base(document, {})
    profile, _, times = str(spec.get("resourceProfile") or "").partition(":")
    url = str(spec.get("url") or "")
    scheme, _, reference = url.partition("://")
    path = reference.partition("?")[0]
    model = "/model" if scheme == "pvc" else path if scheme == "hf" else url
    args = [f"--model={model}", f"--served-model-name={base.name}", *texts(spec.get("args"))]
    if spec.get("adapters"):
        args.append("--enable-lora")
    engine = str(spec.get("engine") or "")
    container: dict[str, Any] = {
        "name": "server",
        "image": str(spec.get("image") or ""),
        "args": args,
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]
        if engine == "VLLM"
        else [engine.lower()],
        "env": [{"name": key, "value": value} for key, value in strings(spec.get("env")).items()],
        "readinessProbe": {"httpGet": {"path": "/health"}},
        "startupProbe": {
            "httpGet": {"path": "/health"},
            "periodSeconds": 2,
            "failureThreshold": 5400,
        },
        "volumeMounts": [{"name": "dshm", "mountPath": SHM}],
    }
    pod: dict[str, Any] = {"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]}
    if scheme == "pvc":
        claim, _, folder = path.partition("/")
        pod["volumes"].append({"name": "model", "persistentVolumeClaim": {"claimName": claim}})
        container["volumeMounts"].append(
            {"name": "model", "mountPath": "/model", "subPath": folder}
        )
    notes = [
        "KubeAI's resourceProfile says image, cards and memory; the pod that it made shows them"
    ]
    minimum = whole(spec.get("minReplicas"))
    return base._replace(
        pod=pod,
        container=container,
        made_by="KubeAI",
        replicas=max(1, whole(spec.get("replicas")) or minimum or 1),
        notes=tuple(notes),
        gpu_hint=_card_in(profile),
        gpu_count=whole(times) if _card_in(profile) else None,
    )


def _card_in(profile: str) -> str:
    """The card in a profile's name: l4 in nvidia-gpu-l4, mi300x in amd-gpu-mi300x."""
    for prefix in ("nvidia-gpu-", "amd-gpu-"):
        if profile.startswith(prefix):
            name = profile[len(prefix) :]
            return next(
                (each for each in (name, f"{name}-sxm") if find_gpu(each) is not None), name
            )
    return ""
