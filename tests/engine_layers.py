"""What does vLLM itself give each layer, and what do our facts say in its words?

A layer's spec in vLLM's terms, before any split: its class and the numbers that its bytes follow from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from plimsoll.facts.model import KvGroup, KvKind, RecurrentKind, RecurrentState

Spec = tuple[Any, ...]
_PLAIN = {
    KvKind.FULL: "FullAttentionSpec",
    KvKind.SLIDING: "SlidingWindowSpec",
    KvKind.CHUNKED: "ChunkedLocalAttentionSpec",
    KvKind.CROSS: "CrossAttentionSpec",
}


def in_engine_words(groups: Iterable[KvGroup]) -> Counter[Spec]:
    """Specs and how many layers have them."""
    found: Counter[Spec] = Counter()
    for group in groups:
        for spec in _specs(group):
            found[spec] += group.layers
    return found


def as_recorded(layers: Iterable[list[Any]]) -> Counter[Spec]:
    """Specs and how many layers have them, from the lists of a JSON file (count first)."""
    return Counter({_frozen(spec): count for count, *spec in layers})


def _frozen(spec: list[Any]) -> Spec:
    return tuple(_frozen(each) if isinstance(each, list) else each for each in spec)


def _specs(group: KvGroup) -> list[Spec]:
    if group.kind in _PLAIN:
        window = () if group.window_tokens is None else (group.window_tokens,)
        return [(_PLAIN[group.kind], group.kv_heads, group.key_dim, group.value_dim, *window)]
    if group.kind is KvKind.MLA:
        return [("MLAAttentionSpec", group.key_dim)]
    if group.kind is KvKind.INDEXER:
        return [("Index", group.key_dim)]
    if group.kind is KvKind.COMPRESSED_MLA:
        return _compressed(group)
    assert group.state is not None
    return [("MambaSpec", _shapes(group.state), group.state.state_dtype)]


def _compressed(group: KvGroup) -> list[Spec]:
    """DeepSeek-V4: a window, a latent for several tokens with its compressor's state, perhaps an index."""
    window: Spec = ("SlidingWindowMLASpec", group.key_dim, group.window_tokens)
    ratio = group.compress_ratio
    if ratio is None:
        return [window]
    overlap = 2 if ratio == 4 else 1
    widths = [group.key_dim] if group.index_dim is None else [group.key_dim, group.index_dim]
    states: list[Spec] = [("State", 2 * overlap * width, overlap * ratio) for width in widths]
    latents: list[Spec] = [("MLAAttentionSpec", group.key_dim, ratio)]
    index: list[Spec] = [] if group.index_dim is None else [("Index", group.index_dim, ratio)]
    return [window, *latents, *index, *states]


def _shapes(state: RecurrentState) -> Spec:
    """vllm/model_executor/layers/mamba/mamba_utils.py at one rank and without drafts."""
    taps, inner = state.conv_kernel - 1, state.inner_channels
    match state.kind:
        case RecurrentKind.MAMBA1:
            return ((taps, inner), (inner, state.state_dim))
        case RecurrentKind.MAMBA2:
            width = inner + 2 * state.key_heads * state.state_dim
            return ((taps, width), (state.heads, state.head_dim, state.state_dim))
        case RecurrentKind.GATED_DELTA | RecurrentKind.KIMI_DELTA:
            return ((taps, inner), (state.heads, state.head_dim, state.state_dim))
        case RecurrentKind.SHORT_CONVOLUTION:
            return ((taps, inner),)
        case RecurrentKind.LIGHTNING:
            return ((state.heads, state.head_dim, state.head_dim),)
