"""What is the most that llama.cpp computes in, when a file's tensors are not understood?

Closed forms for graphs like Llama's, never below 494 contexts of b11434 where they apply; used only where
the graph itself cannot be built (compute.py).
"""

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp.caches import cells_of, layer_kv_bytes
from plimsoll.engines.llama_cpp.compute import LOGITS_PER_SLOT_SINCE, Computed
from plimsoll.engines.llama_cpp.context import ServerContext
from plimsoll.engines.llama_cpp.placement import Placement
from plimsoll.engines.llama_cpp.splits import PIPELINE_COPIES
from plimsoll.facts.model import GgufFacts, KvKind
from plimsoll.units import MIB

_ROUNDING_BYTES = MIB
"""What the forms leave out: at most 0.19 MiB in 147 contexts."""
_LATENT_STAGES = 3
"""With layers on the host a latent layer's cache is staged as key, as value and as the batch's rows."""


def computed(
    gguf: GgufFacts, context: ServerContext, placement: Placement, release: Release
) -> Computed:
    """A bound for each card and the host."""
    inputs = _inputs_bytes(gguf, context)
    tokens = context.ubatch_tokens
    size = inputs + 4 * tokens * max(_feed_forward_width(gguf), _attention_width(gguf))
    plain = context._replace(key_type="f16", value_type="f16")
    cached = [layer_kv_bytes(group, plain) for group in gguf.kv_groups if group.state is None]
    if context.is_quantized:
        size += max(cached, default=0)
    if not context.flash:
        size += 4 * tokens * context.cells_per_slot * (gguf.head_count + 1)
    rows = tokens if release.is_before(LOGITS_PER_SLOT_SINCE) else context.slots
    size = max(size, inputs + 4 * min(rows, tokens) * gguf.vocab_size)
    host = inputs + _ROUNDING_BYTES
    if not placement.is_full() or placement.host_experts:
        staged = max(
            (
                layer_kv_bytes(group, context) * (_LATENT_STAGES if group.kind is KvKind.MLA else 1)
                for group in gguf.kv_groups
            ),
            default=0,
        )
        size += max(gguf.block_bytes) + staged + gguf.output_bytes
    elif placement.cards > 1:
        size += (PIPELINE_COPIES - 1) * inputs
        host += (PIPELINE_COPIES - 1) * inputs
    size += _ROUNDING_BYTES
    return Computed(cards=(size,) * placement.cards, host=host if placement.cards else size)


def _inputs_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """The graph's inputs and the mask of one stream of each cache."""
    kinds = {cells_of(group, context) for group in gguf.kv_groups if group.state is None}
    mask = 2 if context.flash else 4
    return context.ubatch_tokens * (5 * 4 * gguf.embedding_length + mask * sum(kinds))


def _feed_forward_width(gguf: GgufFacts) -> int:
    """Values per token that the feed-forward part holds at once: gate, up and their product."""
    dense = 3 * gguf.feed_forward_length
    experts = 3 * gguf.expert_feed_forward_length * gguf.expert_used_count
    if gguf.embedding_length > 2 * gguf.expert_feed_forward_length:
        experts += gguf.embedding_length * gguf.expert_used_count
    return max(dense, experts)


def _attention_width(gguf: GgufFacts) -> int:
    """Values per token around attention: queries, their rotated copy and the result; of a recurrence its
    inner channels and keys several times."""
    widths = [3 * gguf.head_count * group.key_dim for group in gguf.kv_groups]
    widths += [
        6 * (group.state.inner_channels + 2 * group.state.key_heads * group.state.state_dim)
        for group in gguf.kv_groups
        if group.state is not None
    ]
    return max(widths, default=0)
