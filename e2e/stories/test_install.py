"""Does the README install Plimsoll: with Helm, with kubectl alone, as Argo CD does, each in at most three commands?

The commands are taken from README.md word by word and run in the checkout, on a real control plane with the
demo's fleet. Two things cannot be there. The image cannot be pulled: kwok plays the operator's pod, and the
operator itself is a process with that pod's account and settings. Argo CD is e2e/argo.py, which reads the
Application from the cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from argo import Application, Argo
from audit import AuditLog
from controlplane import fleet
from controlplane.cluster import OUR_NAMESPACE, ControlPlane
from installation import RELEASE, REPOSITORY, USER, Installation
from patience import Patience, eventually
from world import World

README: Final = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCK: Final = r"<!-- {} -->\n```(?:sh|text)\n(.*?)```\n"
VIEW: Final = "kubectl get: [^>]*"
AGE: Final = re.compile(r"(?<= )\d+[sm]\S*$")
WAYS: Final = ("Helm", "kubectl", "Argo CD")
MOST_COMMANDS: Final = 3
TEAM: Final = "inference"
READY: Final = {"llama-70b": 3, "shared-70b": 2}
PAGES: Final = sorted((REPOSITORY / "docs").rglob("*.md"))
LOOKS: Final = re.compile(
    r"^(kubectl (?:get|describe) (?:infd|inferencedeployment|gpun)\b(?!.*NODE)(?:.*\\\n)*.*)$",
    re.MULTILINE,
)
APPLICATIONS: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "applications.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "names": {"kind": "Application", "plural": "applications"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""As much of Argo CD's own as lets kubectl apply an Application."""


def block(heading: str) -> str:
    """What stands in the README below such a comment."""
    found = re.findall(BLOCK.format(heading), README, re.DOTALL)
    assert len(found) == 1, f"{heading}: {len(found)} blocks"
    return str(found[0])


def commands(heading: str) -> list[str]:
    joined = re.sub(r" *\\\n *", " ", block(heading))
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


class AsInstalled(Installation):
    """The operator with the settings and the account of the Deployment that is there."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.log = AuditLog(cluster.audit_log)
        self.operator = None
        self.kubeconfig = cluster.service_account_kubeconfig(OUR_NAMESPACE, RELEASE)

    def settings(self) -> dict[str, Any]:
        """What its container would be started with; no image to inspect models with, for none can be pulled."""
        path = f"/apis/apps/v1/namespaces/{OUR_NAMESPACE}/deployments/{RELEASE}"
        found = self.cluster.get(path)["spec"]["template"]["spec"]
        container = found["containers"][0]
        assert (["run"], RELEASE) == (container["args"], found["serviceAccountName"])
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        return {
            name: value
            for name, value in given.items()
            if name.startswith("PLIMSOLL_") and not name.startswith("PLIMSOLL_INSPECTION")
        }


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """The demo's fleet, and a place for Argo CD's Applications."""
    with ControlPlane() as started:
        started.add_nodes(
            fleet.a6000_x4("a6000-0"),
            fleet.a6000_x4("a6000-1"),
            fleet.a6000_x1("a6000-2"),
            fleet.rtx4090_x1("rtx4090-0"),
            fleet.h100_x8("h100-0"),
            fleet.no_gpu("cpu-0"),
        )
        started.ensure_namespace("argocd")
        started.apply(APPLICATIONS)
        yield started


def carry_out(cluster: ControlPlane, command: str) -> str:
    """A line of the README, where its reader stands."""
    return cluster.run("bash", "-c", f"cd '{REPOSITORY}' && {command}").stdout


def by_itself(_: ControlPlane) -> Callable[[], None]:
    """Helm and kubectl have nothing to be waited for."""
    return lambda: None


def synced_by_argo(cluster: ControlPlane) -> Callable[[], None]:
    """Argo CD does what the Application says, and takes it back when it goes."""
    applied = cluster.get("/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/plimsoll")
    source, place = applied["spec"]["source"], applied["spec"]["destination"]["namespace"]
    options = tuple(applied["spec"]["syncPolicy"]["syncOptions"])
    assert "CreateNamespace=true" in options
    cluster.ensure_namespace(place)
    with closing(Argo(cluster)) as argo:
        rendered = argo.helm(REPOSITORY / source["path"], applied["metadata"]["name"], place)
        app = Application(applied["metadata"]["name"], place, lambda: rendered, options)
        argo.sync(app)
        assert argo.drift(app) == ()

    def taken_out() -> None:
        with closing(Argo(cluster)) as argo:
            argo.delete(app)

    return taken_out


@pytest.mark.parametrize("way", WAYS)
def test_a_fresh_reader_installs_it_and_the_examples_are_planned(
    cluster: ControlPlane, way: str
) -> None:
    install, then = commands(f"installs with {way}"), commands("then")
    assert len(install) + len(then) <= MOST_COMMANDS
    for command in install:
        carry_out(cluster, command)
    take_out = (synced_by_argo if way == "Argo CD" else by_itself)(cluster)
    for command in then:
        carry_out(cluster, command)
    installed = AsInstalled(cluster)
    world = World(installed, TEAM)  # with the claim that the examples load from
    try:
        installed.start(**installed.settings())
        for name in READY:
            world.await_condition(name, "Planned", "True")
        world.await_condition("plant-assistant", "Planned", "False", reason="NotAllowedHere")
        if way == "Helm":  # once is enough
            for name, count in READY.items():
                world.await_ready(name, count)
            compare_view(carry_out(cluster, "kubectl get infd -A"))
            assert look(cluster) >= 8
        eventually(
            lambda: cluster.get(
                f"/apis/apps/v1/namespaces/{OUR_NAMESPACE}/deployments/{RELEASE}"
            ).get("status", {})["availableReplicas"],
            within=Patience.POOL_ROLLOUT,
            says="the operator's pod is let in and started, by kwok",
        )
        assert installed.log.denied(USER) == frozenset()
        installed.stop()
        workers = {pod["metadata"]["uid"] for pod in world.pods()}
        (removal,) = re.findall(rf"^- with {way}: `([^`]+)`", README, re.MULTILINE)
        if way == "Argo CD":
            assert removal == f"argocd app delete {RELEASE}"  # take_out does what that asks for
        else:
            carry_out(cluster, removal)
        take_out()
        assert workers == {pod["metadata"]["uid"] for pod in world.pods()}
        carry_out(cluster, "kubectl delete -f docs/examples/ --timeout=60s")
    finally:
        installed.stop()
        world.leave()
        cluster.kubectl("delete", "namespace", TEAM, OUR_NAMESPACE, "--ignore-not-found")
        cluster.kubectl("delete", "-f", REPOSITORY / "crds", "--ignore-not-found")
        cluster.kubectl("wait", "--for=delete", f"pv/{TEAM}-models", "--timeout=60s")


def look(cluster: ControlPlane) -> int:
    """Every `kubectl get` and `describe` of the documents that asks about objects that are there; how many."""
    lines = [line for page in PAGES for line in LOOKS.findall(page.read_text(encoding="utf-8"))]
    for line in lines:
        command = re.split(r" {2,}#|\| ", re.sub(r" *\\\n *", " ", line))[0]
        named = command.replace("NAME", "llama-70b")
        carry_out(cluster, named.replace("kubectl ", f"kubectl -n {TEAM} ", 1))
    return len(lines)


def compare_view(seen: str) -> None:
    """The README shows what kubectl shows, but for the age; PLIMSOLL_GOLDEN=write puts it there."""
    seen = "\n".join(AGE.sub("2s", line) for line in seen.splitlines()) + "\n"
    shown = block(VIEW)
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        (REPOSITORY / "README.md").write_text(README.replace(shown, seen), encoding="utf-8")
    else:
        assert [line.split() for line in shown.splitlines()] == [
            line.split() for line in seen.splitlines()
        ]
