"""Do the stand-in kubelets answer those who may ask, and does the audit log know who asked?"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from audit import AuditLog, Use
from controlplane.cluster import OUR_NAMESPACE, ControlPlane, Manifest
from patience import Patience, eventually
from stand_ins.kubelet import FakeKubelets

BUSY, IDLE = "a6000-2", "rtx4090-0"
GRANTED = "may-read-stats"
UNGRANTED = "may-nothing"


@pytest.fixture(scope="module")
def kubelets(cluster: ControlPlane) -> Iterator[FakeKubelets]:
    """They answer; there is a pod on one of their nodes, and there are two who ask."""
    cluster.ensure_namespace(OUR_NAMESPACE)
    worker = pod("worker-0", BUSY)
    cluster.apply(*accounts(), worker)
    eventually(
        lambda: cluster.get("/api/v1/namespaces/default/pods/worker-0")["status"]["startTime"],
        within=Patience.POOL_ROLLOUT,
        says="the worker runs",
    )
    with FakeKubelets(cluster) as answering:
        yield answering
    for each in (*accounts(), worker):
        metadata = each["metadata"]
        cluster.kubectl(
            *("delete", each["kind"], metadata["name"], "--wait=false"),
            *("-n", metadata.get("namespace", "default")),
        )


def ask(cluster: ControlPlane, node: str, account: str) -> tuple[int, Any]:
    """What the node's kubelet tells this account."""
    kubeconfig = cluster.service_account_kubeconfig(OUR_NAMESPACE, account)
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    address = cluster.get(f"/api/v1/nodes/{node}")["status"]["addresses"][0]["address"]
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    port = cluster.fake_kubelet_port
    connection = http.client.HTTPSConnection(
        address, port, context=tls, timeout=Patience.HTTP_ANSWER
    )
    connection.request("GET", "/stats/summary", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.status == http.client.OK else text


def test_a_pod_holds_what_the_story_says(cluster: ControlPlane, kubelets: FakeKubelets) -> None:
    kubelets.hold("default", "worker-0", resident_bytes=lambda: 3 << 30, swap_bytes=7)
    status, summary = ask(cluster, BUSY, GRANTED)
    assert http.client.OK == status
    (worker,) = summary["pods"]
    (server,) = worker["containers"]
    assert "worker-0" == worker["podRef"]["name"]
    assert 3 << 30 == server["memory"]["rssBytes"]
    assert 7 == server["swap"]["swapUsageBytes"]


def test_each_node_tells_its_own_pods(cluster: ControlPlane, kubelets: FakeKubelets) -> None:
    assert [] == ask(cluster, IDLE, GRANTED)[1]["pods"]


def test_a_node_can_fail_and_recover(cluster: ControlPlane, kubelets: FakeKubelets) -> None:
    kubelets.fail(BUSY, status=503)
    assert 503 == ask(cluster, BUSY, GRANTED)[0]
    kubelets.recover(BUSY)
    assert 200 == ask(cluster, BUSY, GRANTED)[0]


def test_the_question_is_in_the_audit_log(cluster: ControlPlane, kubelets: FakeKubelets) -> None:
    assert 200 == ask(cluster, BUSY, GRANTED)[0]
    assert 403 == ask(cluster, BUSY, UNGRANTED)[0]
    stats = Use("", "nodes/stats", "get", name=BUSY)
    log = AuditLog(cluster.audit_log)
    prefix = f"system:serviceaccount:{OUR_NAMESPACE}"
    eventually(
        lambda: stats in log.verbs_used(f"{prefix}:{GRANTED}"),
        within=Patience.AUDIT_WRITTEN,
        says="the log has the use of nodes/stats",
    )
    assert {stats} == log.denied(f"{prefix}:{UNGRANTED}")


def pod(name: str, node: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "server", "image": "example.test/worker:1"}],
        },
    }


def accounts() -> list[Manifest]:
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": GRANTED, "namespace": OUR_NAMESPACE}
    return [
        *(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": OUR_NAMESPACE},
            }
            for name in (GRANTED, UNGRANTED)
        ),
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": GRANTED},
            "rules": [rule],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": GRANTED},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": GRANTED},
            "subjects": [subject],
        },
    ]
