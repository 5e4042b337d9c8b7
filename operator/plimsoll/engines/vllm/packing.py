"""How do pages of different size lie side by side in a block?

Source: vLLM 0.33.0 v1/core/kv_cache_planning.py (_get_packed_kv_cache_groups).
"""

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll.engines.vllm.alike import Group, takes
from plimsoll.engines.vllm.specs import SLIDING_KINDS, LayerSpec, SpecKind
from plimsoll.units import ceil_div


class _Bucket(NamedTuple):
    """Layers of one type, by the size of their pages."""

    layers: list[int]
    pages: dict[int, list[int]]

    @property
    def is_balanced(self) -> bool:
        """As many layers of each page size: a pattern that repeats."""
        return len({len(layers) for layers in self.pages.values()}) == 1

    @property
    def repeats(self) -> int:
        return max(len(layers) for layers in self.pages.values())

    def widest_bytes(self, number: int) -> int:
        """The largest of `number` groups."""
        return sum(ceil_div(len(layers), number) * page for page, layers in self.pages.items())


def packed(specs: Sequence[LayerSpec]) -> tuple[Group, ...]:
    """Layers of one type together, their pages side by side in a block; widths made alike."""
    buckets: list[_Bucket] = []
    for layer, spec in enumerate(specs):
        bucket = next((b for b in buckets if takes(specs[b.layers[0]], spec)), None)
        if bucket is None:
            bucket = _Bucket([], {})
            buckets.append(bucket)
        bucket.layers.append(layer)
        bucket.pages.setdefault(spec.page_bytes, []).append(layer)

    patterns = [b.repeats for b in buckets if b.is_balanced and len(b.pages) > 1]
    repeats = (
        _least_padding([b.repeats for b in buckets if b.is_balanced], at_least=max(patterns))
        if patterns
        else None
    )

    def number_of(bucket: _Bucket) -> int:
        return ceil_div(bucket.repeats, repeats) if bucket.is_balanced and repeats else 1

    def is_state(bucket: _Bucket) -> bool:
        kind = specs[bucket.layers[0]].kind
        return kind in (SpecKind.RECURRENT, SpecKind.RING) or (
            repeats is None and kind in SLIDING_KINDS
        )

    anchor = max(
        bucket.widest_bytes(len(bucket.layers) if is_state(bucket) else number_of(bucket))
        for bucket in buckets
    )
    found = []
    for bucket in buckets:
        number = number_of(bucket)
        if is_state(bucket):
            per_block = max(anchor // specs[bucket.layers[0]].page_bytes, 1)
            number = max(number, ceil_div(len(bucket.layers), per_block))
        if number == 1:
            dealt = [bucket.layers]
        else:
            pattern = list(zip(*bucket.pages.values(), strict=False))
            dealt = [
                [layer for repeat in pattern[start::number] for layer in repeat]
                for start in range(number)
            ]
        found += [
            Group(tuple(layers), tuple(specs[layer] for layer in layers), is_mixed=True)
            for layers in dealt
        ]
    return tuple(found)


def _least_padding(counts: list[int], *, at_least: int) -> int:
    """The group size that wastes the fewest layers; the largest of equals."""
    sizes = range(at_least, max(counts) + 1)
    return max(sizes, key=lambda size: (-sum(-count % size for count in counts), size))
