"""On which backend does each operation of a llama.cpp graph run, and what is copied for it?

The scheduler of ggml/src/ggml-backend.cpp, b11434. Operations go where their weights are; with more than
a few rows a host's weight is brought to the first card instead. The rest goes where its neighbours are.
Every change of backend, and every such weight, begins a split; what a split needs from elsewhere is
copied when it begins.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.pools import Placed
from plimsoll.engines.llama_cpp.tensors import COPY, DEPENDENCY, HOST, LEAF, VIEW, Graph, Tensor

OFFLOAD_ROWS: Final = 32
"""Rows of an operation from which a host's weight is brought to the card (ggml-cuda.cu, offload_op)."""
PIPELINE_COPIES: Final = 4
"""Copies of every input when several cards work as a pipeline (GGML_SCHED_MAX_COPIES)."""
_WITHOUT_WEIGHTS: Final = frozenset({"rope", "flash_attn"})
"""Operations whose weight is too small to say where they run."""


class Split(NamedTuple):
    """A run of nodes on one backend, and what it needs from elsewhere."""

    backend: int
    inputs: list[tuple[Tensor, list[Tensor]]]
    """Source, and its copies on this backend."""
    nodes: list[Tensor]


class Schedule(NamedTuple):
    """A graph as it is allocated."""

    nodes: tuple[Placed, ...]
    """Every node and every copy, in order."""
    leaves: tuple[Placed, ...]
    """What is allocated before any node."""
    splits: int
    """How many runs on one backend."""


def schedule(graph: Graph, *, cards: int, op_offload: bool = True, copies: int = 1) -> Schedule:
    """Cut a graph; backends are the cards in order, then the host. Consumes the graph."""
    _assign(graph, cards, op_offload=op_offload)
    splits = _cut(graph, cards, copies)
    return Schedule(
        nodes=tuple(_in_order(splits)),
        leaves=tuple(_leaves(graph, splits, copies)),
        splits=len(splits),
    )


def _backend_of(place: int, cards: int) -> int:
    return cards if place == HOST else place


def _batch_rows(node: Tensor) -> int:
    """get_op_batch_size of ggml-cuda.cu."""
    match node.op:
        case "get_rows":
            return 0
        case "mul_mat":
            return node.ne[1]
        case "mul_mat_id" | "rope":
            return node.ne[2]
    return node.ne[1] * node.ne[2] * node.ne[3]


def _own_backend(tensor: Tensor, cards: int, *, op_offload: bool) -> int | None:
    place = tensor.root.place
    if place is not None:
        return _backend_of(place, cards)
    if tensor.is_input:
        return cards
    if tensor.op in _WITHOUT_WEIGHTS:
        return None
    for source in tensor.src:
        if source.is_weight and source.place is not None:
            backend = _backend_of(source.place, cards)
            is_brought = op_offload and backend == cards > 0 and _batch_rows(tensor) >= OFFLOAD_ROWS
            return 0 if is_brought else backend
    return None


def _assign(graph: Graph, cards: int, *, op_offload: bool) -> None:
    for tensor in (*graph.leaves, *graph.nodes):
        tensor.backend = _own_backend(tensor, cards, op_offload=op_offload)
    real = [node for node in graph.nodes if node.op != VIEW]
    backwards = real[::-1]
    for skips_host in (True, False):
        for nodes in (real, backwards):
            _spread(nodes, None if not skips_host else cards)
    for node in graph.nodes:
        if node.backend is None and node.view_of is not None:
            node.backend = node.view_of.backend
        for source in node.src:
            if source.backend is None:
                source.backend = source.view_of.backend if source.view_of else node.backend
        if node.backend is None:
            node.backend = 0


def _spread(nodes: Iterable[Tensor], skipped: int | None) -> None:
    """Give nodes without a backend that of the node before them, unless that is `skipped`."""
    current: int | None = None
    for node in nodes:
        if node.backend is not None:
            current = None if node.backend == skipped else node.backend
        elif current is not None:
            node.backend = current


def _is_reachable(tensor: Tensor, backend: int, cards: int) -> bool:
    if tensor.backend == backend:
        return True
    root = tensor.root
    if root.place is not None:
        return _backend_of(root.place, cards) == backend
    return (root.backend if tensor.backend is None else tensor.backend) == backend


def _cut(graph: Graph, cards: int, copies: int) -> list[Split]:
    first = next(node for node in graph.nodes if node.op != VIEW)
    split = Split(_known(first), [], [])
    splits = [split]
    copied: dict[tuple[int, int], list[Tensor]] = {}
    for node in graph.nodes:
        if node.op == VIEW:
            split.nodes.append(node)
            continue
        if node.backend != split.backend or (split.inputs and _needs_weight(node, split, cards)):
            split = Split(_known(node), [], [])
            splits.append(split)
        sources = [
            source
            if _is_reachable(source, split.backend, cards)
            else _copied(source, split, copied, copies)
            for source in node.src
        ]
        node.src = tuple(sources)
        if node.staged_padding and any(source.op == COPY for source in sources):
            node.card_padding += node.staged_padding
        split.nodes.append(node)
    return splits


def _known(node: Tensor) -> int:
    assert node.backend is not None
    return node.backend


def _needs_weight(node: Tensor, split: Split, cards: int) -> bool:
    """Whether a weight has to be brought: in a split of its own, so that the one before can be let go."""
    return any(
        source.is_weight
        and source.place is not None
        and _backend_of(source.place, cards) != split.backend
        for source in node.src
    )


def _copied(
    source: Tensor, split: Split, copied: dict[tuple[int, int], list[Tensor]], copies: int
) -> Tensor:
    key = (id(source), split.backend)
    if key not in copied:
        copied[key] = [_twin(source, is_kept=copies > 1) for _ in range(copies)]
        split.inputs.append((source, copied[key]))
    return copied[key][0]


def _twin(of: Tensor, *, is_kept: bool, op: str = COPY) -> Tensor:
    twin = Tensor(
        op,
        of.ne,
        unit=of.unit,
        strides=of.strides,
        bytes=of.bytes,
        card_padding=of.card_padding,
        is_input=is_kept,
    )
    twin.keep = is_kept
    return twin


def _in_order(splits: Sequence[Split]) -> Iterable[Placed]:
    for split in splits:
        for source, twins in split.inputs:
            yield Tensor(DEPENDENCY, (0,), source, view_of=source.root), _known(source)
            yield twins[0], split.backend
        for node in split.nodes:
            yield node, _known(node)


def _leaves(graph: Graph, splits: Sequence[Split], copies: int) -> Iterable[Placed]:
    if copies > 1:
        for leaf in graph.leaves:
            if leaf.is_input:
                leaf.keep = True
                yield leaf, _known(leaf)
                for _ in range(copies - 1):
                    yield _twin(leaf, is_kept=True, op=LEAF), _known(leaf)
        for split in splits:
            for _, twins in split.inputs:
                for twin in twins:
                    yield twin, split.backend
    for leaf in graph.leaves:
        yield leaf, _known(leaf)
