"""How does llama-server cut its context into slots and cells?

Exact in 618 measured contexts of b11434 and b11549. `-c` is the total over slots, not one slot's
length, and every slot is rounded UP to 256 cells although the warning in the log says down:
`-c 4096 -np 3` allocates 4608.
"""

from typing import Final, NamedTuple

from plimsoll.units import round_up

CELL_STEP: Final = 256
"""Cells of one slot come in multiples of this (llama_context, b11434; exact in 618 contexts)."""
DEFAULT_BATCH_TOKENS: Final = 2048
DEFAULT_UBATCH_TOKENS: Final = 512
"""llama.cpp's own defaults for -b and -ub, b7410 to b11669."""

PLAIN_TYPES: Final = frozenset({"f32", "f16", "bf16"})
"""Cache types that are not packed."""
VALUES_PER_BLOCK: Final = 32
"""Values that a quantised cache type packs together; a head's width must be a multiple."""
BLOCK_BYTES: Final = {
    "f32": 128,
    "f16": 64,
    "bf16": 64,
    "q8_0": 34,
    "q5_1": 24,
    "q5_0": 22,
    "q4_1": 20,
    "q4_0": 18,
    "iq4_nl": 18,
}
"""Bytes of 32 cached values by --cache-type-k/-v (ggml block sizes; exact in 617 of 618 contexts)."""


def row_bytes(values: int, cache_type: str) -> int:
    """Bytes of `values` cached values of one token."""
    return values * BLOCK_BYTES[cache_type] // VALUES_PER_BLOCK


class ServerContext(NamedTuple):
    """The cells that llama-server allocates for its slots."""

    slots: int
    """Requests at once (--parallel)."""
    ctx_size: int
    """The value of --ctx-size: tokens of all slots together."""
    cells_per_slot: int
    """Cells that one slot owns (n_ctx_seq); with a unified cache, what all share."""
    streams: int
    """Separate caches: one per slot, or one when unified."""
    batch_tokens: int
    """Logical batch (--batch-size)."""
    ubatch_tokens: int
    """Physical batch as the graph is reserved for it."""
    key_type: str
    """--cache-type-k."""
    value_type: str
    """--cache-type-v."""
    flash: bool = True
    """Flash attention (--flash-attn on)."""
    full_windows: bool = False
    """Windowed layers keep as many cells as the others (--swa-full)."""
    kv_on_host: bool = False
    """The cache stays in host memory (--no-kv-offload)."""
    op_offload: bool = True
    """Large batches of a host's layers are computed on the card (--op-offload)."""

    @property
    def is_quantized(self) -> bool:
        """Whether flash attention needs a 16-bit copy of a layer's keys and values."""
        return not PLAIN_TYPES.issuperset({self.key_type, self.value_type})

    def sliding_cells(self, window_tokens: int) -> int:
        """Cells per stream of a windowed layer: the window of each slot in it, and the step in flight.

        The physical batch is in it, so -ub changes the cache; rounding comes after the minimum
        (llama_kv_cache_iswa, exact in all windowed cases measured).
        """
        if self.full_windows:
            return self.cells_per_slot
        windows = self.slots // self.streams
        return round_up(
            min(self.cells_per_slot, window_tokens * windows + self.ubatch_tokens), CELL_STEP
        )


def server_context(
    *,
    ctx_size: int,
    slots: int,
    cache_type: str = "f16",
    value_type: str | None = None,
    unified: bool = False,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ubatch_tokens: int = DEFAULT_UBATCH_TOKENS,
    flash: bool = True,
    full_windows: bool = False,
    kv_on_host: bool = False,
    op_offload: bool = True,
) -> ServerContext:
    """What llama-server makes of --ctx-size and --parallel (explicit --parallel turns unified off)."""
    total = round_up(ctx_size, CELL_STEP)
    return ServerContext(
        slots=slots,
        ctx_size=ctx_size,
        cells_per_slot=total if unified else round_up(total // slots, CELL_STEP),
        streams=1 if unified else slots,
        batch_tokens=batch_tokens,
        ubatch_tokens=min(ctx_size, batch_tokens, ubatch_tokens),
        key_type=cache_type,
        value_type=cache_type if value_type is None else value_type,
        flash=flash,
        full_windows=full_windows,
        kv_on_host=kv_on_host,
        op_offload=op_offload,
    )


def context_of_slots(
    *,
    max_model_len: int,
    slots: int,
    cache_type: str,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ubatch_tokens: int = DEFAULT_UBATCH_TOKENS,
) -> ServerContext:
    """The context in which every slot holds `max_model_len` tokens of its own."""
    return server_context(
        ctx_size=slots * round_up(max_model_len, CELL_STEP),
        slots=slots,
        cache_type=cache_type,
        batch_tokens=batch_tokens,
        ubatch_tokens=ubatch_tokens,
    )


def refusal_of(context: ServerContext) -> str | None:
    """Why llama-server would not start with this context; None when it would."""
    if not context.flash and context.value_type not in PLAIN_TYPES:
        return f"--cache-type-v {context.value_type} needs --flash-attn on"
    return None
