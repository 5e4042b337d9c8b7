"""Two pools as decide would hand them over: vLLM on four A6000, llama.cpp on one."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.engines.base import ByteOwner, EngineName, Flag, LedgerLine, Release
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.plan.records import Concurrency, Guarantee, KvBudget, Plan
from plimsoll.render.records import OwnerRef, PoolWorkload
from plimsoll.render.source import parse_source
from plimsoll.units import GIB

_A6000 = GpuFacts(
    product="NVIDIA-RTX-A6000",
    total_bytes=51_527_024_640,
    reserved_bytes=630_194_176,
    compute_capability="8.6",
    provenance=Provenance(source=FactSource.CATALOGUE, confidence=Confidence.TABLE),
)
_OWNER = OwnerRef(
    api_version="plimsoll.dev/v1alpha1",
    kind="InferenceDeployment",
    namespace="inference",
    name="llama-70b",
    uid="0a7c2c3e-5a0e-4c0f-9d6e-1f2a3b4c5d6e",
)


def _plan(engine: EngineName, cards: int, weights_bytes: int, **fields: Any) -> Plan:
    return Plan(
        engine=engine,
        gpu_product=_A6000.product,
        cards=cards,
        card_bytes=_A6000.total_bytes,
        ledger=(
            LedgerLine(
                owner=ByteOwner.WEIGHTS,
                bytes=weights_bytes,
                confidence=Confidence.EXACT,
                source="safetensors headers",
            ),
        ),
        kv=KvBudget(
            bytes_per_token_per_card=81_920,
            bytes_per_token_per_replica=327_680,
            pool_bytes_per_card=8 * GIB,
            pool_tokens=104_857,
            dtype="auto",
        ),
        concurrency=Concurrency(max_num_seqs=6, worst_case=6, guarantee=Guarantee.WORST_CASE),
        max_model_len=16_384,
        explanation="6 sequences of 16,384 tokens fill the pool.",
        **fields,
    )


@pytest.fixture
def vllm() -> PoolWorkload:
    return PoolWorkload(
        owner=_OWNER,
        pool="a6000-tp4",
        plan=_plan(
            EngineName.VLLM,
            4,
            35_276_906_496,
            release="0.22.1",
            gpu_memory_utilization=0.92,
            host_memory_bytes=24 * GIB,
            flags=(
                Flag(name="--tensor-parallel-size", value="4"),
                Flag(name="--max-model-len", value="16384"),
                Flag(name="--max-num-seqs", value="6"),
                Flag(name="--gpu-memory-utilization", value="0.92"),
                Flag(name="--shutdown-timeout", value="60"),
            ),
            env=(Named(name="VLLM_WORKER_MULTIPROC_METHOD", value="spawn"),),
        ),
        replicas=2,
        image="vllm/vllm-openai:v0.22.1",
        release=Release.of("v0.22.1"),
        model_name="llama-3.3-70b",
        source=parse_source("pvc://models/Llama-3.3-70B-Instruct"),
        gpu=_A6000,
        match_labels=(Named(name="nvidia.com/gpu.product", value="NVIDIA-RTX-A6000"),),
    )


@pytest.fixture
def llama_cpp() -> PoolWorkload:
    return PoolWorkload(
        owner=_OWNER,
        pool="a6000-single",
        plan=_plan(
            EngineName.LLAMA_CPP,
            1,
            41_000_000_000,
            release="b11434",
            gpu_layers=60,
            layers=81,
            host_memory_bytes=20 * GIB,
            flags=(
                Flag(name="--n-gpu-layers", value="60"),
                Flag(name="--ctx-size", value="16384"),
                Flag(name="--metrics"),
            ),
        ),
        replicas=1,
        image="ghcr.io/ggml-org/llama.cpp:server-cuda",
        model_name="llama-3.3-70b",
        source=parse_source("pvc://models/Llama-3.3-70B-Instruct-Q6_K.gguf"),
        gpu=_A6000,
        match_labels=(Named(name="nvidia.com/gpu.product", value="NVIDIA-RTX-A6000"),),
        spare_card=True,
    )
