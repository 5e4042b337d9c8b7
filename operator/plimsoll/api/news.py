"""What is news to the person at kubectl?"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.conditions import Condition, ConditionReason
from plimsoll.api.recycle_step import Step
from plimsoll.api.status_types import InferenceDeploymentStatus
from plimsoll.facts.record import Record


class Announcement(Record):
    """An Event for the person at kubectl."""

    type: str
    """Normal or Warning."""
    reason: str
    """PascalCase fact."""
    message: str
    """One sentence."""


def plan_news(
    before: InferenceDeploymentStatus, after: InferenceDeploymentStatus
) -> Iterator[Announcement]:
    """One event for each pool whose plan or refusal changed, and one for a spec that cannot be read.

    That the model's files are still being read is no news.
    """
    planned = _condition(after, "Planned")
    is_reading = planned and planned.reason == ConditionReason.READING_FACTS.value
    for pool in after.pools:
        old = before.pool(pool.name)
        if pool.refusal is not None:
            if is_reading:
                continue
            if old is None or old.refusal != pool.refusal:
                yield Announcement(
                    type="Warning",
                    reason="PlanRefused",
                    message=f"{pool.name}: {pool.refusal.reason.value}: {pool.refusal.sentence()}",
                )
        elif pool.plan is not None and (old is None or old.plan != pool.plan):
            yield Announcement(
                type="Normal",
                reason="PlanAccepted",
                message=f"{pool.name}: {pool.plan.explanation}",
            )
    stalled = _condition(after, "Stalled")
    if stalled and stalled.reason == "SpecInvalid":
        known = _condition(before, "Stalled")
        if known is None or known.message != _message(after, "Planned"):
            yield Announcement(
                type="Warning", reason="SpecInvalid", message=_message(after, "Planned")
            )


def recycling_news(next_step: Step | None) -> Iterator[Announcement]:
    """What the step of recycling has to tell."""
    for told in next_step.told if next_step is not None else ():
        yield Announcement(
            type="Warning" if told.is_warning else "Normal",
            reason=told.reason,
            message=told.message,
        )


def _condition(status: InferenceDeploymentStatus, name: str) -> Condition | None:
    return next((each for each in status.conditions if each.type == name), None)


def _message(status: InferenceDeploymentStatus, name: str) -> str:
    found = _condition(status, name)
    return found.message if found else ""


def is_moving(status: InferenceDeploymentStatus) -> bool:
    """Whether it is on the way to what was asked for."""
    return _condition(status, "Reconciling") is not None
