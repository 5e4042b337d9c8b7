"""What does one layer keep in the pool: bytes of a page, and blocks of one sequence?

A page is one layer's part of one block. Every layer that keeps KV has one LayerSpec, and layers with
equal specs are alike to the engine. Source: vLLM 0.33.0 v1/kv_cache_interface.py.
"""

import math
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.units import ceil_div, round_up


class SpecKind(StrEnum):
    """The engine's kinds of cache, by how a sequence draws blocks."""

    FULL = "FullAttention"
    SLIDING = "SlidingWindow"
    CHUNKED = "ChunkedLocalAttention"
    MLA = "Mla"
    """One latent, and everything that is kept like one: indexes, compressed latents."""
    SLIDING_MLA = "SlidingWindowMla"
    """A window of latents; the running state of a compressor."""
    RECURRENT = "Mamba"
    CROSS = "CrossAttention"
    RING = "CircularBuffer"
    """One block per sequence that is written round and round."""


SLIDING_KINDS: Final = (SpecKind.SLIDING, SpecKind.SLIDING_MLA)
FULL_KINDS: Final = (SpecKind.FULL, SpecKind.MLA)
"""Kinds that hold every token; the engine counts MLA as a full attention."""


class LayerSpec(NamedTuple):
    """One layer's cache on one card."""

    kind: SpecKind
    """How a sequence draws blocks."""
    block_tokens: int
    """Tokens in one block."""
    rows: int = 1
    """Rows of a page beside each other: KV heads on this card."""
    row_bytes: int = 0
    """Bytes of one row for one state; of the whole state for recurrent layers."""
    dtype: str = ""
    """What the page is made of."""
    tokens_per_state: int = 1
    """Tokens behind one row: 4 or 128 for compressed latents."""
    padded_bytes: int | None = None
    """Bytes that the page is padded to; None for none."""
    page_alignment: int | None = None
    """The page is rounded up to a multiple of this many bytes (DeepSeek-V4)."""
    stride_bytes: int | None = None
    """Blocks lie a multiple of this many bytes apart."""
    kernel_tokens: int | None = None
    """The kernel reads pages of at most this many tokens, so blocks hold whole ones of them."""
    window_tokens: int | None = None
    """Window or chunk."""
    merged_window: int | None = None
    """Window of a layer that computes with one and is kept whole (hybrid manager off)."""
    state_blocks: int = 1
    """Blocks of one sequence: recurrent layers."""
    retained_tokens: int = 0
    """Tokens kept behind the window for speculation with several modules."""
    sharded_by_dcp: bool = True
    """Whether decode context parallelism splits the tokens."""
    is_running: bool = False
    """A compressor's working state, which is rewritten as it goes."""
    role: str = ""
    """What else must be equal for layers to be alike: the recurrence, the cache's role."""

    @property
    def unpadded_bytes(self) -> int:
        """The page without padding."""
        if self.kind is SpecKind.RECURRENT:
            return self.row_bytes
        return self.rows * (self.block_tokens // self.tokens_per_state) * self.row_bytes

    @property
    def token_bytes(self) -> float:
        """One more token of a long sequence, padding aside; a running state takes none."""
        if self.kind in (SpecKind.RECURRENT, SpecKind.CROSS, SpecKind.RING) or self.is_running:
            return 0
        return self.rows * self.row_bytes / self.tokens_per_state

    @property
    def page_bytes(self) -> int:
        """The page in the pool."""
        if self.padded_bytes is not None:
            return self.padded_bytes
        if self.page_alignment is not None:
            return round_up(self.unpadded_bytes, self.page_alignment)
        return self.unpadded_bytes

    @property
    def stride_alignment(self) -> int:
        """Bytes that the distance between two blocks must be a multiple of."""
        if self.stride_bytes is not None:
            return self.stride_bytes
        if self.kernel_tokens is None:
            return 1
        kernel = math.gcd(self.kernel_tokens, self.block_tokens)
        return 1 if kernel == self.block_tokens else self._replace(block_tokens=kernel).page_bytes

    @property
    def stride_page_bytes(self) -> int:
        """The page with what lies between it and the next block's."""
        return round_up(self.page_bytes, self.stride_alignment)


class Demand(NamedTuple):
    """How many blocks one sequence draws from one layer."""

    block_tokens: int
    """Tokens in one block."""
    most_tokens: int | None = None
    """Tokens kept at most: a window and the steps in flight; None for all of them."""
    spare_blocks: int = 0
    """Blocks beyond those: a window may begin inside a block."""
    fixed_blocks: int | None = None
    """Blocks whatever the length: states, rings, the encoder's tokens."""
    shards: int = 1
    """Ranks that share the tokens (decode context parallelism)."""

    def blocks(self, tokens: int) -> int:
        """Blocks of a sequence of `tokens` tokens."""
        if self.fixed_blocks is not None:
            return self.fixed_blocks
        held = tokens if self.most_tokens is None else min(tokens, self.most_tokens)
        return ceil_div(ceil_div(held, self.shards), self.block_tokens) + self.spare_blocks


def demand(spec: LayerSpec, *, in_flight_tokens: int, encoder_tokens: int, dcp: int) -> Demand:
    """What one sequence draws from a layer (max_memory_usage_bytes over the page)."""
    window = spec.window_tokens or 0
    match spec.kind:
        case SpecKind.FULL | SpecKind.MLA:
            return Demand(spec.block_tokens, shards=dcp if spec.sharded_by_dcp else 1)
        case SpecKind.SLIDING | SpecKind.SLIDING_MLA:
            most = window - 1 + spec.retained_tokens + in_flight_tokens
            return Demand(spec.block_tokens, most_tokens=most, spare_blocks=1)
        case SpecKind.CHUNKED:
            return Demand(spec.block_tokens, most_tokens=window + in_flight_tokens)
        case SpecKind.CROSS:
            return Demand(
                spec.block_tokens, fixed_blocks=ceil_div(encoder_tokens, spec.block_tokens)
            )
        case SpecKind.RECURRENT:
            return Demand(spec.block_tokens, fixed_blocks=spec.state_blocks)
        case SpecKind.RING:
            return Demand(spec.block_tokens, fixed_blocks=1)
