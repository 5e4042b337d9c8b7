from __future__ import annotations

from plimsoll.render.labels import worker_selector
from plimsoll.render.records import OwnerRef, PoolWorkload
from plimsoll.render.service import service_manifest
from plimsoll.render.workload import pool_manifests


def test_one_address_reaches_the_workers_of_every_pool(
    vllm: PoolWorkload, llama_cpp: PoolWorkload
) -> None:
    service = service_manifest(vllm.owner)
    selector = service["spec"]["selector"]
    for workload in (vllm, llama_cpp):
        pods = pool_manifests(workload)[0]["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= pods.items()
    assert set(worker_selector("llama-70b").split(",")) == {f"{k}={v}" for k, v in selector.items()}


def test_the_service_speaks_on_the_engines_port() -> None:
    owner = OwnerRef(api_version="v1", kind="X", namespace="ns", name="chat")
    service = service_manifest(owner)
    assert service["metadata"]["name"] == "chat"
    assert service_manifest(owner, "chat-blue")["metadata"]["name"] == "chat-blue"
    assert service["spec"]["type"] == "ClusterIP"
    assert service["spec"]["ports"] == [
        {"name": "http", "port": 8000, "protocol": "TCP", "targetPort": "http"}
    ]
