"""Which graph does llama.cpp reserve for a model?

llm_graph_context and src/models/*.cpp, b11434: embedding, blocks, output. What a block does follows from
the tensors that it has, and the rest from the table of traits.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.attention import Attention
from plimsoll.engines.llama_cpp.feed_forward import FeedForward
from plimsoll.engines.llama_cpp.graph_cache import CacheInputs, cache_inputs
from plimsoll.engines.llama_cpp.layer import Block, Layer, leaf_of, normed, plain_leaf
from plimsoll.engines.llama_cpp.recurrence import Recurrence
from plimsoll.engines.llama_cpp.reserve import Batch
from plimsoll.engines.llama_cpp.tensors import (
    HOST,
    I64_BYTES,
    Graph,
    Tensor,
    contiguous,
    graph_input,
    multiplied,
    permuted,
    rows,
    same,
    view,
)
from plimsoll.engines.llama_cpp.traits import LastRows, Traits
from plimsoll.facts.model import GgufTensorFacts, KvKind

EMBEDDING: Final = "token_embd.weight"
OUTPUT: Final = "output.weight"
OUTPUT_NORMS: Final = ("output_norm.weight", "token_embd_norm.weight")
"""LFM2 names its output norm after the embedding."""
ROPE_FACTORS: Final = ("rope_freqs.weight", "rope_factors_long.weight")
"""One tensor for all blocks, once in every buffer that has one of them."""
WINDOWS: Final = frozenset({KvKind.SLIDING, KvKind.CHUNKED})
PER_LAYER: Final = "per_layer_token_embd.weight"


class GraphAsk(NamedTuple):
    """All that decides a graph."""

    batch: Batch
    traits: Traits
    layers: tuple[Layer, ...]
    """Blocks of the model, or enough of them."""
    outside: Mapping[str, GgufTensorFacts]
    """Tensors outside blocks by name."""
    output_place: int
    width: int
    """Of the residual stream."""
    experts_used: int
    cells: int
    """Of one stream of the full cache."""
    window_cells: int
    """Of one stream of the windowed cache."""
    looks_up_first: bool = False
    """Whether inputs of each block are looked up before the embedding: b11669 does, b11434 does not."""


def build(ask: GraphAsk) -> Graph:
    """The whole graph."""
    return _Builder(ask).build()


class _Builder:
    def __init__(self, ask: GraphAsk) -> None:
        self.ask = ask
        self.batch = ask.batch
        self.traits = ask.traits
        self.graph = Graph()
        self._factors: dict[int, Tensor] = {}
        self._looked_up: Tensor | None = None

    def build(self) -> Graph:
        ask = self.ask
        if ask.looks_up_first and PER_LAYER in ask.outside:
            self._looked_up = self.graph.expand(self._per_layer_rows())
        stream = self._embedded()
        positions = graph_input((self.batch.tokens * self.traits.positions,))
        groups = [layer.attention for layer in ask.layers if layer.attention is not None]
        windowed = tuple(group for group in groups if group.kind in WINDOWS)
        whole = tuple(group for group in groups if group.kind not in WINDOWS)
        recurrence = (
            Recurrence(self.graph, self.batch, self.traits)
            if any(layer.recurrence is not None for layer in ask.layers)
            else None
        )
        caches = {
            False: cache_inputs(self.batch, whole, cells=ask.cells, is_windowed=False),
            True: cache_inputs(self.batch, windowed, cells=ask.window_cells, is_windowed=True),
        }
        attention = Attention(
            self.graph, self.batch, self.traits, positions, has_windows=bool(windowed)
        )
        feed_forward = FeedForward(self.graph, self.traits, experts_used=ask.experts_used)
        wanted = graph_input((self.batch.outputs,))
        slices_of = self._per_layer_inputs(stream)
        for index, layer in enumerate(map(Block, ask.layers)):
            is_last = index + 1 == len(ask.layers)
            keep = wanted if is_last and self.traits.last_rows is LastRows.LAST_BLOCK else None
            parts = _Parts(attention, feed_forward, recurrence, caches)
            stream = _Adder(self, layer, parts).add(stream, keep)
            if slices_of is not None:
                stream = self._with_per_layer_input(
                    layer, stream, view(slices_of, slices_of.ne[:2])
                )
            scale = layer.weight("layer_output_scale.weight")
            stream = stream if scale is None else same("mul", stream, scale)
        self._finished(stream, wanted)
        return self.graph

    # --- before the blocks ---

    def _embedded(self) -> Tensor:
        """Text, embeddings and a mix of both all stand in the graph; the batch is text."""
        tokens, width = self.batch.tokens, self.ask.width
        table = leaf_of(self.ask.outside[EMBEDDING], HOST)
        text = self.graph.expand(rows(table, graph_input((tokens,))))
        self.graph.expand(graph_input((width, tokens)))
        mixed = rows(table, graph_input((tokens,)))
        slots = graph_input((tokens,), I64_BYTES)
        twin = same("dup", graph_input((width, tokens)))
        self.graph.expand(
            Tensor("set_rows", twin.ne, mixed, slots, twin, view_of=twin, strides=twin.strides)
        )
        if self.traits.scaled_embedding:
            text = same("scale", text)
        if self.traits.scaled_rows:
            text = same("mul", text, graph_input((1, tokens)))
        return self.graph.expand(text)

    def factors(self, layer: Block) -> Tensor | None:
        """Factors of the rotation, the same leaf for all blocks in one place."""
        found = next((self.ask.outside[n] for n in ROPE_FACTORS if n in self.ask.outside), None)
        if found is None:
            return None
        return self._factors.setdefault(layer.place, leaf_of(found, layer.place))

    # --- inputs of each block (Gemma 4) ---

    def _per_layer_inputs(self, stream: Tensor) -> Tensor | None:
        table = self.ask.outside.get(PER_LAYER)
        if table is None:
            return None
        tokens = self.batch.tokens
        gate = Block(self.ask.layers[0]).shape("inp_gate.weight")
        assert gate is not None
        width, blocks = gate[1], table.shape[0] // gate[1]
        if self._looked_up is None:
            own = same("scale", view(self._per_layer_rows(), (width, blocks, tokens)))
            self.graph.expand(own)
        else:
            own = view(same("scale", self._looked_up), (width, blocks, tokens))
        place = self.ask.layers[0].place
        projection = leaf_of(self.ask.outside["per_layer_model_proj.weight"], place)
        shared = view(same("scale", multiplied(projection, stream)), (width, blocks, tokens))
        norm = leaf_of(self.ask.outside["per_layer_proj_norm.weight"], place)
        shared = same("mul", same("rms_norm", shared), norm)
        both = same("scale", same("add", shared, own))
        return contiguous(permuted(both, 0, 2, 1, 3), (width, tokens, blocks))

    def _per_layer_rows(self) -> Tensor:
        table = leaf_of(self.ask.outside[PER_LAYER], HOST)
        return rows(table, graph_input((self.batch.tokens,)))

    @staticmethod
    def _with_per_layer_input(layer: Block, stream: Tensor, own: Tensor) -> Tensor:
        out = same("unary", multiplied(layer.need("inp_gate.weight"), stream))
        out = same("mul", out, own)
        out = multiplied(layer.need("proj.weight"), out)
        out = same("mul", same("rms_norm", out), layer.need("post_norm.weight"))
        return same("add", stream, out)

    # --- after the blocks ---

    # What is kept is an output of the graph: never freed, never overwritten.

    def _finished(self, stream: Tensor, wanted: Tensor) -> None:
        outside, place = self.ask.outside, self.ask.output_place
        if self.traits.last_rows is LastRows.BEFORE_NORM:
            stream.keep = True
            stream = rows(stream, wanted)
        name = next((name for name in OUTPUT_NORMS if name in outside), None)
        norm = leaf_of(outside[name], place) if name else plain_leaf((self.ask.width,), place)
        stream = same("norm" if self.traits.layer_norm else "rms_norm", stream)
        stream = same("mul", stream, norm)
        bias = outside.get("output_norm.bias")
        if bias is not None:
            stream = same("add", stream, leaf_of(bias, place))
        stream.keep = True
        if self.traits.last_rows is LastRows.AFTER_NORM:
            stream = rows(stream, wanted)
            stream.keep = True
        head = leaf_of(outside.get(OUTPUT, outside[EMBEDDING]), place)
        logits = multiplied(head, stream)
        bias = outside.get("output.bias")
        self.graph.expand(logits if bias is None else same("add", logits, leaf_of(bias, place)))


class _Parts(NamedTuple):
    attention: Attention
    feed_forward: FeedForward
    recurrence: Recurrence | None
    caches: Mapping[bool, CacheInputs]


class _Adder:
    """One block while it is added."""

    def __init__(self, builder: "_Builder", layer: Block, parts: _Parts) -> None:
        self.builder = builder
        self.layer = layer
        self.traits = builder.traits
        self.attention, self.feed_forward, self.recurrence, self.caches = parts

    def add(self, stream: Tensor, wanted: Tensor | None) -> Tensor:
        """The block's result; `wanted` are the rows that are kept after its first half."""
        layer = self.layer
        has_norm = layer.shape("attn_norm.weight") is not None
        read = self._norm("attn_norm.weight", stream) if has_norm else stream
        if self.traits.expanded_norm:
            self.builder.graph.expand(read)
        out = self._mixed(layer, stream, read)
        if self.traits.is_parallel:
            return self._parallel(stream, read, out, wanted)
        sums_first = layer.attention is not None and layer.recurrence is not None  # Falcon H1
        if wanted is not None and not sums_first:
            out, stream = rows(out, wanted), rows(stream, wanted)
        has_feed_forward = layer.shape("ffn_down.weight") or layer.shape("ffn_down_exps.weight")
        is_alone = layer.attention is None and layer.recurrence is None
        norm = "ffn_norm.weight"
        if layer.shape(norm) is None:
            norm = "post_attention_norm.weight"
        elif layer.shape("post_attention_norm.weight") is not None:
            out = self._norm("post_attention_norm.weight", out)
        if layer.shape("ffn_norm.weight") is None and layer.shape("post_ffw_norm.weight"):
            out = self._norm("post_attention_norm.weight", out)  # no norm before (OLMo 2, EXAONE 4)
            norm = ""
        stream = self._sum(stream, out, residual_first=self.traits.residual_first)
        if wanted is not None and sums_first:
            stream = rows(stream, wanted)
        if is_alone or not has_feed_forward:
            return stream
        after = self.traits.residual_first or self.traits.residual_first_after
        return self._sum(stream, self._feed_forward(norm, stream), residual_first=after)

    def _mixed(self, layer: Block, stream: Tensor, read: Tensor) -> Tensor:
        """What tokens tell each other: attention, a recurrence, or both; a lone feed-forward else."""
        attended = recurrent = None
        if layer.attention is not None:
            is_windowed = layer.attention.kind in WINDOWS
            uses_factors = not (is_windowed and self.traits.factors_without_window)
            factors = self.builder.factors(layer) if uses_factors else None
            attended = self.attention.add(layer, read, self.caches[is_windowed], factors)
        if layer.recurrence is not None:
            assert self.recurrence is not None
            if attended is not None:  # each has a norm of its own (Falcon H1)
                read = self._norm("attn_norm.weight", stream)
            recurrent = self.recurrence.add(layer, read)
        if attended is not None and recurrent is not None:
            return same("add", attended, recurrent)
        if attended is not None:
            return attended
        return self.feed_forward.add(layer, read) if recurrent is None else recurrent

    def _feed_forward(self, norm: str, stream: Tensor) -> Tensor:
        layer = self.layer
        if layer.shape("pre_ffw_norm_2.weight") is not None:
            return self._two_feed_forwards(stream)
        read = self._norm(norm, stream) if norm else stream
        out = self.feed_forward.add(layer, read)
        if layer.shape("post_ffw_norm.weight") is not None:
            out = self._norm("post_ffw_norm.weight", out)
        return out

    def _two_feed_forwards(self, stream: Tensor) -> Tensor:
        """A dense part beside the experts, each with norms of its own (Gemma 4)."""
        dense = self.feed_forward.dense(self.layer, self._norm("ffn_norm.weight", stream))
        dense = self._norm("post_ffw_norm_1.weight", dense)
        read = self._norm("pre_ffw_norm_2.weight", stream)
        asked = same("scale", same("rms_norm", stream))
        asked = same("mul", asked, self.layer.need("ffn_gate_inp.scale"))
        experts = self.feed_forward.experts(self.layer, read, asked)
        experts = self._norm("post_ffw_norm_2.weight", experts)
        return self._norm("post_ffw_norm.weight", same("add", dense, experts))

    def _parallel(
        self, stream: Tensor, read: Tensor, attended: Tensor, wanted: Tensor | None
    ) -> Tensor:
        if wanted is not None:
            attended, stream, read = (rows(part, wanted) for part in (attended, stream, read))
        out = self.feed_forward.add(self.layer, read)
        return same("add", same("add", out, stream), attended)

    def _norm(self, name: str, values: Tensor) -> Tensor:
        return normed(self.layer, name, values, self.traits)

    @staticmethod
    def _sum(stream: Tensor, out: Tensor, *, residual_first: bool) -> Tensor:
        return same("add", *((stream, out) if residual_first else (out, stream)))
