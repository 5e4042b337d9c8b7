"""What are the tensors and operations of a llama.cpp graph, as far as memory is concerned?

Kept is what decides memory: shapes, strides, who reads whom, and which tensor is a view of which.
Rules are those of ggml/src/ggml.c, b11434.
"""

from __future__ import annotations

from math import prod
from typing import Final

HOST: Final = -1
"""Place of a tensor in host memory; cards count from 0."""
F16_BYTES: Final = 2
F32_BYTES: Final = 4
I64_BYTES: Final = 8

LEAF: Final = "leaf"
VIEW: Final = "view"
COPY: Final = "copy"
"""An input of a split, brought to the split's own backend."""
DEPENDENCY: Final = "dependency"
"""Keeps the source of a copy until the copy is there; owns no bytes."""

Shape = tuple[int, ...]
Strides = tuple[int, int, int, int]


class Tensor:
    """A node or a leaf of the graph; the fields below the line belong to splits and pools."""

    __slots__ = (
        "backend",
        "buffer",
        "bytes",
        "card_padding",
        "children",
        "is_input",
        "is_owned",
        "is_weight",
        "keep",
        "ne",
        "offset",
        "op",
        "place",
        "src",
        "staged_padding",
        "strides",
        "unit",
        "view_of",
        "views",
    )

    def __init__(
        self,
        op: str,
        shape: Shape,
        *src: Tensor,
        unit: int = F32_BYTES,
        view_of: Tensor | None = None,
        strides: Strides | None = None,
        bytes: int | None = None,  # noqa: A002
        place: int | None = None,
        is_weight: bool = False,
        is_input: bool = False,
        card_padding: int = 0,
    ) -> None:
        self.op = op
        self.ne = ne = (*shape, 1, 1, 1, 1)[:4]
        self.unit = unit
        self.src = src
        self.view_of = view_of
        if strides is None:
            self.strides: Strides = (unit, row := unit * ne[0], row * ne[1], row * ne[1] * ne[2])
            size = prod(ne) * unit
        else:
            self.strides = strides
            steps = zip(ne, strides, strict=True)
            size = unit + sum((n - 1) * step for n, step in steps) if all(ne) else 0
        self.bytes = size if bytes is None else bytes
        self.place = place
        """Where it lies in a buffer of its own: weights and caches. None for what the graph allocates."""
        self.is_weight = is_weight
        self.is_input = is_input
        self.card_padding = card_padding
        """Bytes that it takes beside its own on a card (rows of quantised tensors, 16-bit copies)."""
        self.staged_padding = 0
        """What `card_padding` grows by when the sources have to be brought from elsewhere."""
        # --- of splits and pools ---
        self.backend: int | None = None
        self.keep = False
        self.children = self.views = 0
        self.is_owned = False
        self.buffer = self.offset = 0

    @property
    def elements(self) -> int:
        """How many values."""
        return prod(self.ne)

    @property
    def root(self) -> Tensor:
        """The tensor whose bytes these are."""
        return self.view_of or self


class Graph:
    """Nodes in the order in which llama.cpp computes them, and leaves in the order in which it meets them."""

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self._seen: set[int] = set()

    def expand(self, tensor: Tensor) -> Tensor:
        """Add a tensor with all that it needs, sources first and from left to right."""
        if id(tensor) in self._seen:
            return tensor
        self._seen.add(id(tensor))
        waiting = [(tensor, iter(tensor.src))]
        while waiting:
            current, sources = waiting[-1]
            for source in sources:
                if id(source) not in self._seen:
                    self._seen.add(id(source))
                    waiting.append((source, iter(source.src)))
                    break
            else:
                waiting.pop()
                (self.leaves if current.op == LEAF else self.nodes).append(current)
        return tensor


def graph_input(shape: Shape, unit: int = F32_BYTES) -> Tensor:
    """A leaf that is filled before each batch."""
    return Tensor(LEAF, shape, unit=unit, is_input=True)


def same(op: str, first: Tensor, *more: Tensor) -> Tensor:
    """An operation whose result has the shape of its first source."""
    return Tensor(op, first.ne, first, *more)


def multiplied(weight: Tensor, values: Tensor) -> Tensor:
    """A product with a matrix."""
    return Tensor("mul_mat", (weight.ne[1], *values.ne[1:]), weight, values)


def routed(weight: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    """A product with the matrices of the chosen experts."""
    return Tensor("mul_mat_id", (weight.ne[1], ids.ne[0], values.ne[2]), weight, values, ids)


def rows(table: Tensor, ids: Tensor) -> Tensor:
    """Some rows of a tensor."""
    return Tensor("get_rows", (table.ne[0], *ids.ne[:3]), table, ids)


def view(of: Tensor, shape: Shape, strides: Strides | None = None) -> Tensor:
    """A tensor's own bytes in another shape; contiguous unless strides say otherwise."""
    return Tensor(VIEW, shape, of, unit=of.unit, view_of=of.root, strides=strides)


def permuted(of: Tensor, *axes: int) -> Tensor:
    """A view with its axes moved: axis i of the source becomes axes[i]."""
    shape, strides = [0] * 4, [0] * 4
    for axis, target in enumerate(axes):
        shape[target], strides[target] = of.ne[axis], of.strides[axis]
    a, b, c, d = strides
    return Tensor(
        VIEW, tuple(shape), of, unit=of.unit, view_of=of.root, strides=(a, b, c, d), bytes=of.bytes
    )


def transposed(of: Tensor) -> Tensor:
    """A view with its first two axes swapped."""
    return permuted(of, 1, 0, 2, 3)


def contiguous(of: Tensor, shape: Shape | None = None) -> Tensor:
    """A copy in rows."""
    return Tensor("cont", shape or of.ne, of)


def slices(of: Tensor, shape: Shape) -> Tensor:
    """Part of each row of a tensor, as heads: strides of the source beyond the second axis stay."""
    width, _, step, more = of.unit, 0, of.strides[1], of.strides[2]
    return view(of, shape, (width, width * shape[0], step, more))


def written(into: Tensor, shape: Shape, *src: Tensor, op: str = "set_rows") -> Tensor:
    """Values written into a buffer that exists already: the result is a view of it."""
    return Tensor(op, shape, *src, unit=1, view_of=into.root, strides=(1, 1, 1, 1))
