"""What does Argo CD do to a cluster? As much of it as touches objects: render, track, compare, apply, prune.

    argo = Argo(cluster)
    models = Application("chat", "chat", lambda: read_folder(path))
    argo.sync(models)
    assert argo.drift(models) == ()

Written after Argo CD 3 (argoproj/argo-cd: docs/, and gitops-engine/ which moved in there); each rule names its
place. Left out: hooks, waves' waiting, projects, caches. What is compared is stricter than Argo: a mutation by
a webhook would count as drift.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from lupa.lua51 import LuaRuntime

from argo_diff import differences, normal, three_way
from controlplane.cluster import ControlPlane, Manifest
from patience import Patience, eventually, stretched

MANAGER: Final = "argocd-controller"
"""common/common.go, ArgoCDSSAManager."""
TRACKING_ANNOTATION: Final = "argocd.argoproj.io/tracking-id"
TRACKING_LABEL: Final = "app.kubernetes.io/instance"
SYNC_OPTIONS: Final = "argocd.argoproj.io/sync-options"
SYNC_WAVE: Final = "argocd.argoproj.io/sync-wave"
HELM_HOOK: Final = "helm.sh/hook"
HELM_KEEP: Final = ("helm.sh/resource-policy", "keep")
SERVER_SIDE_APPLY: Final = "ServerSideApply=true"
CRD: Final = "CustomResourceDefinition"
KINDS_IN_ORDER: Final = (
    "Namespace", "NetworkPolicy", "ResourceQuota", "LimitRange", "PodSecurityPolicy", "PodDisruptionBudget",
    "ServiceAccount", "Secret", "SecretList", "ConfigMap", "StorageClass", "PersistentVolume",
    "PersistentVolumeClaim", CRD, "ClusterRole", "ClusterRoleList", "ClusterRoleBinding",
    "ClusterRoleBindingList", "Role", "RoleList", "RoleBinding", "RoleBindingList", "Service", "DaemonSet",
    "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet",
    "Job", "CronJob", "IngressClass", "Ingress", "APIService",
)  # fmt: skip
"""gitops-engine/pkg/sync/sync_tasks.go: these first and in this order, all others after them."""
UNREGISTERED: Final = ("plimsoll.dev", "apiextensions.k8s.io")
"""Groups whose types client-go's scheme has not got: Argo merges them as plain JSON (diff.go, ThreeWayDiff)."""
STRIPPED: Final = ("io", "os", "require", "package", "dofile", "loadfile", "debug")
"""What Argo's Lua has not got (docs/operator-manual/health.md)."""


class Tracking(StrEnum):
    """How Argo knows its own (docs/user-guide/resource_tracking.md); the annotation is the default since 3.0."""

    ANNOTATION = "annotation"
    LABEL = "label"


class Strategy(StrEnum):
    """How it compares (docs/user-guide/diff-strategies.md)."""

    THREE_WAY = "three-way"
    SERVER_SIDE = "server-side"


class Key(NamedTuple):
    """Which object."""

    group: str
    kind: str
    namespace: str
    name: str


class Drift(NamedTuple):
    """One object that is not as it would be after a sync, and where."""

    key: Key
    strategy: Strategy
    paths: tuple[str, ...]


class Resource(NamedTuple):
    """One kind as the API server serves it."""

    version: str
    plural: str
    is_namespaced: bool
    can_be_listed: bool


@dataclass(frozen=True)
class Application:
    """What an Application names: objects of a revision, where they go, and how they are synced."""

    name: str
    namespace: str
    render: Callable[[], Iterable[Manifest]]
    sync_options: tuple[str, ...] = ()


class Wire:
    """One connection to the API server as admin that is kept, for Argo asks a lot."""

    def __init__(self, cluster: ControlPlane) -> None:
        user = yaml.safe_load(cluster.admin_kubeconfig.read_text())["users"][0]["user"]
        tls = ssl.create_default_context(cafile=str(cluster.ca_file))
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1",
            cluster.ports["api"],
            context=tls,
            timeout=stretched(Patience.KUBECTL_ANSWER),
        )

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> tuple[int, Any]:
        """Status and answer of one call; a 429 is asked again, as client-go does it (rest/request.go)."""

        def answered() -> tuple[int, Any]:
            status, answer = self._ask(method, path, body, content_type)
            if status == http.client.TOO_MANY_REQUESTS:
                raise LookupError(str(answer))
            return status, answer

        return eventually(answered, within=Patience.CRD_SERVED, says=f"{method} {path} is let in")

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, Any]:
        payload = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json"}
        if payload is not None:
            headers["Content-Type"] = content_type
        self._connection.request(method, path, body=payload, headers=headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text

    def get(self, path: str) -> Any:
        """LookupError where there is none, so that waits can use it."""
        status, answer = self.request("GET", path)
        if status != http.client.OK:
            raise LookupError(f"GET {path}: {status} {answer}")
        return answer

    def close(self) -> None:
        self._connection.close()


class Argo:
    """One Argo CD with admin's rights, as its controller has by default."""

    def __init__(self, cluster: ControlPlane, tracking: Tracking = Tracking.ANNOTATION) -> None:
        self._cluster = cluster
        self._wire = Wire(cluster)
        self._tracking = tracking
        self._resources: dict[tuple[str, str], Resource] = {}

    def close(self) -> None:
        self._wire.close()

    # ---- rendering ------------------------------------------------------------------------------

    def helm(self, chart: Path, release: str, namespace: str) -> list[Manifest]:
        """A chart rendered as the repo server does it (util/helm/cmd.go, template)."""
        version = self._wire.get("/version")["gitVersion"].removeprefix("v")
        # Argo tells Helm what the cluster serves (util/argo/argo.go, APIResourcesToStrings)
        self._discover()
        served = {
            word
            for (group, kind), found in self._resources.items()
            for word in (
                api_version(group, found.version),
                f"{api_version(group, found.version)}/{kind}",
            )
        }
        told = [word for each in sorted(served) for word in ("--api-versions", each)]
        text = self._cluster.helm(
            *("template", chart, "--name-template", release, "--namespace", namespace),
            *("--include-crds", "--kube-version", version, *told),
        ).stdout
        return [each for each in yaml.safe_load_all(text) if each]

    def target(self, app: Application) -> list[Manifest]:
        """What should be there, tracked and in the order of a sync.

        Helm's hooks that Argo has no phase for, `test` among them, are never made
        (gitops-engine/pkg/sync/hook/helm/type.go). CRDs are not tracked (reposerver/repository/repository.go).
        """
        self._discover()
        made = [
            self._tracked(each, app) for each in app.render() if not annotation(each, HELM_HOOK)
        ]
        return sorted(made, key=_order)

    def _tracked(self, manifest: Manifest, app: Application) -> Manifest:
        metadata = deepcopy(manifest["metadata"])
        made = {**manifest, "metadata": metadata}
        if self._is_namespaced(made, default=True):
            metadata.setdefault("namespace", app.namespace)
        if made["kind"] == CRD:
            return made
        if self._tracking is Tracking.LABEL:
            metadata.setdefault("labels", {})[TRACKING_LABEL] = app.name
        else:
            tracking_id = self._tracking_id(made, app)
            metadata.setdefault("annotations", {})[TRACKING_ANNOTATION] = tracking_id
        return made

    def _tracking_id(self, manifest: Mapping[str, Any], app: Application) -> str:
        """util/argo/resource_tracking.go; what is cluster-scoped gets the application's namespace."""
        key = key_of(manifest)
        place = f"{key.namespace or app.namespace}/{key.name}"
        return f"{app.name}:{key.group}/{key.kind}:{place}"

    # ---- what is there --------------------------------------------------------------------------

    def live(self, key: Key) -> Manifest | None:
        """The object, or None."""
        status, answer = self._wire.request("GET", self._path(key))
        return dict(answer) if status == http.client.OK else None

    def everything(self) -> Iterator[Manifest]:
        """Every object of every kind that can be listed."""
        self._discover()
        for (group, kind), resource in self._resources.items():
            if not resource.can_be_listed:
                continue
            listed = self._wire.get(f"{root(group, resource.version)}/{resource.plural}")
            for item in listed.get("items") or ():
                yield {"apiVersion": api_version(group, resource.version), "kind": kind} | item

    def claims(self, manifest: Mapping[str, Any], app: Application) -> bool:
        """Whether Argo takes it for the application's own.

        Only what no other object owns (controller/cache/cache.go, isRoot), and with annotations only where
        the annotation names its own object (docs: "Non self-referencing annotations").
        """
        if manifest["metadata"].get("ownerReferences"):
            return False
        if self._tracking is Tracking.LABEL:
            return (manifest["metadata"].get("labels") or {}).get(TRACKING_LABEL) == app.name
        return annotation(manifest, TRACKING_ANNOTATION) == self._tracking_id(manifest, app)

    def surplus(self, app: Application, among: Iterable[Manifest] | None = None) -> list[Manifest]:
        """What a sync with prune would delete: claimed, and not in the revision."""
        wanted = {key_of(each) for each in self.target(app)}
        return [
            each
            for each in (self.everything() if among is None else among)
            if self.claims(each, app) and key_of(each) not in wanted
        ]

    # ---- comparing ------------------------------------------------------------------------------

    def drift(self, app: Application, *strategies: Strategy) -> tuple[Drift, ...]:
        """Objects that Argo would call OutOfSync, by each strategy (both, unless some are named)."""
        found: list[Drift] = []
        target = self.target(app)
        live = {key_of(each): self.live(key_of(each)) for each in target}
        for strategy in strategies or tuple(Strategy):
            predicted = self._predicted(app, target, live, strategy)
            for key, after in predicted.items():
                before = live[key]
                if before is None:
                    found.append(Drift(key, strategy, ("is missing",)))
                elif paths := differences(normal(before), normal(after)):
                    found.append(Drift(key, strategy, paths))
        return tuple(found)

    def _predicted(
        self,
        app: Application,
        target: Sequence[Manifest],
        live: Mapping[Key, Manifest | None],
        strategy: Strategy,
    ) -> dict[Key, Manifest]:
        """Each object as it would be after a sync."""
        predicted: dict[Key, Manifest] = {}
        registered: list[Manifest] = []
        for each in target:
            key = key_of(each)
            before = live[key]
            if before is None:
                predicted[key] = each
            elif strategy is Strategy.SERVER_SIDE or (
                # such an object is merged by its fields' owners under the older strategy too (diff.go, Diff)
                each["kind"] == CRD and self._is_server_side(each, app)
            ):
                predicted[key] = self._patch(each, is_dry_run=True)
            elif key.group in UNREGISTERED:
                predicted[key] = three_way(each, before)
            else:
                registered.append(each)
        # "logic equivalent to kubectl diff": for types that Kubernetes brings, kubectl itself is asked
        for after in self._kubectl_predicts(registered):
            predicted[key_of(after)] = after
        return predicted

    def _kubectl_predicts(self, objects: Sequence[Manifest]) -> list[Manifest]:
        if not objects:
            return []
        done = self._cluster.kubectl(
            *("apply", "--dry-run=server", "-o", "json", "-f", "-"),
            input=yaml.safe_dump_all(objects),
        )
        said = json.loads(done.stdout)
        return list(said["items"]) if said["kind"] == "List" else [said]

    # ---- syncing --------------------------------------------------------------------------------

    def sync(self, app: Application) -> None:
        """Apply all, then prune; also what self-heal does."""
        for each in self.target(app):
            if self._is_server_side(each, app):
                self._patch(each)
            else:
                self._cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(each))
            if each["kind"] == CRD:  # sync_context.go, ensureCRDReady
                self._await_crd(key_of(each))
        self.prune(app)

    def prune(self, app: Application) -> list[Key]:
        """Delete what the revision has no longer, but for what says `Prune=false` (pruneObject)."""
        gone = [
            each
            for each in self.surplus(app)
            if "Prune=false" not in annotation(each, SYNC_OPTIONS)
        ]
        return [self._delete(key_of(each)) for each in sorted(gone, key=_order, reverse=True)]

    def delete(self, app: Application) -> list[Key]:
        """Delete the application with its objects (docs/user-guide/app_deletion.md, cascade).

        CRDs and what Helm is to keep stay (controller/appcontroller.go, shouldBeDeleted).
        """
        claimed = [each for each in self.everything() if self.claims(each, app)]
        going = [
            each
            for each in claimed
            if each["kind"] != CRD and annotation(each, HELM_KEEP[0]) != HELM_KEEP[1]
        ]
        return [self._delete(key_of(each)) for each in sorted(going, key=_order, reverse=True)]

    def _is_server_side(self, manifest: Mapping[str, Any], app: Application) -> bool:
        """sync_context.go, shouldUseServerSideApply."""
        own = annotation(manifest, SYNC_OPTIONS).split(",")
        return SERVER_SIDE_APPLY in (*app.sync_options, *own)

    def _patch(self, manifest: Manifest, *, is_dry_run: bool = False) -> Manifest:
        """Server-side apply as Argo does it: its manager, conflicts forced."""
        query = f"?fieldManager={MANAGER}&force=true&fieldValidation=Strict"
        status, answer = self._wire.request(
            "PATCH",
            self._path(key_of(manifest)) + query + ("&dryRun=All" if is_dry_run else ""),
            manifest,
            content_type="application/apply-patch+yaml",
        )
        if status not in (http.client.OK, http.client.CREATED):
            raise RuntimeError(f"{key_of(manifest)}: {status} {answer}")
        return dict(answer)

    def _delete(self, key: Key) -> Key:
        """In the foreground, Argo's default (sync_context.go, getDeleteOptions)."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        status, answer = self._wire.request(
            "DELETE", self._path(key), body, content_type="application/json"
        )
        if status not in (http.client.OK, http.client.ACCEPTED, http.client.NOT_FOUND):
            raise RuntimeError(f"{key}: {status} {answer}")
        return key

    def _await_crd(self, key: Key) -> None:
        eventually(
            lambda: ("Established", "True") in told(self.live(key) or {}),
            within=Patience.CRD_SERVED,
            says=f"{key.name} is established",
        )
        spec = (self.live(key) or {})["spec"]
        if (spec["group"], spec["names"]["kind"]) not in self._resources:
            self._resources.clear()

    # ---- the API server's kinds -------------------------------------------------------------------

    def _discover(self) -> None:
        if self._resources:
            return
        groups = self._wire.get("/apis")["groups"]
        served = [("", "v1"), *((g["name"], g["preferredVersion"]["version"]) for g in groups)]
        for group, version in served:
            for found in self._wire.get(root(group, version))["resources"]:
                if "/" not in found["name"]:
                    self._resources[group, found["kind"]] = Resource(
                        version, found["name"], found["namespaced"], "list" in found["verbs"]
                    )

    def _is_namespaced(self, manifest: Mapping[str, Any], *, default: bool) -> bool:
        """`default` where its CRD comes with the same sync and is not served yet."""
        found = self._resources.get((group_of(manifest), manifest["kind"]))
        return default if found is None else found.is_namespaced

    def _path(self, key: Key) -> str:
        self._discover()
        resource = self._resources[key.group, key.kind]
        place = f"namespaces/{key.namespace}/" if resource.is_namespaced else ""
        return f"{root(key.group, resource.version)}/{place}{resource.plural}/{key.name}"


# ---- health -----------------------------------------------------------------------------------------


class Health(NamedTuple):
    """What a health script answers."""

    status: str
    message: str


def health(manifest: Mapping[str, Any], script: Path) -> Health:
    """A resource customization on Lua 5.1, which Argo runs (docs/operator-manual/health.md)."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    for name in STRIPPED:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(manifest, recursive=True)
    answer = lua.execute(script.read_text())
    return Health(answer["status"], answer["message"])


# ---- small things -----------------------------------------------------------------------------------


def read_folder(folder: Path) -> list[Manifest]:
    """A directory of plain YAML as an application's source (docs/user-guide/directory.md)."""
    texts = (path.read_text() for path in sorted(folder.glob("*.yaml")))
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def group_of(manifest: Mapping[str, Any]) -> str:
    group, slash, _ = str(manifest["apiVersion"]).partition("/")
    return group if slash else ""


def key_of(manifest: Mapping[str, Any]) -> Key:
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "")
    return Key(group_of(manifest), manifest["kind"], namespace, metadata["name"])


def annotation(manifest: Mapping[str, Any], name: str) -> str:
    """Its value; empty where there is none."""
    return str((manifest["metadata"].get("annotations") or {}).get(name, ""))


def told(manifest: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Its conditions; a new CRD's list of them is null."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return {(each["type"], each["status"]) for each in conditions}


def api_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _order(manifest: Mapping[str, Any]) -> tuple[int, int, str]:
    """Wave, kind, name (gitops-engine/pkg/sync/sync_tasks.go, Less)."""
    kind = manifest["kind"]
    place = KINDS_IN_ORDER.index(kind) if kind in KINDS_IN_ORDER else len(KINDS_IN_ORDER)
    wave = int(annotation(manifest, SYNC_WAVE) or 0)
    return wave, place, manifest["metadata"]["name"]
