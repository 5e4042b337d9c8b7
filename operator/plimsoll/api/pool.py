"""What does a person write about one pool, and about an engine for all pools?"""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from plimsoll.api.forms import (
    Bytes,
    Count,
    DnsLabel,
    EnvName,
    Image,
    LabelValue,
    ManifestError,
    ObjectName,
    ReleaseText,
    SecretKey,
    Sentence,
)
from plimsoll.api.names import repeated
from plimsoll.api.traffic import KvCacheDtype, Tokens
from plimsoll.engines.base import EngineName
from plimsoll.facts.record import Record
from plimsoll.units import parse_bytes

Argument = Annotated[str, Field(max_length=1024)]


class SecretKeyRef(Record):
    """A key of a Secret in the same namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: SecretKey
    """Key inside it."""


class EnvSource(Record):
    """Where a variable's value is from."""

    secret_key_ref: SecretKeyRef
    """A key of a Secret; the kubelet reads it, Plimsoll never does."""


class EnvVar(Record):
    """One environment variable of the engine's container."""

    name: EnvName
    """Name of the variable."""
    value: Sentence | None = None
    """Its value."""
    value_from: EnvSource | None = None
    """Where its value is from, instead of value."""

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise ManifestError(f"{self.name!r} needs one value; write either value or valueFrom")
        return self


ExtraArgs = Annotated[tuple[Argument, ...], Field(max_length=64)]
Env = Annotated[tuple[EnvVar, ...], Field(max_length=64)]


class PoolGpu(Record):
    """The cards of one worker."""

    product: LabelValue
    """GPU type, as in the label nvidia.com/gpu.product, e.g. NVIDIA-RTX-A6000."""
    per_worker: Annotated[Count, Field(ge=1, le=16)] = 1
    """Cards of one worker; 1 when left out."""
    visible_memory: Bytes | None = None
    """What a container sees of one card, where a shim such as HAMi shows it less, e.g. 12Gi."""

    @property
    def visible_memory_bytes(self) -> int | None:
        """The same in bytes."""
        return None if self.visible_memory is None else parse_bytes(self.visible_memory)


class Pool(Record):
    """Workers of one GPU type with one engine and one plan. What is set here is pinned as it is, and
    refused when it cannot work."""

    name: DnsLabel
    """Name of the pool, part of the names of its objects."""
    gpu: PoolGpu
    """The cards of one worker."""
    engine: EngineName
    """vllm or llamaCpp."""
    replicas: Annotated[Count, Field(ge=0, le=1000)] | None = None
    """Workers in this pool; when left out, what spec.replicas leaves is shared out."""
    image: Image | None = None
    """Container image, instead of the engine's."""
    release: ReleaseText | None = None
    """The engine's release, where the image's tag does not tell it, e.g. 0.22.1 or b11434."""
    max_model_len: Tokens | None = None
    """Longest prompt and answer together, in tokens."""
    max_num_seqs: Annotated[Count, Field(ge=1, le=65536)] | None = None
    """Sequences at once in one worker."""
    max_num_batched_tokens: Tokens | None = None
    """Tokens of one step; vLLM only."""
    gpu_memory_utilization: Annotated[float, Field(strict=True, ge=0.01, le=0.99)] | None = None
    """Fraction of the card that vLLM may use; vLLM only."""
    block_size: Annotated[Count, Field(ge=1, le=1024)] | None = None
    """Tokens in one KV block; vLLM only."""
    gpu_layers: Annotated[Count, Field(ge=0, le=1000)] | None = None
    """Layers kept on the card; llama.cpp only."""
    ubatch_size: Annotated[Count, Field(ge=1, le=65536)] | None = None
    """Tokens of one physical batch; llama.cpp only."""
    cache_ram: Bytes | None = None
    """Host memory for llama-server's prompt cache, e.g. 2Gi; 0 turns it off; llama.cpp only."""
    kv_cache_dtype: KvCacheDtype | None = None
    """KV cache dtype of this pool, instead of kvCache.dtype."""
    kv_offload_memory: Bytes | None = None
    """Host memory for KV blocks, instead of kvCache.offload.hostMemory; 0 for none; vLLM only."""
    extra_args: ExtraArgs = ()
    """More arguments for the engine, one word each; those that Plimsoll pins are refused."""
    env: Env = ()
    """Environment of the engine's container; what would change a pinned flag is refused."""

    @property
    def cache_ram_bytes(self) -> int | None:
        """The prompt cache in bytes, None when left out."""
        return None if self.cache_ram is None else parse_bytes(self.cache_ram)

    @model_validator(mode="after")
    def _engine_knows_it(self) -> Self:
        for name, other in ENGINE_OF.items():
            if getattr(self, name) is not None and other is not self.engine:
                field = to_camel(name)
                raise ManifestError(
                    f"{getattr(self, name)!r} says nothing to {self.engine}; "
                    f"take it out, or make this a {other} pool",
                    field=f".{field}",
                )
        if self.kv_cache_dtype is not None and self.engine not in DTYPES[self.kv_cache_dtype]:
            raise ManifestError(
                f"{self.kv_cache_dtype.value!r} is not a KV cache dtype of {self.engine}; "
                f"write one of {', '.join(known_dtypes(self.engine))}",
                field=".kvCacheDtype",
            )
        if twice := repeated(variable.name for variable in self.env):
            index, name = twice
            raise ManifestError(
                f"{name!r} is there twice; keep one of them", field=f".env[{index}]"
            )
        return self


ENGINE_OF: Final = {
    "max_num_batched_tokens": EngineName.VLLM,
    "gpu_memory_utilization": EngineName.VLLM,
    "block_size": EngineName.VLLM,
    "kv_offload_memory": EngineName.VLLM,
    "gpu_layers": EngineName.LLAMA_CPP,
    "ubatch_size": EngineName.LLAMA_CPP,
    "cache_ram": EngineName.LLAMA_CPP,
}
"""Fields of a pool that only one engine has."""

_BOTH: Final = frozenset({EngineName.VLLM, EngineName.LLAMA_CPP})
_VLLM: Final = frozenset({EngineName.VLLM})
_LLAMA_CPP: Final = frozenset({EngineName.LLAMA_CPP})
DTYPES: Final = {
    dtype: _BOTH if dtype is KvCacheDtype.AUTO else _VLLM if dtype.startswith("fp8") else _LLAMA_CPP
    for dtype in KvCacheDtype
}
"""Which engines know which KV cache dtype: vLLM 0.33 --kv-cache-dtype, llama.cpp b11434 -ctk."""


def known_dtypes(engine: EngineName) -> tuple[str, ...]:
    """KV cache dtypes of one engine."""
    return tuple(dtype.value for dtype, engines in DTYPES.items() if engine in engines)


class EngineSpec(Record):
    """One engine, for all pools that use it."""

    image: Image | None = None
    """Container image, e.g. vllm/vllm-openai:v0.22.1."""
    release: ReleaseText | None = None
    """The engine's release, where the image's tag does not tell it, e.g. 0.22.1 or b11434."""
    extra_args: ExtraArgs = ()
    """More arguments for the engine, one word each; those that Plimsoll pins are refused."""
    env: Env = ()
    """Environment of the engine's container; what would change a pinned flag is refused."""

    @model_validator(mode="after")
    def _variables_differ(self) -> Self:
        if twice := repeated(variable.name for variable in self.env):
            index, name = twice
            raise ManifestError(
                f"{name!r} is there twice; keep one of them", field=f".env[{index}]"
            )
        return self


class Engines(Record):
    """The engines, for all pools."""

    vllm: EngineSpec | None = None
    """vLLM."""
    llama_cpp: EngineSpec | None = None
    """llama.cpp's llama-server."""

    def of(self, engine: EngineName) -> EngineSpec:
        """The engine's settings; empty ones when nobody wrote any."""
        chosen = self.vllm if engine is EngineName.VLLM else self.llama_cpp
        return chosen or EngineSpec()
