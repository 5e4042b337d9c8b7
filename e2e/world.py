"""One story's corner of the cluster: a namespace with a models claim, and words for what is there."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

import yaml

from audit import Request
from controlplane.cluster import ControlPlane, Manifest
from installation import REPOSITORY, USER, Installation
from patience import Patience, eventually

EXAMPLES: Final = REPOSITORY / "docs" / "examples"
OBJECTS: Final = "inferencedeployments"
WORKERS_OF: Final = "plimsoll.dev/deployment"


class World:
    """What a story sees and does, in its own namespace."""

    def __init__(self, installed: Installation, story: str) -> None:
        self.installed = installed
        self.cluster: ControlPlane = installed.cluster
        self.namespace = re.sub("[^a-z0-9]+", "-", story.lower()).strip("-")[:50]
        self.started = time.time()
        self.cluster.ensure_namespace(self.namespace)
        self._make_claim("models")

    def _make_claim(self, name: str) -> None:
        """A bound PersistentVolumeClaim, so that the scheduler lets pods pass."""
        volume = f"{self.namespace}-{name}"
        shared = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
        self._create(
            "/api/v1/persistentvolumes",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {
                    **shared,
                    "capacity": {"storage": "1Ti"},
                    "hostPath": {"path": "/srv/models"},
                    "claimRef": {"namespace": self.namespace, "name": name},
                },
            },
        )
        self._create(
            f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    **shared,
                    "volumeName": volume,
                    "resources": {"requests": {"storage": "1Ti"}},
                },
            },
        )

    def _create(self, path: str, manifest: Manifest) -> None:
        """Unless it is there."""
        status, answer = self.cluster.request("POST", path, manifest)
        if status not in (http.client.CREATED, http.client.CONFLICT):
            raise RuntimeError(f"{path}: {status} {answer}")

    def leave(self) -> None:
        """Delete the namespace and wait until its pods have given their cards back."""
        self.cluster.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.cluster.request("DELETE", f"/api/v1/persistentvolumes/{self.namespace}-models")
        eventually(
            lambda: not self.pods(), within=Patience.POD_GONE, says=f"{self.namespace} has no pods"
        )

    # ---- doing ------------------------------------------------------------------------------------

    def example(self, name: str, **spec: Any) -> Manifest:
        """An example as users have it, in this namespace; keyword arguments replace parts of its spec."""
        raw: Manifest = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
        raw["metadata"]["namespace"] = self.namespace
        raw["spec"] |= spec
        return raw

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """`kubectl apply`, as a person does it."""
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(map(dict, objects)))

    def kubectl(self, *args: str) -> str:
        """kubectl in this namespace."""
        return self.cluster.kubectl("-n", self.namespace, *args).stdout

    # ---- seeing -----------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """An object of this namespace by its path below the namespace."""
        group, _, rest = path.partition(":")
        root = f"/apis/{group}" if group else "/api/v1"
        return self.cluster.get(f"{root}/namespaces/{self.namespace}/{rest}")

    def items(self, path: str, selector: str = "") -> list[Manifest]:
        """Objects of this namespace."""
        query = f"?labelSelector={selector}" if selector else ""
        return list(self.get(path + query)["items"])

    def object(self, name: str) -> Manifest:
        """The InferenceDeployment."""
        found: Manifest = self.get(f"plimsoll.dev/v1alpha1:{OBJECTS}/{name}")
        return found

    def deployments(self) -> dict[str, Manifest]:
        """Deployments by name."""
        return {each["metadata"]["name"]: each for each in self.items("apps/v1:deployments")}

    def pods(self, deployment: str = "") -> list[Manifest]:
        """Pods, of one InferenceDeployment or all."""
        return self.items(":pods", f"{WORKERS_OF}={deployment}" if deployment else "")

    def condition(self, name: str, kind: str) -> Manifest:
        """One condition; LookupError while it is not there or speaks of an older generation."""
        seen = self.object(name)
        status = seen.get("status", {})
        if status.get("observedGeneration") != seen["metadata"]["generation"]:
            raise LookupError(
                f"status of {name} speaks of generation {status.get('observedGeneration')}"
            )
        for each in status.get("conditions", []):
            if each["type"] == kind:
                found: Manifest = each
                return found
        raise LookupError(f"{name} has no condition {kind}")

    def await_condition(
        self,
        name: str,
        kind: str,
        status: str,
        *,
        reason: str = "",
        within: float = Patience.CONDITION_SEEN,
    ) -> Manifest:
        """Wait until a condition has this status (and reason)."""

        def seen() -> Manifest | None:
            found = self.condition(name, kind)
            fits = found["status"] == status and reason in ("", found["reason"])
            if not fits:
                raise LookupError(json.dumps(found))
            return found

        found = eventually(seen, within=within, says=f"{name} is {kind}={status} {reason}")
        assert found is not None
        return found

    def await_ready(self, name: str, workers: int) -> None:
        """Wait until it is Ready with so many workers."""

        def ready() -> bool:
            status = self.object(name)["status"]
            found = self.condition(name, "Ready")
            if (found["status"], status.get("readyReplicas", 0)) != ("True", workers):
                raise LookupError(json.dumps(found))
            return True

        eventually(ready, within=Patience.POOL_ROLLOUT, says=f"{name} has {workers} ready workers")

    def writes(self, since_seconds: float | None = None) -> tuple[Request, ...]:
        """What the operator tried to change, but for its Lease."""
        return tuple(
            request
            for request in self.installed.log.writes_by(USER, since_seconds or self.started)
            if request.use.resource != "leases"
        )

    def quiet_writes(self) -> tuple[Request, ...]:
        """The operator's writes in this namespace."""
        return tuple(r for r in self.writes() if r.use.namespace == self.namespace)


def args_of(deployment: Manifest) -> list[str]:
    """The engine's arguments."""
    return list(deployment["spec"]["template"]["spec"]["containers"][0]["args"])


def with_args(deployment: Manifest, args: list[str]) -> Manifest:
    """The same with other arguments."""
    changed = deepcopy(deployment)
    changed["spec"]["template"]["spec"]["containers"][0]["args"] = args
    return changed
