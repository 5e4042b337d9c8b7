"""How do we say, in a sentence with its numbers, whether engines hold what was promised?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plimsoll.api.conditions import Condition, ConditionName, ConditionReason, Tristate
from plimsoll.api.verified_status import AWAITED, MORE, SHORT, UNREADABLE, VerifiedStatus
from plimsoll.engines.base import EngineName
from plimsoll.plan.records import Plan
from plimsoll.plan.verify import Compared, More, Outcome, Short, Unreadable, Verified
from plimsoll.units import counted


def sentence(pod: str, outcome: Outcome, plan: Plan, *, is_held: bool) -> str:
    """What was found at a worker, and what follows; `is_held` where a lower plan follows by itself."""
    if isinstance(outcome, Unreadable):
        return f"{pod} was read, but {outcome.why}."
    figures = f"{pod} holds {_figures(outcome.compared, plan)}"
    match outcome:
        case Verified():
            return f"{figures}."
        case More(compared):
            return (
                f"{figures}: more than promised. {counted(compared.sequences.reported, 'sequence')} of "
                f"{plan.max_model_len:,} tokens would fit; nothing changes by itself, later plans may count on it."
            )
        case Short():
            advice = (
                "Further workers wait, and the next plan promises no more than that."
                if is_held
                else "The plan is from before plans were verified, so nothing is changed; lower "
                "limits.concurrency or limits.maxModelLen."
            )
            return f"{figures}: less than promised. {advice}"


def _figures(compared: Compared, plan: Plan) -> str:
    """ "3,580 blocks, 57,264 tokens; planned 3,430 and 54,864 (-4.2 %)" """
    tokens = compared.tokens
    error = "" if tokens.error_percent is None else f" ({tokens.error_percent:+.2f} %)"
    if plan.engine is EngineName.LLAMA_CPP and compared.length is not None:
        slots, length = compared.sequences, compared.length
        return (
            f"{slots.reported} slots of {length.reported:,} tokens; planned {slots.planned} of "
            f"{length.planned:,}{error}"
        )
    if compared.blocks is None:
        return f"{tokens.reported:,} tokens; planned {tokens.planned:,}{error}"
    return (
        f"{compared.blocks.reported:,} blocks, {tokens.reported:,} tokens; planned "
        f"{compared.blocks.planned:,} and {tokens.planned:,}{error}"
    )


class PoolCheck(NamedTuple):
    """One pool's part of the condition."""

    pool: str
    status: VerifiedStatus | None
    is_wanted: bool = True
    """Whether it has a plan and is to have workers."""


def condition_of(pools: Iterable[PoolCheck]) -> Condition:
    """PlanVerified: False where one pool is short, True where every one was compared."""
    wanted = [each for each in pools if each.is_wanted]
    told = [(each.pool, each.status) for each in wanted if each.status is not None]
    verdicts = [status.verdict for _, status in told]
    words = " ".join(f"{pool}: {status.message}" for pool, status in told)
    missing = [each.pool for each in wanted if each.status is None]
    if told and missing:
        words += f" Not compared yet: {', '.join(missing)}."
    if SHORT in verdicts or any(s.verdict == AWAITED and s.ceiling for _, s in told):
        return _condition(Tristate.FALSE, ConditionReason.HOLDS_LESS, words)
    if not told:
        return _condition(
            Tristate.UNKNOWN,
            ConditionReason.NOT_VERIFIED_YET,
            "No engine's own figures were compared with the plan yet.",
        )
    if UNREADABLE in verdicts:
        return _condition(Tristate.UNKNOWN, ConditionReason.ENGINE_UNREADABLE, words)
    if missing or AWAITED in verdicts:
        return _condition(Tristate.UNKNOWN, ConditionReason.NOT_VERIFIED_YET, words)
    if MORE in verdicts:
        return _condition(Tristate.TRUE, ConditionReason.HOLDS_MORE, words)
    return _condition(Tristate.TRUE, ConditionReason.AS_PLANNED, words)


def _condition(status: Tristate, reason: ConditionReason, message: str) -> Condition:
    return Condition(
        type=ConditionName.PLAN_VERIFIED.value, status=status, reason=reason.value, message=message
    )
