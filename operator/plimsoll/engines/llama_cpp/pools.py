"""How many bytes does llama.cpp's graph allocator take for a graph cut in splits?

The rules of ggml/src/ggml-alloc.c, b11434: one growing pool per backend, the best fitting hole, results
in place of a source that nobody else reads, and nothing freed before its last reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from plimsoll.engines.llama_cpp.tensors import DEPENDENCY, Tensor
from plimsoll.units import round_up

CARD_ALIGNMENT: Final = 128
"""ggml-cuda.cu, ggml_backend_cuda_buffer_type_get_alignment."""
HOST_ALIGNMENT: Final = 32
"""ggml-impl.h, TENSOR_ALIGNMENT."""
IN_PLACE: Final = frozenset(
    {"add", "add_id", "clamp", "div", "fill", "mul", "rms_norm", "rope", "scale"}
    | {"soft_max", "sqr", "sub", "unary"}
)
"""Operations that may overwrite a source (ggml_op_can_inplace)."""

_ENDLESS: Final = 1 << 62

Placed = tuple[Tensor, int]
"""A tensor and the backend that it belongs to."""


class Pool:
    """One backend's buffer while it is measured."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.peak = 0
        self._holes: list[list[int]] = [
            [0, _ENDLESS]
        ]  # offset and size, by offset; the last has no end

    def take(self, size: int) -> int:
        """Offset of the smallest hole that fits; of equals the last, and the open end only when none does."""
        size = round_up(size, self.alignment)
        holes = self._holes
        best, best_size = len(holes) - 1, _ENDLESS
        for index in range(len(holes) - 1):
            if size <= holes[index][1] <= best_size:
                best, best_size = index, holes[index][1]
        hole = holes[best]
        offset = hole[0]
        hole[0] += size
        hole[1] -= size
        if hole[1] == 0:
            del holes[best]
        self.peak = max(self.peak, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Give bytes back; holes that touch become one."""
        size = round_up(size, self.alignment)
        holes = self._holes
        for index, hole in enumerate(holes):
            if hole[0] + hole[1] == offset:
                hole[1] += size
                if index + 1 < len(holes) and hole[0] + hole[1] == holes[index + 1][0]:
                    hole[1] += holes[index + 1][1]
                    del holes[index + 1]
                return
            if offset + size == hole[0]:
                hole[0] = offset
                hole[1] += size
                if index and holes[index - 1][0] + holes[index - 1][1] == offset:
                    holes[index - 1][1] += hole[1]
                    del holes[index]
                return
        place = next((i for i, hole in enumerate(holes) if hole[0] >= offset), len(holes))
        holes.insert(place, [offset, size])


def allocate(nodes: Sequence[Placed], leaves: Sequence[Placed], cards: int) -> tuple[int, ...]:
    """Bytes of each backend's buffer: the cards in order, then the host."""
    allocator = _Allocator(cards)
    allocator.run(nodes, leaves)
    return tuple(pool.peak for pool in allocator.pools)


class _Allocator:
    def __init__(self, cards: int) -> None:
        self.cards = cards
        self.pools = [*(Pool(CARD_ALIGNMENT) for _ in range(cards)), Pool(HOST_ALIGNMENT)]

    def run(self, nodes: Sequence[Placed], leaves: Sequence[Placed]) -> None:
        for leaf, backend in leaves:
            self._place(leaf, backend)
        self._count(nodes)
        for node, backend in nodes:
            for source in node.src:
                self._place(source, backend)
            self._place(node, backend)
            self._let_go(node.src)

    def _count(self, nodes: Iterable[Placed]) -> None:
        for node, backend in nodes:
            if node.view_of is not None and node.op != DEPENDENCY:
                node.view_of.views += 1
            if node.is_input:
                self._place(node, backend)
            for source in node.src:
                source.children += 1
                if source.is_input:
                    self._place(source, backend)

    def _size(self, tensor: Tensor, backend: int) -> int:
        return tensor.bytes + (tensor.card_padding if backend < self.cards else 0)

    def _place(self, tensor: Tensor, backend: int) -> None:
        if tensor.place is not None or tensor.is_owned or tensor.view_of is not None:
            return
        tensor.is_owned = True
        if tensor.op in IN_PLACE:
            for source in tensor.src:
                if self._may_replace(tensor, source):
                    self._replace(tensor, source)
                    return
        tensor.buffer = backend
        tensor.offset = self.pools[backend].take(self._size(tensor, backend))

    @staticmethod
    def _may_replace(tensor: Tensor, source: Tensor) -> bool:
        return (
            source.is_owned
            and not source.keep
            and source.children == 1
            and source.views == 0
            and (source.ne, source.strides, source.unit) == (tensor.ne, tensor.strides, tensor.unit)
        )

    def _replace(self, tensor: Tensor, source: Tensor) -> None:
        tensor.buffer, tensor.offset = source.buffer, source.offset
        source.is_owned = False
        pool = self.pools[source.buffer]
        held = round_up(self._size(source, source.buffer), pool.alignment)
        needed = round_up(self._size(tensor, tensor.buffer), pool.alignment)
        if held > needed:
            pool.give(source.offset + needed, held - needed)

    def _let_go(self, sources: Iterable[Tensor]) -> None:
        for source in sources:
            source.children -= 1
            if source.children or source.views:
                continue
            if source.view_of is None:
                self._free(source)
                continue
            root = source.view_of
            root.views -= 1
            if not (root.views or root.children):
                self._free(root)

    def _free(self, tensor: Tensor) -> None:
        if tensor.is_owned and not tensor.keep:
            self.pools[tensor.buffer].give(tensor.offset, self._size(tensor, tensor.buffer))
            tensor.is_owned = False
