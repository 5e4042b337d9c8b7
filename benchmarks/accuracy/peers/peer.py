"""What is a peer asked, and how does its answer become a figure like ours?

A peer gets the inputs that Plimsoll gets for the same figure and nothing of what the engine reported
beyond them. Where it has no notion of such a figure it answers `Silent` with the reason, never a guess
in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final


class Quantity(StrEnum):
    """What can be compared, with its unit."""

    REQUEST = "bytes of one full request per card"
    POOL = "KV pool bytes per card"
    TOKENS = "KV tokens"
    CONCURRENCY = "max concurrency"
    STARTS = "starts or refuses"
    GGUF_WEIGHTS = "GGUF weight bytes"
    GGUF_KV = "GGUF KV bytes"
    GGUF_COMPUTE = "GGUF compute bytes"
    GGUF_TOTAL = "GGUF bytes in all"


NEEDS: Final = frozenset(
    {
        Quantity.REQUEST,
        Quantity.GGUF_WEIGHTS,
        Quantity.GGUF_KV,
        Quantity.GGUF_COMPUTE,
        Quantity.GGUF_TOTAL,
    }
)
"""Figures where too little is the over-promise; of the others, too much is."""

BAND: Final = {
    Quantity.POOL: 0.01,
    Quantity.TOKENS: 0.005,
    Quantity.CONCURRENCY: 0.005,
    Quantity.STARTS: 0.0,
    Quantity.REQUEST: 0.005,
    Quantity.GGUF_WEIGHTS: 0.005,
    Quantity.GGUF_KV: 0.005,
    Quantity.GGUF_COMPUTE: 0.0,
    Quantity.GGUF_TOTAL: 0.0,
}
"""How far beyond the engine a figure may go before it counts as an over-promise: 1 % of a pool, half a
percent of tokens, concurrency and KV bytes, nothing where a byte too few is an allocation that fails."""

PRINTED: Final = 1e-6
"""Relative; below it two figures are one number that was written twice."""


@dataclass(frozen=True)
class Silent:
    """A peer does not plan this; `reason` says why."""

    reason: str


@dataclass(frozen=True)
class Question:
    """The inputs of one case. None is what the case does not state."""

    quantity: Quantity
    model: str = ""
    architecture: str = ""
    config: Mapping[str, Any] | None = None
    """config.json as the case names it; None where only a name is known."""
    card: str = ""
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    dtype: str | None = None
    kv_dtype: str = "auto"
    """As the engine is told."""
    kv_dtype_in_use: str | None = None
    """What the engine makes of it, where the case tells."""
    hybrid_manager: bool = True
    """False where vLLM is told to keep every layer's KV in full (--disable-hybrid-kv-cache-manager)."""
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    card_bytes: float | None = None
    utilization: float | None = None
    weights_bytes_per_card: float | None = None
    kv_memory_bytes: float | None = None
    """KV memory per card, where the case gives it."""
    gguf_parser: tuple[Mapping[str, float], ...] = ()
    """gguf-parser-go's answer as the oracle's file carries it: the host, then each card."""
    devices: tuple[int, ...] = ()
    """Which of them: 0 is the host, then the cards."""

    @property
    def resolved_kv_dtype(self) -> str:
        """The KV type in use; as told where the case does not say more."""
        return self.kv_dtype_in_use or self.kv_dtype


Figure = float | Silent
Says = Callable[[Question], Figure]


def _no_notion(_: Question) -> Figure:
    return Silent("it has no such figure")


@dataclass(frozen=True)
class Peer:
    """Who it is, how it was asked, and what it can say."""

    name: str
    version: str
    how: str
    """Run, or written from its description, and where that is."""
    request: Says = _no_notion
    """Bytes of one request of the full length on one card."""
    pool: Says = _no_notion
    """Bytes that are left for KV on one card."""
    tokens: Says | None = None
    """Tokens in the stated KV memory; None derives it from `request`, which is right for those whose
    bytes grow evenly."""
    starts: Says | None = None
    """1 if it would let the engine start, 0 if not; None derives it from `pool` and `request`."""
    gguf: Says = _no_notion

    def says(self, question: Question) -> Figure:
        """Its figure for the question's quantity."""
        match question.quantity:
            case Quantity.REQUEST:
                return self.request(question)
            case Quantity.POOL:
                return self.pool(question)
            case Quantity.TOKENS:
                return self._tokens(question)
            case Quantity.CONCURRENCY:
                return self._concurrency(question)
            case Quantity.STARTS:
                return self._starts(question)
            case _:
                return self.gguf(question)

    def _tokens(self, question: Question) -> Figure:
        if question.kv_memory_bytes is None:
            return Silent("the case states no KV memory")
        if self.tokens is not None:
            return self.tokens(question)
        each = self.request(_of_one_token(question))
        return each if isinstance(each, Silent) else question.kv_memory_bytes / each

    def _concurrency(self, question: Question) -> Figure:
        if question.kv_memory_bytes is None:
            return Silent("the case states no KV memory")
        if question.max_model_len is None:
            return Silent("the case states no length")
        each = self.request(question)
        return each if isinstance(each, Silent) else question.kv_memory_bytes / each

    def _starts(self, question: Question) -> Figure:
        if self.starts is not None:
            return self.starts(question)
        if question.max_model_len is None:
            return Silent("the case states no length")
        pool: Figure = (
            question.kv_memory_bytes
            if question.kv_memory_bytes is not None
            else self.pool(question)
        )
        each = self.request(question)
        if isinstance(pool, Silent):
            return pool
        return each if isinstance(each, Silent) else float(pool >= each)


def _of_one_token(question: Question) -> Question:
    return replace(question, max_model_len=1)


def is_over_promise(quantity: Quantity, planned: float, reported: float) -> bool:
    """Whether a figure promises what the engine does not keep, beyond BAND."""
    band = max(BAND[quantity], PRINTED)
    if quantity in NEEDS:
        return planned < reported * (1 - band)
    return planned > reported * (1 + band)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config of several parts."""
    for name in ("text_config", "llm_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return text_config({**inner, "architectures": config.get("architectures")})
    return config


def batched_tokens(question: Question) -> int:
    """As stated, or vLLM's own default: 8192 on cards of 70 GiB and more, 2048 below
    (vLLM 0.33.0 engine/arg_utils.py)."""
    if question.max_num_batched_tokens is not None:
        return question.max_num_batched_tokens
    return 8192 if (question.card_bytes or 0) >= 70 * (1 << 30) else 2048
