from __future__ import annotations

from typing import Any

import pytest

from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import GpuVendor
from plimsoll.facts.record import Named
from plimsoll.render.pod import (
    container_memory_bytes,
    cpu_quantity,
    engine_args,
    pod_template_1,
    shm_bytes,
)
from plimsoll.render.records import EnvVar, PoolWorkload, SecretKey
from plimsoll.render.source import parse_source
from plimsoll.units import GIB, MIB, parse_bytes

DIGEST = "sha256:0123456789abcdef"


def pod_of(workload: PoolWorkload) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template_1(workload, DIGEST)["spec"]
    return spec


def container_of(workload: PoolWorkload) -> dict[str, Any]:
    (container,) = pod_of(workload)["containers"]
    found: dict[str, Any] = container
    return found


def env_of(workload: PoolWorkload) -> dict[str, str | None]:
    return {entry["name"]: entry.get("value") for entry in container_of(workload)["env"]}


@pytest.fixture(params=["vllm", "llama_cpp"])
def workload(request: pytest.FixtureRequest) -> PoolWorkload:
    found: PoolWorkload = request.getfixturevalue(request.param)
    return found


def test_the_pod_passes_the_restricted_profile(workload: PoolWorkload) -> None:
    pod, container = pod_of(workload), container_of(workload)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(pod)
    allowed = {"persistentVolumeClaim", "emptyDir", "image"}
    assert {key for v in pod["volumes"] for key in v if key != "name"} <= allowed


def test_the_engine_knows_nothing_of_the_cluster(workload: PoolWorkload) -> None:
    assert pod_of(workload)["automountServiceAccountToken"] is False
    assert pod_of(workload)["enableServiceLinks"] is False


def test_all_that_is_written_is_below_home_and_tmp(workload: PoolWorkload) -> None:
    mounts = {m["mountPath"]: m for m in container_of(workload)["volumeMounts"]}
    assert mounts["/models"]["readOnly"] is True
    assert {"/home/plimsoll", "/tmp"} <= {path for path in mounts if "readOnly" not in mounts[path]}
    assert env_of(workload)["HOME"] == "/home/plimsoll"
    assert env_of(workload)["USER"] == "plimsoll"


def test_vllm_takes_its_model_by_position_and_the_plan_comes_last(vllm: PoolWorkload) -> None:
    busy = vllm.model_copy(update={"extra_args": ("--enable-log-requests",)})
    assert container_of(busy)["command"] == ["vllm", "serve"]
    assert (
        "/models/Llama-3.3-70B-Instruct",
        "--enable-log-requests",
        "--served-model-name",
        "llama-3.3-70b",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
        *vllm.plan.args(),
    ) == engine_args(busy)


def test_llama_cpp_keeps_the_images_entrypoint(llama_cpp: PoolWorkload) -> None:
    busy = llama_cpp.model_copy(update={"extra_args": ("--jinja",)})
    assert "command" not in container_of(busy)
    assert engine_args(busy) == (
        "--jinja",
        "--model",
        "/models/Llama-3.3-70B-Instruct-Q6_K.gguf",
        "--alias",
        "llama-3.3-70b",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
        "--n-gpu-layers",
        "60",
        "--ctx-size",
        "16384",
        "--metrics",
    )


def test_vllm_fetches_a_revision_from_the_hub_with_a_token(vllm: PoolWorkload) -> None:
    hub = vllm.model_copy(
        update={
            "source": parse_source("hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b"),
            "hf_token_secret": SecretKey(name="hub", key="token"),
        }
    )
    args = engine_args(hub)
    assert args[0] == "meta-llama/Llama-3.3-70B-Instruct"
    assert args[args.index("--revision") + 1] == "6f6073b"
    assert env_of(hub)["HF_HOME"] == "/home/plimsoll/.cache/huggingface"
    assert "HF_HUB_OFFLINE" not in env_of(hub)
    token = next(e for e in container_of(hub)["env"] if e["name"] == "HF_TOKEN")
    assert token["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert "model" not in {volume["name"] for volume in pod_of(hub)["volumes"]}


def test_llama_cpp_fetches_one_file_and_no_vision_projector(llama_cpp: PoolWorkload) -> None:
    hub = llama_cpp.model_copy(update={"source": parse_source("hf://org/gemma/gemma.gguf")})
    assert engine_args(hub)[:5] == (
        "--hf-repo",
        "org/gemma",
        "--hf-file",
        "gemma.gguf",
        "--no-mmproj",
    )


def test_files_on_a_volume_never_ask_a_hub(vllm: PoolWorkload) -> None:
    assert env_of(vllm)["HF_HUB_OFFLINE"] == "1"


def test_the_user_may_replace_our_environment_but_not_the_plans(vllm: PoolWorkload) -> None:
    user = (
        EnvVar(name="HF_HUB_OFFLINE", value="0"),
        EnvVar(name="VLLM_WORKER_MULTIPROC_METHOD", value="fork"),
    )
    env = env_of(vllm.model_copy(update={"env": user}))
    assert env["HF_HUB_OFFLINE"] == "0"
    assert env["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert len(env) == len(container_of(vllm)["env"])


def test_nothing_lets_llama_cpp_spill_cards_into_host_memory(llama_cpp: PoolWorkload) -> None:
    assert "GGML_CUDA_ENABLE_UNIFIED_MEMORY" not in env_of(llama_cpp)


def test_memory_and_cards_are_asked_for_and_limited_alike(workload: PoolWorkload) -> None:
    resources = container_of(workload)["resources"]
    cards = str(workload.plan.cards)
    memory = resources["limits"]["memory"]
    assert {"memory": memory, "nvidia.com/gpu": cards} == resources["limits"]
    assert {"memory": memory, "nvidia.com/gpu": cards} == {
        key: value for key, value in resources["requests"].items() if key != "cpu"
    }
    assert container_memory_bytes(workload) == parse_bytes(memory)


def test_shared_memory_is_counted_in_the_limit(vllm: PoolWorkload) -> None:
    shm = next(v for v in pod_of(vllm)["volumes"] if v["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "2304Mi"}
    assert container_memory_bytes(vllm) == 24 * GIB + 2304 * MIB
    assert container_of(vllm)["resources"]["limits"]["memory"] == "26880Mi"


def test_shared_memory_holds_every_ring_of_eight_workers() -> None:
    rings = 10 * 16 * MIB + 8 * 10 * 24 * MIB
    assert shm_bytes(EngineName.VLLM, 8) >= GIB + rings


def test_one_process_needs_no_shared_memory(llama_cpp: PoolWorkload) -> None:
    assert shm_bytes(EngineName.LLAMA_CPP, 1) == 0
    assert "shm" not in {volume["name"] for volume in pod_of(llama_cpp)["volumes"]}
    assert "/dev/shm" not in {m["mountPath"] for m in container_of(llama_cpp)["volumeMounts"]}


def test_a_mig_slice_is_asked_for_by_its_own_name(vllm: PoolWorkload) -> None:
    gpu = vllm.gpu.model_copy(update={"resource": "nvidia.com/mig-1g.10gb"})
    limits = container_of(vllm.model_copy(update={"gpu": gpu}))["resources"]["limits"]
    assert limits["nvidia.com/mig-1g.10gb"] == "4"


def test_vllm_has_a_core_per_card_and_two_more(vllm: PoolWorkload, llama_cpp: PoolWorkload) -> None:
    assert container_of(vllm)["resources"]["requests"]["cpu"] == "6"
    assert container_of(llama_cpp)["resources"]["requests"]["cpu"] == "1"
    asked = vllm.model_copy(update={"cpu_request": "1.5"})
    assert container_of(asked)["resources"]["requests"]["cpu"] == "1500m"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2", "2"),
        ("2000m", "2"),
        ("0.5", "500m"),
        ("1.25", "1250m"),
        ("0.0005", "1m"),
        ("16", "16"),
    ],
)
def test_cores_are_written_as_kubernetes_stores_them(text: str, canonical: str) -> None:
    assert canonical == cpu_quantity(text)


def test_the_pod_runs_only_where_the_cards_are(vllm: PoolWorkload) -> None:
    mixed = vllm.model_copy(
        update={
            "match_labels": (
                Named(name="nvidia.com/gpu.product", value="NVIDIA-RTX-A6000"),
                Named(name="kubernetes.io/arch", value="amd64"),
                Named(name="nvidia.com/gpu.product", value="NVIDIA-A40"),
            )
        }
    )
    required = pod_of(mixed)["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert required["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {
                    "key": "nvidia.com/gpu.product",
                    "operator": "In",
                    "values": ["NVIDIA-A40", "NVIDIA-RTX-A6000"],
                },
            ]
        }
    ]


def test_nodes_without_demands_get_no_requirement(vllm: PoolWorkload) -> None:
    affinity = pod_of(vllm.model_copy(update={"match_labels": ()}))["affinity"]["nodeAffinity"]
    assert list(affinity) == ["preferredDuringSchedulingIgnoredDuringExecution"]


def test_a_node_with_just_enough_cards_is_preferred(vllm: PoolWorkload) -> None:
    affinity = pod_of(vllm)["affinity"]["nodeAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"] == [
        {"key": "nvidia.com/gpu.count", "operator": "In", "values": [str(vllm.plan.cards)]}
    ]


def test_slices_have_no_preference(vllm: PoolWorkload) -> None:
    gpu = vllm.gpu.model_copy(update={"resource": "nvidia.com/mig-1g.10gb"})
    affinity = pod_of(vllm.model_copy(update={"gpu": gpu}))["affinity"]["nodeAffinity"]
    assert list(affinity) == ["requiredDuringSchedulingIgnoredDuringExecution"]


@pytest.mark.parametrize(
    ("vendor", "taint"), [(GpuVendor.NVIDIA, "nvidia.com/gpu"), (GpuVendor.AMD, "amd.com/gpu")]
)
def test_the_cards_own_taint_is_tolerated(
    vllm: PoolWorkload, vendor: GpuVendor, taint: str
) -> None:
    mine = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    gpu = vllm.gpu.model_copy(update={"vendor": vendor})
    pod = pod_of(vllm.model_copy(update={"gpu": gpu, "tolerations": (mine,)}))
    assert [{"key": taint, "operator": "Exists"}, mine] == pod["tolerations"]


def test_what_the_pool_asks_of_the_scheduler_is_passed_on(vllm: PoolWorkload) -> None:
    pod = pod_of(
        vllm.model_copy(
            update={
                "node_selector": (Named(name="zone", value="b"), Named(name="disk", value="nvme")),
                "image_pull_secrets": ("registry",),
                "priority_class_name": "serving",
                "runtime_class_name": "nvidia",
                "scheduler_name": "gang",
            }
        )
    )
    assert pod["nodeSelector"] == {"disk": "nvme", "zone": "b"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert (
        pod["priorityClassName"],
        pod["runtimeClassName"],
        pod["schedulerName"],
    ) == ("serving", "nvidia", "gang")


def test_our_labels_win_over_the_pods_own(vllm: PoolWorkload) -> None:
    labelled = vllm.model_copy(
        update={
            "pod_labels": (
                Named(name="team", value="a"),
                Named(name="plimsoll.dev/pool", value="other"),
            ),
            "pod_annotations": (
                Named(name="plimsoll.dev/plan", value="mine"),
                Named(name="note", value="x"),
            ),
        }
    )
    metadata = pod_template_1(labelled, DIGEST)["metadata"]
    assert metadata["labels"] == {
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "plimsoll",
        "app.kubernetes.io/name": "vllm",
        "plimsoll.dev/deployment": "llama-70b",
        "plimsoll.dev/pool": "a6000-tp4",
        "team": "a",
    }
    assert metadata["annotations"] == {"note": "x", "plimsoll.dev/plan": DIGEST}


def test_a_worker_leaves_its_endpoints_before_the_signal_and_without_a_shell(
    workload: PoolWorkload,
) -> None:
    container = container_of(workload)
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_every_probe_asks_health_and_liveness_is_patient(workload: PoolWorkload) -> None:
    container = container_of(workload)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] == 120
    assert container["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
