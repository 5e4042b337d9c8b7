"""What does the spec ask to keep in host memory, and which of its other words would undo that?"""

from typing import Final

from plimsoll.api.pool import Pool
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.engines.base import Release
from plimsoll.engines.vllm.kv_offload import EXPANDABLE_SEGMENTS_REFUSED_SINCE
from plimsoll.plan.records import KvOffloadAsk

TYPED_FIELDS: Final = {
    "--kv-offloading-size": "kvCache.offload",
    "--kv-offloading-backend": "kvCache.offload",
    "--kv-transfer-config": "kvCache.offload",
    "--enable-prefix-caching": "kvCache.prefixCaching",
    "--mamba-cache-mode": "kvCache.prefixCaching",
}
"""Flags of the KV cache whose field is not the pool's own."""
ALLOCATOR_VARIABLE: Final = "PYTORCH_CUDA_ALLOC_CONF"
EXPANDABLE: Final = "expandable_segments:True"


def offload_ask(spec: InferenceDeploymentSpec, pool: Pool) -> KvOffloadAsk | None:
    """The pool's question about host memory; None where it asks for none."""
    asked = spec.kv_offload_of(pool)
    if asked is None:
        return None
    return KvOffloadAsk(asked.host_bytes, asked.chunk_tokens, asked.blocks_per_chunk)


def offload_problem(spec: InferenceDeploymentSpec, pool: Pool, release: str | None) -> str | None:
    """What in the pool's environment stops an engine that offloads; None for nothing."""
    if spec.kv_offload_of(pool) is None:
        return None
    if release is not None and Release.of(release).is_before(EXPANDABLE_SEGMENTS_REFUSED_SINCE):
        return None
    values = {each.name: each.value for each in (*spec.engines.of(pool.engine).env, *pool.env)}
    if EXPANDABLE not in (values.get(ALLOCATOR_VARIABLE) or ""):
        return None
    return (
        f"kvCache.offload (EngineStops): env {ALLOCATOR_VARIABLE} says {EXPANDABLE}, with which vLLM does not "
        "offload; take it out of env"
    )


def way_out(flags: tuple[str, ...]) -> str:
    """Which field says what these flags would."""
    typed = sorted({TYPED_FIELDS[flag] for flag in flags if flag in TYPED_FIELDS})
    own = () if all(flag in TYPED_FIELDS for flag in flags) else ("the pool's own field for it",)
    return " and ".join((*own, *typed))
