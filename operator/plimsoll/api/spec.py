"""What does a person write in an InferenceDeployment?"""

from collections.abc import Iterator
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from plimsoll.api.forms import (
    Count,
    ManifestError,
)
from plimsoll.api.model_spec import ModelSpec
from plimsoll.api.names import repeated
from plimsoll.api.pool import DTYPES, Engines, Pool, known_dtypes
from plimsoll.api.traffic import (
    GatewaySpec,
    KvCacheDtype,
    KvCacheSpec,
    KvOffloadSpec,
    Limits,
    RecyclingSpec,
    Traffic,
)
from plimsoll.api.worker import WorkerOptions
from plimsoll.engines.base import EngineName
from plimsoll.facts.record import Record


class InferenceDeploymentSpec(Record):
    """One model, the GPU types it may run on, and the traffic it must carry."""

    replicas: Annotated[Count, Field(ge=0, le=1000)] = 1
    """Workers over all pools."""
    model: ModelSpec
    """The model that is served."""
    pools: Annotated[tuple[Pool, ...], Field(max_length=16)] = ()
    """Workers by GPU type and engine. When left out, every GPU type in reach that fits gets a pool."""
    engines: Engines = Engines()
    """Images, arguments and environment by engine."""
    traffic: Traffic | None = None
    """Lengths of requests; without them the plan keeps to limits."""
    limits: Limits = Limits()
    """What may be asked of one worker."""
    kv_cache: KvCacheSpec = KvCacheSpec()
    """How keys and values are stored."""
    gateway: GatewaySpec = GatewaySpec()
    """The gateway in front of the workers."""
    recycling: RecyclingSpec = RecyclingSpec()
    """When a worker whose resident memory grows is replaced."""
    worker: WorkerOptions = WorkerOptions()
    """Options of the workers' pods."""

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        for found in _first_problem(self):
            raise found
        return self

    def image_of(self, pool: Pool) -> str | None:
        """The pool's image, else its engine's."""
        return pool.image or self.engines.of(pool.engine).image

    def release_of(self, pool: Pool) -> str | None:
        """The release that somebody wrote: a pool's own image does not take the engine's."""
        return pool.release or (None if pool.image else self.engines.of(pool.engine).release)

    def kv_offload_of(self, pool: Pool) -> KvOffloadSpec | None:
        """What the pool keeps in host memory: its own word, else that for all pools; None for nothing."""
        if pool.engine is not EngineName.VLLM:
            return None
        asked, own = self.kv_cache.offload, pool.kv_offload_memory
        if own is not None:
            asked = (asked or KvOffloadSpec(host_memory=own)).model_copy(
                update={"host_memory": own}
            )
        return asked if asked is not None and asked.host_bytes else None

    def kv_cache_dtype_of(self, pool: Pool) -> KvCacheDtype:
        """The pool's KV cache dtype, else that of all pools, else auto."""
        return pool.kv_cache_dtype or self.kv_cache.dtype or KvCacheDtype.AUTO


FILES: Final = {
    EngineName.VLLM: ("uri", "model.uri"),
    EngineName.LLAMA_CPP: ("gguf", "model.gguf.uri"),
}
"""What an engine loads: the member of `model`, and what to write."""


def _first_problem(spec: InferenceDeploymentSpec) -> Iterator[ManifestError]:
    """What one field says against another, in the order of the manifest."""
    if twice := repeated(pool.name for pool in spec.pools):
        index, name = twice
        yield ManifestError(
            f"{name!r} is there twice; give each pool its own name", field=f".pools[{index}]"
        )
    for pool in spec.pools:
        yield from _pool_problem(spec, pool)
    if not spec.pools and not any(_usable(spec, engine) for engine in EngineName):
        yield ManifestError(
            "has no pools, and no engine that could run the model; write engines.vllm.image with model.uri, "
            "or engines.llamaCpp.image with model.gguf.uri",
            field=".engines",
        )
    for lane in spec.traffic.lanes if spec.traffic is not None else ():
        if lane.keys and spec.gateway.keys_secret is None:
            yield ManifestError(f"lane {lane.name!r} {NOBODY_KNOWS}", field=".gateway.keysSecret")


NOBODY_KNOWS: Final = (
    "has keys, and nothing says who they are; write gateway.keysSecret, the Secret that holds them, "
    "or take the lane's keys out"
)


def _pool_problem(spec: InferenceDeploymentSpec, pool: Pool) -> Iterator[ManifestError]:
    if spec.image_of(pool) is None:
        yield ManifestError(
            f"pool {pool.name!r} has no image for {pool.engine}; "
            f"write engines.{pool.engine}.image, or image in the pool",
            field=f".engines.{pool.engine}.image",
        )
    if not _has_files(spec.model, pool.engine):
        member, file = FILES[pool.engine]
        yield ManifestError(
            f"pool {pool.name!r} runs {pool.engine}, which has nothing to load; write {file}",
            field=f".model.{member}",
        )
    dtype = spec.kv_cache_dtype_of(pool)
    if pool.engine not in DTYPES[dtype]:
        yield ManifestError(
            f"{dtype.value!r} is not a KV cache dtype of {pool.engine}, the engine of pool {pool.name!r}; "
            f"write one of {', '.join(known_dtypes(pool.engine))} as kvCacheDtype in that pool",
            field=".kvCache.dtype",
        )


def _has_files(model: ModelSpec, engine: EngineName) -> bool:
    return getattr(model, FILES[engine][0]) is not None


def _usable(spec: InferenceDeploymentSpec, engine: EngineName) -> bool:
    return spec.engines.of(engine).image is not None and _has_files(spec.model, engine)
