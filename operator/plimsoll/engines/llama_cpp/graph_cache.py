"""How does a graph write and read the keys and values that a block keeps?

llama_kv_cache and its inputs, src/llama-kv-cache.cpp and build_attn_inp_kv of src/llama-graph.cpp, b11434.
"""

from typing import NamedTuple

from plimsoll.engines.llama_cpp.context import row_bytes
from plimsoll.engines.llama_cpp.layer import Block
from plimsoll.engines.llama_cpp.reserve import (
    Batch,
    key_rotation,
    row_padding,
    value_rotation,
)
from plimsoll.engines.llama_cpp.tensors import (
    F16_BYTES,
    HOST,
    I64_BYTES,
    LEAF,
    Tensor,
    graph_input,
    view,
    written,
)
from plimsoll.facts.model import KvGroup, KvKind
from plimsoll.units import round_up


class CacheInputs(NamedTuple):
    """What all blocks with one kind of cache read."""

    cells: int
    """Cells of one stream."""
    key_rows: Tensor
    value_rows: Tensor
    mask: Tensor
    key_rotation: Tensor | None
    value_rotation: Tensor | None
    is_windowed: bool


class Heads(NamedTuple):
    """Widths of one block's attention."""

    query: int
    """Query heads."""
    kv: int
    key_dim: int
    value_dim: int


def cache_inputs(
    batch: Batch, groups: tuple[KvGroup, ...], *, cells: int, is_windowed: bool
) -> CacheInputs:
    """Inputs of the cache of these groups; the widest values count when they lie transposed."""
    latent = any(group.kind is KvKind.MLA for group in groups)
    key_dims = {group.key_dim for group in groups}
    value_dims = {group.value_dim for group in groups}
    keys = key_rotation(key_dims.pop(), batch.key_type) if len(key_dims) == 1 else 0
    values = value_rotation(value_dims.pop(), batch.value_type) if len(value_dims) == 1 else 0
    value_rows = batch.tokens if batch.flash else batch.tokens * batch.value_width
    tokens = batch.tokens // batch.streams
    return CacheInputs(
        cells=cells,
        key_rows=graph_input((batch.tokens,), I64_BYTES),
        value_rows=graph_input((value_rows,), I64_BYTES),
        mask=graph_input((cells, tokens, 1, batch.streams), batch.mask_bytes),
        key_rotation=graph_input((keys, keys)) if keys and not latent else None,
        value_rotation=graph_input((values, values)) if values and not latent else None,
        is_windowed=is_windowed,
    )


class Cache:
    """Keys and values of one block in their buffer."""

    def __init__(
        self, batch: Batch, layer: Block, heads: Heads, inputs: CacheInputs, *, is_latent: bool
    ) -> None:
        self.batch = batch
        self.heads = heads
        self.inputs = inputs
        self.is_latent = is_latent
        self.cells = inputs.cells
        self._place = HOST if batch.kv_on_host else layer.cache_place
        self._keys = self._buffer(heads.kv * heads.key_dim, batch.key_type)
        self._values = (
            self._keys if is_latent else self._buffer(heads.kv * heads.value_dim, batch.value_type)
        )

    def _buffer(self, values: int, cache_type: str) -> Tensor:
        size = row_bytes(values, cache_type) * self.cells * self.batch.streams
        shape = (values, self.cells, self.batch.streams)
        return Tensor(LEAF, shape, unit=1, place=self._place, bytes=size)

    def keys_written(self, key: Tensor) -> Tensor:
        """The batch's keys on their way into the cache."""
        return self._written(self._keys, key, self.inputs.key_rows)

    def values_written(self, value: Tensor) -> Tensor:
        """The batch's values on their way into the cache; one by one when it lies transposed."""
        return self._written(self._values, value, self.inputs.value_rows)

    def _written(self, buffer: Tensor, values: Tensor, into_rows: Tensor) -> Tensor:
        flat = view(values, (values.elements // self.batch.tokens, self.batch.tokens))
        is_transposed = not self.batch.flash and buffer is self._values and not self.is_latent
        if is_transposed:
            if flat.ne[0] < self.batch.value_width:
                flat = Tensor("pad", (self.batch.value_width, self.batch.tokens), flat)
            flat = view(flat, (1, flat.elements))
        whole = view(buffer, (1,)) if self.batch.streams > 1 or is_transposed else buffer
        return written(buffer, buffer.ne, flat, into_rows, whole)

    def keys(self) -> Tensor:
        """All keys, heads apart."""
        shape = (self.heads.key_dim, self.cells, self.heads.kv, self.batch.streams)
        return self._read(self._keys, shape, self.heads.key_dim, self.batch.key_type)

    def values(self) -> Tensor:
        """All values, heads apart; of a latent cache the first part of each key."""
        heads = self.heads
        shape = (heads.value_dim, self.cells, heads.kv, self.batch.streams)
        if not self.batch.flash and not self.is_latent:
            shape = (self.cells, heads.value_dim, heads.kv, self.batch.streams)
        kind = self.batch.key_type if self.is_latent else self.batch.value_type
        unread = row_bytes(heads.key_dim - heads.value_dim, kind) if self.is_latent else 0
        return self._read(self._values, shape, heads.value_dim, kind, unread)

    def _read(
        self, buffer: Tensor, shape: tuple[int, ...], width: int, cache_type: str, unread: int = 0
    ) -> Tensor:
        whole = view(buffer, (1,))
        read = Tensor(
            "view",
            shape,
            whole,
            unit=F16_BYTES,
            view_of=buffer,
            strides=(1, 1, 1, 1),
            bytes=buffer.bytes - unread,
        )
        read.card_padding = row_padding(width, cache_type)
        return read

    def halved(self, read: Tensor) -> Tensor:
        """32-bit keys or values as 16-bit ones, which flash attention reads."""
        is_key = read.root is self._keys
        kind = self.batch.key_type if is_key else self.batch.value_type
        return Tensor("cast", read.ne, read, unit=F16_BYTES) if kind == "f32" else read

    def staged_bytes(self) -> int:
        """A latent cache that is brought to the card comes as keys and as values, each unpacked."""
        if not (self.is_latent and self.batch.copies_in_graph):
            return 0
        if self.batch.key_type in {"f16", "f32"}:
            return 0
        values = self.heads.value_dim * self.heads.kv * self.cells * self.batch.streams
        return round_up(values * F16_BYTES, _COPY_ALIGNMENT)

    def unpacked_bytes(self, result_bytes: int) -> int:
        """Bytes of flash attention's result with the 16-bit copies of packed keys and values behind it."""
        if not self.batch.copies_in_graph:
            return result_bytes
        end = result_bytes
        widths = [(self.heads.key_dim, self.batch.key_type)]
        if not self.is_latent:
            widths.append((self.heads.value_dim, self.batch.value_type))
        for width, cache_type in widths:
            if cache_type not in {"f16", "f32"}:
                end = round_up(end, _COPY_ALIGNMENT)
                end += width * self.heads.kv * self.cells * self.batch.streams * F16_BYTES
        return end


_COPY_ALIGNMENT = 128
"""ggml-cuda/fattn-common.cuh, ggml_cuda_flash_attn_ext_get_f16_extra_data."""
