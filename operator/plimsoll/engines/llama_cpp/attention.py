"""Which operations does the attention of one block add to the graph?

build_qkv, build_attn and build_attn_mha of src/llama-graph.cpp, and the latent attention of
src/models/deepseek2.cpp, b11434.
"""

from plimsoll.engines.llama_cpp.graph_cache import Cache, CacheInputs, Heads
from plimsoll.engines.llama_cpp.layer import Block, normed, projected
from plimsoll.engines.llama_cpp.reserve import Batch
from plimsoll.engines.llama_cpp.tensors import (
    F16_BYTES,
    Graph,
    Tensor,
    contiguous,
    graph_input,
    multiplied,
    permuted,
    same,
    slices,
    transposed,
    view,
)
from plimsoll.engines.llama_cpp.traits import Traits
from plimsoll.facts.model import KvGroup, KvKind


class Attention:
    """Adds the attention of blocks to one graph."""

    def __init__(
        self, graph: Graph, batch: Batch, traits: Traits, positions: Tensor, *, has_windows: bool
    ) -> None:
        self.graph = graph
        self.batch = batch
        self.traits = traits
        self.positions = positions
        self.has_windows = has_windows
        self._scales = graph_input((1, 1, batch.tokens))

    def add(
        self, layer: Block, values: Tensor, inputs: CacheInputs, factors: Tensor | None
    ) -> Tensor:
        """The attention of one block; the normed residual stream goes in."""
        group = layer.attention
        assert group is not None
        if group.kind is KvKind.MLA:
            return self._latent(layer, group, values, inputs)
        return self._plain(layer, group, values, inputs, factors)

    # --- keys and values of their own ---

    def _plain(
        self,
        layer: Block,
        group: KvGroup,
        values: Tensor,
        inputs: CacheInputs,
        factors: Tensor | None,
    ) -> Tensor:
        heads = heads_of(layer, group)
        query, key, value = self._projected(layer, heads, values)
        gate: Tensor | None = None
        if is_gated(layer, heads):
            query, gate = self._query_and_gate(heads, query)
        query, key = self._positioned(layer, query, key, factors)
        if self.traits.scaled_unrotated and not layer.is_rotated:
            query = same("mul", query, self._scales)
        if self.traits.scaled_query:
            query = same("scale", query)
        sinks = layer.weight("attn_sinks.weight")
        out = self._attended(layer, heads, inputs, (query, key, value), sinks=sinks)
        if gate is not None:
            out = same("mul", out, same("unary", contiguous(gate, out.ne)))
        return projected(layer, "attn_output", out)

    def _projected(
        self, layer: Block, heads: Heads, values: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if layer.weight("attn_qkv.weight") is not None:
            fused = projected(layer, "attn_qkv", values)
            tokens = self.batch.tokens
            return (
                slices(fused, (heads.key_dim, heads.query, tokens)),
                slices(fused, (heads.key_dim, heads.kv, tokens)),
                slices(fused, (heads.value_dim, heads.kv, tokens)),
            )
        query = projected(layer, "attn_q", values)
        if not is_gated(layer, heads):
            query = self._wide_norm(layer, "attn_q_norm.weight", query, heads.key_dim)
            query = _as_heads(query, heads.query, heads.key_dim)
        if layer.weight("attn_k.weight") is None:  # reads the cache of an earlier block
            return query, None, None
        key = projected(layer, "attn_k", values)
        value = key if layer.weight("attn_v.weight") is None else projected(layer, "attn_v", values)
        key = self._wide_norm(layer, "attn_k_norm.weight", key, heads.key_dim)
        return (
            query,
            _as_heads(key, heads.kv, heads.key_dim),
            _as_heads(value, heads.kv, heads.value_dim),
        )

    def _wide_norm(self, layer: Block, name: str, values: Tensor, width: int) -> Tensor:
        """A norm over all heads at once (OLMo 2, MiniMax-M2)."""
        shape = layer.shape(name)
        if shape is None or shape[0] == width:
            return values
        return normed(layer, name, values, self.traits)

    @staticmethod
    def _query_and_gate(heads: Heads, both: Tensor) -> tuple[Tensor, Tensor]:
        width = heads.key_dim
        wide = view(both, (2 * width, heads.query, both.ne[1]))
        shape = (width, heads.query, both.ne[1])
        return view(wide, shape, wide.strides), view(wide, shape, wide.strides)

    def _positioned(
        self,
        layer: Block,
        query: Tensor,
        key: Tensor | None,
        factors: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        steps = ("norm", "rope") if not self.traits.normed_after_rope else ("rope", "norm")
        for step in steps:
            if step == "norm":
                query = self._head_norm(layer, "attn_q_norm.weight", query)
                if key is not None:
                    key = self._head_norm(layer, "attn_k_norm.weight", key)
            elif layer.is_rotated:
                query = self.rotated(query, factors)
                if key is not None:
                    key = self.rotated(key, factors)
        return query, key

    def _head_norm(self, layer: Block, name: str, values: Tensor) -> Tensor:
        shape = layer.shape(name)
        if shape is None or shape[0] != values.ne[0]:
            return values
        return normed(layer, name, values, self.traits)

    def rotated(self, values: Tensor, factors: Tensor | None = None) -> Tensor:
        """Values with their positions turned in."""
        more = () if factors is None else (factors,)
        return Tensor("rope", values.ne, values, self.positions, *more)

    # --- one latent for all heads ---

    def _latent(self, layer: Block, group: KvGroup, values: Tensor, inputs: CacheInputs) -> Tensor:
        tokens = self.batch.tokens
        absorb, expand = layer.need("attn_k_b.weight"), layer.need("attn_v_b.weight")
        plain_dim, latent_dim, heads = absorb.ne[0], absorb.ne[1], absorb.ne[2]
        rope_dim = group.key_dim - latent_dim
        if layer.weight("attn_q_a.weight") is None:
            query = multiplied(layer.need("attn_q.weight"), values)
        else:
            low = multiplied(layer.need("attn_q_a.weight"), values)
            low = normed(layer, "attn_q_a_norm.weight", low, self.traits)
            query = multiplied(layer.need("attn_q_b.weight"), low)
        query = view(query, (plain_dim + rope_dim, heads, tokens))
        both = multiplied(layer.need("attn_kv_a_mqa.weight"), values)
        latent = view(both, (latent_dim, tokens), both.strides)
        key_part = slices(both, (rope_dim, 1, tokens))
        turned = self.rotated(key_part)
        latent = normed(layer, "attn_kv_a_norm.weight", latent, self.traits)
        query_part = self.rotated(view(query, (rope_dim, heads, tokens), query.strides))
        plain = permuted(view(query, (plain_dim, heads, tokens), query.strides), 0, 2, 1, 3)
        absorbed = Tensor("mul_mat", (latent_dim, tokens, heads), absorb, plain)
        query = Tensor(
            "concat", (group.key_dim, heads, tokens), permuted(absorbed, 0, 2, 1, 3), query_part
        )
        latent = view(latent, (latent_dim, 1, tokens))
        key = Tensor("concat", (group.key_dim, 1, tokens), latent, turned)
        out = self._attended(
            layer,
            Heads(query=heads, kv=1, key_dim=group.key_dim, value_dim=latent_dim),
            inputs,
            (query, key, latent),
            expand=expand,
        )
        return projected(layer, "attn_output", out)

    # --- the cache and the product ---

    def _attended(
        self,
        layer: Block,
        heads: Heads,
        inputs: CacheInputs,
        parts: tuple[Tensor, Tensor | None, Tensor | None],
        *,
        sinks: Tensor | None = None,
        expand: Tensor | None = None,
    ) -> Tensor:
        query, key, value = parts
        is_latent = expand is not None
        if inputs.key_rotation is not None:
            query = _turned(query, inputs.key_rotation)
            key = None if key is None else _turned(key, inputs.key_rotation)
        if inputs.value_rotation is not None and value is not None:
            value = _turned(value, inputs.value_rotation)
        self.graph.expand(query)
        for part in (key, value) if self.has_windows and not is_latent else (value, key):
            if part is not None:
                self.graph.expand(part)
        cache = Cache(self.batch, layer, heads, inputs, is_latent=is_latent)
        if key is not None:
            self.graph.expand(cache.keys_written(key))
        if value is not None and not is_latent:
            self.graph.expand(cache.values_written(value))
        shape = (heads.key_dim, heads.query, self.batch.tokens // self.batch.streams)
        query = permuted(view(query, (*shape, self.batch.streams)), 0, 2, 1, 3)
        product = self._flash if self.batch.flash else self._matrices
        out = self.graph.expand(product(cache, query, inputs.mask, sinks, expand))
        if inputs.value_rotation is not None:
            out = _turned(out, inputs.value_rotation)
        return out

    def _flash(
        self,
        cache: Cache,
        query: Tensor,
        mask: Tensor,
        sinks: Tensor | None,
        expand: Tensor | None,
    ) -> Tensor:
        heads = cache.heads
        shape = (heads.value_dim, heads.query, query.ne[1], query.ne[3])
        more = () if sinks is None else (sinks,)
        keys, values = cache.halved(cache.keys()), cache.halved(cache.values())
        out = Tensor("flash_attn", shape, query, keys, values, mask, *more)
        out.card_padding = cache.unpacked_bytes(out.bytes) - out.bytes
        out.staged_padding = cache.staged_bytes()
        if expand is not None:
            turned = permuted(out, 0, 2, 1, 3)
            wide = Tensor("mul_mat", (expand.ne[1], *turned.ne[1:]), expand, turned)
            out = contiguous(permuted(wide, 0, 2, 1, 3))
        return view(out, (out.ne[0] * out.ne[1], out.ne[2] * out.ne[3]))

    def _matrices(
        self,
        cache: Cache,
        query: Tensor,
        mask: Tensor,
        sinks: Tensor | None,
        expand: Tensor | None,
    ) -> Tensor:
        heads = cache.heads
        scores = Tensor(
            "mul_mat", (cache.cells, query.ne[1], heads.query, query.ne[3]), cache.keys(), query
        )
        more = () if sinks is None else (sinks,)
        scores = same("soft_max", scores, mask, *more)
        values = cache.values()
        if expand is not None:
            shape = (cache.cells, heads.value_dim, heads.kv, values.ne[3])
            values = Tensor("cont", shape, transposed(values), unit=F16_BYTES)
        out = Tensor(
            "mul_mat", (heads.value_dim, query.ne[1], heads.query, query.ne[3]), values, scores
        )
        if expand is not None:
            out = Tensor("mul_mat", (expand.ne[1], *out.ne[1:]), expand, out)
        turned = permuted(out, 0, 2, 1, 3)
        return contiguous(turned, (turned.ne[0] * turned.ne[1], turned.ne[2] * turned.ne[3]))


def heads_of(layer: Block, group: KvGroup) -> Heads:
    """Widths of a block's attention, from its tensors."""
    return Heads(
        query=layer.need("attn_output.weight").ne[0] // group.value_dim,
        kv=group.kv_heads,
        key_dim=group.key_dim,
        value_dim=group.value_dim,
    )


def is_gated(layer: Block, heads: Heads) -> bool:
    """Whether the query projection brings a gate of the same width (Qwen3-Next)."""
    shape = layer.shape("attn_q.weight")
    return shape is not None and shape[1] == 2 * heads.query * heads.key_dim


def _as_heads(values: Tensor, heads: int, width: int) -> Tensor:
    return view(values, (width, heads, values.elements // (heads * width)))


def _turned(values: Tensor, rotation: Tensor) -> Tensor:
    """llama_mul_mat_hadamard: a product with the rotation, in rows of its width."""
    width = rotation.ne[0]
    flat = view(values, (width, values.elements // width))
    return view(Tensor("mul_mat", flat.ne, rotation, flat), values.ne)
