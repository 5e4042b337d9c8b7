"""Which element types give a block its bytes?

llama-quantize has few mixes: one type for most tensors of a block, and another for the parts that lose
most by it (src/llama-quant.cpp). The bytes of a block tell which.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations_with_replacement, permutations, product
from math import prod
from typing import Final

from plimsoll.facts.model import GgufTensorFacts

Shapes = Mapping[str, tuple[int, ...]]

TYPES: Final = {
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "IQ4_XS": (256, 136),
    "MXFP4": (32, 17),
    "Q4_K": (256, 144),
    "Q4_0": (32, 18),
    "IQ4_NL": (32, 18),
    "Q4_1": (32, 20),
    "Q5_K": (256, 176),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q6_K": (256, 210),
    "Q8_0": (32, 34),
    "F16": (1, 2),
    "BF16": (1, 2),
    "F32": (1, 4),
}
"""Elements and bytes of a block of values (ggml type traits), fewest bits first."""
FALLBACKS: Final = {
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "Q3_K": "IQ4_NL",
    "Q2_K": "IQ4_NL",
}
"""What llama-quantize takes for rows that are no multiple of 256 (src/llama-quant.cpp)."""
PARTS: Final = (
    ("attn_v", "attn_k_b", "attn_v_b"),
    ("ffn_down.", "ffn_down_shexp"),
    ("ffn_down_exps",),
    ("ffn_up_exps", "ffn_gate_exps"),
)
"""Tensors that the mixes treat apart, with more bits before fewer; the others go together."""
FINER_PARTS: Final = (("attn_k.",), ("attn_output",), *PARTS)
"""The same with two parts more that some mixes treat apart (Q3_K_M, models of eight experts)."""
_PAIRS: Final = (*combinations_with_replacement(TYPES, 2), *permutations(TYPES, 2))
_TRIPLES: Final = tuple(permutations(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "F16"), 3))
"""The type of most tensors first."""
_SMALL: Final = frozenset(
    {"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_a", "ssm_d", "ssm_conv1d.weight"}
    | {"ssm_norm.weight", "shortconv.conv.weight"}
)


def is_small(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is kept as 32-bit numbers in every file: norms, biases, routers, convolutions."""
    return len(shape) == 1 or name in _SMALL or name.endswith(".bias")


def size_of(shape: tuple[int, ...], kind: str) -> int | None:
    """Bytes of a tensor; None when its rows are not whole blocks of values."""
    elements, size = TYPES[kind]
    return None if shape[0] % elements else prod(shape) // elements * size


def mixed(shapes: Shapes, size: int) -> tuple[GgufTensorFacts, ...] | None:
    """Tensors of these shapes that together have these bytes; None when no mix gives them."""
    return _mixed(tuple(shapes.items()), size, PARTS, _PAIRS)


def finely_mixed(shapes: Shapes, size: int) -> tuple[GgufTensorFacts, ...] | None:
    """The same with three types and more parts: what is found is likelier to be another mix of equal bytes."""
    return _mixed(tuple(shapes.items()), size, FINER_PARTS, _TRIPLES)


@lru_cache(maxsize=256)
def _mixed(
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    size: int,
    starts: tuple[tuple[str, ...], ...],
    mixes: tuple[tuple[str, ...], ...],
) -> tuple[GgufTensorFacts, ...] | None:
    small = {name for name, shape in shapes if is_small(name, shape)}
    parts = _parts([(name, shape) for name, shape in shapes if name not in small], starts)
    rest = size - sum(4 * prod(shape) for name, shape in shapes if name in small)
    sizes = [{kind: _part_bytes(part, kind) for kind in TYPES} for part in parts]
    for mix in mixes:
        for choice in product(mix[:1], *(mix for _ in parts[1:])):
            found = [by_kind[kind] for by_kind, kind in zip(sizes, choice, strict=True)]
            if None not in found and sum(s for s in found if s is not None) == rest:
                kinds = {
                    name: _fitting(shape, kind)
                    for part, kind in zip(parts, choice, strict=True)
                    for name, shape in part
                }
                return tuple(_typed(name, shape, kinds.get(name, "F32")) for name, shape in shapes)
    return None


def _typed(name: str, shape: tuple[int, ...], kind: str) -> GgufTensorFacts:
    return GgufTensorFacts(name=name, shape=shape, type=kind, bytes=size_of(shape, kind) or 0)


Part = Sequence[tuple[str, tuple[int, ...]]]


def _parts(shapes: Part, starts: tuple[tuple[str, ...], ...]) -> list[Part]:
    found: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for name, shape in shapes:
        place = next((i for i, names in enumerate(starts) if name.startswith(names)), -1)
        found.setdefault(place, []).append((name, shape))
    return [tuple(part) for _, part in sorted(found.items())]


def _part_bytes(part: Part, kind: str) -> int | None:
    sizes = [size_of(shape, _fitting(shape, kind)) for _, shape in part]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _fitting(shape: tuple[int, ...], kind: str) -> str:
    return FALLBACKS.get(kind, kind) if shape[0] % TYPES[kind][0] else kind
