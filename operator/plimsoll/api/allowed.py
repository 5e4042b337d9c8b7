"""What does the site allow in an InferenceDeployment, and what is said where it does not?

A cluster's own rules about pods ask who makes a pod, and workers' pods are made for the operator. So what a
site keeps from its tenants is said to the operator as well. A refusal leaves workers that run alone.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from plimsoll.api.pool import Pool
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.engines.base import EngineName
from plimsoll.engines.guard import foreign_code, unreadable_words
from plimsoll.facts.record import Record
from plimsoll.plan.records import Reason, Refusal
from plimsoll.render.source import ModelSource, SourceKind, parse_source

DEFAULT_HOST: Final = "docker.io"
"""The host of an image that names none (distribution/reference, normalize.go), with its other name."""
_OTHER_NAMES: Final = {"index.docker.io": DEFAULT_HOST, "registry-1.docker.io": DEFAULT_HOST}
_OF_DOCKER: Final = "library/"
"""Where docker.io keeps images of one word."""
_REPOSITORY: Final = r"[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?P<path>{_REPOSITORY}(?:/{_REPOSITORY})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+:[a-f0-9]{32,128}))?"
)
"""After the host, as container runtimes read it (distribution/reference, regexp.go)."""
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?")

DEVICE_ANNOTATIONS: Final = (
    "cdi.k8s.io/",
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "io.kubernetes.cri",
)
"""Annotations by which a container runtime hands out devices (CDI) or takes a confinement away, unseen by
whoever counts cards. Other annotations are the cluster's business."""


class Image(NamedTuple):
    """A container image taken apart."""

    host: str
    """Registry, in small letters, with its port."""
    path: str
    """Repository."""
    tag: str | None
    digest: str | None


class Allowed(Record):
    """What a site allows. Without a word from it: every image and folder, no code but the image's own."""

    host_path: bool = True
    """Whether models may lie in a folder of the node (hostPath://)."""
    images: Annotated[tuple[str, ...], Field(max_length=256)] = ()
    """Registries, repositories or images that workers may run and models may lie in; empty for all."""
    foreign_code: bool = False
    """Whether engines may run code that is not in their image, such as a model's own Python."""


def read_image(text: str) -> Image | None:
    """An image as a container runtime reads it; None where it would not."""
    first, slash, rest = text.partition("/")
    has_host = slash and (first == "localhost" or "." in first or ":" in first)
    host, path = (first, rest) if has_host else (DEFAULT_HOST, text)
    match = _REFERENCE.fullmatch(path)
    if match is None or not _HOST.fullmatch(host):
        return None
    host = _OTHER_NAMES.get(host.lower(), host.lower())
    repository = match["path"]
    if host == DEFAULT_HOST and "/" not in repository:
        repository = _OF_DOCKER + repository
    return Image(host, repository, match["tag"], match["digest"])


def covers(entry: str, image: str) -> bool:
    """Whether an entry of the list stands for the image.

    An entry is a registry (registry.example.com:5000), the beginning of a repository by whole words
    (registry.example.com/ml, vllm), or one image with its tag or digest. A digest decides what runs, whatever
    tag stands before it: an entry with a tag does not stand for an image with a digest.
    """
    found, wanted = read_image(image), _entry(entry)
    if found is None or wanted is None or found.host != wanted.host:
        return False
    if wanted.digest is not None:
        return found.path == wanted.path and found.digest == wanted.digest
    if wanted.tag is not None:
        return found == wanted
    whole = f"{found.path.removeprefix(_OF_DOCKER)}/"
    return (
        not wanted.path
        or f"{found.path}/".startswith(f"{wanted.path}/")
        or (found.host == DEFAULT_HOST and whole == f"{wanted.path}/")
    )


def bad_entries(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Entries that stand for nothing, because nobody can read them."""
    return tuple(entry for entry in entries if _entry(entry) is None)


def _entry(text: str) -> Image | None:
    text = text.removesuffix("/*").removesuffix("/")
    first = text.partition("/")[0]
    is_host = "/" not in text and ("." in first or first == "localhost" or _is_port(first))
    if is_host:
        host = first.lower()
        return (
            Image(_OTHER_NAMES.get(host, host), "", None, None) if _HOST.fullmatch(host) else None
        )
    found = read_image(text)
    if found is None or found.tag or found.digest or _OF_DOCKER in text:
        return found
    return found._replace(path=found.path.removeprefix(_OF_DOCKER))


def _is_port(first: str) -> bool:
    """registry:5000 is a host, vllm:v1 an image: a tag of figures alone is read as a port."""
    return first.partition(":")[2].isdecimal()


def may_read(source: ModelSource, allowed: Allowed) -> bool:
    """Whether a pod may have these files."""
    return _stops(source, allowed) is None


def not_allowed(spec: InferenceDeploymentSpec, pool: Pool, allowed: Allowed) -> Refusal | None:
    """The first thing in the pool that the site does not allow, with the way out; None when all is fine."""
    for message in _problems(spec, pool, allowed):
        return Refusal(reason=Reason.NOT_ALLOWED_HERE, message=f"pool {pool.name}: {message}.")
    return None


def _problems(spec: InferenceDeploymentSpec, pool: Pool, allowed: Allowed) -> Iterator[str]:
    engine = spec.engines.of(pool.engine)
    words = (*engine.extra_args, *pool.extra_args)
    names = tuple(variable.name for variable in (*engine.env, *pool.env))
    if unreadable := unreadable_words(words):
        yield (
            f"extraArgs {unreadable[0]!r} may become another flag once the engine starts; write "
            "--flag=$(NAME) in one word, or set the engine's own variable in env"
        )
    for key in spec.worker.annotations:
        if key.startswith(DEVICE_ANNOTATIONS):
            yield (
                f"worker.annotations {key!r} hands out devices or takes a confinement away behind the "
                "scheduler's back; take it out"
            )
    image = spec.image_of(pool)
    if image is not None and not _is_listed(image, allowed):
        yield _unlisted(f"image {image!r}", allowed)
    gateway = spec.gateway.image if spec.gateway.enabled else None
    if gateway is not None and not _is_listed(gateway, allowed):
        yield _unlisted(f"gateway.image {gateway!r}", allowed)
    try:
        source = parse_source(_address(spec, pool.engine) or "")
    except ValueError:
        source = None  # the address is refused on its own
    if source is not None and (stops := _stops(source, allowed)):
        yield stops
    if not allowed.foreign_code and (
        found := foreign_code(
            pool.engine, extra_args=words, env_names=names, lists_images=bool(allowed.images)
        )
    ):
        yield (
            f"{', '.join(found)} in extraArgs or env would run code that is not in the image; build it into "
            "an image, or have the site allow it (chart: security.trustRemoteCode)"
        )


def _stops(source: ModelSource, allowed: Allowed) -> str | None:
    if source.kind is SourceKind.HOST_PATH and not allowed.host_path:
        return (
            f"{source.uri}: models in folders of a node are not allowed here; write pvc://claim/folder or "
            "oci://image, or have the site allow it (chart: security.hostPath)"
        )
    if source.kind is SourceKind.IMAGE:
        reference = source.uri.removeprefix("oci://").partition("#")[0]
        if not _is_listed(reference, allowed):
            return _unlisted(f"model image {reference!r}", allowed)
    return None


def _address(spec: InferenceDeploymentSpec, engine: EngineName) -> str | None:
    if engine is EngineName.VLLM:
        return spec.model.uri
    return spec.model.gguf.uri if spec.model.gguf else None


def _is_listed(image: str, allowed: Allowed) -> bool:
    return not allowed.images or any(covers(entry, image) for entry in allowed.images)


def _unlisted(what: str, allowed: Allowed) -> str:
    shown = ", ".join(allowed.images[:8])
    more = f" and {len(allowed.images) - 8} more" if len(allowed.images) > 8 else ""
    return (
        f"{what} is not one that is allowed here; take one of {shown}{more}, or have the site add it "
        "(chart: security.images)"
    )
