"""How much host memory does a llama-server container need, and what of it may grow?

Resident memory of a healthy server rises for hours: the prompt cache fills to --cache-ram. So the
cache has a cap of its own, checkpoints have a number, and the container's memory covers both.
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import memory
from plimsoll.engines.llama_cpp.caches import allocated_kv_bytes, kv_bytes, slot_state_bytes
from plimsoll.engines.llama_cpp.context import ServerContext, row_bytes
from plimsoll.engines.llama_cpp.graph import WINDOWS
from plimsoll.engines.llama_cpp.placement import Placement
from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.facts.model import GgufFacts
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
    """Keys, values and recurrent states of the blocks on the host."""
    compute_bytes: int
    """The graph's pinned buffer, and the rows of logits."""
    cache_ram_bytes: int
    """The prompt cache when full."""
    checkpoint_bytes: int
    """Checkpoints of windowed layers and recurrent states when all are taken; outside the prompt cache."""
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


def output_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """The slots' logits: 2.00 MiB for two slots of Gemma-3-270M in b11669."""
    return 4 * gguf.vocab_size * context.slots


def prompt_state_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """One slot's caches over all layers: an entry of the prompt cache. 5 GiB for a 70B at 16k."""
    whole = kv_bytes(gguf, context, range(len(gguf.block_bytes)))
    return ceil_div(whole, context.slots)


def checkpoints(gguf: GgufFacts, max_model_len: int) -> int:
    """How many checkpoints per slot to allow; 0 for models that take none."""
    takes = any(group.kind in WINDOWS or group.state is not None for group in gguf.kv_groups)
    if not takes:
        return 0
    return min(MOST_CHECKPOINTS, ceil_div(max_model_len, CHECKPOINT_SPACING_TOKENS))


def checkpoint_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """One checkpoint: the windows of the windowed layers, and one slot's recurrent states.

    1.25 MiB predicted for a windowed model where b11434 took 1.256.
    """
    return slot_state_bytes(gguf) + sum(
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
    placement: Placement,
    release: Release,
    *,
    cache_ram_bytes: int,
    checkpoints_per_slot: int,
) -> HostMemory:
    """What the container needs."""
    computed = memory.computed(gguf, context, placement, release)
    return HostMemory(
        weights_bytes=memory.host_weights_bytes(gguf, placement),
        kv_bytes=allocated_kv_bytes(gguf, context, placement, HOST),
        compute_bytes=computed.host + output_bytes(gguf, context),
        cache_ram_bytes=cache_ram_bytes,
        checkpoint_bytes=checkpoint_bytes(gguf, context) * checkpoints_per_slot * context.slots,
        prompt_state_bytes=prompt_state_bytes(gguf, context),
    )
