"""How many bytes and blocks does vLLM's paged KV cache take, as the planner asks it?

The geometry itself is worked out in pool.py and what it stands on; here it is settled for one card,
known or not, and kept in the short form that a search over lengths wants.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.vllm import kv_dtypes, pool
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.pool import NULL_BLOCKS, EngineRefuses, Pool, PoolGroup
from plimsoll.engines.vllm.specs import SpecKind
from plimsoll.engines.vllm.split import (
    PLAIN_KINDS,
    HeadsDoNotDivide,
    heads_problem,
    kv_heads_per_card,
)
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts

__all__ = [
    "NULL_BLOCKS",
    "EngineRefuses",
    "HeadsDoNotDivide",
    "LayerGroup",
    "PagedLayout",
    "blocks_of_sequence",
    "heads_problem",
    "kv_bytes_per_token_per_card",
    "kv_heads_per_card",
    "layout",
    "longest_sequence",
    "step_tokens",
    "steps_in_flight",
]

GENERATIONS: Final = ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0))
"""Compute capabilities that differ in kernels: A100, L4 and 4090, H100, B200, RTX PRO 6000. A card that
does not say which is its own is planned for the one that takes most."""
_BLACKWELL_MAJOR: Final = 10
"""There FlashInfer, if the image has it, is preferred and reads other blocks."""


class LayerGroup(NamedTuple):
    """Groups of layers that draw blocks alike."""

    kinds: tuple[SpecKind, ...]
    """What their layers keep."""
    groups: int
    """How many such groups draw blocks."""
    draws: PoolGroup
    """What one of them draws."""

    def blocks(self, tokens: int) -> int:
        """Blocks of one sequence of `tokens` tokens over all of them."""
        return self.groups * self.draws.blocks(tokens)

    @property
    def most_tokens(self) -> int | None:
        """Tokens that a sequence keeps at most, in a window and the steps in flight; None for all."""
        most = [each.most_tokens for each in self.draws.demands if each.most_tokens is not None]
        return max(most, default=None)

    @property
    def grows(self) -> bool:
        """Whether a longer sequence can take more."""
        return any(each.fixed_blocks is None for each in self.draws.demands)


class PagedLayout(NamedTuple):
    """The pool's geometry on one card."""

    block_bytes: int
    """Bytes of one pool block on one card, all layers of the widest group together."""
    kinds: tuple[LayerGroup, ...]
    """What a sequence draws from the pool."""
    bytes_per_token_per_card: int
    """KV bytes of one more token of a long sequence, every layer counted; states are not."""
    block_tokens: int
    """Tokens in a block of the attention layers."""
    is_forced: bool = False
    """Whether kernel or states set the block, which then is left to the engine."""
    state_blocks: int = 0
    """Blocks of recurrent states that each sequence holds, whatever its length."""
    doubt: str = ""
    """What was not known and taken from the safe side; empty where nothing was."""


bytes_per_value = kv_dtypes.bytes_per_value


def layer_bytes_per_token(group: KvGroup, *, cards: int, value_bytes: int) -> int:
    """One layer, one token, one card: 8 heads of 128 at 2 bytes are 4096 B, 1024 B on each of 4 cards."""
    return kv_heads_per_card(group, cards) * (group.key_dim + group.value_dim) * value_bytes


def kv_bytes_per_token_per_card(model: ModelFacts, *, cards: int, kv_dtype: str) -> int:
    """All layers with keys per head or one latent: 80 layers of 8 heads, 128 wide, 2 bytes, on 4 cards
    are 81,920 B."""
    value_bytes = bytes_per_value(kv_dtype, model.dtype)
    return sum(
        group.layers * layer_bytes_per_token(group, cards=cards, value_bytes=value_bytes)
        for group in model.kv_groups
        if group.kind in (*PLAIN_KINDS, KvKind.MLA)
    )


def steps_in_flight(release: Release) -> int:
    """Steps whose tokens windows must hold at once, with one stage and async scheduling."""
    return KvAsk(max_model_len=1, release=release).steps_in_flight


def layout(
    model: ModelFacts,
    *,
    cards: int,
    kv_dtype: str,
    release: Release,
    max_model_len: int,
    max_num_batched_tokens: int,
    capability: tuple[int, int] | None,
    block_tokens: int | None = None,
    has_prefix_caching: bool | None = None,
    has_hybrid_manager: bool = True,
) -> PagedLayout | EngineRefuses:
    """The pool's geometry for this model over `cards` cards.

    Where card or image leave a choice open, the geometry in which a sequence of `max_model_len` tokens
    takes most, with a word about it.
    """
    ask = KvAsk(
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        release=release,
        tp=cards,
        kv_dtype=kv_dtype,
        block_tokens=block_tokens,
        has_prefix_caching=has_prefix_caching,
        has_hybrid_manager=has_hybrid_manager,
    )
    answers = [pool.pool_of(model, each) for each in _on_cards(ask, capability)]
    pools = [answer for answer in answers if isinstance(answer, Pool)]
    if not pools:
        return next(answer for answer in answers if isinstance(answer, EngineRefuses))
    most = max(pools, key=_sequence_bytes)
    doubt = ""
    if len({_sequence_bytes(each) for each in pools}) > 1:
        flashinfer = "whether the image has FlashInfer"
        unknown = flashinfer if capability else "which compute capability the card has"
        doubt = (
            f"nobody said {unknown}, so the KV layout that takes most is planned for: "
            f"{', '.join(kernel.name for kernel in most.kernels)} in blocks of {most.block_tokens} tokens"
        )
    return _short(most, model)._replace(doubt=doubt)


def _on_cards(ask: KvAsk, capability: tuple[int, int] | None) -> Iterator[KvAsk]:
    """The ask on every card and image that it may meet."""
    for each in (capability,) if capability else GENERATIONS:
        without = ask._replace(capability=each)
        yield without
        if each[0] == _BLACKWELL_MAJOR or kv_dtypes.is_quantized(ask.kv_dtype):
            yield without._replace(has_flashinfer=True)


def _sequence_bytes(each: Pool) -> int:
    stage = each.fullest
    return stage.block_bytes * stage.blocks(each.ask.max_model_len)


def _short(each: Pool, model: ModelFacts) -> PagedLayout:
    stage = each.fullest
    plain = {group.kind for group in model.kv_groups} <= set(PLAIN_KINDS)
    return PagedLayout(
        block_bytes=stage.block_bytes,
        kinds=tuple(
            LayerGroup(kinds=group.kinds, groups=number, draws=group)
            for group, number in pool.alike(stage).items()
        ),
        bytes_per_token_per_card=each.token_bytes,
        block_tokens=each.block_tokens,
        is_forced=not plain,
        state_blocks=sum(
            group.blocks(1) for group in stage.groups if SpecKind.RECURRENT in group.kinds
        ),
    )


def blocks_of_sequence(paged: PagedLayout, tokens: int) -> int:
    """Blocks that one sequence of `tokens` takes at most, over all groups."""
    return sum(kind.blocks(tokens) for kind in paged.kinds)


def step_tokens(paged: PagedLayout) -> int:
    """Lengths between two multiples of this take the same blocks: every kind's block is a multiple."""
    grow = [kind.draws.block_tokens for kind in paged.kinds if kind.grows]
    return math.gcd(*grow) or paged.block_tokens


def longest_sequence(paged: PagedLayout, blocks: int, *, at_most: int) -> int:
    """The longest sequence, up to `at_most` tokens, that `blocks` blocks hold; 0 when none."""
    low, high = 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_of_sequence(paged, middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
