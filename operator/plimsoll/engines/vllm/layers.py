"""Which caches does each layer of a model keep, in the engine's order?

Source: vLLM 0.33.0, the get_kv_cache_spec of each layer: layers/attention/{attention,mla_attention,
chunked_local_attention,cross_attention}.py, layers/mamba/abstract.py, models/deepseek_v2.py,
models/deepseek_v4/{attention,compressor}.py, v1/attention/backends/mla/sparse_swa.py.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from plimsoll.engines.vllm import blocksize, choice, indexed, kv_dtypes, latents, recurrent
from plimsoll.engines.vllm.alike import EngineRefusesError
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.blocksize import Blocks
from plimsoll.engines.vllm.choice import Shape
from plimsoll.engines.vllm.kernels import Kernel
from plimsoll.engines.vllm.specs import LayerSpec, SpecKind
from plimsoll.engines.vllm.split import kv_heads_per_card
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts

_SPEC_KINDS: Final = {
    KvKind.FULL: SpecKind.FULL,
    KvKind.SLIDING: SpecKind.SLIDING,
    KvKind.CHUNKED: SpecKind.CHUNKED,
    KvKind.CROSS: SpecKind.CROSS,
}
INDEX_SCALE_DIM: Final = 128
"""An index key is kept in fp8 with one fp32 scale for each so many values: 128 wide are 132 B."""
V4_WIDTH: Final = 512
V4_INDEX_WIDTH: Final = 128
"""Widths that the kernels of DeepSeek-V4 read."""
V4_WINDOW_BLOCK_TOKENS: Final = 64
V4_STATE_BLOCK_TOKENS: Final = {4: 4, 128: 8}
V4_PAGE_ALIGNMENT: Final = 576
"""DeepSeek-V4: block of the window, blocks of the compressors' running states by ratio, and the bytes
that its pages are rounded up to."""


class Placed(NamedTuple):
    """A cache and the layer of the model that keeps it."""

    layer: int
    spec: LayerSpec


class Built(NamedTuple):
    """A model's caches with what was chosen on the way."""

    placed: tuple[Placed, ...]
    """In the engine's order."""
    kernels: tuple[Kernel, ...]
    """Attention kernels, each once."""
    kv_dtype: str
    """The cache's dtype as the engine resolves it."""
    block_tokens: int
    """Tokens in a block of the attention layers."""

    @property
    def is_block_outermost(self) -> bool:
        """Whether pages of all layers lie side by side within a block."""
        return any(kernel.is_block_outermost for kernel in self.kernels)


def build(model: ModelFacts, ask: KvAsk) -> Built:
    """All caches of the model. Raises EngineRefusesError or StateDoesNotDivideError."""
    kv_dtype = choice.resolved_dtype(model, ask)
    at = choice.situation(model, ask, kv_dtype)
    spared = choice.spared_layers(model, ask, kv_dtype)
    shapes: dict[tuple[KvGroup, bool, bool], Shape] = {}
    used: list[tuple[int, Shape]] = []
    order = _in_order(model, ask)
    with_index = {layer for layer, group in order if group.kind is KvKind.INDEXER}
    for layer, group in order:
        is_indexed = group.kind is KvKind.FULL and layer in with_index
        key = (group, not is_indexed and choice.is_spared(layer, group, spared), is_indexed)
        if key not in shapes:
            dtype = choice.layer_dtype(model, kv_dtype, spared=key[1])
            shapes[key] = choice.shape(group, dtype, at, is_indexed=is_indexed)
        used.append((layer, shapes[key]))
    kernels = choice.distinct_kernels([shape for _, shape in used])
    blocks = blocksize.settled(
        model, ask, kv_dtype=kv_dtype, kernels=kernels, has_spared=bool(spared)
    )
    specs = {id(shape): tuple(_specs(shape, model, ask, blocks)) for shape in shapes.values()}
    for spec in {spec for each in specs.values() for spec in each}:
        if spec.padded_bytes is not None and spec.padded_bytes < spec.unpadded_bytes:
            raise EngineRefusesError(
                f"a page of {spec.unpadded_bytes:,} B is wider than the one that all layers share, "
                f"{spec.padded_bytes:,} B"
            )
    return Built(
        placed=tuple(Placed(layer, spec) for layer, shape in used for spec in specs[id(shape)]),
        kernels=kernels,
        kv_dtype=next(
            (s.kv_dtype for s in shapes.values() if s.kv_dtype == "fp8_ds_mla"), kv_dtype
        ),
        block_tokens=blocks.tokens,
    )


def _in_order(model: ModelFacts, ask: KvAsk) -> tuple[tuple[int, KvGroup], ...]:
    """Layer by layer, and within a layer group by group; drafts stand behind the model.

    Groups that do not say where their layers are stand one behind the other.
    """
    placed: list[tuple[int, int, KvGroup]] = []
    ahead = 0
    for number, group in enumerate(model.kv_groups):
        at = group.at or tuple(range(ahead, ahead + group.layers))
        placed += [(layer, number, group) for layer in at]
        ahead = max(ahead, max(at, default=-1) + 1)
    ahead = max(ahead, model.layers)
    for number, group in enumerate(ask.draft_groups, start=len(model.kv_groups)):
        placed += [(layer, number, group) for layer in range(ahead, ahead + group.layers)]
    placed.sort(key=lambda place: place[:2])
    return tuple((layer, group) for layer, _, group in placed)


def _specs(shape: Shape, model: ModelFacts, ask: KvAsk, blocks: Blocks) -> Iterator[LayerSpec]:
    """What one layer of this shape keeps; most keep one cache, DeepSeek-V4's up to five."""
    group = shape.group
    if group.state is not None:
        yield _recurrent(shape, model, ask, blocks)
        return
    assert shape.kernel is not None
    match group.kind:
        case KvKind.COMPRESSED_MLA:
            yield from _compressed(group, blocks)
        case KvKind.INDEXER:
            yield _index(shape.kernel, group.key_dim, blocks.tokens)
        case KvKind.MLA:
            yield _latent(shape, shape.kernel, model, blocks)
        case KvKind.SLIDING:
            yield _window(_heads(shape, shape.kernel, model, ask, blocks), shape.kernel, blocks)
        case _:
            yield _heads(shape, shape.kernel, model, ask, blocks)


def _heads(
    shape: Shape, kernel: Kernel, model: ModelFacts, ask: KvAsk, blocks: Blocks
) -> LayerSpec:
    """Keys and values per head."""
    group = shape.group
    cell_of = (
        kv_dtypes.packed_cell if blocksize.packs(kernel, shape.kv_dtype) else (kv_dtypes.plain_cell)
    )
    cell = cell_of(shape.kv_dtype, model.dtype, group.key_dim, group.value_dim)
    return LayerSpec(
        kind=_SPEC_KINDS[group.kind],
        block_tokens=blocks.tokens,
        rows=kv_heads_per_card(group, ask.tp) * cell.slots,
        row_bytes=cell.bytes,
        dtype=kv_dtypes.stored_as(shape.kv_dtype, model.dtype),
        kernel_tokens=_whole_pages(kernel),
        window_tokens=group.window_tokens,
        retained_tokens=ask.retained_tokens if group.kind is KvKind.SLIDING else 0,
        role=f"{shape.kv_dtype if kv_dtypes.is_quantized(shape.kv_dtype) else ''}:"
        f"{group.key_dim}:{group.value_dim}",
    )


def _window(spec: LayerSpec, kernel: Kernel, blocks: Blocks) -> LayerSpec:
    """Windows choose their block: the largest of the kernel's within the model's, or the shared page."""
    token_bytes = spec._replace(block_tokens=1).unpadded_bytes
    budget = blocks.spared_page_bytes or token_bytes * blocks.tokens
    return spec._replace(
        block_tokens=kernel.sizes.largest_within(budget // token_bytes),
        padded_bytes=blocks.spared_page_bytes,
    )


def _whole_pages(kernel: Kernel) -> int | None:
    """Blocks larger than every page that the kernel reads are split, so they hold whole ones."""
    if kernel.kernel_tokens is not None:
        return kernel.kernel_tokens
    return max(kernel.sizes.fixed) if kernel.sizes.fixed else None


def _latent(shape: Shape, kernel: Kernel, model: ModelFacts, blocks: Blocks) -> LayerSpec:
    cell = kv_dtypes.packed_cell(shape.kv_dtype, model.dtype, shape.group.key_dim, 0)
    return LayerSpec(
        kind=SpecKind.MLA,
        block_tokens=blocks.tokens,
        row_bytes=cell.bytes,
        dtype=kv_dtypes.stored_as(shape.kv_dtype, model.dtype),
        stride_bytes=kernel.stride_rows and kernel.stride_rows * cell.bytes,
        kernel_tokens=None if kernel.stride_rows else _whole_pages(kernel),
        role=f"latent:{shape.kv_dtype}:{shape.group.key_dim}",
    )


def _index(kernel: Kernel, key_dim: int, block_tokens: int) -> LayerSpec:
    is_plain = kernel == indexed.INDEX
    plain_bytes = key_dim * kv_dtypes.dtype_bytes(indexed.INDEX_DTYPE)
    return LayerSpec(
        kind=SpecKind.MLA,
        block_tokens=block_tokens,
        row_bytes=plain_bytes if is_plain else _index_bytes(key_dim),
        dtype=indexed.INDEX_DTYPE if is_plain else "uint8",
        kernel_tokens=_whole_pages(kernel),
        role="index",
    )


def _index_bytes(key_dim: int) -> int:
    return key_dim + key_dim // INDEX_SCALE_DIM * kv_dtypes.SCALE_BYTES


def _compressed(group: KvGroup, blocks: Blocks) -> Iterator[LayerSpec]:
    """An index and its compressor's state, the window, the compressed latent and its state."""
    ratio = group.compress_ratio
    if group.key_dim != V4_WIDTH or group.index_dim not in (None, V4_INDEX_WIDTH):
        raise EngineRefusesError(
            f"compressed latents are {V4_WIDTH} wide and their index {V4_INDEX_WIDTH}"
        )
    if ratio is not None and blocks.tokens < ratio:
        raise EngineRefusesError(
            f"a block of {blocks.tokens} tokens holds none of the latents that stand for {ratio}"
        )
    if ratio is not None and group.index_dim is not None:
        yield LayerSpec(
            kind=SpecKind.MLA,
            block_tokens=blocks.tokens,
            row_bytes=_index_bytes(group.index_dim),
            dtype="uint8",
            tokens_per_state=ratio,
            page_alignment=V4_PAGE_ALIGNMENT,
            kernel_tokens=_whole_pages(latents.V4_INDEXER),
            role="index",
        )
        yield _running_state(group.index_dim, ratio)
    yield LayerSpec(
        kind=SpecKind.SLIDING_MLA,
        block_tokens=V4_WINDOW_BLOCK_TOKENS,
        row_bytes=kv_dtypes.DS_V4_BYTES,
        dtype="uint8",
        page_alignment=V4_PAGE_ALIGNMENT,
        window_tokens=group.window_tokens,
        role=f"latent:{group.key_dim}",
    )
    if ratio is not None:
        yield LayerSpec(
            kind=SpecKind.MLA,
            block_tokens=blocks.tokens,
            row_bytes=kv_dtypes.DS_V4_BYTES,
            dtype="uint8",
            tokens_per_state=ratio,
            page_alignment=V4_PAGE_ALIGNMENT,
            kernel_tokens=_whole_pages(latents.V4_LATENT),
            role=f"latent:{group.key_dim}",
        )
        yield _running_state(group.key_dim, ratio)


def _running_state(width: int, ratio: int) -> LayerSpec:
    """What a compressor keeps of tokens not yet compressed: keys and scores in fp32.

    Windows of ratio 4 overlap, so each token counts in two of them.
    """
    if ratio not in V4_STATE_BLOCK_TOKENS:
        raise EngineRefusesError(f"latents of {ratio} tokens are not known; vLLM knows 4 and 128")
    overlap = 2 if ratio == 4 else 1
    return LayerSpec(
        kind=SpecKind.SLIDING_MLA,
        block_tokens=V4_STATE_BLOCK_TOKENS[ratio],
        row_bytes=2 * overlap * width * kv_dtypes.dtype_bytes("float32"),
        dtype="float32",
        page_alignment=V4_PAGE_ALIGNMENT,
        window_tokens=overlap * ratio,
        is_running=True,
        role=f"compressor:{width}",
    )


def _recurrent(shape: Shape, model: ModelFacts, ask: KvAsk, blocks: Blocks) -> LayerSpec:
    state = shape.group.state
    assert state is not None
    extra = blocksize.checkpoints(model, ask) if ask.is_caching_states else recurrent.Checkpoints()
    return LayerSpec(
        kind=SpecKind.RECURRENT,
        block_tokens=blocks.tokens if ask.is_caching_states else ask.max_model_len,
        row_bytes=recurrent.state_bytes(
            state, cards=ask.tp, model_dtype=model.dtype, drafts=ask.drafts
        ),
        padded_bytes=blocks.state_page_bytes,
        state_blocks=recurrent.state_blocks(
            is_aligned=ask.is_caching_states, drafts=ask.drafts, checkpoint_blocks=extra.blocks
        ),
        sharded_by_dcp=False,
        role=state.kind.value,
    )
