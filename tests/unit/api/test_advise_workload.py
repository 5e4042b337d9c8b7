"""Workloads in other people's manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.api.advise_pod import (
    Named,
    Shm,
    Workload,
    address_of,
    card_of,
    gpu_request,
    memory_of,
    shm_of,
)
from plimsoll.api.advise_workload import workloads
from plimsoll.units import GIB

DATA = Path(__file__).parents[2] / "data" / "advise"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DATA / name).read_text(encoding="utf-8")))


def only(name: str) -> Workload:
    (found,) = workloads(documents(name))
    return found


def pod(spec: dict[str, Any]) -> Workload:
    (found,) = workloads([{"kind": "Pod", "metadata": {"name": "x"}, "spec": spec}])
    return found


@pytest.mark.parametrize(
    ("name", "title", "made_by", "replicas"),
    [
        ("vllm_docs.yaml", "Deployment default/chat-7b", "", 1),
        ("production_stack.yaml", "Deployment llm/stack-llama70b-deployment-vllm", "vLLM production-stack", 2),
        ("kserve_service.yaml", "InferenceService kserve-test/huggingface-llama3", "KServe", 1),
        ("kserve_deployment.yaml", "Deployment kserve-test/huggingface-llama3-predictor", "KServe", 1),
        ("kserve_llm.yaml", "LLMInferenceService llm/qwen", "KServe", 3),
        ("kubeai_model.yaml", "Model kubeai/qwen2.5-7b-instruct-l4", "KubeAI", 1),
        ("kubeai_pod.yaml", "Pod kubeai/model-qwen-6f8d9c5b7-x2x4k", "KubeAI", 1),
    ],
)  # fmt: skip
def test_a_workload_is_known_by_name_maker_and_replicas(
    name: str, title: str, made_by: str, replicas: int
) -> None:
    found = only(name)
    assert (title, made_by, replicas) == (found.title, found.made_by, found.replicas)


def test_the_runtime_beside_a_service_of_kserve_gives_image_arguments_and_mounts() -> None:
    found = only("kserve_service.yaml")
    assert "kserve/huggingfaceserver:v0.16.0-gpu" == found.container["image"]
    assert ["--model_name={{.Name}}", "--model_name=llama3"] == found.container["args"][:2]
    assert 24 * GIB == memory_of(found.container, "limits")
    assert Shm(True) == shm_of(found)
    assert () == found.notes


def test_without_the_runtime_it_is_said_what_is_not_known() -> None:
    (found,) = workloads(documents("kserve_service.yaml")[:1])
    assert "advise the Deployment huggingface-llama3-predictor" in found.notes[0]


@pytest.mark.parametrize("name", ["kserve_service.yaml", "kserve_deployment.yaml"])
def test_kserves_storage_initializer_says_where_the_files_are_from(name: str) -> None:
    assert "hf://meta-llama/meta-llama-3-8b-instruct" == address_of(only(name), "/mnt/models")


def test_a_leader_worker_set_tells_how_many_pods_hold_one_model() -> None:
    assert 2 == only("leader_worker_set.yaml").nodes


def test_kubeais_profile_tells_cards_and_type() -> None:
    found = only("kubeai_model.yaml")
    assert Named(("l4",), "the name of resourceProfile") == card_of(found)
    assert 1 == found.gpu_count


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"nvidia.com/gpu": 2}}, ("nvidia.com/gpu", 2)),
        ({"requests": {"nvidia.com/gpu": "1"}}, ("nvidia.com/gpu", 1)),
        ({"limits": {"nvidia.com/mig-1g.10gb": "1"}}, ("nvidia.com/mig-1g.10gb", 1)),
        ({"limits": {"amd.com/gpu": 8}}, ("amd.com/gpu", 8)),
        ({"limits": {"cpu": 8}}, None),
        ({"limits": {"nvidia.com/gpu": "many"}}, None),
        ("none", None),
    ],
)
def test_cards_are_the_extended_resources(resources: Any, expected: tuple[str, int] | None) -> None:
    assert expected == gpu_request({"resources": resources})


def test_the_card_is_read_from_selector_and_affinity() -> None:
    label = "nvidia.com/gpu.product"
    selected = pod({"containers": [{}], "nodeSelector": {label: "NVIDIA-L4"}})
    assert Named(("NVIDIA-L4",), f"nodeSelector {label}") == card_of(selected)
    rule = {"key": label, "operator": "In", "values": ["NVIDIA-L4", "NVIDIA-L40S"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    either = pod({"containers": [{}], "affinity": affinity})
    assert Named(("NVIDIA-L4", "NVIDIA-L40S"), f"nodeAffinity {label}") == card_of(either)
    assert None is card_of(pod({"containers": [{}]}))


@pytest.mark.parametrize(
    ("volume", "sub_path", "expected"),
    [
        ({"persistentVolumeClaim": {"claimName": "models"}}, "", "pvc://models/a/b"),
        ({"persistentVolumeClaim": {"claimName": "models"}}, "llm", "pvc://models/llm/a/b"),
        ({"hostPath": {"path": "/srv/"}}, "", "hostPath:///srv/a/b"),
        ({"image": {"reference": "r.io/m:1"}}, "", "oci://r.io/m:1#/a/b"),
        ({"emptyDir": {}}, "", None),
    ],
)
def test_a_path_is_followed_through_its_volume(
    volume: dict[str, Any], sub_path: str, expected: str | None
) -> None:
    mounts = [
        {"name": "other", "mountPath": "/"},
        {"name": "v", "mountPath": "/models", "subPath": sub_path},
    ]
    workload = pod({"containers": [{"volumeMounts": mounts}], "volumes": [{"name": "v", **volume}]})
    assert expected == address_of(workload, "/models/a/b")


def test_only_containers_that_ask_for_cards_are_looked_at_where_one_does() -> None:
    asking = {"name": "llm", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    pods = {"kind": "Pod", "spec": {"containers": [{"name": "proxy"}, asking]}}
    assert ["llm"] == [each.container["name"] for each in workloads([pods])]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "Pod"},
        {"kind": "Deployment", "spec": None},
        {"kind": "Pod", "spec": {"containers": "x"}},
        {"kind": "Service"},
    ],
)
def test_what_is_not_as_expected_is_no_workload_and_no_crash(document: dict[str, Any]) -> None:
    assert () == workloads([document])
