"""What is decided for a llama-server before slots and layers are counted?"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import flags, memory
from plimsoll.engines.llama_cpp.context import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_UBATCH_TOKENS,
    VALUES_PER_BLOCK,
    ServerContext,
    context_of_slots,
)
from plimsoll.facts.model import GgufFacts
from plimsoll.plan.length import length_field, length_of
from plimsoll.plan.records import PlanRequest, Reason, Refusal

CACHE_TYPES: Final = {"auto": "f16", "f16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"}
"""kvCache.dtype to --cache-type-k and -v; llama.cpp's CUDA kernels are built for equal pairs of these
(GGML_CUDA_FA_ALL_QUANTS is off by default)."""
FEWEST_LAYERS: Final = 2
"""The output and one block; with less the card would only multiply for the host."""


class OffloadAsk(NamedTuple):
    """A request with everything decided that does not depend on slots and layers."""

    request: PlanRequest
    gguf: GgufFacts
    release: Release
    release_note: str | None
    cache_type: str
    length: int
    batch_tokens: int
    ubatch_tokens: int

    @property
    def layers(self) -> int:
        """Blocks and the output."""
        return memory.layer_count(self.gguf)

    @property
    def room_bytes(self) -> int:
        """What one card has for weights, KV and compute, with the reserve kept."""
        gpu = self.request.gpu
        fixed = memory.CUDA_CONTEXT_BYTES + memory.POOL_RESERVE_BYTES
        return gpu.usable_bytes - gpu.held_by_others_bytes - fixed

    def context(self, slots: int) -> ServerContext:
        """The cells of so many slots."""
        return context_of_slots(
            max_model_len=self.length,
            slots=slots,
            cache_type=self.cache_type,
            batch_tokens=self.batch_tokens,
            ubatch_tokens=self.ubatch_tokens,
        )

    def need(self, slots: int, gpu_layers: int) -> memory.CardNeed:
        """Bytes of the fullest card."""
        return memory.fullest(
            self.gguf,
            self.context(slots),
            gpu_layers=gpu_layers,
            cards=self.request.cards,
            release=self.release,
        )

    def fits(self, slots: int, gpu_layers: int) -> bool:
        """Whether the fullest card holds it."""
        return self.need(slots, gpu_layers).total_bytes <= self.room_bytes

    def most_layers(self, slots: int) -> int:
        """The layers that fit, searched from all of them downwards; 0 when not even one block does."""
        counts = range(self.layers, FEWEST_LAYERS - 1, -1)
        return next((layers for layers in counts if self.fits(slots, layers)), 0)


def prepare(request: PlanRequest) -> OffloadAsk | Refusal:
    """Everything that can be decided before slots and layers are counted."""
    if request.gguf is None:
        return Refusal(
            reason=Reason.MODEL_UNKNOWN,
            message="llama.cpp needs facts of a GGUF file and there are none; "
            "set model.gguf, or give its facts in model.facts.",
        )
    gguf = request.gguf
    refusal = _dtype_refusal(request, gguf)
    if refusal is not None:
        return refusal
    length = length_of(request, gguf.context_length)
    if length > gguf.context_length:
        return Refusal(
            reason=Reason.LENGTH_BEYOND_MODEL,
            message=f"{length_field(request)} is {length:,} tokens, but {gguf.id} was made for "
            f"{gguf.context_length:,}.",
        )
    row = flags.release_row(request.release)
    overrides = request.overrides
    batch = overrides.max_num_batched_tokens or DEFAULT_BATCH_TOKENS
    return OffloadAsk(
        request=request,
        gguf=gguf,
        release=Release.of(row.text),
        release_note=row.note,
        cache_type=CACHE_TYPES[request.kv_dtype],
        length=length,
        batch_tokens=batch,
        ubatch_tokens=min(batch, overrides.ubatch_size or DEFAULT_UBATCH_TOKENS),
    )


def _dtype_refusal(request: PlanRequest, gguf: GgufFacts) -> Refusal | None:
    dtype = request.kv_dtype
    if dtype not in CACHE_TYPES:
        return Refusal(
            reason=Reason.KV_DTYPE_UNSUPPORTED,
            message=f"kvCache.dtype {dtype} has no attention kernel in llama.cpp's CUDA images; "
            "use auto (f16), q8_0 (about half the bytes) or q4_0 (about a quarter).",
        )
    widths = {width for group in gguf.kv_groups for width in (group.key_dim, group.value_dim)}
    uneven = sorted(width for width in widths if width % VALUES_PER_BLOCK)
    if CACHE_TYPES[dtype] != "f16" and uneven:
        return Refusal(
            reason=Reason.KV_DTYPE_UNSUPPORTED,
            message=f"kvCache.dtype {dtype} packs {VALUES_PER_BLOCK} values, and a head of {gguf.id} "
            f"is {uneven[0]} wide; use auto.",
        )
    return None
