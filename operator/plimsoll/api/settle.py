"""Which plan does a pool run: the one it has, a new one, or none?

An accepted plan is held while the user says the same and it still fits the card as seen now, or while
nobody has seen the card for long. A refused question leaves what runs alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.asks import PoolAsk
from plimsoll.api.replicas import Share
from plimsoll.api.status_types import PoolStatus
from plimsoll.facts.record import Record
from plimsoll.plan.held import still_fits
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, Reason, Refusal
from plimsoll.render.workload import NEWEST_REVISION


class Settled(Record):
    """One pool after thought."""

    ask: PoolAsk
    """The question."""
    plan: Plan | None = None
    """What the pool runs: accepted now, or held from before; None when there never was one."""
    digest: str = ""
    """Digest of the question that the plan answers."""
    revision: int = NEWEST_REVISION
    """Revision of the pod template that the pool was made with."""
    refusal: Refusal | None = None
    """Why the newest question has no plan; then the workers are left as they are."""
    is_new: bool = False
    """Whether the plan was accepted just now."""

    @property
    def is_planned(self) -> bool:
        """Whether the newest question has a plan."""
        return self.plan is not None and self.refusal is None


def settle(ask: PoolAsk, held: PoolStatus | None) -> Settled:
    """The plan of one pool, given what its status holds."""
    old = Settled(
        ask=ask,
        plan=held.plan if held else None,
        digest=held.plan_digest if held else "",
        revision=(held.template_revision if held and held.plan else 0) or NEWEST_REVISION,
    )
    if ask.request is None:
        return old.model_copy(update={"refusal": ask.refusal})
    is_same = old.plan is not None and old.digest == ask.digest
    if ask.stale is not None and not is_same:
        stale = Refusal(reason=Reason.GPU_FACTS_STALE, message=f"{ask.stale}.")
        return old.model_copy(update={"refusal": stale})
    if old.plan and is_same and (ask.stale or still_fits(old.plan, ask.request.gpu)):
        return old
    outcome = ask.answer or plan(ask.request)
    if isinstance(outcome, Refusal):
        return old.model_copy(update={"refusal": outcome})
    return Settled(ask=ask, plan=outcome, digest=ask.digest, is_new=True)


def claims_of(settled: Sequence[Settled]) -> list[Share]:
    """What each pool asks of the workers; one without a plan takes none of those that nobody assigned."""
    return [
        Share(
            pool=each.ask.pool,
            wanted=each.ask.wanted,
            room=each.ask.room if each.is_planned else 0,
        )
        for each in settled
    ]
