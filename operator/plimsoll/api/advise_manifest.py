"""Which InferenceDeployment would serve what a workload serves, and what of it is not carried over?"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from plimsoll.api.advise_model import Identity
from plimsoll.api.advise_pod import Workload, mapping, sequence
from plimsoll.api.advise_subject import Subject
from plimsoll.api.asks import release_in
from plimsoll.api.manifest import API_VERSION, KIND
from plimsoll.api.pool import DTYPES
from plimsoll.api.traffic import KvCacheDtype
from plimsoll.catalog.engines import VLLM_RELEASES
from plimsoll.catalog.models import nearest_ids
from plimsoll.engines.base import EngineName
from plimsoll.engines.guard import foreign_code, shadowed_flags, unreadable_words
from plimsoll.engines.launch import names_release
from plimsoll.engines.llama_cpp.running import model_name_in
from plimsoll.engines.reading import Reading, Trouble
from plimsoll.facts.gpu import GpuFacts

OURS: Final = frozenset(
    {
        "--model", "--model-name", "--model-id", "--model-dir", "--served-model-name", "--host", "--port",
        "--revision", "--tokenizer-revision", "--code-revision", "--alias", "--hf-repo", "--hf-file", "--hf-token",
        "--download-dir", "--http-port", "--backend", "--protocol", "--workers", "--uvicorn-log-level",
    }
)  # fmt: skip
"""Flags that the manifest says in fields of its own, or that belong to a server around the engine."""
_NOT_CERTAIN: Final = frozenset(
    {Trouble.UNKNOWN_FLAG, Trouble.AMBIGUOUS, Trouble.UNREAD, Trouble.NO_VALUE}
)
TOKEN_VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_PLAIN_ADDRESS: Final = re.compile(r"(hf|pvc|hostPath|oci)://[^\s]+$")
_HUB_FOLDER: Final = re.compile(r"hf://[\w.-]+/[\w.-]+(@[\w.-]+)?$")
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME: Final = 40


class Draft(NamedTuple):
    """A manifest to start from."""

    body: dict[str, Any]
    """The InferenceDeployment as plain data."""
    left_out: tuple[str, ...] = ()
    """What of the workload is not in it, one sentence each."""


class Needs(NamedTuple):
    """What a manifest asks of the plan."""

    max_model_len: int | None = None
    """Tokens of one sequence; None lets the plan decide."""
    batched_tokens: int | None = None
    """Tokens of one step, as written."""
    kv_dtype: str = "auto"
    """KV cache dtype as the engine calls it."""
    slots: int | None = None
    """Slots of llama-server, as written: each has its whole length."""


def draft(
    subject: Subject,
    *,
    card: GpuFacts,
    cards: int,
    needs: Needs,
    facts: Mapping[str, Any] | None = None,
) -> Draft | str:
    """The manifest, or why there can be none and what to add."""
    workload, identity, engine = subject.workload, subject.identity, subject.engine
    model = _model(identity, engine, facts)
    if isinstance(model, str):
        return model
    extra, args_left = _extra_args(engine, subject.reading)
    env, env_left = _env(subject)
    image, image_left = _image(subject)
    product = card.product.lower().removeprefix("nvidia-").removeprefix("geforce-")
    pool: dict[str, Any] = {
        "name": _name(product, "pool"),
        "gpu": {"product": card.product, "perWorker": cards},
        "engine": engine.value,
    }
    if engine is EngineName.VLLM and needs.batched_tokens is not None:
        pool["maxNumBatchedTokens"] = needs.batched_tokens
    said: dict[str, Any] = {"image": image}
    if subject.release is not None and release_in(image) != subject.release.removeprefix("v"):
        said["release"] = subject.release
    said |= {key: value for key, value in (("extraArgs", extra), ("env", env)) if value}
    spec: dict[str, Any] = {
        "replicas": workload.replicas,
        "model": model,
        "pools": [pool],
        "engines": {engine.value: said},
    }
    limits = {"maxModelLen": needs.max_model_len, "concurrency": needs.slots}
    if any(limits.values()):
        spec["limits"] = {name: value for name, value in limits.items() if value}
    dtype = _dtype(engine, needs.kv_dtype)
    if dtype is not None:
        spec["kvCache"] = {"dtype": dtype}
    if worker := _worker(workload):
        spec["worker"] = worker
    metadata = {"name": _name(workload.name, "model"), "namespace": workload.namespace}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    left = (*image_left, *args_left, *env_left, *_other_left(workload, identity, model))
    return Draft(body, left)


def _model(
    identity: Identity, engine: EngineName, facts: Mapping[str, Any] | None
) -> dict[str, Any] | str:
    named = {"name": _served(identity.served)}
    if identity.id is not None and re.fullmatch(r"[\w.-]+/[\w.-]+", identity.id):
        named["id"] = identity.id
    address = (
        identity.address if identity.address and _PLAIN_ADDRESS.match(identity.address) else None
    )
    model: dict[str, Any] = dict(named)
    if engine is EngineName.VLLM:
        if address is not None and address.startswith("hf://") and not _HUB_FOLDER.match(address):
            address = None
        address = address or (f"hf://{identity.id}" if identity.id else None)
        if address is None:
            return (
                f"which model {identity.written or 'it loads'!r} is cannot be told{_near(identity)}; say it with "
                "--model org/name"
            )
        model["uri"] = address
    else:
        if address is None or not address.endswith(".gguf"):
            repository = identity.written if "/" in identity.written.strip("/") else None
            if repository is None or repository.startswith("/"):
                repository = identity.id or "unknown/unknown"
            file = f"{model_name_in(repository)}-{identity.quantization or 'unknown'}.gguf"
            address = f"hf://{repository}/{file}"
        model["gguf"] = {"uri": address}
        if identity.quantization:
            model["gguf"]["quantization"] = identity.quantization
    if facts is not None:
        model["facts"] = {"inline": dict(facts)}
    return model


def _near(identity: Identity) -> str:
    near = nearest_ids(identity.written) if identity.written else ()
    return f" (near to it: {', '.join(near[:3])})" if near else ""


def _served(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:/-]", "-", name).strip("._:/-")[:128] or "model"


def _image(subject: Subject) -> tuple[str, tuple[str, ...]]:
    """The engine's own image: what is built around another server cannot be started by Plimsoll."""
    image, launch, release = subject.image, subject.launch, subject.release
    if image and names_release(image, launch):
        return image, ()
    known = release if release is not None and release[:1].isdigit() else VLLM_RELEASES[-1]
    if launch.engine is EngineName.VLLM:
        instead = f"vllm/vllm-openai:v{known}"
    else:
        instead = "ghcr.io/ggml-org/llama.cpp:server-cuda" + (f"-{release}" if release else "")
    why = (
        f"it starts {launch.server}"
        if launch.server
        else "its tag does not name the engine's release"
    )
    return instead, (f"image {image or 'that nobody named'}: {why}; {instead} stands in its place",)


def _extra_args(engine: EngineName, reading: Reading) -> tuple[list[str], list[str]]:
    doubted = {doubt.written for doubt in reading.doubts if doubt.trouble in _NOT_CERTAIN}
    ended = {doubt.written for doubt in reading.doubts if doubt.trouble is Trouble.ENDED}
    extra: list[str] = []
    left: list[str] = []
    for said in reading.said:
        words = [said.flag, *([] if said.value is None else [said.value])]
        if said.flag in OURS or said.is_env:
            continue
        if _is_doubted(said.written, doubted) or unreadable_words(words):
            left.append(f"argument {said.written}: not read with certainty")
        elif gated := foreign_code(engine, extra_args=(said.written,), env_names=()):
            left.append(
                f"argument {said.written}: {', '.join(gated)} brings code that is not in the image"
            )
        elif shadowed_flags(engine, extra_args=(said.flag, _spelled(said.written)), env_names=()):
            continue  # pinned, or told by the table line by line
        elif _is_doubted(said.written, ended):
            left.append(f"argument {said.written}: a flag of older releases")
        else:
            spelled = _spelled(said.written)
            extra += (
                [spelled, *words[1:]]
                if "." in spelled or said.is_off or said.value is None
                else words
            )
    return extra[:64], left


def _spelled(written: str) -> str:
    """The flag alone, as it is written."""
    return written.partition("=")[0].partition(" ")[0]


def _is_doubted(written: str, doubted: set[str]) -> bool:
    return any(written == each or written.startswith(each + " ") for each in doubted)


def _env(subject: Subject) -> tuple[list[dict[str, Any]], list[str]]:
    kept: list[dict[str, Any]] = []
    left: list[str] = []
    for each in map(mapping, sequence(subject.workload.container.get("env"))):
        name = str(each.get("name", ""))
        if name in TOKEN_VARIABLES and "valueFrom" in each:
            continue  # worker.hfTokenSecret
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            continue
        if shadowed_flags(subject.engine, extra_args=(), env_names=(name,)):
            left.append(f"variable {name}: the plan decides what it sets")
        elif foreign_code(subject.engine, extra_args=(), env_names=(name,)):
            left.append(f"variable {name}: it brings code that is not in the image")
        elif "valueFrom" in each:
            reference = mapping(mapping(each["valueFrom"]).get("secretKeyRef"))
            if reference.get("name") and reference.get("key"):
                pair = {"name": reference["name"], "key": reference["key"]}
                kept.append({"name": name, "valueFrom": {"secretKeyRef": pair}})
            else:
                left.append(f"variable {name}: only values and keys of Secrets are carried over")
        else:
            kept.append({"name": name, "value": str(each.get("value") or "")})
    if subject.workload.container.get("envFrom"):
        left.append("envFrom: name the variables one by one")
    return list({each["name"]: each for each in kept}.values())[:64], left


def _dtype(engine: EngineName, written: str) -> str | None:
    if written in ("auto", "f16", "bfloat16", "float16"):
        return None
    known = {dtype.value for dtype in KvCacheDtype if engine in DTYPES[dtype]}
    return written if written in known else None


def _worker(workload: Workload) -> dict[str, Any]:
    pod = workload.pod
    worker: dict[str, Any] = {}
    selector = {
        key: str(value)
        for key, value in mapping(pod.get("nodeSelector")).items()
        if not key.startswith("nvidia.com/gpu")
    }
    if selector:
        worker["nodeSelector"] = selector
    tolerations = [
        {
            key: each[key]
            for key in ("key", "operator", "value", "effect", "tolerationSeconds")
            if each.get(key)
        }
        for each in map(mapping, sequence(pod.get("tolerations")))
    ]
    if tolerations:
        worker["tolerations"] = tolerations
    secrets = [
        {"name": each["name"]}
        for each in map(mapping, sequence(pod.get("imagePullSecrets")))
        if each.get("name")
    ]
    if secrets:
        worker["imagePullSecrets"] = secrets
    for field in ("priorityClassName", "runtimeClassName", "schedulerName"):
        if pod.get(field) and pod[field] != "default-scheduler":
            worker[field] = pod[field]
    for each in map(mapping, sequence(workload.container.get("env"))):
        reference = mapping(mapping(each.get("valueFrom")).get("secretKeyRef"))
        if each.get("name") in TOKEN_VARIABLES and reference.get("name"):
            worker["hfTokenSecret"] = {
                "name": reference["name"],
                "key": reference.get("key") or "token",
            }
    return worker


def _other_left(workload: Workload, identity: Identity, model: Mapping[str, Any]) -> Iterator[str]:
    others = [str(each.get("name")) for each in map(mapping, sequence(workload.pod.get("containers")))
              if each.get("name") != workload.container.get("name")]  # fmt: skip
    if others and workload.container.get("name"):
        yield f"containers beside the engine's: {', '.join(others)}"
    address = str(model.get("uri") or mapping(model.get("gguf")).get("uri") or "")
    if identity.address is None and identity.written.startswith("/"):
        yield f"the files at {identity.written}: no volume of the pod holds them; {address} stands in their place"
    elif identity.address is None and address.endswith(".gguf"):
        yield f"the file's name in {address} is a guess; look it up"
    if workload.nodes > 1:
        yield f"{workload.nodes} pods that hold one model together: a worker of Plimsoll is one pod"


def _name(text: str, prefix: str) -> str:
    """A name for an object, `prefix` before what does not begin with a letter."""
    plain = _NOT_A_NAME.sub("-", text.lower()).strip("-")
    if not plain or not plain[0].isalpha():
        plain = f"{prefix}-{plain}".strip("-")
    return plain[:_LONGEST_NAME].strip("-")
