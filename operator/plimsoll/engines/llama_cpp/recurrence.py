"""Which operations does a recurrent block add to the graph?

build_rs of src/llama-graph.cpp and the layers of src/models/{mamba-base,delta-net-base,qwen3next,qwen35,
lfm2}.cpp, b11434. States are gathered from their buffer, used, and written back; those of slots that are
not in the batch are copied beside.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.engines.llama_cpp.layer import Block, cache_leaf, normed
from plimsoll.engines.llama_cpp.reserve import Batch
from plimsoll.engines.llama_cpp.state import conv_values, state_values
from plimsoll.engines.llama_cpp.tensors import (
    HOST,
    Graph,
    Tensor,
    contiguous,
    graph_input,
    multiplied,
    rows,
    same,
    slices,
    transposed,
    view,
    written,
)
from plimsoll.engines.llama_cpp.traits import Traits
from plimsoll.facts.model import RecurrentKind, RecurrentState

Read = Callable[[Tensor, Tensor], Tensor]
"""How a recurrence reads its states: all of them, and which to use."""


class Recurrence:
    """Adds recurrent blocks to one graph."""

    def __init__(self, graph: Graph, batch: Batch, traits: Traits) -> None:
        self.graph = graph
        self.batch = batch
        self.traits = traits
        slots = batch.sequences
        self._ids = graph_input((slots,))
        self._own = view(self._ids, (slots,))
        self._others = view(self._ids, (slots - 1,))

    @property
    def _tokens(self) -> int:
        """Tokens of one sequence."""
        return self.batch.tokens // self.batch.sequences

    def add(self, layer: Block, values: Tensor) -> Tensor:
        """The recurrence of one block; the normed residual stream goes in."""
        assert layer.recurrence is not None
        state = layer.recurrence.state
        assert state is not None
        match state.kind:
            case RecurrentKind.MAMBA1:
                return self._mamba1(layer, state, values)
            case RecurrentKind.MAMBA2:
                return self._mamba2(layer, state, values)
            case RecurrentKind.SHORT_CONVOLUTION:
                return self._short_convolution(layer, state, values)
        return self._delta_net(layer, state, values)

    # --- states ---

    def _buffer(self, layer: Block, values: int) -> Tensor:
        place = HOST if self.batch.kv_on_host else layer.place
        return cache_leaf(values, self.batch.sequences, place)

    def _gathered(self, buffer: Tensor, values: int, read: Read | None = None) -> Tensor:
        """The states of the batch's sequences; `read` takes them from the buffer itself."""
        slots = self.batch.sequences
        states = view(buffer, (values, slots))
        first = view(states, (values,))
        self.graph.expand(written(buffer, (values,), first, op="scale"))
        every = rows(states, self._ids if read is None else self._others)
        out = view(every, (values, slots)) if read is None else read(states, self._own)
        self.graph.expand(out)
        rest = view(every, (values, 0))
        self.graph.expand(written(buffer, (values, 0), rest, view(buffer, (values, 0)), op="cpy"))
        return out

    def _kept(self, buffer: Tensor, values: int, new: Tensor) -> None:
        """New states on their way into their buffer."""
        shape = (values, self.batch.sequences)
        self.graph.expand(written(buffer, shape, new, view(buffer, shape), op="cpy"))

    def _convolved(self, layer: Block, state: RecurrentState, values: Tensor, name: str) -> Tensor:
        """A causal convolution over (channels, tokens, sequences), with the taps of the last batch before."""
        taps, sequences = state.conv_kernel - 1, self.batch.sequences
        buffer = self._buffer(layer, conv_values(state))
        channels = conv_values(state) // taps
        before = view(self._gathered(buffer, conv_values(state)), (taps, channels, sequences))
        shape = (taps + self._tokens, channels, sequences)
        joined = Tensor("concat", shape, before, transposed(values))
        last = view(joined, (taps, channels, sequences), joined.strides)
        self._kept(buffer, conv_values(state), last)
        shape = (channels, self._tokens, sequences)
        return Tensor("ssm_conv", shape, joined, layer.need(name))

    # --- Mamba ---

    def _mamba1(self, layer: Block, state: RecurrentState, values: Tensor) -> Tensor:
        inner, width = state.inner_channels, values.ne[0]
        sequences = self.batch.sequences
        grouped = view(values, (width, self._tokens, sequences))
        both = multiplied(layer.need("ssm_in.weight"), grouped)
        shape = (inner, self._tokens, sequences)
        gate = view(both, shape, both.strides)
        mixed = self._convolved(layer, state, view(both, shape, both.strides), "ssm_conv1d.weight")
        mixed = same("unary", same("add", mixed, layer.need("ssm_conv1d.bias")))
        parts = multiplied(layer.need("ssm_x.weight"), mixed)
        rank = layer.need("ssm_dt.weight").ne[0]
        step = view(parts, (rank, self._tokens, sequences), parts.strides)
        one = (state.state_dim, 1, self._tokens, sequences)
        strides = (parts.unit, parts.unit * state.state_dim, parts.strides[1], parts.strides[2])
        inputs, outputs = view(parts, one, strides), view(parts, one, strides)
        if layer.shape("ssm_dt_norm.weight") is not None:
            step = normed(layer, "ssm_dt_norm.weight", step, self.traits)
            inputs = normed(layer, "ssm_b_norm.weight", inputs, self.traits)
            outputs = normed(layer, "ssm_c_norm.weight", outputs, self.traits)
        else:
            step = contiguous(step)
        step = multiplied(layer.need("ssm_dt.weight"), step)
        step = same("add", step, layer.need("ssm_dt.bias"))
        heads = view(mixed, (1, inner, self._tokens, sequences))
        scanned = self._scanned(layer, state, heads, (step, layer.need("ssm_a"), inputs, outputs))
        out = view(scanned, (inner, self._tokens, sequences))
        out = same("add", out, same("mul", mixed, layer.need("ssm_d")))
        out = same("glu", contiguous(gate), out)
        return view(multiplied(layer.need("ssm_out.weight"), out), (width, self.batch.tokens))

    def _mamba2(self, layer: Block, state: RecurrentState, values: Tensor) -> Tensor:
        inner, sequences, tokens = state.inner_channels, self.batch.sequences, self._tokens
        channels = conv_values(state) // (state.conv_kernel - 1)
        projection = multiplied(layer.need("ssm_in.weight"), values)
        projection = view(projection, (projection.ne[0], tokens, sequences))
        heads = (state.head_dim, state.heads, tokens, sequences)
        gate = slices(projection, heads)
        mixed = view(projection, (channels, tokens, sequences), projection.strides)
        step = view(projection, (state.heads, tokens, sequences), projection.strides)
        mixed = self._convolved(layer, state, mixed, "ssm_conv1d.weight")
        bias = layer.weight("ssm_conv1d.bias")
        if bias is not None:
            mixed = same("add", mixed, bias)
        mixed = same("unary", mixed)
        parts = slices(mixed, heads)
        one = (state.state_dim, state.key_heads, tokens, sequences)
        inputs, outputs = slices(mixed, one), slices(mixed, one)
        step = same("add", contiguous(step), layer.need("ssm_dt.bias"))
        scanned = self._scanned(layer, state, parts, (step, layer.need("ssm_a"), inputs, outputs))
        out = same("add", view(scanned, heads), same("mul", parts, layer.need("ssm_d")))
        out = same("glu", contiguous(gate), out)
        if layer.shape("ssm_norm.weight") is not None:
            groups = state.key_heads
            out = view(out, (inner // groups, groups, tokens, sequences))
            out = normed(layer, "ssm_norm.weight", out, self.traits)
        out = view(out, (inner, self.batch.tokens))
        return multiplied(layer.need("ssm_out.weight"), out)

    def _scanned(
        self, layer: Block, state: RecurrentState, parts: Tensor, sources: tuple[Tensor, ...]
    ) -> Tensor:
        """The scan: its results, and the new states behind them."""
        values, sequences = state_values(state), self.batch.sequences
        buffer = self._buffer(layer, values)
        size = state.inner_channels * self.batch.tokens + values * sequences

        def read(states: Tensor, ids: Tensor) -> Tensor:
            return Tensor("ssm_scan", (size,), view(states, states.ne), parts, *sources, ids)

        scanned = self._gathered(buffer, values, read)
        self._kept(buffer, values, view(scanned, (values, sequences)))
        return scanned

    # --- gated delta net ---

    def _delta_net(self, layer: Block, state: RecurrentState, values: Tensor) -> Tensor:
        tokens, sequences = self._tokens, self.batch.sequences
        mixed = multiplied(layer.need("attn_qkv.weight"), values)
        mixed = view(mixed, (mixed.ne[0], tokens, sequences))
        gate = multiplied(layer.need("attn_gate.weight"), values)
        decay, share = self._rates(layer, state, values)
        convolved = same("unary", self._convolved(layer, state, mixed, "ssm_conv1d.weight"))
        buffer = self._buffer(layer, state_values(state))
        before = self._gathered(buffer, state_values(state))
        before = view(before, (state.head_dim, state.head_dim, state.heads, sequences))
        keys = (state.state_dim, state.key_heads, tokens, sequences)
        query, key = (same("scale", same("rms_norm", slices(convolved, keys))) for _ in range(2))
        if state.key_heads != state.heads and layer.shape("ssm_ba.weight") is not None:
            query, key = (self._repeated(state, part) for part in (query, key))
        value = slices(convolved, (state.head_dim, state.heads, tokens, sequences))
        inner = state.heads * state.head_dim
        rows_of_state = state.head_dim * sequences
        out = Tensor(
            "gated_delta_net",
            (inner, self.batch.tokens + rows_of_state),
            *(query, key, value, decay, share, before),
        )
        result = view(out, (state.head_dim, state.heads, tokens, sequences))
        self._kept(buffer, state_values(state), view(out, (state_values(state), sequences)))
        normal = normed(layer, "ssm_norm.weight", result, self.traits)
        wide = view(gate, (state.head_dim, state.heads, tokens, sequences))
        final = same("mul", normal, same("unary", wide))
        final = view(final, (inner, tokens, sequences))
        out = multiplied(layer.need("ssm_out.weight"), final)
        return view(out, (values.ne[0], self.batch.tokens))

    def _rates(self, layer: Block, state: RecurrentState, values: Tensor) -> tuple[Tensor, Tensor]:
        """Decay and share of the new, for each head and token."""
        tokens, sequences, heads = self._tokens, self.batch.sequences, state.heads
        shape = (1, heads, tokens, sequences)
        if layer.shape("ssm_ba.weight") is not None:  # both in one product (Qwen3-Next)
            both = multiplied(layer.need("ssm_ba.weight"), values)
            per_key = heads // state.key_heads
            both = view(both, (2 * per_key, state.key_heads, tokens, sequences))
            part = (per_key, state.key_heads, tokens, sequences)
            share = same("unary", contiguous(view(both, part, both.strides)))
            decay = contiguous(view(both, part, both.strides), (heads, tokens, sequences))
        else:
            share = view(multiplied(layer.need("ssm_beta.weight"), values), shape)
            share = same("unary", share)
            decay = multiplied(layer.need("ssm_alpha.weight"), values)
            decay = view(decay, (heads, tokens, sequences))
        decay = same("unary", same("add", decay, layer.need("ssm_dt.bias")))
        decay = same("mul", decay, layer.need("ssm_a"))
        return view(decay, shape), view(share, shape)

    def _repeated(self, state: RecurrentState, part: Tensor) -> Tensor:
        times = state.heads // state.key_heads
        one = view(part, (state.state_dim, 1, state.key_heads, self.batch.tokens))
        many = Tensor("repeat", (state.state_dim, times, state.key_heads, self.batch.tokens), one)
        return view(many, (state.state_dim, state.heads, self._tokens, self.batch.sequences))

    # --- short convolution ---

    def _short_convolution(self, layer: Block, state: RecurrentState, values: Tensor) -> Tensor:
        width, sequences = values.ne[0], self.batch.sequences
        grouped = view(values, (width, self._tokens, sequences))
        three = multiplied(layer.need("shortconv.in_proj.weight"), grouped)
        shape = (width, self._tokens, sequences)
        before, after, middle = (view(three, shape, three.strides) for _ in range(3))
        mixed = self._convolved(layer, state, same("mul", before, middle), "shortconv.conv.weight")
        out = same("mul", after, mixed)
        out = multiplied(layer.need("shortconv.out_proj.weight"), out)
        return view(out, (width, self.batch.tokens))
