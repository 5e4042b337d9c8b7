"""Does the engine hold what the plan promised?

Pure: a plan, the engine's own figures and the pool's geometry in, a verdict with its numbers out. Errors are
planned / reported - 1, as in docs/measured/accuracy.md: above zero is a promise that would break.
"""

import math
from typing import Final, NamedTuple

from plimsoll.engines.base import EngineName
from plimsoll.engines.vllm import kv
from plimsoll.plan.paged_ask import prepare
from plimsoll.plan.records import Plan, PlanRequest, Refusal
from plimsoll.plan.reported import Ceiling, EngineReport

SHORT_SHARE: Final = 0.01
"""A pool that is smaller by up to this part is as planned: what start-ups of one configuration differ by,
and the bound on over-promising of the accuracy report (measured: docs/measured/accuracy.md)."""
MORE_SHARE: Final = 0.08
"""A pool that is larger by up to this part is as planned: bounds err on the safe side, by as much as the
accuracy report takes for met (measured: docs/measured/accuracy.md)."""
_WHOLE: Final = 1e-6
"""Blocks of one sequence are a whole number; what is farther from one comes from another arithmetic."""


class Figure(NamedTuple):
    """One number, promised and found."""

    planned: int
    """By the plan."""
    reported: int
    """By the engine."""

    @property
    def error_percent(self) -> float | None:
        """How much too much was promised, in percent, to a tenth of a thousandth; None beside nothing."""
        if self.reported <= 0:
            return None
        return round((self.planned / self.reported - 1) * 100, 2)


class Compared(NamedTuple):
    """Everything that could be compared."""

    tokens: Figure
    """Tokens that the pool holds for sequences of the whole length."""
    sequences: Figure
    """Sequences of the whole length; for llama-server its slots."""
    blocks: Figure | None = None
    """vLLM: blocks of the pool, the null block included; None where a block is not what was planned."""
    length: Figure | None = None
    """llama-server: tokens of one slot."""


class Verified(NamedTuple):
    """As promised, within what start-ups differ by."""

    compared: Compared


class Short(NamedTuple):
    """The engine holds less than was promised."""

    compared: Compared
    ceiling: Ceiling
    """What later plans may count on."""


class More(NamedTuple):
    """The engine holds more than was promised; nothing changes by itself."""

    compared: Compared


class Unreadable(NamedTuple):
    """Nothing can be said."""

    why: str
    """What is missing, as part of a sentence."""


Outcome = Verified | Short | More | Unreadable


class Geometry(NamedTuple):
    """How vLLM lays out the pool that the plan promises, on one card."""

    block_bytes: int
    """Bytes of one block."""
    block_tokens: int
    """Tokens of a block of the attention layers."""
    sequence_blocks: int
    """Blocks of one sequence of the plan's whole length, over all KV groups."""
    is_plain: bool
    """Whether one kind of layers draws one block for so many tokens of a sequence: then blocks times tokens
    of a block is a capacity."""
    is_sure: bool
    """Whether nothing about the layout had to be taken from the safe side."""


def geometry_of(request: PlanRequest, plan: Plan) -> Geometry | None:
    """The pool's geometry for a plan of this question; None for llama.cpp and where nothing can be laid out."""
    if request.engine is not EngineName.VLLM:
        return None
    ask = prepare(request)
    if isinstance(ask, Refusal):
        return None
    return geometry_of_layout(ask.pool, plan.max_model_len)


def geometry_of_layout(layout: kv.PagedLayout, max_model_len: int) -> Geometry:
    """The same from the layout, for sequences of so many tokens."""
    kinds = layout.kinds
    return Geometry(
        block_bytes=layout.block_bytes,
        block_tokens=layout.block_tokens,
        sequence_blocks=kv.blocks_of_sequence(layout, max_model_len),
        is_plain=len(kinds) == 1
        and kinds[0].groups == 1
        and kinds[0].most_tokens is None
        and not layout.state_blocks,
        is_sure=not layout.doubt,
    )


def verify(plan: Plan, report: EngineReport, geometry: Geometry | None = None) -> Outcome:
    """Compare a plan with what its engine says. What is missing makes Unreadable, never Verified."""
    if report.engine is not plan.engine:
        return Unreadable(f"the plan is for {plan.engine} and {report.engine} answers")
    if plan.engine is EngineName.LLAMA_CPP:
        return _slots(plan, report)
    return _blocks(plan, report, geometry)


# ---- llama-server --------------------------------------------------------------------------------


def _slots(plan: Plan, report: EngineReport) -> Outcome:
    """Slots and their length are whole numbers that were asked for: no tolerance is needed."""
    if report.slots is None or report.slot_tokens is None:
        return Unreadable("llama-server names neither its slots nor their length")
    planned = plan.concurrency.max_num_seqs
    cells = plan.kv.pool_tokens // planned
    compared = Compared(
        tokens=Figure(plan.kv.pool_tokens, report.slots * report.slot_tokens),
        sequences=Figure(planned, report.slots),
        length=Figure(cells, report.slot_tokens),
    )
    if report.slots < planned or report.slot_tokens < plan.max_model_len:
        return Short(
            compared,
            Ceiling(
                tokens=compared.tokens.reported, length=report.slot_tokens, sequences=report.slots
            ),
        )
    if report.slots > planned or report.slot_tokens > cells:
        return More(compared)
    return Verified(compared)


# ---- vLLM ----------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """What the engine's pool holds for sequences, the null block left out."""

    tokens: int
    sequences: int


def _blocks(plan: Plan, report: EngineReport, geometry: Geometry | None) -> Outcome:
    if report.engines > 1:
        return Unreadable(f"{report.engines} data-parallel engines answer as one")
    blocks = report.blocks
    if blocks is None:
        return Unreadable("the engine does not say how many blocks its pool has")
    held = _held(plan, report, blocks, geometry)
    if isinstance(held, Unreadable):
        return held
    is_alike = geometry is not None and report.block_tokens in (None, geometry.block_tokens)
    compared = Compared(
        tokens=Figure(plan.kv.pool_tokens, held.tokens),
        sequences=Figure(plan.concurrency.worst_case, held.sequences),
        blocks=Figure(plan.kv.pool_bytes_per_card // geometry.block_bytes, blocks)
        if geometry is not None and is_alike
        else None,
    )
    # one block less is what a byte less can make: no start-up is told from another by it
    of_a_block = math.ceil(held.tokens / max(1, blocks - kv.NULL_BLOCKS))
    missing = plan.kv.pool_tokens - held.tokens
    if missing > max(SHORT_SHARE * plan.kv.pool_tokens, of_a_block):
        return Short(compared, Ceiling(tokens=held.tokens, length=plan.max_model_len))
    if -missing > max(MORE_SHARE * plan.kv.pool_tokens, of_a_block):
        return More(compared)
    return Verified(compared)


def _held(
    plan: Plan, report: EngineReport, blocks: int, geometry: Geometry | None
) -> _Held | Unreadable:
    length, usable = plan.max_model_len, max(0, blocks - kv.NULL_BLOCKS)
    if blocks and report.tokens and report.concurrency:
        each = blocks / report.concurrency
        whole = round(each)
        if whole and abs(each - whole) <= _WHOLE * each:
            return _Held(usable * length // whole, usable // whole)
        tokens = report.tokens * usable // blocks
        return _Held(tokens, tokens // length)
    each_blocks = _blocks_of_sequence(plan, report, geometry)
    if isinstance(each_blocks, Unreadable):
        return each_blocks
    return _Held(usable * length // each_blocks, usable // each_blocks)


def _blocks_of_sequence(
    plan: Plan, report: EngineReport, geometry: Geometry | None
) -> int | Unreadable:
    """Releases before 0.24 say blocks only; what a sequence takes of them is our own layout's to say."""
    if geometry is None:
        return Unreadable("the engine says blocks only, and their layout is not known here")
    if geometry.is_plain:
        return math.ceil(plan.max_model_len / (report.block_tokens or geometry.block_tokens))
    if report.block_tokens not in (None, geometry.block_tokens):
        return Unreadable(
            f"its blocks have {report.block_tokens} tokens, not {geometry.block_tokens} as planned, and "
            "several kinds of layers share them"
        )
    return max(1, geometry.sequence_blocks)
