"""Where do the model's files lie, and how does a pod reach them?

Volumes are mounted read-only below /models. A hub is the engine's own business: it fetches.
"""

import posixpath
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from plimsoll.engines.base import EngineName

MODELS_PATH: Final = "/models"
"""Where volumes with models are mounted."""

_REPO: Final = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>.+))?")
_CLAIM: Final = re.compile(r"(?P<claim>[a-z0-9][a-z0-9.-]*)(?:/(?P<path>.*))?")


class SourceKind(StrEnum):
    """Where a model's files lie."""

    HUB = "Hub"
    """A model hub that speaks Hugging Face's protocol; the engine fetches the files itself."""
    CLAIM = "PersistentVolumeClaim"
    HOST_PATH = "HostPath"
    IMAGE = "Image"
    """A container image, mounted as a volume."""


class ModelSource(NamedTuple):
    """A model's address as the engine and the pod need it."""

    kind: SourceKind
    """Where the files lie."""
    uri: str
    """As the user wrote it."""
    model: str
    """What the engine is told: a path below the mount, or the hub's org/name."""
    file: str | None = None
    """Hub only: the file inside the repository; None for the whole of it."""
    revision: str | None = None
    """Hub only: branch, tag or commit."""
    volume: dict[str, Any] | None = None
    """The pod volume without its name; None for a hub."""
    mount_path: str | None = None
    """Where it is mounted, read-only; None for a hub."""


def parse_source(uri: str) -> ModelSource:
    """Read hf://org/name[@revision][/file], pvc://claim/path, hostPath:///path or oci://image[#/path].

    Raises ValueError with the address and the forms that work.
    """
    scheme, separator, rest = uri.partition("://")
    parse = _PARSERS.get(scheme)
    if not separator or parse is None:
        raise ValueError(f"model address {uri!r} cannot be read; write {_FORMS}")
    return parse(uri, rest)


def source_problem(source: ModelSource, engine: EngineName) -> str | None:
    """Why this engine cannot load from there, with the way out; None when it can."""
    if engine is EngineName.VLLM:
        if source.file is not None:
            return (
                f"{source.uri}: vLLM loads a whole repository, not one file of it; "
                f"write hf://{source.model}"
            )
        return None
    file = source.file if source.kind is SourceKind.HUB else source.model
    if file is None or not file.endswith(".gguf"):
        return f"{source.uri}: llama.cpp loads one GGUF file; write the address down to its .gguf"
    if source.revision is not None:
        # llama-server b11669 has --hf-repo and --hf-file and always takes the main branch (--help).
        return (
            f"{source.uri}: llama.cpp cannot fetch revision {source.revision!r}, only the newest; "
            "leave @revision out, or keep the file on a volume"
        )
    return None


def _hub(uri: str, rest: str) -> ModelSource:
    match = _REPO.fullmatch(rest)
    if match is None:
        raise ValueError(f"{uri!r} names no repository; write hf://org/name, if need be @revision")
    file = match["file"]
    return ModelSource(
        kind=SourceKind.HUB,
        uri=uri,
        model=match["repo"],
        file=None if file is None else _relative(uri, file),
        revision=match["revision"],
    )


def _claim(uri: str, rest: str) -> ModelSource:
    match = _CLAIM.fullmatch(rest)
    if match is None:
        raise ValueError(
            f"{uri!r} names no PersistentVolumeClaim; write pvc://claim/folder, "
            "the claim in lower-case letters, digits, - and ."
        )
    return ModelSource(
        kind=SourceKind.CLAIM,
        uri=uri,
        model=_below_models(_relative(uri, match["path"] or "")),
        # readOnly on the volume too: some drivers attach a disk to several nodes only then.
        volume={"persistentVolumeClaim": {"claimName": match["claim"], "readOnly": True}},
        mount_path=MODELS_PATH,
    )


def _host_path(uri: str, rest: str) -> ModelSource:
    if not rest.startswith("/"):
        raise ValueError(f"{uri!r} is not absolute; write hostPath:///folder with three slashes")
    path = "/" + _relative(uri, rest[1:])
    folder, name = posixpath.split(path)
    # A GGUF may be split into files that lie beside each other, so its folder is mounted.
    is_file = name.endswith(".gguf")
    mounted = folder if is_file else path
    if mounted == "/":
        raise ValueError(
            f"{uri!r} would mount the node's root folder; move the model into a folder of its own"
        )
    return ModelSource(
        kind=SourceKind.HOST_PATH,
        uri=uri,
        model=_below_models(name),
        volume={"hostPath": {"path": mounted, "type": "Directory"}},
        mount_path=MODELS_PATH if is_file else _below_models(name),
    )


def _image(uri: str, rest: str) -> ModelSource:
    reference, _, path = rest.partition("#")
    if not re.fullmatch(r"[a-z0-9][\w.:/@-]*", reference, re.ASCII):
        raise ValueError(f"{uri!r} names no image; write oci://image:tag, if need be #/path in it")
    return ModelSource(
        kind=SourceKind.IMAGE,
        uri=uri,
        model=_below_models(_relative(uri, path.removeprefix("/"))),
        volume={"image": {"reference": reference, "pullPolicy": "IfNotPresent"}},
        mount_path=MODELS_PATH,
    )


def _relative(uri: str, path: str) -> str:
    """The path without a slash at its end. Raises ValueError when it has empty or upward segments."""
    trimmed = path.removesuffix("/")
    if trimmed and any(part in ("", ".", "..") for part in trimmed.split("/")):
        raise ValueError(f"{uri!r} has an empty, . or .. segment; write the plain path")
    return trimmed


def _below_models(path: str) -> str:
    return f"{MODELS_PATH}/{path}" if path else MODELS_PATH


_FORMS: Final = (
    "hf://org/name[@revision], pvc://claim/folder, hostPath:///folder or oci://image:tag"
)
_PARSERS: Final[dict[str, Callable[[str, str], ModelSource]]] = {
    "hf": _hub,
    "pvc": _claim,
    "hostPath": _host_path,
    "oci": _image,
}
