"""What is one block of a model while its graph is built?

A block's tensors, where each lies, and which cache it has. Blocks that are alike build alike.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.reserve import ROW_STEP
from plimsoll.engines.llama_cpp.tensors import F32_BYTES, LEAF, Tensor, multiplied, same
from plimsoll.engines.llama_cpp.traits import Traits
from plimsoll.facts.model import GgufTensorFacts, KvGroup

PLAIN: Final = frozenset({"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"})
"""Element types whose rows are not packed."""
EXPERTS: Final = "exps"
"""Part of the names of tensors that hold all experts of a block."""

FEWEST_BLOCKS: Final = 7
"""Blocks of a run of equal cycles that are built at least. Their number stays odd or even as it was: the
stream's place in memory alternates. More changed nothing in 1,500 whole graphs of all architectures."""
FEWEST_CYCLES: Final = 4
"""Cycles of such a run; with three, one of those graphs came out one per cent larger."""
_LONGEST_CYCLE: Final = 8


class Layer(NamedTuple):
    """One block."""

    kind: int
    """Equal for blocks made of the same tensors."""
    tensors: Mapping[str, GgufTensorFacts]
    """By name without the block's number."""
    place: int
    """Where its tensors and its cache lie."""
    experts_place: int
    """Where its experts lie."""
    cache_place: int
    """Where the cache that it reads lies."""
    attention: KvGroup | None
    """The keys and values that it reads."""
    recurrence: KvGroup | None
    """Its recurrent state."""
    is_rotated: bool
    """Whether queries and keys are rotated by their position."""

    @property
    def key(self) -> tuple[object, ...]:
        """Blocks with equal keys build equal graphs."""
        groups = tuple(
            None if group is None else (group.kind, group.kv_heads, group.key_dim, group.value_dim)
            for group in (self.attention, self.recurrence)
        )
        return (
            self.kind,
            self.place,
            self.experts_place,
            self.cache_place,
            self.is_rotated,
            groups,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layer) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Block:
    """A layer while one graph is built: each of its tensors is one leaf, however often it is read."""

    def __init__(self, layer: Layer) -> None:
        self.tensors = layer.tensors
        self.place, self.experts_place, self.cache_place = (
            layer.place,
            layer.experts_place,
            layer.cache_place,
        )
        self.attention, self.recurrence = layer.attention, layer.recurrence
        self.is_rotated = layer.is_rotated
        self._leaves: dict[str, Tensor] = {}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of a tensor; None when the block does not have it."""
        found = self.tensors.get(name)
        return None if found is None else found.shape

    def weight(self, name: str) -> Tensor | None:
        """A tensor of the block as a leaf; None when the block does not have it."""
        found = self.tensors.get(name)
        if found is None:
            return None
        if name not in self._leaves:
            place = self.experts_place if EXPERTS in name else self.place
            self._leaves[name] = leaf_of(found, place)
        return self._leaves[name]

    def need(self, name: str) -> Tensor:
        """A tensor that the block must have. Raises KeyError."""
        found = self.weight(name)
        if found is None:
            raise KeyError(name)
        return found


def leaf_of(tensor: GgufTensorFacts, place: int) -> Tensor:
    """A tensor of the file as a leaf of the graph."""
    return Tensor(
        LEAF,
        tensor.shape,
        place=place,
        is_weight=True,
        bytes=tensor.bytes,
        card_padding=padding_of(tensor),
    )


def padding_of(tensor: GgufTensorFacts) -> int:
    """Bytes that a packed tensor takes beside its own on a card."""
    missing = -tensor.shape[0] % ROW_STEP if tensor.shape else 0
    if missing == 0 or tensor.type in PLAIN:
        return 0
    return missing * tensor.bytes // prod(tensor.shape)


def plain_leaf(shape: tuple[int, ...], place: int) -> Tensor:
    """A small weight of 32-bit numbers."""
    return Tensor(LEAF, shape, place=place, is_weight=True)


def cache_leaf(values: int, slots: int, place: int) -> Tensor:
    """A recurrent state of so many 32-bit values for each slot."""
    return Tensor(LEAF, (values, slots), unit=F32_BYTES, place=place)


def normed(layer: Block, name: str, values: Tensor, traits: Traits) -> Tensor:
    """A norm with a weight of the block, and its bias where it has one."""
    out = same("norm" if traits.layer_norm else "rms_norm", values)
    weight = layer.weight(name)
    if weight is not None:
        out = same("mul", out, weight)
    bias = layer.weight(f"{name.removesuffix('.weight')}.bias")
    return out if bias is None else same("add", out, bias)


def projected(layer: Block, name: str, values: Tensor) -> Tensor:
    """A product with a weight of the block, and its bias where it has one."""
    out = multiplied(layer.need(f"{name}.weight"), values)
    bias = layer.weight(f"{name}.bias")
    return out if bias is None else same("add", out, bias)


def shortened(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The blocks with every run of equal cycles cut to a few.

    A graph is allocated block by block, and what the seventh of equal blocks takes, the ninth takes too.
    """
    keys = [layer.key for layer in layers]
    kept: list[Layer] = []
    start = 0
    while start < len(layers):
        cycles = range(1, min(_LONGEST_CYCLE, len(layers) - start) + 1)
        found = [(cycle, _times(keys, start, cycle)) for cycle in cycles]
        length, times = max(found, key=lambda pair: (pair[0] * (pair[1] - _cut(*pair)), -pair[0]))
        left = _cut(length, times)
        if times == left:
            length, times, left = 1, 1, 1
        kept.extend(layers[start : start + length * left])
        start += length * times
    return tuple(kept)


def _cut(length: int, times: int) -> int:
    fewest = max(FEWEST_CYCLES, -(-FEWEST_BLOCKS // length))
    return min(times, fewest + (times - fewest) % 2 if length % 2 else fewest)


def _times(keys: Sequence[tuple[object, ...]], start: int, cycle: int) -> int:
    first = keys[start : start + cycle]
    times = 1
    while keys[start + times * cycle : start + (times + 1) * cycle] == first:
        times += 1
    return times
