"""Argo CD and Flux beside a working operator: does anything ever drift, and is the health what it should be?

The chart and the objects are synced as docs/argocd says, from those very files. In order: each story leaves the
cluster as it found it, and the last one takes the chart out.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import kstatus
from argo import (
    TRACKING_ANNOTATION,
    TRACKING_LABEL,
    Application,
    Argo,
    Drift,
    Key,
    Strategy,
    Tracking,
    annotation,
    health,
    key_of,
    read_folder,
)
from audit import AuditLog
from controlplane import fleet
from controlplane.cluster import OUR_NAMESPACE, ControlPlane, Manifest
from installation import REPOSITORY, USER, Installation
from objects import small
from patience import Patience, eventually
from world import World

ARGOCD: Final = REPOSITORY / "docs" / "argocd"
SCRIPT: Final = (
    ARGOCD / "resource_customizations" / "plimsoll.dev" / "InferenceDeployment" / "health.lua"
)
TEAM: Final = "chat"
"""The folder of models, and so application and namespace, as applicationset.yaml makes them."""
SLOW: Final = {"annotations": {"fake.plimsoll.test/ready-after": "2s"}}
STUCK: Final = {"annotations": {"fake.plimsoll.test/never-ready": "true"}}
CALM: Final[dict[str, Any]] = {
    "PLIMSOLL_LEASE_SECONDS": "15",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "10",
    "PLIMSOLL_RETRY_SECONDS": "2",
}
"""Losing the Lease is no part of these stories."""
TOO_MUCH: Final = {"maxModelLen": 8192, "concurrency": 2000}


class SyncedByArgo(Installation):
    """Plimsoll as the Application has it, its operator a process beside the cluster."""

    def __init__(self, cluster: ControlPlane, release: str) -> None:
        self.cluster = cluster
        self.log = AuditLog(cluster.audit_log)
        self.operator = None
        self.kubeconfig = cluster.service_account_kubeconfig(OUR_NAMESPACE, release)


class Desk:
    """A platform team's: a folder that stands for Git, Argo CD, and the cluster."""

    def __init__(self, cluster: ControlPlane, argo: Argo, by_label: Argo, folder: Path) -> None:
        self.cluster, self.argo, self.by_label = cluster, argo, by_label
        self.rendered: list[Manifest] = []
        self.chart = application_of("application.yaml", self.render_chart)
        self.models = Application(
            TEAM,
            TEAM,
            lambda: read_folder(self.folder),
            options_of(document("applicationset.yaml")["spec"]["template"]),
        )
        self.folder = folder / "models" / TEAM
        self.folder.mkdir(parents=True)
        cluster.ensure_namespace(self.chart.namespace)  # CreateNamespace=true
        self.argo.sync(self.chart)
        self.world = World(SyncedByArgo(cluster, self.chart.name), TEAM)

    def render_chart(self) -> list[Manifest]:
        """Once: Argo too keeps what it rendered of a revision."""
        if not self.rendered:
            source = document("application.yaml")["spec"]["source"]
            chart = REPOSITORY / source["path"]
            self.rendered = self.argo.helm(chart, self.chart.name, self.chart.namespace)
        return self.rendered

    def commit(self, name: str, **spec: Any) -> None:
        """One object in Git, and a sync."""
        raw = small(self.world, name=name, **spec)
        del raw["metadata"]["namespace"]  # the application's destination says it
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(raw))
        self.argo.sync(self.models)

    def take_out(self, name: str) -> None:
        """One object less in Git, and a sync, which waits for what it prunes."""
        (self.folder / f"{name}.yaml").unlink()
        self.argo.sync(self.models)
        key = Key("plimsoll.dev", "InferenceDeployment", TEAM, name)
        eventually(
            lambda: self.argo.live(key) is None,
            within=Patience.POD_GONE,
            says=f"{name} is gone with its children",
        )

    def is_seen_as(self, name: str) -> tuple[str, str]:
        """Argo's health and kstatus of one object, of the same moment."""
        seen = self.world.object(name)
        return health(seen, SCRIPT).status, str(kstatus.compute(seen).status)

    def await_seen_as(self, name: str, argo: str, flux: str, says: str) -> Manifest:
        """Wait until both say so; the object then."""

        def seen() -> Manifest | None:
            live = self.world.object(name)
            found = health(live, SCRIPT), kstatus.compute(live)
            if (found[0].status, found[1].status) != (argo, flux):
                raise LookupError(str(found))
            return live

        there = eventually(seen, within=Patience.POOL_ROLLOUT, says=f"{name} is {argo}: {says}")
        assert there is not None
        return there

    def drift(self, app: Application | None = None) -> tuple[Drift, ...]:
        """Objects of the models, or of another application, that are not as in Git."""
        return self.argo.drift(app or self.models)

    def children(self, among: Iterable[Manifest] | None = None) -> list[Manifest]:
        """Whatever the operator, and Kubernetes for it, made in the team's namespace."""
        return [
            each
            for each in (self.argo.everything() if among is None else among)
            if each["metadata"].get("namespace") == TEAM and each["metadata"].get("ownerReferences")
        ]

    def must_be_in_sync(self) -> None:
        """No object differs, nothing would be pruned, and nothing that we made is taken for Argo's."""
        assert self.drift() == ()
        there = list(self.argo.everything())
        for argo in (self.argo, self.by_label):
            surplus = argo.surplus(self.models, there)
            assert surplus == [], [key_of(each) for each in surplus]
        for child in self.children(there):
            assert annotation(child, TRACKING_ANNOTATION) == "", key_of(child)
            assert TRACKING_LABEL not in (child["metadata"].get("labels") or {}), key_of(child)

    def versions(self) -> dict[Key, str]:
        """resourceVersion of all that Argo tracks and all that we made."""
        there = list(self.argo.everything())
        tracked = [each for app in (self.chart, self.models) for each in self.argo.target(app)]
        keys = {key_of(each) for each in (*tracked, *self.children(there))}
        return {
            key_of(each): each["metadata"]["resourceVersion"]
            for each in there
            if key_of(each) in keys
        }


def document(name: str) -> Any:
    return yaml.safe_load((ARGOCD / name).read_text())


def options_of(application: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(application["spec"]["syncPolicy"]["syncOptions"])


def application_of(name: str, render: Any) -> Application:
    """An Application's file."""
    raw = document(name)
    place = raw["spec"]["destination"]["namespace"]
    return Application(raw["metadata"]["name"], place, render, options_of(raw))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The chart synced, nobody working yet."""
    with (
        ControlPlane() as cluster,
        closing(Argo(cluster)) as argo,
        closing(Argo(cluster, Tracking.LABEL)) as by_label,
    ):
        cluster.add_nodes(fleet.h100_x8("h100-0"), fleet.no_gpu("cpu-0"))
        made = Desk(cluster, argo, by_label, tmp_path_factory.mktemp("git"))
        try:
            yield made
        finally:
            made.world.installed.stop()
        denied = made.world.installed.log.denied(USER)
        assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def test_an_object_that_nobody_answered_yet_is_progressing(desk: Desk) -> None:
    """First: the operator is started at its end."""
    desk.commit("new", workers=1)
    assert desk.is_seen_as("new") == ("Progressing", "InProgress")
    desk.must_be_in_sync()
    desk.world.installed.start(**CALM)
    desk.await_seen_as("new", "Healthy", "Current", "the operator came")
    desk.must_be_in_sync()
    desk.take_out("new")


def test_the_chart_as_synced_does_not_drift(desk: Desk) -> None:
    assert desk.argo.drift(desk.chart) == ()
    assert desk.argo.surplus(desk.chart) == []
    kinds = {key_of(each).kind for each in desk.argo.target(desk.chart)}
    assert {"CustomResourceDefinition", "Deployment", "DaemonSet", "ClusterRole"} <= kinds
    assert "Pod" not in kinds, "a hook of `helm test` is not synced"


def test_a_change_by_hand_is_seen_by_both_ways_to_compare(desk: Desk) -> None:
    """Without this the stories could say "no drift" of everything."""
    desk.commit("changed", workers=1)
    change = {"spec": {"limits": {"maxModelLen": 4096}}}
    desk.world.kubectl("patch", "infd/changed", "--type=merge", "-p", json.dumps(change))
    desk.world.kubectl(*("-n", OUR_NAMESPACE), "scale", "deployment/plimsoll", "--replicas=2")
    where = {"changed": (".spec.limits.maxModelLen",), "plimsoll": (".spec.replicas",)}
    seen = {(each.key.name, each.strategy): each.paths for each in desk.drift(desk.models)}
    seen |= {(each.key.name, each.strategy): each.paths for each in desk.drift(desk.chart)}
    assert seen == {(name, way): paths for name, paths in where.items() for way in Strategy}
    desk.argo.sync(desk.chart)
    desk.argo.sync(desk.models)
    assert desk.drift(desk.chart) == ()
    desk.must_be_in_sync()
    desk.take_out("changed")


def test_a_rollout_is_progressing_until_all_run_the_new_plan(desk: Desk) -> None:
    desk.commit("rolls", workers=2)
    desk.await_seen_as("rolls", "Healthy", "Current", "both workers serve")
    desk.must_be_in_sync()
    desk.commit("rolls", workers=2, limits={"maxModelLen": 4096}, worker=STUCK)
    desk.await_seen_as("rolls", "Progressing", "InProgress", "the plan is new")
    desk.world.await_condition("rolls", "Ready", "False", reason="RollingOut")
    assert desk.is_seen_as("rolls") == ("Progressing", "InProgress")
    desk.must_be_in_sync()  # in the middle of it
    desk.commit("rolls", workers=2, limits={"maxModelLen": 4096}, worker=SLOW)
    desk.await_seen_as("rolls", "Healthy", "Current", "the rollout is over")
    assert "4096" in json.dumps(desk.world.deployments()["rolls-h100"])
    desk.must_be_in_sync()


def test_a_recycled_worker_is_progressing_and_no_drift(desk: Desk) -> None:
    """By hand, with the very calls of a recycle: out of the Service, then evicted by its uid."""
    victim = desk.world.pods("rolls")[0]["metadata"]
    pod = f"/api/v1/namespaces/{TEAM}/pods/{victim['name']}"
    draining = {"metadata": {"labels": {"app.kubernetes.io/component": "worker-draining"}}}
    assert desk.cluster.request("PATCH", pod, draining)[0] == http.client.OK
    desk.must_be_in_sync()
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim["name"], "namespace": TEAM},
        "deleteOptions": {"preconditions": {"uid": victim["uid"]}},
    }
    assert desk.cluster.request("POST", f"{pod}/eviction", eviction)[0] == http.client.CREATED
    desk.await_seen_as("rolls", "Progressing", "InProgress", "its successor is starting")
    desk.must_be_in_sync()
    desk.await_seen_as("rolls", "Healthy", "Current", "its successor serves")
    assert victim["uid"] not in {each["metadata"]["uid"] for each in desk.world.pods("rolls")}
    desk.must_be_in_sync()


def test_self_heal_again_and_again_writes_nothing(desk: Desk) -> None:
    """After the rollout: what it left is what is synced."""
    applications = desk.chart, desk.models
    for each in applications:
        desk.argo.sync(each)
    before = settled(desk)
    for _ in range(3):
        for each in applications:
            desk.argo.sync(each)
    assert settled(desk) == before


def settled(desk: Desk) -> dict[Key, str]:
    """resourceVersions, once two looks in a row found the same."""
    seen: list[dict[Key, str]] = [{}]

    def same() -> bool:
        seen.append(desk.versions())
        return seen[-1] == seen[-2]

    eventually(same, within=Patience.PLAN_WRITTEN, says="nothing is being written")
    return seen[-1]


def test_a_refusal_is_degraded_and_goes_with_its_cause(desk: Desk) -> None:
    serving = {pod["metadata"]["uid"] for pod in desk.world.pods("rolls")}
    kept = {"workers": 2, "worker": SLOW}
    desk.commit("rolls", limits=TOO_MUCH, **kept)
    live = desk.await_seen_as("rolls", "Degraded", "Failed", "it does not fit")
    found = health(live, SCRIPT)
    assert found.message.startswith("KvBudgetExceeded: "), found
    desk.must_be_in_sync()
    assert serving == {pod["metadata"]["uid"] for pod in desk.world.pods("rolls")}
    desk.commit("rolls", limits={"maxModelLen": 4096}, **kept)
    desk.await_seen_as("rolls", "Healthy", "Current", "Git has the old figures again")
    assert serving == {pod["metadata"]["uid"] for pod in desk.world.pods("rolls")}
    desk.must_be_in_sync()
    desk.take_out("rolls")


def test_scaling_by_hand_is_no_drift_where_git_leaves_replicas_open(desk: Desk) -> None:
    raw = small(desk.world, name="scaled")
    del raw["spec"]["replicas"]
    (desk.folder / "scaled.yaml").write_text(yaml.safe_dump(raw))
    desk.argo.sync(desk.models)
    desk.await_seen_as("scaled", "Healthy", "Current", "one worker serves")
    desk.world.kubectl("scale", "infd/scaled", "--replicas=3")
    desk.must_be_in_sync()
    desk.argo.sync(desk.models)
    desk.world.await_ready("scaled", 3)
    assert desk.is_seen_as("scaled") == ("Healthy", "Current")
    desk.must_be_in_sync()
    # where Git says a number, Argo sees the other one and a sync puts it back
    raw["spec"]["replicas"] = 1
    (desk.folder / "scaled.yaml").write_text(yaml.safe_dump(raw))
    assert {(".spec.replicas",)} == {
        tuple(path for path in each.paths if path.startswith(".spec")) for each in desk.drift()
    }
    desk.argo.sync(desk.models)
    desk.world.await_ready("scaled", 1)
    desk.must_be_in_sync()


def test_prune_takes_the_children_along_and_nothing_else(desk: Desk) -> None:
    desk.commit("stays", workers=1)
    desk.await_seen_as("stays", "Healthy", "Current", "it serves")
    before = {key_of(each) for each in desk.children() if is_of(each, "stays")}
    assert {"Deployment", "Pod", "Service"} <= {key.kind for key in before}
    desk.take_out("scaled")
    eventually(
        lambda: not [each for each in desk.children() if is_of(each, "scaled")],
        within=Patience.POD_GONE,
        says="garbage collection took all children",
    )
    assert desk.argo.live(Key("plimsoll.dev", "InferenceDeployment", TEAM, "scaled")) is None
    assert before == {key_of(each) for each in desk.children() if is_of(each, "stays")}
    desk.must_be_in_sync()


def is_of(manifest: Mapping[str, Any], name: str) -> bool:
    """Whether it was made for this InferenceDeployment."""
    key = key_of(manifest)
    return key.kind != "Event" and (key.name == name or key.name.startswith(f"{name}-"))


def test_the_chart_goes_and_models_stay_served(desk: Desk) -> None:
    """Last."""
    serving = {pod["metadata"]["uid"] for pod in desk.world.pods("stays")}
    assert serving
    desk.world.installed.stop()
    gone = desk.argo.delete(desk.chart)
    eventually(
        lambda: not [key for key in gone if desk.argo.live(key)],
        within=Patience.POD_GONE,
        says="all of the chart but its CRDs is gone",
    )
    assert serving == {pod["metadata"]["uid"] for pod in desk.world.pods("stays")}
    desk.must_be_in_sync()
    # and with nobody there to ask, an object still goes at once
    desk.take_out("stays")
    eventually(
        lambda: not [each for each in desk.children() if is_of(each, "stays")],
        within=Patience.POD_GONE,
        says="the object's children are gone",
    )
    status, _ = desk.cluster.request("GET", "/apis/plimsoll.dev/v1alpha1/inferencedeployments")
    assert status == http.client.OK, "the kinds are still served"
