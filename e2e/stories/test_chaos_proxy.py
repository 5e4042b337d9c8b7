"""Does the wire break exactly where it was told to?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cluster import OUR_NAMESPACE, ControlPlane
from controlplane.processes import Child
from patience import Patience, eventually, steadily
from stand_ins.chaos_proxy import ChaosProxy, Moment

ACCOUNT = "wired"
CONFIG_MAPS = f"/api/v1/namespaces/{OUR_NAMESPACE}/configmaps"


@pytest.fixture(scope="module")
def account(cluster: ControlPlane) -> Iterator[str]:
    """One that may do everything, for as long as these stories last."""
    cluster.ensure_namespace(OUR_NAMESPACE)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": OUR_NAMESPACE},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OUR_NAMESPACE}],
        },
    )
    yield ACCOUNT
    cluster.kubectl("delete", "clusterrolebinding", ACCOUNT)
    cluster.kubectl("delete", "serviceaccount", ACCOUNT, "-n", OUR_NAMESPACE)


@pytest.fixture
def wire(cluster: ControlPlane, account: str) -> Iterator[ChaosProxy]:
    with ChaosProxy.to(cluster) as proxy:
        yield proxy


def make(cluster: ControlPlane, wire: ChaosProxy, name: str) -> int:
    """kubectl's exit status when it creates a config map over the wire."""
    kubeconfig = wire.kubeconfig(cluster.service_account_kubeconfig(OUR_NAMESPACE, ACCOUNT))
    command = ("create", "configmap", name)
    return cluster.kubectl(*command, check=False, kubeconfig=kubeconfig).returncode


def exists(cluster: ControlPlane, name: str) -> bool:
    return cluster.request("GET", f"{CONFIG_MAPS}/{name}")[0] == 200


def test_the_wire_passes_tokens_and_counts_changes(cluster: ControlPlane, wire: ChaosProxy) -> None:
    assert 0 == make(cluster, wire, "plain")
    assert exists(cluster, "plain")
    assert [(1, "POST", CONFIG_MAPS)] == [(m.number, m.method, m.path) for m in wire.mutations]


def test_broken_before_the_server_never_hears(cluster: ControlPlane, wire: ChaosProxy) -> None:
    called = threading.Event()
    wire.break_at(1, Moment.BEFORE, called.set)
    assert 0 != make(cluster, wire, "before")
    assert called.is_set()
    assert not exists(cluster, "before")


def test_broken_after_the_client_never_learns(cluster: ControlPlane, wire: ChaosProxy) -> None:
    called = threading.Event()
    wire.break_at(1, Moment.AFTER, called.set)
    assert 0 != make(cluster, wire, "after")
    assert called.is_set()
    assert exists(cluster, "after")


def test_a_wire_that_refuses_recovers_at_the_same_address(
    cluster: ControlPlane, wire: ChaosProxy
) -> None:
    address = wire.url
    wire.refuse()
    assert 0 != make(cluster, wire, "refused")
    wire.refuse(status=503)
    wire.recover()
    assert address == wire.url
    assert 0 == make(cluster, wire, "recovered")
    assert not exists(cluster, "refused")


def test_a_scripted_answer_is_given_so_often_and_not_passed_on(
    cluster: ControlPlane, wire: ChaosProxy
) -> None:
    wire.answer("/configmaps", 422, times=2)
    assert [False, False, True] == [0 == make(cluster, wire, "scripted") for _ in range(3)]
    assert 3 == len(wire.mutations)
    assert b"scripted" in wire.mutations[0].body


def test_dropped_requests_get_no_answer(cluster: ControlPlane, wire: ChaosProxy) -> None:
    wire.drop_every(1)
    assert 0 != make(cluster, wire, "dropped")
    wire.recover()
    assert 0 == make(cluster, wire, "let-through")


def watching(cluster: ControlPlane, wire: ChaosProxy, folder: Path) -> Child:
    """kubectl, watching config maps over the wire."""
    kubeconfig = wire.kubeconfig(cluster.service_account_kubeconfig(OUR_NAMESPACE, ACCOUNT))
    return Child(
        "watch",
        [cluster.bin / "kubectl", "get", "configmaps", "--watch", "-o", "name"],
        log=folder / "watch.log",
        env=cluster.environment | {"KUBECONFIG": str(kubeconfig)},
    )


def test_a_hushed_watch_stays_open_and_ends_with_the_word_it_is_given(
    cluster: ControlPlane, wire: ChaosProxy, tmp_path: Path
) -> None:
    watch = watching(cluster, wire, tmp_path)
    try:
        eventually(
            lambda: wire.watches == ("configmaps",),
            within=Patience.CONDITION_SEEN,
            says="config maps are watched",
        )
        assert 1 == wire.hush("configmaps")
        cluster.request("POST", CONFIG_MAPS, {"metadata": {"name": "unheard"}})
        steadily(lambda: watch.is_running, during=1.0, says="the watch is open")
        assert "unheard" not in watch.tail()
        status = {"kind": "Status", "apiVersion": "v1", "code": 500, "message": "of our own"}
        wire.say({"type": "ERROR", "object": status}, "configmaps", ends=True)
        eventually(
            lambda: not watch.is_running, within=Patience.CONDITION_SEEN, says="the watch ends"
        )
        assert "status/" in watch.tail()  # all that kubectl says of it with -o name
    finally:
        watch.kill()


def test_a_watch_streams_and_ends_when_the_wire_refuses(
    cluster: ControlPlane, wire: ChaosProxy, tmp_path: Path
) -> None:
    watch = watching(cluster, wire, tmp_path)
    try:
        for name in ("watched-first", "watched-second"):
            cluster.request("POST", CONFIG_MAPS, {"metadata": {"name": name}})
            eventually(
                lambda name=name: name in watch.tail(),  # type: ignore[misc]
                within=Patience.CONDITION_SEEN,
                says=f"the watch shows {name}",
            )
        wire.refuse()
        eventually(
            lambda: not watch.is_running, within=Patience.CONDITION_SEEN, says="the watch ends"
        )
    finally:
        watch.kill()
