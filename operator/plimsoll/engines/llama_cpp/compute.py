"""How many bytes does llama.cpp reserve to compute, on each card and beside them on the host?

By doing what it does: the graph is built, cut in splits and allocated (graph.py, splits.py, pools.py).
Equal to the byte in 494 contexts of b11434 (docs/measured/llamacpp-buffers.md). As llama-fit-params
measures: a server's own load pins norms to their block's card, which takes no more.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import blocks
from plimsoll.engines.llama_cpp.caches import layer_kv_bytes
from plimsoll.engines.llama_cpp.context import ServerContext
from plimsoll.engines.llama_cpp.graph import PER_LAYER, GraphAsk, build
from plimsoll.engines.llama_cpp.layer import Layer, shortened
from plimsoll.engines.llama_cpp.nominal import LISTED_ALONE
from plimsoll.engines.llama_cpp.placement import Placement
from plimsoll.engines.llama_cpp.pools import allocate
from plimsoll.engines.llama_cpp.reserve import Batch, batch_of
from plimsoll.engines.llama_cpp.splits import PIPELINE_COPIES, schedule
from plimsoll.engines.llama_cpp.traits import TRAITS
from plimsoll.facts.model import GgufFacts, GgufTensorFacts
from plimsoll.units import ceil_div

KV_COPY_IN_GRAPH_SINCE: Final = "b9550"
"""From here the 16-bit copy of a packed layer is part of the graph (#23907, about b9500 to b9540);
before, it came out of CUDA's pool at run time (#23446, #24166) and is counted beside the graph."""
LOGITS_PER_SLOT_SINCE: Final = "b9500"
"""From here the graph is reserved for one row of logits per slot, not one per token of the batch
(ggml-org/llama.cpp#23861, merged between about b9450 and b9500; the later one is the safe one)."""

PACKED_WORSE_PERCENT: Final = 125
"""Tensors that are too large a guess may pack better than the right ones: up to 1.2 times in 494 contexts
of b11434 whose types were hidden."""


class Computed(NamedTuple):
    """Bytes of the compute buffers."""

    cards: tuple[int, ...]
    """One for each card."""
    host: int
    """Pinned, beside the cards; without cards the only one."""


class _Ask(NamedTuple):
    gguf: GgufFacts
    batch: Batch
    layers: tuple[Layer, ...]
    output_place: int
    cards: int
    copies: int
    op_offload: bool
    cells: int
    window_cells: int


def compute(
    gguf: GgufFacts,
    context: ServerContext,
    placement: Placement,
    *,
    outputs: int,
    copies_in_graph: bool = True,
    whole: bool = False,
) -> Computed:
    """The buffers for a context and a placement of the model's tensors.

    `outputs` are rows of logits; `whole` builds every block, even those that change nothing.
    """
    layers = blocks.layers(gguf, placement)
    windows = {group.window_tokens for group in gguf.kv_groups if group.window_tokens is not None}
    is_pipeline = (
        placement.cards > 1
        and placement.is_full()
        and placement.host_experts == 0
        and not context.kv_on_host
    )
    found = _computed(
        _Ask(
            gguf=gguf,
            batch=batch_of(gguf, context, outputs=outputs, copies_in_graph=copies_in_graph),
            layers=layers if whole else shortened(layers),
            output_place=placement.output,
            cards=placement.cards,
            copies=PIPELINE_COPIES if is_pipeline else 1,
            op_offload=context.op_offload,
            cells=context.cells_per_slot,
            window_cells=max((context.sliding_cells(window) for window in windows), default=0),
        )
    )
    brings_weights = not placement.is_full() or placement.host_experts > 0
    if brings_weights and not blocks.is_typed(gguf):
        cards = tuple(ceil_div(size * PACKED_WORSE_PERCENT, 100) for size in found.cards)
        return found._replace(cards=cards)
    return found


def is_understood(gguf: GgufFacts) -> bool:
    """Whether the graph of the model's architecture is known, and so are the tensors it reads."""
    name = gguf.architecture
    return name in TRAITS and (name not in LISTED_ALONE or blocks.is_listed(gguf))


def compute_for(
    gguf: GgufFacts, context: ServerContext, placement: Placement, release: Release
) -> Computed | None:
    """The buffers of a server of this release; None for a file whose graph we cannot build."""
    if not is_understood(gguf):
        return None
    is_old = release.is_before(LOGITS_PER_SLOT_SINCE)
    rows = context.ubatch_tokens if is_old else context.slots
    in_graph = not release.is_before(KV_COPY_IN_GRAPH_SINCE)
    try:
        found = compute(gguf, context, placement, outputs=rows, copies_in_graph=in_graph)
    except (KeyError, ZeroDivisionError):  # tensors with other names, or shapes that are none
        return None
    if in_graph or not context.is_quantized:
        return found
    beside = _copy_bytes(gguf, context)
    return Computed(cards=tuple(size + beside for size in found.cards), host=found.host)


def _copy_bytes(gguf: GgufFacts, context: ServerContext) -> int:
    """The 16-bit copy of the largest layer's keys and values."""
    plain = context._replace(key_type="f16", value_type="f16")
    copies = (layer_kv_bytes(group, plain) for group in gguf.kv_groups if group.state is None)
    return max(copies, default=0)


@lru_cache(maxsize=512)
def _computed(ask: _Ask) -> Computed:
    outside = blocks.outside_of(ask.gguf)
    orders = (False, True) if PER_LAYER in outside else (False,)
    found = [_allocated(ask, outside, looks_up_first=order) for order in orders]
    *cards, host = (max(sizes) for sizes in zip(*found, strict=True))
    return Computed(cards=tuple(cards), host=host)


def _allocated(
    ask: _Ask, outside: Mapping[str, GgufTensorFacts], *, looks_up_first: bool
) -> tuple[int, ...]:
    gguf = ask.gguf
    graph = build(
        GraphAsk(
            batch=ask.batch,
            traits=TRAITS[gguf.architecture],
            layers=ask.layers,
            outside=outside,
            output_place=ask.output_place,
            width=gguf.embedding_length,
            experts_used=gguf.expert_used_count,
            cells=ask.cells,
            window_cells=ask.window_cells,
            looks_up_first=looks_up_first,
        )
    )
    found = schedule(graph, cards=ask.cards, op_offload=ask.op_offload, copies=ask.copies)
    return allocate(found.nodes, found.leaves, ask.cards)
