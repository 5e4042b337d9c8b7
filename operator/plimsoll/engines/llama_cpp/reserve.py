"""For which batch and which cache does llama.cpp reserve its graph?

The worst case of llama_context::graph_reserve, b11434: a full physical batch, divided evenly over the
slots, against a cache in which every cell is used.
"""

from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.context import (
    BLOCK_BYTES,
    PLAIN_TYPES,
    VALUES_PER_BLOCK,
    ServerContext,
)
from plimsoll.facts.model import GgufFacts
from plimsoll.units import round_up

ROW_STEP: Final = 512
"""Rows of packed tensors are read up to a multiple of this on a card (MATRIX_ROW_PADDING)."""
_ROTATION: Final = 64
"""Packed caches are rotated by a matrix of this width, or of the largest power of two times it that
divides a head's width (llama-kv-cache.cpp, attn_rot)."""


class Batch(NamedTuple):
    """What one reserved graph computes."""

    tokens: int
    """Rows: the physical batch, rounded up to a multiple of the slots."""
    sequences: int
    """Slots, each with as many tokens."""
    streams: int
    """Separate caches."""
    outputs: int
    """Rows of logits."""
    flash: bool
    """Flash attention."""
    key_type: str
    value_type: str
    kv_on_host: bool
    """--no-kv-offload."""
    value_width: int
    """Values of one token of the layer with most; without flash attention all layers keep as many."""
    copies_in_graph: bool
    """Whether the 16-bit copy of a packed cache is part of the graph."""

    @property
    def mask_bytes(self) -> int:
        """Bytes of a value of the attention mask."""
        return 2 if self.flash else 4


def batch_of(
    gguf: GgufFacts, context: ServerContext, *, outputs: int, copies_in_graph: bool
) -> Batch:
    """The batch that a context reserves."""
    return Batch(
        tokens=round_up(context.ubatch_tokens, context.slots),
        sequences=context.slots,
        streams=context.streams,
        outputs=min(outputs, context.ubatch_tokens),
        flash=context.flash,
        key_type=context.key_type,
        value_type=context.value_type,
        kv_on_host=context.kv_on_host,
        value_width=value_width(gguf),
        copies_in_graph=copies_in_graph,
    )


def value_width(gguf: GgufFacts) -> int:
    """Values of one token of the layer with most."""
    return max((group.kv_heads * group.value_dim for group in gguf.kv_groups), default=0)


def row_padding(values: int, cache_type: str) -> int:
    """Bytes beside a packed row of so many values on a card."""
    if cache_type in PLAIN_TYPES or values % ROW_STEP == 0:
        return 0
    return (ROW_STEP - values % ROW_STEP) // VALUES_PER_BLOCK * BLOCK_BYTES[cache_type]


def key_rotation(width: int, cache_type: str) -> int:
    """Width of the matrix that rotates keys; 0 where none does."""
    if cache_type in PLAIN_TYPES or width == 0 or width % _ROTATION:
        return 0
    size = _ROTATION
    while width % (2 * size) == 0:
        size *= 2
    return size


def value_rotation(width: int, cache_type: str) -> int:
    """Width of the matrix that rotates values; 0 where none does."""
    return 0 if cache_type in PLAIN_TYPES or width == 0 or width % _ROTATION else _ROTATION
