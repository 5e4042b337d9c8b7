"""How much host memory does a llama-server container need, and what of it may grow?

Resident memory of a healthy server rises for hours: the prompt cache fills to --cache-ram. So the
cache has a cap of its own, checkpoints have a number, and the container's memory covers both.
"""

from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.context import ServerContext, row_bytes
from plimsoll.engines.llama_cpp.memory import (
    PIPELINE_COPIES,
    ROUNDING_BYTES,
    first_block_on_card,
    inputs_bytes,
    kv_bytes,
    layer_count,
)
from plimsoll.facts.model import GgufFacts, KvKind
from plimsoll.units import GIB, MIB, ceil_div, round_up

BASE_BYTES: Final = GIB
"""The process itself with CUDA's libraries: a bound. 9.4 GB resident with the 8 GiB cache full
(ollama/ollama#18264) leaves 0.8 GB; b11669 on CPU has 26 MiB of its own beside its buffers."""
DEFAULT_CACHE_RAM_BYTES: Final = 8192 * MIB
"""llama.cpp's own default for --cache-ram (ggml-org/llama.cpp#16391)."""
CHECKPOINT_SPACING_TOKENS: Final = 8192
"""Least distance between two checkpoints of a slot (--checkpoint-min-step, b11434)."""
MOST_CHECKPOINTS: Final = 8
"""Ours: the default of 32 would let one slot of Gemma-3-27B hold 13 GiB (416 MiB each)."""


class HostMemory(NamedTuple):
    """Host memory of one worker's container, by owner."""

    weights_bytes: int
    """Tensors that stay with the host. File pages when memory-mapped, but speed needs them resident."""
    kv_bytes: int
    """Keys and values of the blocks on the host."""
    compute_bytes: int
    """The graph's pinned buffer, and the rows of logits."""
    cache_ram_bytes: int
    """The prompt cache when full."""
    checkpoint_bytes: int
    """Checkpoints of windowed layers when all are taken; they are outside the prompt cache."""
    prompt_state_bytes: int
    """One prompt on its way into the cache."""
    base_bytes: int = BASE_BYTES
    """The process."""

    @property
    def total_bytes(self) -> int:
        """All of it, in whole MiB."""
        parts = (
            self.weights_bytes,
            self.kv_bytes,
            self.compute_bytes,
            self.cache_ram_bytes,
            self.checkpoint_bytes,
            self.prompt_state_bytes,
            self.base_bytes,
        )
        return round_up(sum(parts), MIB)


def host_weights_bytes(gguf: GgufFacts, gpu_layers: int) -> int:
    """Bytes of the tensors that stay with the host: the embedding always, then the first blocks."""
    size = gguf.embedding_bytes + sum(gguf.block_bytes[: first_block_on_card(gguf, gpu_layers)])
    if gpu_layers == 0 and not gguf.tied_output:
        size += gguf.output_bytes
    return size


def host_compute_bytes(
    gguf: GgufFacts, context: ServerContext, *, gpu_layers: int, cards: int
) -> int:
    """The pinned buffer beside the cards (as a pipeline at most four of it), and the slots' logits.

    Logits are `4 * vocabulary * slots`: 2.00 MiB for two slots of Gemma-3-270M in b11669.
    """
    buffer = inputs_bytes(gguf, context)
    if cards > 1 and gpu_layers >= layer_count(gguf):
        buffer *= PIPELINE_COPIES
    return buffer + 4 * gguf.vocab_size * context.slots + ROUNDING_BYTES


def prompt_state_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """One slot's keys and values over all layers: an entry of the prompt cache. 5 GiB for a 70B at 16k."""
    whole = kv_bytes(gguf, context, range(len(gguf.block_bytes)))
    return ceil_div(whole, context.slots)


def checkpoints(gguf: GgufFacts, max_model_len: int) -> int:
    """How many checkpoints per slot to allow; 0 for models that take none."""
    if not any(group.kind in (KvKind.SLIDING, KvKind.CHUNKED) for group in gguf.kv_groups):
        return 0
    return min(MOST_CHECKPOINTS, ceil_div(max_model_len, CHECKPOINT_SPACING_TOKENS))


def checkpoint_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """One checkpoint: the windows of the windowed layers (1.25 MiB predicted, 1.256 seen in b11434)."""
    return sum(
        group.layers
        * group.window_tokens
        * group.kv_heads
        * (
            row_bytes(group.key_dim, context.key_type)
            + row_bytes(group.value_dim, context.value_type)
        )
        for group in gguf.kv_groups
        if group.window_tokens is not None
    )


def default_cache_ram_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """Room for one whole prompt per slot, and never more than llama.cpp's own default."""
    wanted = round_up(prompt_state_bytes(gguf, context) * context.slots, MIB)
    return min(DEFAULT_CACHE_RAM_BYTES, wanted)


def host_memory(
    gguf: GgufFacts,
    context: ServerContext,
    *,
    gpu_layers: int,
    cards: int,
    cache_ram_bytes: int,
    checkpoints_per_slot: int,
) -> HostMemory:
    """What the container needs."""
    return HostMemory(
        weights_bytes=host_weights_bytes(gguf, gpu_layers),
        kv_bytes=kv_bytes(gguf, context, range(first_block_on_card(gguf, gpu_layers))),
        compute_bytes=host_compute_bytes(gguf, context, gpu_layers=gpu_layers, cards=cards),
        cache_ram_bytes=cache_ram_bytes,
        checkpoint_bytes=checkpoint_bytes(gguf, context) * checkpoints_per_slot * context.slots,
        prompt_state_bytes=prompt_state_bytes(gguf, context),
    )
