"""Which kinds of object do we speak of, and under which address does the API server keep them?"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from plimsoll.facts.record import Record


class Kind(Record):
    """One resource of the API server."""

    api_version: str
    """Group and version, for example apps/v1; the core group has only v1."""
    kind: str
    """For example Deployment."""
    plural: str
    """The word in the address, for example deployments."""
    namespaced: bool = True
    """Whether its objects live in a namespace."""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The address below the server's root, for example /apis/apps/v1/namespaces/a/deployments/b."""
        root = "/apis/" if self.group else "/api/"
        parts = [root + self.api_version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)


INFERENCE_DEPLOYMENT: Final = Kind(
    api_version="plimsoll.dev/v1alpha1", kind="InferenceDeployment", plural="inferencedeployments"
)
GPU_NODE: Final = Kind(
    api_version="plimsoll.dev/v1alpha1", kind="GPUNode", plural="gpunodes", namespaced=False
)
DEPLOYMENT: Final = Kind(api_version="apps/v1", kind="Deployment", plural="deployments")
DISRUPTION_BUDGET: Final = Kind(
    api_version="policy/v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
SERVICE: Final = Kind(api_version="v1", kind="Service", plural="services")
POD: Final = Kind(api_version="v1", kind="Pod", plural="pods")
NODE: Final = Kind(api_version="v1", kind="Node", plural="nodes", namespaced=False)
CONFIG_MAP: Final = Kind(api_version="v1", kind="ConfigMap", plural="configmaps")
JOB: Final = Kind(api_version="batch/v1", kind="Job", plural="jobs")
EVENT: Final = Kind(api_version="v1", kind="Event", plural="events")
RESOURCE_SLICE: Final = Kind(
    api_version="resource.k8s.io/v1",
    kind="ResourceSlice",
    plural="resourceslices",
    namespaced=False,
)
LEASE: Final = Kind(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")

CHILDREN: Final = (SERVICE, DISRUPTION_BUDGET, DEPLOYMENT)
"""What we make, in the order in which we make it: workers last, so that their Service and their
budget stand when they come."""

_BY_NAME: Final = {(k.api_version, k.kind): k for k in CHILDREN}


def child_kind(manifest: dict[str, Any]) -> Kind:
    """The kind of a child manifest. Raises LookupError, for a child that we have no grant for."""
    name = (manifest["apiVersion"], manifest["kind"])
    if name not in _BY_NAME:
        known = ", ".join(k.kind for k in CHILDREN)
        raise LookupError(f"{name[1]} of {name[0]} is not among the kinds that we make: {known}")
    return _BY_NAME[name]
