"""What does a pod's spec say of its engine: cards, memory, files, variables?

Read leniently, from plain data; what is not of the expected form is as if it were not there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from plimsoll.units import parse_bytes

Json = Mapping[str, Any]

PRODUCT: Final = "nvidia.com/gpu.product"
"""Label of NVIDIA/k8s-device-plugin's gpu-feature-discovery."""
PROVIDER_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "gpu.nvidia.com/model",
)
"""Labels by which a cloud provider names the card."""
GPU_RESOURCES: Final = (
    "nvidia.com/gpu",
    "nvidia.com/mig-",
    "amd.com/gpu",
    "gpu.intel.com/",
    "nvidia.com/gpu.shared",
)
SHM: Final = "/dev/shm"  # noqa: S108 - a mount that a pod may have
STORAGE_INITIALIZER: Final = "storage-initializer"
"""Init container in which KServe fetches a model."""


class Workload(NamedTuple):
    """One workload of one engine container."""

    kind: str
    """Its kind."""
    namespace: str
    """Its namespace; default where none is written."""
    name: str
    """Its name."""
    replicas: int = 1
    """Pods that it wants."""
    made_by: str = ""
    """Who made it, where its labels say so."""
    labels: Mapping[str, str] = MappingProxyType({})
    """Labels of its pods."""
    pod: Json = MappingProxyType({})
    """The pod's spec."""
    container: Json = MappingProxyType({})
    """The engine's container, or the only one there is."""
    nodes: int = 1
    """Pods that hold one replica of the model together."""
    notes: tuple[str, ...] = ()
    """What is not in the object itself."""
    gpu_hint: str = ""
    """Name of the card where only a profile's name tells it."""
    gpu_count: int | None = None
    """Cards where only a profile tells them."""

    @property
    def title(self) -> str:
        """Deployment inference/chat."""
        return f"{self.kind} {self.namespace}/{self.name}"


def gpu_request(container: Json) -> tuple[str, int] | None:
    """Resource and number of the cards that a container asks for; None without any."""
    resources = mapping(container.get("resources"))
    both = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    for name in sorted(both):
        if name.startswith(GPU_RESOURCES) and (count := whole(both[name])):
            return name, count
    return None


def memory_of(container: Json, part: str) -> int | None:
    """Bytes of `limits` or `requests`; None where nobody wrote it or it is no quantity."""
    return _bytes(mapping(mapping(container.get("resources")).get(part)).get("memory"))


class Shm(NamedTuple):
    """What stands at /dev/shm."""

    is_there: bool
    """Whether more is mounted than the runtime's 64 MiB."""
    limit_bytes: int | None = None
    """Its size; None where it is not limited."""


def shm_of(workload: Workload) -> Shm:
    """The shared memory of the engine's container."""
    if workload.pod.get("hostIPC"):
        return Shm(True)
    volumes = _volumes(workload)
    for mount in map(mapping, sequence(workload.container.get("volumeMounts"))):
        if str(mount.get("mountPath", "")).rstrip("/") == SHM:
            limit = mapping(mapping(volumes.get(str(mount.get("name")))).get("emptyDir")).get(
                "sizeLimit"
            )
            return Shm(True, _bytes(limit))
    return Shm(False)


class Named(NamedTuple):
    """The card by the manifest's own words."""

    products: tuple[str, ...]
    """Names of the product; several where it may be one of them."""
    where: str
    """The field that says it."""


def card_of(workload: Workload) -> Named | None:
    """The GPU type that the pod asks for by labels of the node; None where it takes any."""
    selector = strings(workload.pod.get("nodeSelector"))
    for key in (PRODUCT, *PROVIDER_LABELS):
        if key in selector:
            return Named((selector[key],), f"nodeSelector {key}")
    affinity = mapping(mapping(workload.pod.get("affinity")).get("nodeAffinity"))
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in map(mapping, sequence(required.get("nodeSelectorTerms"))):
        for rule in map(mapping, sequence(term.get("matchExpressions"))):
            if rule.get("key") in (PRODUCT, *PROVIDER_LABELS) and rule.get("operator") == "In":
                return Named(tuple(texts(rule.get("values"))), f"nodeAffinity {rule['key']}")
    if workload.gpu_hint:
        return Named((workload.gpu_hint,), "the name of resourceProfile")
    return None


def env_of(workload: Workload) -> Mapping[str, str]:
    """Variables of the engine's container whose value is written."""
    return plain_env(workload.container)


def plain_env(container: Json) -> dict[str, str]:
    found = {}
    for each in map(mapping, sequence(container.get("env"))):
        if "value" in each or "valueFrom" not in each:
            found[str(each.get("name", ""))] = str(each.get("value") or "")
    return found


def address_of(workload: Workload, path: str) -> str | None:
    """Where the files under a path of the container are: hf://, pvc://, hostPath:// or oci://."""
    for each in map(mapping, sequence(workload.pod.get("initContainers"))):
        args = texts(each.get("args"))
        if each.get("name") == STORAGE_INITIALIZER and len(args) > 1 and _is_below(path, args[1]):
            uri = args[0] if not args[0].startswith("hf://") else _revision_at(args[0])
            return _joined(uri, path[len(args[1].rstrip("/")) :])
    volumes = _volumes(workload)
    mounts = sorted(
        map(mapping, sequence(workload.container.get("volumeMounts"))),
        key=lambda each: -len(str(each.get("mountPath", ""))),
    )
    for mount in mounts:
        place = str(mount.get("mountPath", "")).rstrip("/")
        if not place or not _is_below(path, place):
            continue
        inside = "/".join(
            part
            for part in (str(mount.get("subPath") or "").strip("/"), path[len(place) :].strip("/"))
            if part
        )
        return _of_volume(mapping(volumes.get(str(mount.get("name")))), inside)
    return None


def _volumes(workload: Workload) -> dict[str, dict[str, Any]]:
    """The pod's volumes by name."""
    found = map(mapping, sequence(workload.pod.get("volumes")))
    return {str(each.get("name")): each for each in found}


def _bytes(written: Any) -> int | None:
    """A quantity in bytes; None where it is none."""
    try:
        return parse_bytes(written) if isinstance(written, (str, int)) else None
    except ValueError:
        return None


def _of_volume(volume: Json, inside: str) -> str | None:
    tail = f"/{inside}" if inside else ""
    if claim := mapping(volume.get("persistentVolumeClaim")).get("claimName"):
        return f"pvc://{claim}{tail}"
    if place := mapping(volume.get("hostPath")).get("path"):
        return f"hostPath://{str(place).rstrip('/')}{tail}"
    if image := mapping(volume.get("image")).get("reference"):
        return f"oci://{image}" + (f"#{tail}" if tail else "")
    return None


def _revision_at(uri: str) -> str:
    """KServe writes hf://org/name:revision."""
    head, colon, revision = uri.rpartition(":")
    return f"{head}@{revision}" if colon and "/" in head.removeprefix("hf://") else uri


def _joined(uri: str, tail: str) -> str:
    return uri.rstrip("/") + (tail if tail.strip("/") else "")


def _is_below(path: str, place: str) -> bool:
    plain = place.rstrip("/")
    return path.rstrip("/") == plain or path.startswith(plain + "/")


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    return [str(each) for each in sequence(value) if each is not None]


def strings(value: Any) -> dict[str, str]:
    return {str(key): str(each) for key, each in mapping(value).items() if each is not None}


def whole(value: Any) -> int | None:
    try:
        return None if value is None or isinstance(value, bool) else int(str(value))
    except ValueError:
        return None
