"""How many tokens does a block hold, once kernels, states and mixed dtypes have had their say?

Source: vLLM 0.33.0 platforms/interface.py (update_block_size_for_backend and what it calls).
"""

import math
from typing import Final, NamedTuple

from plimsoll.engines.vllm import kv_dtypes, recurrent
from plimsoll.engines.vllm.alike import EngineRefusesError
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.choice import is_hybrid
from plimsoll.engines.vllm.kernels import DEFAULT_BLOCK_TOKENS, Kernel, preferred_block
from plimsoll.engines.vllm.recurrent import Checkpoints
from plimsoll.engines.vllm.split import LATENT_KINDS, PLAIN_KINDS, kv_heads_per_card
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.units import ceil_div

LATENT_ALIGNMENT_TOKENS: Final = 128
"""Blocks of latents beside recurrent layers are a multiple of this many tokens."""
_HEADS_OF_FULL_LAYERS: Final = ("MiMoV2",)
"""Models that count the heads of their full layers where windows have more."""


class Blocks(NamedTuple):
    """What is settled before layers get their specs."""

    tokens: int
    """Tokens in a block of the attention layers."""
    state_page_bytes: int | None = None
    """Bytes that a state's page is padded to."""
    spared_page_bytes: int | None = None
    """Bytes that pages of layers which stay unquantised are padded to."""


def settled(
    model: ModelFacts, ask: KvAsk, *, kv_dtype: str, kernels: tuple[Kernel, ...], has_spared: bool
) -> Blocks:
    """Blocks of this model under these kernels. Raises EngineRefusesError."""
    if not kernels:
        return Blocks(ask.block_tokens or DEFAULT_BLOCK_TOKENS)
    tokens = ask.block_tokens or preferred_block(kernels)
    if tokens is None:
        names = ", ".join(kernel.name for kernel in kernels)
        raise EngineRefusesError(f"the kernels {names} share no block size")
    blocks = Blocks(tokens)
    if is_hybrid(model):
        blocks = _with_states(blocks, model, ask, kv_dtype, kernels, has_spared=has_spared)
    if has_spared:
        blocks = _with_spared_layers(blocks, model, ask, kv_dtype, kernels[0])
    if blocks.tokens != tokens and not all(k.general.supports(blocks.tokens) for k in kernels):
        raise EngineRefusesError(f"no kernel reads the aligned block of {blocks.tokens} tokens")
    return blocks


def checkpoints(model: ModelFacts, ask: KvAsk) -> Checkpoints:
    """What the prefix cache adds to every recurrent layer; of several recurrences the common part."""
    states = [group.state for group in model.kv_groups if group.state is not None]
    if not ask.is_caching_states or not states:
        return Checkpoints()
    found = [
        recurrent.checkpoints(
            state, capability=ask.capability, model_dtype=model.dtype, release=ask.release
        )
        for state in states
    ]
    return Checkpoints(
        blocks=max(each.blocks for each in found),
        alignment_tokens=math.lcm(*(each.alignment_tokens for each in found)),
    )


def _with_states(
    blocks: Blocks,
    model: ModelFacts,
    ask: KvAsk,
    kv_dtype: str,
    kernels: tuple[Kernel, ...],
    *,
    has_spared: bool,
) -> Blocks:
    """Blocks so long that a page of attention is no smaller than a state, which is padded to it."""
    state_bytes = max(
        recurrent.state_bytes(group.state, cards=ask.tp, model_dtype=model.dtype, drafts=ask.drafts)
        for group in model.kv_groups
        if group.state is not None
    )
    has_latents = any(group.kind is KvKind.MLA for group in model.kv_groups)
    token_bytes = _token_bytes(model, ask, kv_dtype, kernels[0])
    if has_latents:
        token_bytes //= 2
    elif kv_dtype in kv_dtypes.TURBOQUANT:
        token_bytes = _packed_token_bytes(model, ask, kv_dtype)
        if has_spared:
            token_bytes = math.lcm(token_bytes, _token_bytes(model, ask, "auto", kernels[0]))
    smallest = [kernel.general.smallest for kernel in kernels]
    step = max(smallest[0], blocks.tokens, LATENT_ALIGNMENT_TOKENS if has_latents else 1)
    step = math.lcm(step, checkpoints(model, ask).alignment_tokens)
    tokens = step * ceil_div(state_bytes, step * token_bytes)
    shared = math.lcm(*smallest)
    tokens = max(blocks.tokens, shared * ceil_div(tokens, shared))
    page = tokens * token_bytes
    return Blocks(tokens, state_page_bytes=page if page != state_bytes else None)


def _with_spared_layers(
    blocks: Blocks, model: ModelFacts, ask: KvAsk, kv_dtype: str, first: Kernel
) -> Blocks:
    """Blocks so long that a quantised page is no smaller than an unquantised one of the least block."""
    narrow = _token_bytes(model, ask, kv_dtype, first)
    wide = _token_bytes(model, ask, "auto", first)
    if narrow == wide:
        return blocks
    smallest = first.general.smallest
    step = max(smallest, blocks.tokens)
    page = max(wide * smallest, blocks.state_page_bytes or 0)
    tokens = max(blocks.tokens, step * ceil_div(page, step * narrow))
    shared = tokens * narrow
    return Blocks(
        tokens=tokens,
        state_page_bytes=None if blocks.state_page_bytes is None else shared,
        spared_page_bytes=shared,
    )


def _token_bytes(model: ModelFacts, ask: KvAsk, kv_dtype: str, first: Kernel) -> int:
    """One token of one layer as the engine reckons it for the model: keys and values equally wide."""
    heads, width = _model_heads(model, ask)
    if packs(first, kv_dtype):
        return _packed_token_bytes(model, ask, kv_dtype)
    return heads * kv_dtypes.plain_cell(kv_dtype, model.dtype, width, width).bytes


def _packed_token_bytes(model: ModelFacts, ask: KvAsk, kv_dtype: str) -> int:
    heads, width = _model_heads(model, ask)
    cell = kv_dtypes.packed_cell(kv_dtype, model.dtype, width, width)
    return heads * cell.slots * cell.bytes


def _model_heads(model: ModelFacts, ask: KvAsk) -> tuple[int, int]:
    """KV heads on one card as the model's config counts them, and the width of its widest layers."""
    groups = [g for g in model.kv_groups if g.kind in (*PLAIN_KINDS, *LATENT_KINDS)]
    by_full = model.architecture.startswith(_HEADS_OF_FULL_LAYERS)
    counted = [g for g in groups if g.kind is KvKind.FULL] if by_full else groups
    return (
        max(kv_heads_per_card(group, ask.tp) for group in counted),
        max(group.key_dim for group in groups),
    )


def packs(kernel: Kernel, kv_dtype: str) -> bool:
    """Whether the kernel lays out rows of this dtype in its own way."""
    by_kernel = {
        "TRITON_ATTN": kv_dtypes.PER_TOKEN_HEAD,
        "FLASHINFER": kv_dtypes.NVFP4,
        "MINIMAX_M3_SPARSE": kv_dtypes.NVFP4,
        "TURBOQUANT": tuple(kv_dtypes.TURBOQUANT),
    }
    return kv_dtype in by_kernel.get(kernel.name, ())
