"""Which bytes of a card does llama.cpp take for a model, a context and a number of layers?

Weights and KV are exact against 494 contexts of b11434 (padding below 0.1 MiB). Compute buffers are
closed forms when every layer is on the card (85 contexts, up to 0.2 MiB too low before the rounding
below) and an upper bound otherwise. All were measured with flash attention on, against a stand-in
device that applies the CUDA backend's size rules; no real card was read.
"""

from itertools import islice
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp.context import ServerContext, row_bytes
from plimsoll.facts.model import GgufFacts, KvGroup, KvKind
from plimsoll.units import MIB

CUDA_CONTEXT_BYTES: Final = 512 * MIB
"""CUDA context, cuBLAS handle, loaded kernels: a bound. Before any model a 3090 shows 368 MiB gone
(ggml-org/llama.cpp#23281), a 5090 506 (#25465); with a model loaded a 4090 shows 451 to 456 outside
llama.cpp's own buffers (#15860)."""
POOL_RESERVE_BYTES: Final = 1024 * MIB
"""Kept free for what grows at run time: CUDA's memory pool (16-bit copies of a weight when a matrix
goes through cuBLAS: 448 MiB for a 70B feed-forward tensor; 8-bit copies of the batch) and lazily
loaded kernels. The value is llama.cpp's own margin, --fit-target (#16653)."""
ROUNDING_BYTES: Final = MIB
"""Covers tensor padding (at most 0.08 MiB in 470 loads) and what the closed forms leave out (at most
0.19 MiB in 147 contexts)."""

LOGITS_PER_SLOT_SINCE: Final = "b9500"
"""From here the graph is reserved for one row of logits per slot, not one per token of the batch
(ggml-org/llama.cpp#23861, merged between about b9450 and b9500; the later one is the safe one)."""
KV_COPY_IN_GRAPH_SINCE: Final = "b9550"
"""From here the 16-bit copy of a quantised layer is part of the graph (#23907, about b9500 to b9540);
before, it came out of CUDA's pool at run time (#23446, #24166)."""
PIPELINE_COPIES: Final = 4
"""Copies of the graph's inputs when several cards work as a pipeline (GGML_SCHED_MAX_COPIES)."""
OFFLOAD_ROWS: Final = 32
"""Rows of a product from which a host tensor is copied to the card for it (ggml-cuda, op offload)."""
LATENT_STAGES: Final = 3
"""With layers on the host, a latent layer's cache is staged as key, as value and as the batch's rows:
once was 12 MiB too low on DeepSeek-V2-Lite at 32,768 tokens, b11434."""


class CardShare(NamedTuple):
    """What one card of a worker carries."""

    first_block: int
    """First block on the card."""
    end_block: int
    """The block after the last one."""
    has_output: bool
    """Whether the output norm and projection are on it."""

    @property
    def blocks(self) -> range:
        """Indices of its blocks."""
        return range(self.first_block, self.end_block)


class CardNeed(NamedTuple):
    """Bytes of one card that llama.cpp allocates at load."""

    share: CardShare
    """Which part of the model."""
    weights_bytes: int
    """Tensors."""
    kv_bytes: int
    """Keys and values; allocated and zeroed at load, never grows."""
    compute_bytes: int
    """The graph's buffer."""

    @property
    def total_bytes(self) -> int:
        """Weights, KV and compute together."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


def layer_count(gguf: GgufFacts) -> int:
    """What llama.cpp counts as layers: blocks plus one for the output. 81 for a 70B."""
    return len(gguf.block_bytes) + 1


def first_block_on_card(gguf: GgufFacts, gpu_layers: int) -> int:
    """-ngl N takes the output first and then the last N - 1 blocks (llama-model.cpp, b11434)."""
    return max(layer_count(gguf) - max(gpu_layers, 1), 0)


def shares(gguf: GgufFacts, gpu_layers: int, cards: int) -> tuple[CardShare, ...]:
    """Which layers each card carries with `-sm layer` and equal shares (`-ts 1,1,...`).

    Of the N entries on the cards (N - 1 blocks, then the output), entry i goes to the first card whose
    cumulative share exceeds i / N (llama-model.cpp; placement exact in 16 loads on 2 and 4 cards).
    """
    entries = min(gpu_layers, layer_count(gguf))
    start = first_block_on_card(gguf, gpu_layers)
    placed = []
    for card in range(cards):
        low, high = -(-card * entries // cards), -(-(card + 1) * entries // cards)
        has_output = low < entries == high
        placed.append(
            CardShare(
                first_block=start + low,
                end_block=start + high - has_output,
                has_output=has_output,
            )
        )
    return tuple(placed)


def weights_bytes_on_card(gguf: GgufFacts, gpu_layers: int) -> int:
    """Bytes of the tensors on a single card; the token embedding stays with the host."""
    return _weights_bytes(gguf, shares(gguf, gpu_layers, 1)[0])


def kv_bytes(gguf: GgufFacts, context: ServerContext, blocks: range) -> int:
    """Bytes of the cache of these blocks.

    Exact where the layers of a kind are alike. Where some blocks keep none, or kinds differ in width
    and nobody said which block is which, the widest layers are taken to be among `blocks`.
    """
    sliding = [g for g in gguf.kv_groups if g.kind in (KvKind.SLIDING, KvKind.CHUNKED)]
    whole = [g for g in gguf.kv_groups if g not in sliding]
    if sliding and whole and not gguf.sliding_blocks:
        return _widest(gguf.kv_groups, context, len(blocks))
    windowed = len(set(gguf.sliding_blocks) & set(blocks)) if whole else len(blocks)
    return _widest(sliding, context, windowed) + _widest(whole, context, len(blocks) - windowed)


def kv_bytes_per_token(gguf: GgufFacts, blocks: range, cache_type: str) -> int:
    """KV bytes of one more token of one slot over these blocks, windowed layers counted too."""
    one_cell = ServerContext(
        slots=1,
        ctx_size=1,
        cells_per_slot=1,
        streams=1,
        batch_tokens=1,
        ubatch_tokens=1,
        key_type=cache_type,
        value_type=cache_type,
    )
    groups = tuple(group.model_copy(update={"window_tokens": None}) for group in gguf.kv_groups)
    return kv_bytes(gguf.model_copy(update={"kv_groups": groups}), one_cell, blocks)


def layer_kv_bytes(group: KvGroup, context: ServerContext) -> int:
    """Bytes of the cache of one layer, all slots together.

    `cells * streams * heads * (key row + value row)`; a latent layer (MLA) has one row and no value.
    """
    cells = context.cells_per_slot
    if group.window_tokens is not None:
        cells = context.sliding_cells(group.window_tokens)
    row = row_bytes(group.key_dim, context.key_type)
    row += row_bytes(group.value_dim, context.value_type)
    return cells * context.streams * group.kv_heads * row


def compute_bytes(
    gguf: GgufFacts, context: ServerContext, *, gpu_layers: int, cards: int, release: Release
) -> int:
    """The graph's buffer on one card, never below what was measured.

    Reserved for the largest physical batch against a full cache, and the same whatever the number of
    layers, as long as one stays on the host.
    """
    inputs = inputs_bytes(gguf, context)
    width = max(_feed_forward_width(gguf), _attention_width(gguf))
    full = inputs + 4 * context.ubatch_tokens * width
    copy = _kv_copy_bytes(gguf, context)
    if release.is_before(KV_COPY_IN_GRAPH_SINCE):
        full += copy
    elif copy:
        full = max(full, inputs + 4 * context.ubatch_tokens * _attention_width(gguf) + copy)
    rows = context.ubatch_tokens if release.is_before(LOGITS_PER_SLOT_SINCE) else context.slots
    full = max(full, inputs + 4 * min(rows, context.ubatch_tokens) * gguf.vocab_size)
    if gpu_layers < layer_count(gguf):
        full += _staging_bytes(gguf, context)
        if gpu_layers == 0 and rows >= OFFLOAD_ROWS:
            full += gguf.output_bytes
    elif cards > 1:
        full += (PIPELINE_COPIES - 1) * inputs
    return full + ROUNDING_BYTES


def inputs_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """The graph's inputs: `4 * ub * 4 * E`, and the 16-bit mask of one stream of each cache.

    Also the size of the pinned buffer on the host beside the cards (up to 0.2 MiB too low).
    """
    windows = {group.window_tokens for group in gguf.kv_groups}
    cells = sum(
        context.cells_per_slot if window is None else context.sliding_cells(window)
        for window in windows
    )
    return context.ubatch_tokens * (4 * 4 * gguf.embedding_length + 2 * cells)


def needs(
    gguf: GgufFacts, context: ServerContext, *, gpu_layers: int, cards: int, release: Release
) -> tuple[CardNeed, ...]:
    """What every card of the worker needs with N layers on the cards."""
    compute = compute_bytes(gguf, context, gpu_layers=gpu_layers, cards=cards, release=release)
    return tuple(
        CardNeed(
            share=share,
            weights_bytes=_weights_bytes(gguf, share),
            kv_bytes=kv_bytes(gguf, context, share.blocks),
            compute_bytes=compute,
        )
        for share in shares(gguf, gpu_layers, cards)
    )


def fullest(
    gguf: GgufFacts, context: ServerContext, *, gpu_layers: int, cards: int, release: Release
) -> CardNeed:
    """The card that needs most; of equals the first."""
    every = needs(gguf, context, gpu_layers=gpu_layers, cards=cards, release=release)
    return max(every, key=lambda need: need.total_bytes)


def _weights_bytes(gguf: GgufFacts, share: CardShare) -> int:
    blocks = sum(gguf.block_bytes[share.first_block : share.end_block])
    return blocks + (gguf.output_bytes if share.has_output else 0)


def _widest(
    groups: tuple[KvGroup, ...] | list[KvGroup], context: ServerContext, blocks: int
) -> int:
    layers = sorted(
        (size for g in groups for size in (layer_kv_bytes(g, context),) * g.layers), reverse=True
    )
    return sum(islice(layers, blocks))


def _feed_forward_width(gguf: GgufFacts) -> int:
    """Values per token that the feed-forward part holds at once.

    Dense: gate, up and their product. Experts: the same for each expert used, and the sum of their
    outputs where the stream is wider than two experts. Models with both kinds of block take the wider.
    """
    dense = 3 * gguf.feed_forward_length
    if gguf.expert_count == 0:
        return dense
    experts = 3 * gguf.expert_feed_forward_length * gguf.expert_used_count
    if gguf.embedding_length > 2 * gguf.expert_feed_forward_length:
        experts += gguf.embedding_length * gguf.expert_used_count
    return max(dense, experts)


def _attention_width(gguf: GgufFacts) -> int:
    """Values per token around flash attention: queries, their rotated copy and the result. A bound."""
    return 3 * gguf.head_count * max(group.key_dim for group in gguf.kv_groups)


def _kv_copy_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    if not context.is_quantized:
        return 0
    plain = context._replace(key_type="f16", value_type="f16")
    return max(layer_kv_bytes(group, plain) for group in gguf.kv_groups)


def _staging_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """What host layers bring to the card for a large batch: their tensors and one layer's cache.

    Held in all 242 partial contexts of b11434, 6 to 417 MiB too high.
    """
    cache = max(
        layer_kv_bytes(group, context) * (LATENT_STAGES if group.kind is KvKind.MLA else 1)
        for group in gguf.kv_groups
    )
    tensors = gguf.largest_ffn_tensor_bytes + gguf.largest_attention_tensor_bytes
    if gguf.largest_ffn_tensor_bytes == 0:  # nobody counted: no two tensors are larger than a block
        tensors = max(gguf.block_bytes)
    return tensors + cache
