"""Is a manifest read as it was meant?"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from plimsoll.api.v1alpha1 import (
    InferenceDeployment,
    InferenceDeploymentStatus,
    KvCacheDtype,
    RecyclingMode,
    Surge,
    read,
)
from plimsoll.engines.base import EngineName
from plimsoll.plan.records import Guarantee

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"

EVERYTHING = """
apiVersion: plimsoll.dev/v1alpha1
kind: InferenceDeployment
metadata:
  name: everything
  namespace: inference
  uid: 6f1c
  generation: 3
  labels: {team: a}
  managedFields: [{manager: kubectl}]
spec:
  replicas: 4
  model:
    name: org/llama:70b
    id: meta-llama/Llama-3.3-70B-Instruct
    uri: hf://meta-llama/Llama-3.3-70B-Instruct@main
    gguf: {uri: 'oci://registry.local:5000/models/llama:1#/files/llama-Q6_K.gguf', quantization: Q6_K}
    facts: {configMap: {name: llama-facts}}
  pools:
    - name: big
      gpu: {product: NVIDIA-RTX-A6000, perWorker: 4}
      engine: vllm
      replicas: 2
      image: registry.local:5000/vllm@sha256:0123
      release: v0.22.1
      maxModelLen: 16384
      maxNumSeqs: 8
      maxNumBatchedTokens: 2048
      gpuMemoryUtilization: 0.9
      blockSize: 16
      kvCacheDtype: fp8_e4m3
      extraArgs: [--disable-log-requests]
      env:
        - {name: HF_HUB_OFFLINE, value: "1"}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
    - name: small
      gpu: {product: NVIDIA-A30-MIG-1g.6gb}
      engine: llamaCpp
      gpuLayers: 60
      ubatchSize: 512
      cacheRam: 2Gi
      kvCacheDtype: q8_0
  engines:
    vllm: {image: 'vllm/vllm-openai:v0.22.1', release: 0.22.1}
    llamaCpp: {image: 'ghcr.io/ggml-org/llama.cpp:server-cuda', release: b11434}
  traffic:
    lanes:
      - name: chat
        promptTokens: {p50: 700, p99: 3000}
        outputTokens: {p50: 250, p99: 900}
        share: 70%
        borrow: true
      - name: batch
        promptTokens: {p50: 22000, p99: 30000}
        outputTokens: {p50: 400, p99: 1200}
        priority: 10
        share: 30%
  limits: {maxModelLen: 32768, concurrency: 16, guarantee: Expected, preemptionRisk: 0.01}
  kvCache: {dtype: auto}
  gateway: {enabled: true, queue: {length: 8, timeout: 1m30s}}
  recycling:
    mode: Observe
    slope: 200Mi
    timeToLimit: 24h
    cooldown: 6h
    maxPerDay: 4
    windows: [{days: [Sat, Sun], start: "22:00", end: "06:00"}]
    surge: WhenSpare
  worker:
    nodeSelector: {topology.kubernetes.io/zone: a}
    tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
    cpu: 1500m
    imagePullSecrets: [{name: registry}]
    priorityClassName: inference
    runtimeClassName: nvidia
    schedulerName: default-scheduler
    hfTokenSecret: {name: hub}
    runAsUser: 1000
    labels: {example.com/team: a}
    annotations: {example.com/contact: "people, and a long text"}
"""
"""A manifest in which every field is used (facts from a ConfigMap, so not inline)."""


def everything() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(EVERYTHING)
    return loaded


def test_every_field_is_read() -> None:
    spec = InferenceDeployment.model_validate(everything()).spec
    assert (
        spec.replicas,
        spec.pools[0].max_model_len,
        spec.pools[0].gpu_memory_utilization,
    ) == (4, 16384, 0.9)
    assert tuple(pool.engine for pool in spec.pools) == (EngineName.VLLM, EngineName.LLAMA_CPP)
    assert spec.pools[1].cache_ram_bytes == 2 * 2**30
    assert spec.recycling.slope_bytes_per_hour == 200 * 2**20
    assert spec.gateway.queue is not None
    assert spec.gateway.queue.timeout_seconds == 90
    assert spec.traffic is not None
    assert tuple(lane.share_percent for lane in spec.traffic.lanes) == (70, 30)
    assert Guarantee.EXPECTED is spec.limits.guarantee
    assert (spec.recycling.mode, spec.recycling.surge) == (RecyclingMode.OBSERVE, Surge.WHEN_SPARE)
    assert spec.worker.node_selector == {"topology.kubernetes.io/zone": "a"}


def test_what_is_left_out_is_filled_in() -> None:
    spec = InferenceDeployment.model_validate(everything()).spec
    assert spec.pools[1].gpu.per_worker == 1
    assert spec.model.facts is not None
    assert spec.model.facts.config_map is not None
    assert spec.model.facts.config_map.key == "facts.yaml"
    assert spec.worker.hf_token_secret is not None
    assert spec.worker.hf_token_secret.key == "token"


def test_what_was_read_can_be_written_and_read_again() -> None:
    once = InferenceDeployment.model_validate(everything())
    assert once == InferenceDeployment.model_validate(once.to_json())


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_read(example: Path) -> None:
    raw = yaml.safe_load(example.read_text(encoding="utf-8"))
    assert raw["spec"]["model"]["name"] == read(raw).spec.model.name


def test_metadata_of_later_releases_is_passed_over() -> None:
    assert InferenceDeployment.model_validate(everything()).metadata.generation == 3


def test_a_status_of_another_release_is_passed_over() -> None:
    raw = everything()
    raw["status"] = {"replicas": 2, "newThing": {"deep": 1}, "pools": [{"name": "big", "other": 1}]}
    status = InferenceDeployment.model_validate(raw).status
    assert (status.replicas, tuple(pool.name for pool in status.pools)) == (2, ("big",))


def test_a_file_may_hold_a_status_that_nobody_can_read() -> None:
    """As `kubectl get -o yaml` writes it; plans are made from the rest."""
    assert read(everything()).spec == read(everything() | {"status": "?"}).spec


def test_without_a_status_it_is_empty() -> None:
    assert InferenceDeploymentStatus() == InferenceDeployment.model_validate(everything()).status


def test_an_image_of_the_pool_comes_before_the_engines() -> None:
    spec = InferenceDeployment.model_validate(everything()).spec
    assert spec.image_of(spec.pools[0]) == "registry.local:5000/vllm@sha256:0123"
    assert spec.image_of(spec.pools[1]) == "ghcr.io/ggml-org/llama.cpp:server-cuda"
    assert spec.release_of(spec.pools[1]) == "b11434"


def test_an_image_of_the_pool_does_not_take_the_engines_release() -> None:
    raw = everything()
    del raw["spec"]["pools"][0]["release"]
    spec = InferenceDeployment.model_validate(raw).spec
    assert None is spec.release_of(spec.pools[0])


def test_a_dtype_of_the_pool_comes_before_that_of_all() -> None:
    spec = InferenceDeployment.model_validate(everything()).spec
    assert KvCacheDtype.FP8_E4M3 is spec.kv_cache_dtype_of(spec.pools[0])
    without = spec.pools[0].model_copy(update={"kv_cache_dtype": None})
    assert KvCacheDtype.AUTO is spec.kv_cache_dtype_of(without)


def test_pools_may_be_left_out() -> None:
    raw = everything()
    del raw["spec"]["pools"]
    assert InferenceDeployment.model_validate(raw).spec.pools == ()


def test_facts_may_be_inline() -> None:
    raw = everything()
    raw["spec"]["model"]["facts"] = {"inline": {"model": MODEL}}
    facts = InferenceDeployment.model_validate(raw).spec.model.facts
    assert facts is not None
    assert facts.inline is not None
    assert facts.inline.model is not None
    assert facts.inline.model.layers == 80


def test_inline_facts_with_a_negative_number_are_refused_with_its_place() -> None:
    raw = everything()
    model = deepcopy(MODEL)
    model["kvGroups"][0]["layers"] = -1
    raw["spec"]["model"]["facts"] = {"inline": {"model": model}}
    with pytest.raises(
        ValueError,
        match=r"^spec\.model\.facts\.inline\.model\.kvGroups\[0\]\.layers: -1 is below 0",
    ):
        read(raw)


def test_a_wrong_kind_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^kind: 'Deployment' is not known here; write 'Inference"
    ):
        read(everything() | {"kind": "Deployment"})


def test_text_instead_of_an_object_is_refused() -> None:
    with pytest.raises(ValidationError):
        InferenceDeployment.model_validate("kind: InferenceDeployment")


MODEL: dict[str, Any] = {
    "id": "meta-llama/Llama-3.3-70B-Instruct",
    "architecture": "LlamaForCausalLM",
    "layers": 80,
    "hiddenSize": 8192,
    "intermediateSize": 28672,
    "attentionHeads": 64,
    "vocabSize": 128256,
    "maxPositionEmbeddings": 131072,
    "kvGroups": [{"kind": "Full", "layers": 80, "kvHeads": 8, "keyDim": 128, "valueDim": 128}],
    "weights": {"totalBytes": 141107412992},
    "provenance": {"source": "ModelFiles", "confidence": "Exact"},
}
