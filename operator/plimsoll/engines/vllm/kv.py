"""How many bytes and blocks does vLLM's paged KV cache take?

Layers of one layout form groups of equal size that draw blocks from one shared pool. A block of the
pool is as wide as the widest group; a sequence takes whole blocks of every group. Source: vLLM 0.33.0
v1/core/kv_cache_utils.py and v1/kv_cache_interface.py; checked against its own numbers in
tests/data/vllm_kv_oracle.json.
"""

import math
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts
from plimsoll.units import ceil_div

DEFAULT_BLOCK_TOKENS: Final = 16
"""vLLM's default block for attention that is not MLA (0.8.5 to 0.33.0)."""
MLA_BLOCK_TOKENS: Final = 128
"""Upper bound of the block that MLA backends force: FlashMLA 64, CUTLASS-MLA 128 (0.33.0)."""
NULL_BLOCKS: Final = 1
"""One block of the pool is never given out (BlockPool.null_block)."""
GROUP_STRETCH: Final = 1.5
"""Group size is the largest type's layers when it is below this many times the smallest type's
(kv_cache_utils.get_kv_cache_groups, 0.33.0)."""

_BYTES_OF_DTYPE: Final = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4}
_ONE_BYTE: Final = ("fp8", "fp8_e4m3", "fp8_e5m2")


class LayerGroup(NamedTuple):
    """Groups of layers that keep KV the same way, as the pool sees them."""

    kind: KvKind
    """Layout of the layers."""
    groups: int
    """How many groups of this kind draw blocks."""
    block_tokens: int
    """Tokens in one block of this kind."""
    most_tokens: int | None = None
    """Tokens that a sequence keeps at most: its window and the steps in flight; None for all of them."""
    spare_blocks: int = 0
    """Blocks beyond those: a window may begin inside a block."""


class PagedLayout(NamedTuple):
    """The pool's geometry on one card."""

    block_bytes: int
    """Bytes of one pool block on one card, all layers of the widest group together."""
    kinds: tuple[LayerGroup, ...]
    """What a sequence draws from the pool."""
    bytes_per_token_per_card: int
    """KV bytes of one more token of a long sequence, every layer counted."""


class HeadsDoNotDivide(NamedTuple):
    """The model's heads cannot be split over that many cards."""

    message: str
    """Which heads, how many cards, what would work."""


def bytes_per_value(kv_dtype: str, model_dtype: str) -> int:
    """Bytes of one value in the cache: auto follows the model, every fp8 is one byte."""
    if kv_dtype in _ONE_BYTE:
        return 1
    return _BYTES_OF_DTYPE[model_dtype if kv_dtype == "auto" else kv_dtype]


def kv_heads_per_card(group: KvGroup, cards: int) -> int:
    """KV heads on one rank: split while there are enough, replicated when there are fewer than ranks.

    MLA keeps one latent per token, whole on every rank.
    """
    return 1 if group.kind is KvKind.MLA else max(1, group.kv_heads // cards)


def layer_bytes_per_token(group: KvGroup, *, cards: int, value_bytes: int) -> int:
    """One layer, one token, one card: 8 heads of 128 at 2 bytes are 4096 B, 1024 B on each of 4 cards."""
    return kv_heads_per_card(group, cards) * (group.key_dim + group.value_dim) * value_bytes


def kv_bytes_per_token_per_card(model: ModelFacts, *, cards: int, kv_dtype: str) -> int:
    """All layers: 80 layers, 8 heads, 128 wide, 2 bytes, on 4 cards: 81,920 B."""
    value_bytes = bytes_per_value(kv_dtype, model.dtype)
    return sum(
        group.layers * layer_bytes_per_token(group, cards=cards, value_bytes=value_bytes)
        for group in model.kv_groups
    )


def heads_problem(model: ModelFacts, cards: int) -> HeadsDoNotDivide | None:
    """Why the model cannot run over `cards` cards, if so (vLLM asserts both at start)."""
    if model.attention_heads % cards:
        fits = [str(n) for n in (1, 2, 4, 8, 16) if model.attention_heads % n == 0]
        return HeadsDoNotDivide(
            message=f"{model.attention_heads} attention heads do not divide by {cards} cards; "
            f"{', '.join(fits)} would work"
        )
    for group in model.kv_groups:
        heads = group.kv_heads
        if group.kind is not KvKind.MLA and heads % cards and cards % heads:
            return HeadsDoNotDivide(
                message=f"{heads} KV heads can be neither split over nor replicated on {cards} cards"
            )
    return None


def steps_in_flight(release: Release) -> int:
    """Steps whose tokens sliding layers must hold at once.

    One up to 0.25; from 0.26 one per concurrent batch, which is 2 with async scheduling (on since
    0.14) and one pipeline stage.
    """
    return 1 if release.is_before("0.26") else 2


def layout(
    model: ModelFacts,
    *,
    cards: int,
    kv_dtype: str,
    release: Release,
    max_num_batched_tokens: int,
    block_tokens: int | None = None,
) -> PagedLayout:
    """The pool's geometry for this model over `cards` cards."""
    value_bytes = bytes_per_value(kv_dtype, model.dtype)
    is_mla = any(group.kind is KvKind.MLA for group in model.kv_groups)
    base = block_tokens or (MLA_BLOCK_TOKENS if is_mla else DEFAULT_BLOCK_TOKENS)
    merged = _merged(model.kv_groups)
    per_token = {
        group: layer_bytes_per_token(group, cards=cards, value_bytes=value_bytes)
        for group in merged
    }
    widest_page = max(per_token.values()) * base
    layers_per_group = _layers_per_group([group.layers for group in merged])
    in_flight_tokens = steps_in_flight(release) * max_num_batched_tokens
    kinds = tuple(
        LayerGroup(
            kind=group.kind,
            groups=ceil_div(group.layers, layers_per_group),
            # a narrower page gets a longer block when that fills the widest page, else padding
            block_tokens=base * (widest_page // (per_token[group] * base))
            if widest_page % (per_token[group] * base) == 0
            else base,
            most_tokens=_most_tokens(group, in_flight_tokens),
            spare_blocks=1 if group.kind is KvKind.SLIDING else 0,
        )
        for group in merged
    )
    return PagedLayout(
        block_bytes=widest_page * layers_per_group,
        kinds=kinds,
        bytes_per_token_per_card=kv_bytes_per_token_per_card(model, cards=cards, kv_dtype=kv_dtype),
    )


def _most_tokens(group: KvGroup, in_flight_tokens: int) -> int | None:
    """Sliding and chunked layers drop what left the window, once no step in flight needs it."""
    match group.kind:
        case KvKind.SLIDING:
            return (group.window_tokens or 0) - 1 + in_flight_tokens
        case KvKind.CHUNKED:
            return (group.window_tokens or 0) + in_flight_tokens
        case _:
            return None


def _merged(groups: tuple[KvGroup, ...]) -> tuple[KvGroup, ...]:
    """Groups of the same layout as one, in the order first seen."""
    layers: dict[KvGroup, int] = {}
    for group in groups:
        shape = group.model_copy(update={"layers": 0})
        layers[shape] = layers.get(shape, 0) + group.layers
    return tuple(shape.model_copy(update={"layers": n}) for shape, n in layers.items())


def _layers_per_group(layers: list[int]) -> int:
    fewest, most = min(layers), max(layers)
    return most if most < GROUP_STRETCH * fewest else fewest


def blocks_of_sequence(pool: PagedLayout, tokens: int) -> int:
    """Blocks that one sequence of `tokens` takes at most, over all groups."""
    blocks = 0
    for kind in pool.kinds:
        held = tokens if kind.most_tokens is None else min(tokens, kind.most_tokens)
        blocks += kind.groups * (ceil_div(held, kind.block_tokens) + kind.spare_blocks)
    return blocks


def step_tokens(pool: PagedLayout) -> int:
    """Lengths between two multiples of this take the same blocks: every kind's block is a multiple."""
    return math.gcd(*(kind.block_tokens for kind in pool.kinds))


def longest_sequence(pool: PagedLayout, blocks: int, *, at_most: int) -> int:
    """The longest sequence, up to `at_most` tokens, that `blocks` blocks hold; 0 when none."""
    low, high = 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_of_sequence(pool, middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
