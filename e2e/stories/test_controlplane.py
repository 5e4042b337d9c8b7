"""Does the control plane itself do what the other stories rely on?"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from audit import AuditLog, Use
from controlplane import fleet
from controlplane.build import KUBERNETES, version_of
from controlplane.cluster import API_ONLY, OUR_NAMESPACE, ControlPlane, Manifest
from patience import OutOfPatienceError, Patience, eventually

ACCOUNT = "auditor"
USER = f"system:serviceaccount:{OUR_NAMESPACE}:{ACCOUNT}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane() as started:
        started.add_nodes(fleet.a6000_x4("a6000"), fleet.rtx4090_x1("rtx4090"))
        yield started


def worker(name: str, product: str, gpus: int) -> Manifest:
    on_product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [on_product]}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "affinity": {
                        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
                    },
                    "containers": [
                        {
                            "name": "server",
                            "image": "example.test/worker:1",
                            "resources": {"limits": {fleet.NVIDIA_GPU: str(gpus)}},
                        }
                    ],
                },
            },
        },
    }


def test_every_program_tells_the_version_of_go_mod(cluster: ControlPlane) -> None:
    version = cluster.kubectl_json("version")["serverVersion"]["gitVersion"]
    assert version_of(KUBERNETES) == version
    assert "v4." in cluster.helm("version", "--short").stdout


def test_a_fake_node_keeps_its_labels_and_its_cards(cluster: ControlPlane) -> None:
    node = cluster.get("/api/v1/nodes/a6000")
    assert fleet.A6000.product == node["metadata"]["labels"]["nvidia.com/gpu.product"]
    assert "4" == node["status"]["allocatable"][fleet.NVIDIA_GPU]
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    assert cluster.fake_kubelet_port == port


def test_workers_land_on_the_cards_that_they_ask_for(cluster: ControlPlane) -> None:
    cluster.apply(worker("pool", fleet.A6000.product, gpus=2))
    eventually(
        lambda: 2 == cluster.get(deployment("pool"))["status"].get("readyReplicas"),
        within=Patience.POOL_ROLLOUT,
        says="both workers are Ready",
    )
    pods = cluster.kubectl_json("get", "pods", "-l", "app=pool")["items"]
    assert ["a6000", "a6000"] == [pod["spec"]["nodeName"] for pod in pods]


def test_a_worker_without_a_free_card_stays_pending(cluster: ControlPlane) -> None:
    cluster.apply(worker("too-many", fleet.RTX_4090.product, gpus=2))

    def why() -> str:
        pods = cluster.kubectl_json("get", "pods", "-l", "app=too-many")["items"]
        return str(pods[0]["status"]["conditions"][0]["message"])

    eventually(
        lambda: "Insufficient nvidia.com/gpu" in why(),
        within=Patience.CONDITION_SEEN,
        says="the scheduler tells that cards are short",
    )


def test_the_audit_log_has_our_reads_writes_and_refusals(cluster: ControlPlane) -> None:
    cluster.ensure_namespace(OUR_NAMESPACE)
    cluster.apply(*account_that_may_keep_config_maps())
    kubeconfig = cluster.service_account_kubeconfig(OUR_NAMESPACE, ACCOUNT)
    since = time.time()
    cluster.kubectl("create", "configmap", "seen", kubeconfig=kubeconfig)
    cluster.kubectl("get", "configmaps", kubeconfig=kubeconfig)
    refused = cluster.kubectl("get", "secrets", check=False, kubeconfig=kubeconfig)
    assert 0 != refused.returncode

    log = AuditLog(cluster.audit_log)
    create = Use("", "configmaps", "create", OUR_NAMESPACE, "seen")
    expected = {create, Use("", "configmaps", "list", OUR_NAMESPACE)}
    eventually(
        lambda: expected == {named(use) for use in log.verbs_used(USER, since)},
        within=Patience.AUDIT_WRITTEN,
        says="the log has the account's uses",
    )
    assert {Use("", "secrets", "list", OUR_NAMESPACE)} == log.denied(USER, since)
    assert ["create"] == [request.use.verb for request in log.writes_by(USER, since)]


def test_a_killed_api_server_comes_back_with_its_data() -> None:
    with ControlPlane(parts=API_ONLY) as small:
        small.ensure_namespace("kept")
        small.stop_part("kube-apiserver")
        with pytest.raises(OSError, match="refused"):
            small.get("/api/v1/namespaces/kept")
        small.revive("kube-apiserver")
        assert "kept" == small.get("/api/v1/namespaces/kept")["metadata"]["name"]
        pids = [child.pid for child in small.processes.values()]
    assert not small.dir.exists()
    assert 2 == len(pids)


def test_a_wait_that_fails_says_what_it_waited_for() -> None:
    with pytest.raises(OutOfPatienceError, match="until pigs fly; last seen: 0"):
        eventually(lambda: 0, within=0.0, says="pigs fly")


def deployment(name: str) -> str:
    return f"/apis/apps/v1/namespaces/default/deployments/{name}"


def named(use: Use) -> Use:
    """kubectl asks for a list under no name; a create carries its own in the body only."""
    return use._replace(name="seen") if use.verb == "create" else use


def account_that_may_keep_config_maps() -> list[Manifest]:
    metadata = {"name": ACCOUNT, "namespace": OUR_NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list"]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount"} | metadata],
        },
    ]
