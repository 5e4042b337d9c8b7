"""How many bytes do keys, values and recurrent states take, block by block?

Exact in 494 contexts of b11434, padding included: each of a layer's tensors is packed for itself, and on
a card begins at a multiple of 128 bytes.
"""

from collections.abc import Iterable

from plimsoll.engines.llama_cpp.blocks import kept_by_block
from plimsoll.engines.llama_cpp.context import ServerContext, row_bytes
from plimsoll.engines.llama_cpp.placement import Placement
from plimsoll.engines.llama_cpp.pools import CARD_ALIGNMENT, HOST_ALIGNMENT
from plimsoll.engines.llama_cpp.reserve import row_padding, value_width
from plimsoll.engines.llama_cpp.state import conv_values, state_bytes, state_values
from plimsoll.engines.llama_cpp.tensors import F32_BYTES, HOST
from plimsoll.facts.model import GgufFacts, KvGroup, RecurrentState
from plimsoll.units import round_up


def cells_of(group: KvGroup, context: ServerContext) -> int:
    """Cells of one stream of a layer."""
    if group.window_tokens is None:
        return context.cells_per_slot
    return context.sliding_cells(group.window_tokens)


def layer_kv_bytes(group: KvGroup, context: ServerContext) -> int:
    """Bytes of the cache of one layer, all slots together, without padding.

    `cells * streams * heads * (key row + value row)`; a latent layer (MLA) has one row and no value, a
    recurrent one a state for each slot whatever the length.
    """
    if group.state is not None:
        return state_bytes(group.state) * context.slots
    row = row_bytes(group.key_dim, context.key_type)
    row += row_bytes(group.value_dim, context.value_type)
    return cells_of(group, context) * context.streams * group.kv_heads * row


def kv_bytes(gguf: GgufFacts, context: ServerContext, blocks: Iterable[int]) -> int:
    """Bytes of the caches of these blocks, without padding."""
    kept = kept_by_block(gguf)
    return sum(
        layer_kv_bytes(group, context)
        for index in blocks
        for group in kept[index]
        if group is not None
    )


def allocated_kv_bytes(
    gguf: GgufFacts, context: ServerContext, placement: Placement, where: int
) -> int:
    """Bytes of the buffers of keys, values and states in one place, as llama.cpp allocates them."""
    kept = kept_by_block(gguf)
    if context.kv_on_host:
        indices: Iterable[int] = range(len(kept)) if where == HOST else ()
    else:
        indices = placement.blocks_on(where)
    alignment = HOST_ALIGNMENT if where == HOST else CARD_ALIGNMENT
    widest = value_width(gguf)
    return sum(
        round_up(size, alignment)
        for index in indices
        for group in kept[index]
        if group is not None
        for size in _tensors(group, context, widest, is_on_card=where != HOST)
    )


def _tensors(
    group: KvGroup, context: ServerContext, widest: int, *, is_on_card: bool
) -> Iterable[int]:
    """Bytes of each tensor of one layer's cache; transposed values are as wide as the widest."""
    if group.state is not None:
        yield from _states(group.state, context.slots)
        return
    rows = cells_of(group, context) * context.streams
    values = group.kv_heads * group.value_dim
    if values and not context.flash:
        values = widest
    pairs = ((group.kv_heads * group.key_dim, context.key_type), (values, context.value_type))
    for width, cache_type in pairs:
        if width:
            padding = row_padding(width, cache_type) if is_on_card else 0
            yield row_bytes(width, cache_type) * rows + padding


def _states(state: RecurrentState, slots: int) -> Iterable[int]:
    yield F32_BYTES * conv_values(state) * slots
    yield F32_BYTES * state_values(state) * slots


def kv_bytes_per_token(gguf: GgufFacts, blocks: Iterable[int], cache_type: str) -> int:
    """KV bytes of one more token of one slot over these blocks, windowed layers counted too."""
    kept = kept_by_block(gguf)
    return sum(
        group.kv_heads
        * (row_bytes(group.key_dim, cache_type) + row_bytes(group.value_dim, cache_type))
        for index in blocks
        for group in kept[index]
        if group is not None
    )


def slot_state_bytes(gguf: GgufFacts) -> int:
    """Recurrent states of one slot over all layers; 0 for a model without."""
    return sum(
        state_bytes(group.state) * group.layers
        for group in gguf.kv_groups
        if group.state is not None
    )
