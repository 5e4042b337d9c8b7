"""From the first release to this one and back, with objects there and workers serving: what is lost, who moves?

The first chart and the operator of that day are kept in tests/data/first_release. Helm is real, and so is the control
plane; an operator is a process under its chart's account, where the chart's own pod is one of kwok's. In order: each
story goes on where the one before ended.
"""

from __future__ import annotations

import http.client
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from audit import AuditLog
from controlplane import fleet
from controlplane.cluster import OUR_NAMESPACE, ControlPlane, Manifest
from installation import CHART, RELEASE, REPOSITORY, USER, Installation, Operator
from objects import small
from patience import Patience, eventually
from plimsoll import __version__
from world import World

FIRST: Final = "0.1.0"
KEPT: Final = REPOSITORY / "tests" / "data" / "first_release"
UPGRADE: Final = ("upgrade", RELEASE, CHART, "-n", OUR_NAMESPACE)
"""As docs/versions.md has it."""
ASKED: Final = {"llama-70b": 3, "shared-70b": 2, "small": 2}
"""Workers of each object; the fourth one, plant-assistant, is refused and has none."""


SOON: Final = {
    "PLIMSOLL_LEASE_SECONDS": "8",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "5",
    "PLIMSOLL_RETRY_SECONDS": "1",
}
"""A standby need not wait for the 15 s of the default; the leader renews every 2 s."""


class Served(NamedTuple):
    """What must not move: each worker's pod, and each Deployment with its generation."""

    pods: frozenset[str]
    deployments: frozenset[tuple[str, str, int]]


class Site(Installation):
    """One cluster with a release, and the code of the operator that is meant to run."""

    def __init__(self, cluster: ControlPlane, place: Path) -> None:
        with tarfile.open(KEPT / f"operator-{FIRST}.tar.gz") as archive:
            archive.extractall(place, filter="data")
        self.first_code = place / "operator"
        self.first_examples = place / "docs" / "examples"
        self.cluster = cluster
        self.log = AuditLog(cluster.audit_log)
        self.operator = None
        cluster.helm(
            *("install", RELEASE, KEPT / f"plimsoll-{FIRST}.tgz"),
            *("-n", OUR_NAMESPACE, "--create-namespace"),
        )
        eventually(
            lambda: cluster.kubectl("get", "infd", "-A", check=False).returncode == 0,
            within=Patience.CRD_SERVED,
            says="the API server serves our kinds",
        )
        self.kubeconfig = cluster.service_account_kubeconfig(OUR_NAMESPACE, RELEASE)
        self.world = World(self, "serves")

    def run(self, version: str) -> Operator:
        """The operator of that version in the place of the one that runs, as strategy Recreate has it."""
        self.stop()
        is_first = version == FIRST
        operator = self.start(PYTHONPATH=str(self.first_code)) if is_first else self.start()
        assert f'plimsoll_build_info{{version="{version}"}} 1.0' in operator.metrics()
        return operator

    def served(self) -> Served:
        deployments = self.world.deployments().values()
        return Served(
            frozenset(pod["metadata"]["uid"] for pod in self.world.pods()),
            frozenset(
                (each["metadata"]["name"], each["metadata"]["uid"], each["metadata"]["generation"])
                for each in deployments
            ),
        )

    def asked(self) -> list[Manifest]:
        """The objects as their owners applied them."""
        examples = [
            yaml.safe_load(path.read_text()) for path in sorted(self.first_examples.glob("*.yaml"))
        ]
        for raw in examples:
            raw["metadata"]["namespace"] = self.world.namespace
        return [*examples, small(self.world)]

    def specs(self) -> dict[str, Any]:
        """A changed CRD is answered with 429 for a moment, while the API server takes it up."""
        found = eventually(
            lambda: self.world.items("plimsoll.dev/v1alpha1:inferencedeployments"),
            within=Patience.CRD_SERVED,
            says="the API server serves our kinds again",
        )
        return {each["metadata"]["name"]: each["spec"] for each in found}

    def await_visited(self, operator: Operator) -> None:
        """The operator has looked after each object once, and has nothing left to say."""

        def quiet() -> bool:
            visits = sum(map(float, VISITS.findall(operator.metrics())))
            seen.append(self.versions())
            changed = sorted(set(seen[-1].items()) ^ set(seen[-2].items()))
            if visits < len(ASKED) + 1 or changed:
                raise LookupError(f"{visits:.0f} visits; changed: {changed}")
            return True

        seen: list[dict[str, str]] = [{}]
        eventually(quiet, within=Patience.PLAN_WRITTEN, says="all were visited and nothing changes")

    def versions(self) -> dict[str, str]:
        kinds = ("plimsoll.dev/v1alpha1:inferencedeployments", "apps/v1:deployments", ":pods")
        return {
            f"{kind} {each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for kind in kinds
            for each in self.world.items(kind)
        }


VISITS: Final = re.compile(r"^plimsoll_reconciles_total\{.*\} (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The first release, its operator at work, its examples serving."""
    with ControlPlane() as cluster:
        cluster.add_nodes(
            *(fleet.a6000_x4(f"a6000-{number}") for number in range(2)),
            fleet.a6000_x1("a6000-2"),
            fleet.h100_x8("h100-0"),
            fleet.no_gpu("cpu-0"),
        )
        made = Site(cluster, tmp_path_factory.mktemp("first"))
        try:
            made.run(FIRST)
            made.world.apply(*made.asked())
            for name, workers in ASKED.items():
                made.world.await_ready(name, workers)
            yield made
        finally:
            made.stop()
        denied = made.log.denied(USER)
        assert not denied, f"a chart's RBAC refused {sorted(denied)}"


def test_an_upgrade_moves_no_pod_and_loses_nothing(site: Site) -> None:
    before, specs = site.served(), site.specs()
    site.cluster.helm(*UPGRADE)
    assert site.served() == before, "nobody worked, so nothing may have moved"
    assert site.specs() == specs, "a newer CRD keeps what an older one took"
    operator = site.run(__version__)
    site.world.await_condition("small", "PlanVerified", "Unknown")  # a word of the new release
    site.await_visited(operator)
    assert site.served() == before
    assert site.specs() == specs
    for name, workers in ASKED.items():
        site.world.await_ready(name, workers)
    # what was valid is valid, and Git's text changes nothing
    said = site.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(site.asked())).stdout
    assert said.count(" unchanged\n") == len(site.asked()), said


def test_two_operators_share_the_work_by_the_lease(site: Site) -> None:
    """`operator.replicas=2`: one leads, one is ready to; the leader is killed, and no worker notices."""
    site.cluster.helm(*UPGRADE, "--set", "operator.replicas=2")
    leader = site.operator
    assert leader is not None
    site.world.kubectl("scale", "infd/small", "--replicas=3")
    site.world.await_ready("small", 3)
    before = site.served()
    standby = Operator(site.cluster, site.kubeconfig, SOON)
    try:
        standby.wait_until_ready()
        assert [leader.get("/readyz")[1], standby.get("/readyz")[1]] == ["leading\n", "standby\n"]
        assert "plimsoll_leading 0.0" in standby.metrics()
        leader.kill()
        eventually(
            lambda: standby.get("/readyz") == (http.client.OK, "leading\n"),
            within=Patience.OPERATOR_UP,
            says="the other one leads",
        )
        site.await_visited(standby)
        assert site.served() == before
        versions, since = site.versions(), time.time()
        site.world.kubectl("scale", "infd/small", "--replicas=2")
        site.world.await_ready("small", 2)
        site.await_visited(standby)
        changed = set(site.versions().items()) - set(versions.items())
        assert len(changed) == 2, f"one object and its Deployment, but: {changed}"
        written = [each.use.resource for each in site.world.writes(since)]
        assert written.count("deployments") == 1, f"no write twice: {written}"
    finally:
        site.operator = standby


def test_a_rollback_moves_no_pod_and_loses_nothing(site: Site) -> None:
    before, specs = site.served(), site.specs()
    site.cluster.helm("rollback", RELEASE, "1", "-n", OUR_NAMESPACE)
    operator = site.run(FIRST)
    site.await_visited(operator)
    assert site.served() == before
    assert site.specs() == specs
    site.world.kubectl("scale", "infd/small", "--replicas=1")
    site.world.await_ready("small", 1)
    assert site.served().pods < before.pods


def test_the_release_goes_and_comes_again_and_workers_serve_on(site: Site) -> None:
    site.cluster.helm(*UPGRADE)
    site.await_visited(site.run(__version__))
    before, specs = site.served(), site.specs()
    site.stop()
    site.cluster.helm("uninstall", RELEASE, "-n", OUR_NAMESPACE)
    assert site.served() == before
    assert site.specs() == specs
    # nobody is asked: there is no finalizer, and garbage collection takes the children
    site.world.kubectl("delete", "infd", "small", "--timeout=20s")
    eventually(
        lambda: not site.world.pods("small"), within=Patience.POD_GONE, says="its workers are gone"
    )
    left = site.served()
    site.cluster.helm("install", RELEASE, CHART, "-n", OUR_NAMESPACE)
    site.kubeconfig = site.cluster.service_account_kubeconfig(OUR_NAMESPACE, RELEASE)
    operator = site.start()
    eventually(
        lambda: "plimsoll_deployments 3.0" in operator.metrics(),
        within=Patience.PLAN_WRITTEN,
        says="the new release sees what is there",
    )
    for name in ("llama-70b", "shared-70b"):
        site.world.await_ready(name, ASKED[name])
    assert site.served() == left
