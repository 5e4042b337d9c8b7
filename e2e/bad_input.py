"""Which mistakes do people make in a manifest, and what must they be told?

One table for two judges: `plimsoll plan` (the Python types) and the API server (the CRD). Each row says
which field, value and way out the answer has to name. The API server has its own words for plain bounds and
types; `server_says` has them where they differ from ours.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

GOOD: Final = """
apiVersion: plimsoll.dev/v1alpha1
kind: InferenceDeployment
metadata: {name: bad-input, namespace: default}
spec:
  replicas: 2
  model:
    name: llama-3.3-70b
    id: meta-llama/Llama-3.3-70B-Instruct
    uri: pvc://models/Llama-3.3-70B-Instruct
    gguf: {uri: pvc://models/Llama-3.3-70B-Instruct-Q6_K.gguf, quantization: Q6_K}
  pools:
    - {name: big, gpu: {product: NVIDIA-RTX-A6000, perWorker: 4}, engine: vllm}
    - {name: small, gpu: {product: NVIDIA-RTX-A6000}, engine: llamaCpp}
  engines:
    vllm: {image: vllm/vllm-openai:v0.22.1}
    llamaCpp: {image: ghcr.io/ggml-org/llama.cpp:server-cuda}
"""
"""What each row starts from; fine as it is."""


@dataclass(frozen=True, slots=True)
class BadInput:
    """One mistake."""

    name: str
    """What is wrong, as a claim."""
    patch: str
    """YAML that makes it so: a JSON merge patch (RFC 7386), lists are replaced whole."""
    field: str
    """Path that the answer names."""
    value: str
    """The wrong value as the answer shows it; empty where nothing was written."""
    way_out: str
    """Words of the answer that tell what to write."""
    server_says: str = ""
    """The API server's words instead of `value` and `way_out`, where it has its own."""

    def manifest(self) -> Manifest:
        """The whole object with the mistake in it."""
        good: Manifest = yaml.safe_load(GOOD)
        broken = merged(good, yaml.safe_load(self.patch))
        assert isinstance(broken, dict)
        return broken


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: null takes a field out, a block is merged, anything else replaces."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _pool(text: str) -> str:
    """A patch with this one pool."""
    return f"spec: {{pools: [{{{text}}}]}}"


VLLM: Final = "name: big, gpu: {product: NVIDIA-RTX-A6000, perWorker: 4}, engine: vllm"
LLAMA_CPP: Final = "name: small, gpu: {product: NVIDIA-RTX-A6000}, engine: llamaCpp"
LANE: Final = "promptTokens: {p50: 700, p99: 3000}, outputTokens: {p50: 250, p99: 900}"

BAD_INPUT: Final = (
    BadInput(
        name="a size in a unit that Kubernetes does not have",
        patch="spec: {recycling: {slope: 200MB}}",
        field="spec.recycling.slope",
        value="200MB",
        way_out="write a size such as 512Mi or 8Gi",
    ),
    BadInput(
        name="a field with a typo",
        patch="spec: {limits: {maxModelLength: 8192}}",
        field="spec.limits.maxModelLen",
        value="8192",
        way_out="write maxModelLen",
        server_says='unknown field "spec.limits.maxModelLength"',
    ),
    BadInput(
        name="fewer than no workers",
        patch="spec: {replicas: -1}",
        field="spec.replicas",
        value="-1",
        way_out="write 0 or more",
        server_says="-1: spec.replicas in body should be greater than or equal to 0",
    ),
    BadInput(
        name="a number in quotes",
        patch='spec: {limits: {maxModelLen: "8192"}}',
        field="spec.limits.maxModelLen",
        value="8192",
        way_out="write one without quotes",
        server_says='must be of type integer: "string"',
    ),
    BadInput(
        name="a length in words",
        patch="spec: {limits: {maxModelLen: 8k}}",
        field="spec.limits.maxModelLen",
        value="8k",
        way_out="is not a whole number; write one",
        server_says='must be of type integer: "string"',
    ),
    BadInput(
        name="both forms of traffic",
        patch=f"spec: {{traffic: {{{LANE}, lanes: [{{name: chat, share: 100%, {LANE}}}]}}}}",
        field="spec.traffic",
        value="lanes beside promptTokens",
        way_out="keep the lanes, or the two lengths",
    ),
    BadInput(
        name="half a traffic",
        patch="spec: {traffic: {promptTokens: {p50: 700, p99: 3000}}}",
        field="spec.traffic",
        value="says too little",
        way_out="write both promptTokens and outputTokens",
    ),
    BadInput(
        name="a median above the long end",
        patch="spec: {traffic: {promptTokens: {p50: 3000, p99: 700}, outputTokens: {p50: 1, p99: 2}}}",
        field="spec.traffic.promptTokens.p50",
        value="3000 is above p99, which is 700",
        way_out="write the median as p50",
    ),
    BadInput(
        name="lanes that share out less than everything",
        patch="spec: {traffic: {lanes: ["
        f"{{name: chat, share: 60%, {LANE}}}, {{name: batch, share: 30%, {LANE}}}]}}}}",
        field="spec.traffic.lanes",
        value="60%",
        way_out="add up to 100%",
    ),
    BadInput(
        name="a share that is not a percentage",
        patch=f"spec: {{traffic: {{lanes: [{{name: chat, share: most, {LANE}}}]}}}}",
        field="spec.traffic.lanes[0].share",
        value="most",
        way_out="write a whole percentage",
    ),
    BadInput(
        name="a lane with a priority that no engine takes",
        patch=f"spec: {{traffic: {{lanes: [{{name: chat, share: 100%, priority: 5000, {LANE}}}]}}}}",
        field="spec.traffic.lanes[0].priority",
        value="5000",
        way_out="write 1000 or less",
        server_says="5000: spec.traffic.lanes[0].priority in body should be less than or equal to 1000",
    ),
    BadInput(
        name="keys of a lane that no Secret holds",
        patch=f"spec: {{traffic: {{lanes: [{{name: chat, share: 100%, keys: [nightly], {LANE}}}]}}}}",
        field="spec.gateway.keysSecret",
        value="chat",
        way_out="write gateway.keysSecret, the Secret that holds them",
    ),
    BadInput(
        name="an engine without an image",
        patch="spec: {engines: {vllm: null}}",
        field="spec.engines.vllm.image",
        value="big",
        way_out="write engines.vllm.image, or image in the pool",
    ),
    BadInput(
        name="nothing for vLLM to load",
        patch="spec: {model: {uri: null}}",
        field="spec.model.uri",
        value="big",
        way_out="write model.uri",
    ),
    BadInput(
        name="nothing for llama.cpp to load",
        patch="spec: {model: {gguf: null}}",
        field="spec.model.gguf",
        value="small",
        way_out="write model.gguf.uri",
    ),
    BadInput(
        name="no pools and no engine",
        patch="spec: {pools: null, engines: null}",
        field="spec.engines",
        value="no engine that could run the model",
        way_out="write engines.vllm.image with model.uri",
    ),
    BadInput(
        name="an address of a scheme that is not known",
        patch="spec: {model: {uri: 's3://bucket/llama'}}",
        field="spec.model.uri",
        value="s3://bucket/llama",
        way_out="write hf://org/name[@revision], pvc://claim/folder",
    ),
    BadInput(
        name="an address that walks upward",
        patch="spec: {model: {uri: 'hostPath:///srv/../etc'}}",
        field="spec.model.uri",
        value="hostPath:///srv/../etc",
        way_out="hostPath:///folder",
    ),
    BadInput(
        name="a folder where a file is needed",
        patch="spec: {model: {gguf: {uri: 'pvc://models/Llama-3.3-70B-Instruct'}}}",
        field="spec.model.gguf.uri",
        value="pvc://models/Llama-3.3-70B-Instruct",
        way_out="write the file's address",
    ),
    BadInput(
        name="two pools of one name",
        patch=f"spec: {{pools: [{{{VLLM}}}, {{{VLLM}}}]}}",
        field="spec.pools[1]",
        value="big",
        way_out="give each pool its own name",
        server_says='Duplicate value: {"name":"big"}',
    ),
    BadInput(
        name="layers on an engine that has no such thing",
        patch=_pool(f"{VLLM}, gpuLayers: 60"),
        field="spec.pools[0].gpuLayers",
        value="60",
        way_out="take it out, or make this a llamaCpp pool",
    ),
    BadInput(
        name="utilization on an engine that has no such thing",
        patch=_pool(f"{LLAMA_CPP}, gpuMemoryUtilization: 0.9"),
        field="spec.pools[0].gpuMemoryUtilization",
        value="0.9",
        way_out="take it out, or make this a vllm pool",
    ),
    BadInput(
        name="utilization as a percentage",
        patch=_pool(f"{VLLM}, gpuMemoryUtilization: 90"),
        field="spec.pools[0].gpuMemoryUtilization",
        value="90",
        way_out="write 0.99 or less",
        server_says="90: cannot be used; write a number not below 0.01 and not above 0.99",
    ),
    BadInput(
        name="a prompt cache without a limit",
        patch=_pool(f"{LLAMA_CPP}, cacheRam: -1"),
        field="spec.pools[0].cacheRam",
        value="-1",
        way_out="write a size such as 512Mi or 8Gi, not below 0",
    ),
    BadInput(
        name="a KV cache dtype of the other engine",
        patch=_pool(f"{LLAMA_CPP}, kvCacheDtype: fp8"),
        field="spec.pools[0].kvCacheDtype",
        value="fp8",
        way_out="write one of auto, q8_0",
    ),
    BadInput(
        name="a KV cache dtype that one pool does not know",
        patch="spec: {kvCache: {dtype: fp8}}",
        field="spec.kvCache.dtype",
        value="fp8",
        way_out="as kvCacheDtype in that pool",
    ),
    BadInput(
        name="KV in host memory for an engine that has no such thing",
        patch=_pool(f"{LLAMA_CPP}, kvOffloadMemory: 8Gi"),
        field="spec.pools[0].kvOffloadMemory",
        value="8Gi",
        way_out="take it out, or make this a vllm pool",
    ),
    BadInput(
        name="a chunk of KV said twice",
        patch="spec: {kvCache: {offload: {hostMemory: 8Gi, blocksPerChunk: 4, chunkTokens: 64}}}",
        field="spec.kvCache.offload.chunkTokens",
        value="64",
        way_out="keep blocksPerChunk or chunkTokens",
    ),
    BadInput(
        name="no cards",
        patch=_pool("name: big, gpu: {product: NVIDIA-RTX-A6000, perWorker: 0}, engine: vllm"),
        field="spec.pools[0].gpu.perWorker",
        value="0",
        way_out="write 1 or more",
        server_says="0: spec.pools[0].gpu.perWorker in body should be greater than or equal to 1",
    ),
    BadInput(
        name="an engine that is not known",
        patch=_pool("name: big, gpu: {product: NVIDIA-RTX-A6000}, engine: sglang"),
        field="spec.pools[0].engine",
        value="sglang",
        way_out="'vllm' or 'llamaCpp'",
        server_says='"sglang": supported values: "vllm", "llamaCpp"',
    ),
    BadInput(
        name="a pool with nothing in it",
        patch="spec: {pools: [{}]}",
        field="spec.pools[0].engine",
        value="nothing is written here",
        way_out="write engine",
        server_says="Required value",
    ),
    BadInput(
        name="a name that is too long",
        patch=_pool(f"name: {'a' * 41}, gpu: {{product: NVIDIA-RTX-A6000}}, engine: vllm"),
        field="spec.pools[0].name",
        value="a" * 40,
        way_out="at most 40",
        server_says="Too long: may not be more than 40 bytes",
    ),
    BadInput(
        name="a name that DNS does not take",
        patch=_pool("name: Big_Pool, gpu: {product: NVIDIA-RTX-A6000}, engine: vllm"),
        field="spec.pools[0].name",
        value="Big_Pool",
        way_out="write lower-case letters, digits and -",
    ),
    BadInput(
        name="an object whose Service could not be named after it",
        patch="metadata: {name: llama-3.3-70b}",
        field="metadata.name",
        value="llama-3.3-70b",
        way_out="write at most 52 lower-case letters",
    ),
    BadInput(
        name="a time without a unit",
        patch="spec: {gateway: {enabled: true, queue: {timeout: '5'}}}",
        field="spec.gateway.queue.timeout",
        value="5",
        way_out="write a duration such as 90s, 5m or 1h30m",
    ),
    BadInput(
        name="a risk that is no chance",
        patch="spec: {limits: {preemptionRisk: 0.5}}",
        field="spec.limits.preemptionRisk",
        value="0.5",
        way_out="write a number below 0.5",
        server_says="0.5: cannot be used; write a number above 0 and below 0.5",
    ),
    BadInput(
        name="a variable with two values",
        patch=_pool(
            f"{VLLM}, env: [{{name: A, value: b, valueFrom: {{secretKeyRef: {{name: s, key: k}}}}}}]"
        ),
        field="spec.pools[0].env[0]",
        value="needs one value",
        way_out="write either value or valueFrom",
    ),
    BadInput(
        name="a label that is ours",
        patch="spec: {worker: {labels: {plimsoll.dev/pool: mine}}}",
        field="spec.worker.labels",
        value="plimsoll.dev/pool",
        way_out="use a prefix other than plimsoll.dev/",
    ),
    BadInput(
        name="a worker that runs as root",
        patch="spec: {worker: {runAsUser: 0}}",
        field="spec.worker.runAsUser",
        value="0",
        way_out="write 1 or more",
        server_says="0: spec.worker.runAsUser in body should be greater than or equal to 1",
    ),
    BadInput(
        name="facts from two places",
        patch="spec: {model: {facts: {inline: {}, configMap: {name: facts}}}}",
        field="spec.model.facts",
        value="needs one source of facts",
        way_out="write either inline or configMap",
    ),
)
"""The table."""
