"""Does a real worker with a real model run on the real node, and does its memory show?"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from controlplane import fleet
from controlplane.cluster import ControlPlane, Manifest, condition
from controlplane.fetch import LLAMA_IMAGE
from controlplane.node import REAL_LABEL, RealNode, real_node_possible
from patience import Patience, eventually, stretched

REASON = real_node_possible()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
PORT = 8000
POD = "/api/v1/namespaces/default/pods/gemma"
ARGS = (
    *("-m", "/models/gemma.gguf", "--host", "0.0.0.0", "--port", str(PORT)),
    *("-c", "4096", "-np", "2", "-ngl", "10", "--cache-ram", "64", "--metrics"),
)


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    labels = fleet.card_labels(fleet.A6000, count=1)
    with ControlPlane() as cluster, RealNode(cluster, labels=labels, gpus=1) as joined:
        yield joined


@pytest.fixture(scope="module")
def address(node: RealNode) -> str:
    """The address of a pod that serves the model."""
    node.cluster.apply(worker(node))
    eventually(
        lambda: condition(node.cluster.get(POD), "Ready") == "True",
        within=Patience.REAL_POD_READY,
        says="the worker is Ready",
    )
    return str(node.cluster.get(POD)["status"]["podIP"])


def worker(node: RealNode) -> Manifest:
    probe = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gemma", "namespace": "default"},
        "spec": {
            "nodeSelector": {REAL_LABEL: "true", "nvidia.com/gpu.product": fleet.A6000.product},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 2,
            "containers": [
                {
                    "name": "server",
                    "image": LLAMA_IMAGE,
                    "imagePullPolicy": "Never",
                    "args": list(ARGS),
                    "startupProbe": probe | {"failureThreshold": 120},
                    "readinessProbe": probe,
                    "resources": {"limits": {fleet.NVIDIA_GPU: "1", "memory": "2Gi"}},
                    "volumeMounts": [
                        {"name": "model", "mountPath": "/models/gemma.gguf", "readOnly": True}
                    ],
                }
            ],
            "volumes": [
                {"name": "model", "hostPath": {"path": str(node.parts.model), "type": "File"}}
            ],
        },
    }


def test_the_worker_answers_a_chat(address: str) -> None:
    question = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 8}
    connection = http.client.HTTPConnection(address, PORT, timeout=stretched(Patience.CHAT_ANSWER))
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    assert answer.status == http.client.OK
    assert said["usage"]["completion_tokens"] > 0


def test_the_kubelet_tells_the_workers_resident_memory(node: RealNode, address: str) -> None:
    path = f"/api/v1/nodes/{node.name}/proxy/stats/summary"

    def resident_bytes() -> int:
        pods = node.cluster.get(path)["pods"]
        mine = next(pod for pod in pods if pod["podRef"]["name"] == "gemma")
        return int(mine["containers"][0]["memory"]["rssBytes"])

    seen = eventually(
        lambda: max(0, resident_bytes() - (50 << 20)),
        within=Patience.REAL_POD_READY,
        says="the worker holds more than 50 MiB",
    )
    assert seen < 2 << 30
