"""Of which tensors is each block of a model made, what does it keep, and where does it all lie?

Tensors as the file lists them; where nobody listed them, as the architecture's shape implies
(nominal.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from plimsoll.engines.llama_cpp import nominal
from plimsoll.engines.llama_cpp.graph import EMBEDDING, OUTPUT, OUTPUT_NORMS, ROPE_FACTORS, WINDOWS
from plimsoll.engines.llama_cpp.layer import EXPERTS, Layer, padding_of
from plimsoll.engines.llama_cpp.mixes import TYPES, size_of
from plimsoll.engines.llama_cpp.placement import Placement
from plimsoll.engines.llama_cpp.pools import CARD_ALIGNMENT, HOST_ALIGNMENT
from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.engines.llama_cpp.traits import TRAITS, Rope, Traits
from plimsoll.facts.model import GgufFacts, GgufTensorFacts, KvGroup, KvKind
from plimsoll.units import round_up

Tensors = Mapping[str, GgufTensorFacts]

WITH_THE_FIRST: Final = ("per_layer_model_proj.weight", "per_layer_proj_norm.weight")
"""Tensors outside blocks that lie with the first (Gemma 4)."""


ALIASES: Final = {"ffn_norm": "ffn_norm.weight"}
"""Names that one architecture writes differently (Falcon H1)."""
PADDING_BYTES: Final = 104_858
"""Most that alignment and padded rows add to the tensors of one buffer (0.1 MiB, 470 loads of b11434)."""


def is_listed(gguf: GgufFacts) -> bool:
    """Whether the tensors of every block are listed."""
    listed = sorted(index for group in gguf.blocks for index in group.at)
    return bool(gguf.outside) and listed == list(range(len(gguf.block_bytes)))


@lru_cache(maxsize=64)
def is_typed(gguf: GgufFacts) -> bool:
    """Whether the type of every tensor is known: listed, or told by the bytes of its block."""
    return is_listed(gguf) or all(
        tensor.type in TYPES and size_of(tensor.shape, tensor.type) == tensor.bytes
        for _, tensors in tensors_of(gguf)
        for tensor in tensors.values()
    )


@lru_cache(maxsize=64)
def tensors_of(gguf: GgufFacts) -> tuple[tuple[int, Tensors], ...]:
    """For each block a number that blocks of equal tensors share, and its tensors by name."""
    found: dict[int, tuple[int, Tensors]] = {}
    groups = gguf.blocks if is_listed(gguf) else nominal.blocks(gguf, kept_by_block(gguf))
    for kind, group in enumerate(groups):
        tensors = {ALIASES.get(tensor.name, tensor.name): tensor for tensor in group.tensors}
        found.update(dict.fromkeys(group.at, (kind, tensors)))
    return tuple(found[index] for index in range(len(gguf.block_bytes)))


@lru_cache(maxsize=64)
def outside_of(gguf: GgufFacts) -> Tensors:
    """The tensors outside blocks, by name."""
    listed = gguf.outside if is_listed(gguf) else nominal.outside(gguf)
    return {tensor.name: tensor for tensor in listed}


@lru_cache(maxsize=64)
def kept_by_block(gguf: GgufFacts) -> tuple[tuple[KvGroup | None, KvGroup | None], ...]:
    """For each block its own cache: keys and values, and a recurrent state.

    Where nobody said which block is which, those with a window are as listed, and the others are taken
    in the order in which groups are named, from the first block.
    """
    count = len(gguf.block_bytes)
    attention: dict[int, KvGroup] = {}
    recurrence: dict[int, KvGroup] = {}
    windowed = tuple(gguf.sliding_blocks)
    free = [index for index in range(count) if index not in windowed]
    for group in gguf.kv_groups:
        at = group.at
        if not at and windowed and group.kind in WINDOWS:
            at = windowed
        elif not at:
            at, free = tuple(free[: group.layers]), free[group.layers :]
        target = recurrence if group.kind is KvKind.RECURRENT else attention
        target.update(dict.fromkeys(at, group))
    return tuple((attention.get(index), recurrence.get(index)) for index in range(count))


def layers(gguf: GgufFacts, placement: Placement) -> tuple[Layer, ...]:
    """The blocks that the graph runs; those for drafts are loaded and left out."""
    kept = kept_by_block(gguf)
    run = len(gguf.block_bytes) - gguf.draft_blocks
    made = []
    for index, (kind, tensors) in enumerate(tensors_of(gguf)[:run]):
        where = placement.blocks[index]
        source = _cache_of(gguf, kept, index, tensors)
        made.append(
            Layer(
                kind=kind,
                tensors=tensors,
                place=where,
                experts_place=HOST if index < placement.host_experts else where,
                cache_place=placement.blocks[source],
                attention=kept[source][0],
                recurrence=kept[index][1],
                is_rotated=_is_rotated(gguf, kept[source][0], index),
            )
        )
    return tuple(made)


def _is_rotated(gguf: GgufFacts, attention: KvGroup | None, index: int) -> bool:
    match traits_of(gguf).rope:
        case Rope.ALL:
            return True
        case Rope.NONE:
            return False
        case Rope.THREE_OF_FOUR:
            return (index + 1) % 4 != 0
        case Rope.SLIDING:
            has_window = attention is not None and attention.kind in WINDOWS
            return has_window or not gguf.sliding_blocks


def _cache_of(
    gguf: GgufFacts,
    kept: tuple[tuple[KvGroup | None, KvGroup | None], ...],
    index: int,
    tensors: Tensors,
) -> int:
    """The block whose cache a block reads: its own, or that of the last of its kind before (Gemma 4)."""
    if kept[index] != (None, None) or "attn_output.weight" not in tensors:
        return index
    is_windowed = index in gguf.sliding_blocks
    for earlier in range(index - 1, -1, -1):
        group = kept[earlier][0]
        if group is not None and (group.kind in WINDOWS) == is_windowed:
            return earlier
    return index


# --- bytes of tensors ---


def weights_bytes(gguf: GgufFacts, placement: Placement, where: int) -> int:
    """Bytes of the buffer of weights in one place, as llama.cpp allocates it.

    Where nobody listed the tensors, the blocks' own bytes and the most that padding adds; experts cannot
    be told apart then.
    """
    if not is_listed(gguf):
        return _unlisted_bytes(gguf, placement, where)
    size = sum(
        (experts if _experts_place(placement, index) == where else 0)
        + (rest if placement.blocks[index] == where else 0)
        for index, (rest, experts) in enumerate(_block_bytes(gguf, is_card=where != HOST))
    )
    return size + sum(
        _allocated(tensor, is_card=where != HOST) for tensor in _outside_at(gguf, placement, where)
    )


def _experts_place(placement: Placement, index: int) -> int:
    return HOST if index < placement.host_experts else placement.blocks[index]


def _allocated(tensor: GgufTensorFacts, *, is_card: bool) -> int:
    if is_card:
        return round_up(tensor.bytes + padding_of(tensor), CARD_ALIGNMENT)
    return round_up(tensor.bytes, HOST_ALIGNMENT)


@lru_cache(maxsize=64)
def _block_bytes(gguf: GgufFacts, *, is_card: bool) -> tuple[tuple[int, int], ...]:
    """Bytes of each block: without its experts, and of its experts."""
    found: list[tuple[int, int]] = []
    for _, tensors in tensors_of(gguf):
        sizes = {name: _allocated(tensor, is_card=is_card) for name, tensor in tensors.items()}
        experts = sum(size for name, size in sizes.items() if EXPERTS in name)
        found.append((sum(sizes.values()) - experts, experts))
    return tuple(found)


def _unlisted_bytes(gguf: GgufFacts, placement: Placement, where: int) -> int:
    size = sum(gguf.block_bytes[index] for index in placement.blocks_on(where))
    is_tied_on_host = gguf.tied_output and where == HOST and not traits_of(gguf).output_apart
    if where == placement.output and not is_tied_on_host:
        size += gguf.output_bytes
    if where == HOST:
        size += gguf.embedding_bytes
    return size + PADDING_BYTES if size else 0


def _outside_at(gguf: GgufFacts, placement: Placement, where: int) -> Iterable[GgufTensorFacts]:
    outside = outside_of(gguf)
    for name, tensor in outside.items():
        if name in ROPE_FACTORS or name.startswith("rope_factors"):
            places = {placement.blocks[index] for index in _blocks_with_factors(gguf)}
        elif name in WITH_THE_FIRST:
            places = {placement.blocks[0]}
        elif name.startswith("output") or name in OUTPUT_NORMS:
            places = {placement.output}
        else:
            places = {HOST}
        if where in places:
            yield tensor
    is_apart = where != HOST or traits_of(gguf).output_apart
    if where == placement.output and is_apart and OUTPUT not in outside:
        yield outside[EMBEDDING]  # the embedding is the output, too


def _blocks_with_factors(gguf: GgufFacts) -> Iterable[int]:
    """Blocks beside which the factors of the rotation lie, once in every buffer that has one."""
    blocks = range(len(gguf.block_bytes))
    if not traits_of(gguf).factors_without_window:
        return blocks
    return [index for index in blocks if index not in gguf.sliding_blocks]


def traits_of(gguf: GgufFacts) -> Traits:
    """The traits of the model's architecture; Llama's where we do not know it."""
    return TRAITS.get(gguf.architecture, Traits())
