"""Which layers may share a group, and what is a group?

Source: vLLM 0.33.0 v1/kv_cache_interface.py (merge, is_uniform_with_collection).
"""

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll.engines.vllm.specs import FULL_KINDS, SLIDING_KINDS, LayerSpec, SpecKind


class EngineRefusesError(ValueError):
    """Says in one sentence why the engine would not start with these layers."""


class Group(NamedTuple):
    """Layers that share a block table."""

    layers: tuple[int, ...]
    """Positions in the model's order of layers that keep KV."""
    specs: tuple[LayerSpec, ...]
    """Each layer's spec, as the group keeps it."""
    is_mixed: bool = False
    """Pages of several sizes, summed up (UniformTypeKVCacheSpecs)."""

    @property
    def page_bytes(self) -> int:
        """Pages of all layers."""
        return sum(spec.page_bytes for spec in self.specs)

    @property
    def stride_bytes(self) -> int:
        """Pages of all layers with what lies between blocks."""
        return sum(spec.stride_page_bytes for spec in self.specs)


def merged(specs: Sequence[LayerSpec]) -> LayerSpec | None:
    """One spec for all, when they are alike; None otherwise. Raises EngineRefusesError."""
    first = specs[0]
    if first.kind not in FULL_KINDS:
        return first if all(spec == first for spec in specs) else None
    bare = first._replace(merged_window=None)
    if any(spec._replace(merged_window=None) != bare for spec in specs):
        return None
    if first.kind is SpecKind.MLA:
        return bare
    windows = {spec.merged_window for spec in specs} - {None}
    if len(windows) > 1:
        raise EngineRefusesError(
            f"layers with windows of {', '.join(str(w) for w in sorted(w or 0 for w in windows))} "
            "tokens cannot share one group without the hybrid manager"
        )
    return bare._replace(merged_window=windows.pop() if windows else None)


def takes(first: LayerSpec, other: LayerSpec) -> bool:
    """Whether a group of mixed pages that begins with `first` takes `other`."""
    if (first.block_tokens, first.sharded_by_dcp) != (other.block_tokens, other.sharded_by_dcp):
        return False
    match first.kind:
        case SpecKind.FULL | SpecKind.MLA:
            return other.kind in FULL_KINDS
        case SpecKind.SLIDING:
            return other.kind in SLIDING_KINDS and other.window_tokens == first.window_tokens
        case SpecKind.SLIDING_MLA | SpecKind.CHUNKED:
            return other.kind is first.kind and other.window_tokens == first.window_tokens
        case SpecKind.RECURRENT:
            return other.kind is first.kind and (other.state_blocks, other.page_bytes) == (
                first.state_blocks,
                first.page_bytes,
            )
        case _:
            return other.kind is first.kind


def is_one_type(specs: Sequence[LayerSpec]) -> bool:
    return all(takes(specs[0], spec) for spec in specs)
