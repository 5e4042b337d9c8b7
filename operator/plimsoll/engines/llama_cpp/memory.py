"""Which bytes of a card does llama.cpp take for a model, a context and a placement?

Weights, caches and compute buffers are those that llama.cpp b11434 allocates itself, to the byte, in 494
contexts of 15 models (docs/measured/llamacpp-buffers.md). They were measured against a stand-in device
that applies the CUDA backend's size rules; no real card was read.
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import bound
from plimsoll.engines.llama_cpp.blocks import is_listed, weights_bytes
from plimsoll.engines.llama_cpp.caches import allocated_kv_bytes
from plimsoll.engines.llama_cpp.compute import Computed, compute_for, is_understood
from plimsoll.engines.llama_cpp.context import ServerContext
from plimsoll.engines.llama_cpp.placement import Placement
from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.facts.model import GgufFacts
from plimsoll.units import MIB

CUDA_CONTEXT_BYTES: Final = 512 * MIB
"""CUDA context, cuBLAS handle, loaded kernels: a bound. Before any model a 3090 shows 368 MiB gone
(ggml-org/llama.cpp#23281), a 5090 506 (#25465); with a model loaded a 4090 shows 451 to 456 outside
llama.cpp's own buffers (#15860)."""
POOL_RESERVE_BYTES: Final = 1024 * MIB
"""Kept free for what grows at run time: CUDA's memory pool (16-bit copies of a weight when a matrix
goes through cuBLAS: 448 MiB for a 70B feed-forward tensor; 8-bit copies of the batch) and lazily
loaded kernels. The value is llama.cpp's own margin, --fit-target (#16653)."""


class CardNeed(NamedTuple):
    """Bytes of one card that llama.cpp allocates at load."""

    blocks: tuple[int, ...]
    """Which blocks are on it."""
    has_output: bool
    """Whether the output norm and projection are on it."""
    weights_bytes: int
    """Tensors."""
    kv_bytes: int
    """Keys, values and recurrent states; allocated and zeroed at load, never grows."""
    compute_bytes: int
    """The graph's buffer."""

    @property
    def total_bytes(self) -> int:
        """Weights, KV and compute together."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


def is_exact(gguf: GgufFacts) -> bool:
    """Whether the compute buffer is llama.cpp's own and not a bound: every tensor is listed and known."""
    return is_listed(gguf) and is_understood(gguf)


def computed(
    gguf: GgufFacts, context: ServerContext, placement: Placement, release: Release
) -> Computed:
    """The compute buffers; a bound where the file's tensors are not understood."""
    found = compute_for(gguf, context, placement, release)
    return bound.computed(gguf, context, placement, release) if found is None else found


def held_bytes(gguf: GgufFacts, context: ServerContext, placement: Placement) -> tuple[int, ...]:
    """Weights and caches of every card; what the graph computes in comes on top."""
    return tuple(
        weights_bytes(gguf, placement, card) + allocated_kv_bytes(gguf, context, placement, card)
        for card in range(placement.cards)
    )


def needs(
    gguf: GgufFacts, context: ServerContext, placement: Placement, release: Release
) -> tuple[CardNeed, ...]:
    """What every card of the worker needs."""
    buffers = computed(gguf, context, placement, release)
    return tuple(
        CardNeed(
            blocks=placement.blocks_on(card),
            has_output=placement.output == card,
            weights_bytes=weights_bytes(gguf, placement, card),
            kv_bytes=allocated_kv_bytes(gguf, context, placement, card),
            compute_bytes=buffers.cards[card],
        )
        for card in range(placement.cards)
    )


def fullest(
    gguf: GgufFacts, context: ServerContext, placement: Placement, release: Release
) -> CardNeed:
    """The card that needs most; of equals the first."""
    every = needs(gguf, context, placement, release)
    return max(every, key=lambda need: need.total_bytes)


def host_weights_bytes(gguf: GgufFacts, placement: Placement) -> int:
    """Bytes of the tensors that stay with the host: the embedding always."""
    return weights_bytes(gguf, placement, HOST)
