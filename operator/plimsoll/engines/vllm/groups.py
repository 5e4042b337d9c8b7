"""Which layers draw blocks together, and how wide is one block of the pool?

Layers that are alike form groups of equal size; pages of different size are made equal by longer
blocks or padding, or lie side by side within a block. Source: vLLM 0.33.0 v1/core/kv_cache_planning.py.
"""

import math
from collections.abc import Sequence
from typing import Final

from plimsoll.engines.vllm.alike import EngineRefusesError, Group, is_one_type, merged
from plimsoll.engines.vllm.packing import packed
from plimsoll.engines.vllm.specs import FULL_KINDS, LayerSpec, SpecKind
from plimsoll.units import ceil_div, round_up

GROUP_STRETCH: Final = 1.5
"""Groups are as large as the largest kind while it is below this many times the smallest one."""


def grouped(
    specs: Sequence[LayerSpec], *, has_hybrid_manager: bool, is_block_outermost: bool
) -> tuple[Group, ...]:
    """The groups of a whole model. Raises EngineRefusesError."""
    if not has_hybrid_manager:
        specs = _without_hybrid_manager(specs)
    if not specs:
        return ()
    everything = tuple(range(len(specs)))
    if (one := merged(specs)) is not None:
        return (Group(everything, (one,) * len(specs)),)
    if is_one_type(specs):
        return (Group(everything, tuple(specs), is_mixed=True),)
    if is_block_outermost and len({spec.page_bytes for spec in specs}) > 1:
        return packed(specs)
    unified = _unified(specs)
    return _all_kept_whole(specs) if unified is None else _equal_groups(unified)


def block_bytes(groups: Sequence[Group], *, is_block_outermost: bool) -> int:
    """Bytes of one block of the pool: the widest group's."""
    if not is_block_outermost:
        return max(group.stride_bytes for group in groups)
    alignments = {spec.stride_alignment for group in groups for spec in group.specs}
    return round_up(max(group.page_bytes for group in groups), math.lcm(*alignments))


def held(groups: Sequence[Group], layers: set[int]) -> tuple[Group, ...]:
    """The same groups with only those layers, as one pipeline stage holds them."""
    found = []
    for group in groups:
        kept = [at for at, layer in enumerate(group.layers) if layer in layers]
        specs = tuple(group.specs[at] for at in kept)
        found.append(group._replace(layers=tuple(group.layers[at] for at in kept), specs=specs))
    return tuple(found)


# --- without the hybrid manager ---------------------------------------------------------------------


def _without_hybrid_manager(specs: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Windows and chunks are kept whole, as --disable-hybrid-kv-cache-manager does it."""
    found = list(specs)
    for is_replicated in (False, True):
        at = [
            n
            for n, spec in enumerate(specs)
            if (spec.kind is not SpecKind.RECURRENT and not spec.sharded_by_dcp) == is_replicated
        ]
        for n, spec in zip(at, _kept_whole([specs[n] for n in at]), strict=True):
            found[n] = spec
    return found


def _kept_whole(specs: list[LayerSpec]) -> list[LayerSpec]:
    if not specs or merged(specs) is not None or is_one_type(specs):
        return specs
    full_blocks = {spec.block_tokens for spec in specs if spec.kind in FULL_KINDS}
    if full_blocks:
        block = full_blocks.pop() if len(full_blocks) == 1 else None
        specs = [_as_full(spec, block) for spec in specs]
    if merged(specs) is None and not is_one_type(specs):
        raise EngineRefusesError(
            "these layers cannot be kept in one group; the model needs the hybrid KV cache manager"
        )
    return specs


def _as_full(spec: LayerSpec, block_tokens: int | None) -> LayerSpec:
    if spec.kind is SpecKind.SLIDING_MLA:  # 0.33.0 ends in a TypeError there
        raise EngineRefusesError("windows of latents need the hybrid KV cache manager")
    if spec.kind not in (SpecKind.SLIDING, SpecKind.CHUNKED):
        return spec
    block = block_tokens or spec.block_tokens
    wider = spec._replace(
        kind=SpecKind.FULL,
        block_tokens=block,
        padded_bytes=None,
        window_tokens=None,
        merged_window=spec.window_tokens,
        retained_tokens=0,
    )
    if spec.padded_bytes is None:
        return wider
    return wider._replace(padded_bytes=max(spec.padded_bytes, wider.unpadded_bytes))


# --- equal pages ------------------------------------------------------------------------------------


def _unified(specs: Sequence[LayerSpec]) -> list[LayerSpec] | None:
    """All pages as large as the largest: by longer blocks where that fits, else by padding.

    None where a latent's page can be neither.
    """
    largest = max(spec.page_bytes for spec in specs)
    unified: dict[LayerSpec, LayerSpec | None] = {
        spec: _widened(spec, largest) for spec in set(specs)
    }
    found = [unified[spec] for spec in specs]
    kept = [spec for spec in found if spec is not None]
    return kept if len(kept) == len(found) else None


def _widened(spec: LayerSpec, page_bytes: int) -> LayerSpec | None:
    if spec.page_bytes == page_bytes:
        return spec
    if spec.kind is SpecKind.RECURRENT:
        return spec._replace(padded_bytes=page_bytes)
    if page_bytes % spec.page_bytes == 0:
        longer = spec._replace(block_tokens=spec.block_tokens * (page_bytes // spec.page_bytes))
        if longer.page_bytes != page_bytes:
            raise EngineRefusesError(
                f"a page of {spec.page_bytes} B cannot be made {page_bytes} B by a longer block"
            )
        return longer
    return None if spec.kind is SpecKind.MLA else spec._replace(padded_bytes=page_bytes)


def _all_kept_whole(specs: Sequence[LayerSpec]) -> tuple[Group, ...]:
    """Latents beside windows whose pages cannot be made equal: the windows are kept whole."""
    kinds = {spec.kind for spec in specs}
    refused = EngineRefusesError("pages of latents and of the other layers cannot be made equal")
    if {SpecKind.MLA, SpecKind.SLIDING} - kinds or kinds & {SpecKind.SLIDING_MLA, SpecKind.CHUNKED}:
        raise refused
    whole = _kept_whole(list(specs))
    if not is_one_type(whole):
        raise refused
    return (Group(tuple(range(len(whole))), tuple(whole), is_mixed=True),)


def _equal_groups(specs: Sequence[LayerSpec]) -> tuple[Group, ...]:
    """Groups of as many layers each, the last of a kind padded; a kind's layers are dealt in turn."""
    alike: dict[LayerSpec, list[int]] = {}
    for layer, spec in enumerate(specs):
        alike.setdefault(spec, []).append(layer)
    buckets: list[tuple[list[LayerSpec], list[int]]] = []
    for spec, layers in alike.items():
        for members, into in buckets:
            if _can_merge([*members, spec]):
                members.append(spec)
                into.extend(layers)
                break
        else:
            buckets.append(([spec], list(layers)))
    counts = [len(layers) for _, layers in buckets]
    size = max(counts) if max(counts) < GROUP_STRETCH * min(counts) else min(counts)
    found = []
    for _, layers in buckets:
        number = ceil_div(len(layers), size)
        for start in range(number):
            dealt = tuple(layers[start::number])
            one = merged([specs[layer] for layer in dealt])
            assert one is not None
            found.append(Group(dealt, (one,) * len(dealt)))
    return tuple(found)


def _can_merge(specs: Sequence[LayerSpec]) -> bool:
    try:
        return merged(specs) is not None
    except EngineRefusesError:
        return False
