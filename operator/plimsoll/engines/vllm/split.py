"""Can the engine split this model over so many cards, and which layers lie on which stage?

Source: vLLM 0.33.0 config/model.py (verify_with_parallel_config) and distributed/utils.py.
"""

from typing import Final, NamedTuple

from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts

PLAIN_KINDS: Final = (KvKind.FULL, KvKind.SLIDING, KvKind.CHUNKED, KvKind.CROSS)
"""Kinds with keys and values per head."""
LATENT_KINDS: Final = (KvKind.MLA, KvKind.INDEXER, KvKind.COMPRESSED_MLA)
"""Kinds that every tensor-parallel rank keeps whole."""


class HeadsDoNotDivide(NamedTuple):
    """The model's heads cannot be split over that many cards."""

    message: str
    """Which heads, how many cards, what would work."""


def kv_heads_per_card(group: KvGroup, cards: int) -> int:
    """KV heads on one rank: split while there are enough, replicated when there are fewer than ranks.

    A latent is whole on every rank.
    """
    return 1 if group.kind in LATENT_KINDS else max(1, group.kv_heads // cards)


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
        if group.kind in PLAIN_KINDS and heads and heads % cards and cards % heads:
            return HeadsDoNotDivide(
                message=f"{heads} KV heads can be neither split over nor replicated on {cards} cards"
            )
    return None


def split_problem(model: ModelFacts, ask: KvAsk) -> str | None:
    """Why the engine cannot split the model so, in one sentence without a full stop."""
    heads = heads_problem(model, ask.tp)
    if heads is not None:
        return heads.message
    if ask.pp > model.layers:
        return f"{model.layers} layers cannot be parted into {ask.pp} stages"
    return _context_problem(model, ask) if ask.dcp > 1 else None


def _context_problem(model: ModelFacts, ask: KvAsk) -> str | None:
    """Decode context parallelism takes the ranks over which KV heads would only be repeated."""
    if ask.tp % ask.dcp:
        return f"decode context parallelism {ask.dcp} does not divide tensor parallelism {ask.tp}"
    kinds = {group.kind for group in model.kv_groups}
    if kinds & {KvKind.SLIDING, KvKind.CHUNKED, KvKind.COMPRESSED_MLA}:
        return "decode context parallelism does not share windows and chunks"
    heads = max(
        (group.kv_heads for group in model.kv_groups if group.kind in PLAIN_KINDS), default=0
    )
    if kinds & set(LATENT_KINDS) or not heads:
        return None
    if ask.dcp > ask.tp // heads or ask.tp <= heads:
        return (
            f"decode context parallelism {ask.dcp} needs a tensor parallelism of {heads * ask.dcp} "
            f"or more, for {heads} KV heads"
        )
    if model.attention_heads // heads % ask.dcp:
        return (
            f"{model.attention_heads // heads} query heads per KV head do not divide by decode "
            f"context parallelism {ask.dcp}"
        )
    return None


def partition(layers: int, stages: int) -> tuple[range, ...]:
    """Which layers each pipeline stage holds.

    A remainder goes one each to the stages before the last, from the back.
    """
    sizes = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        sizes[-back] += 1
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
