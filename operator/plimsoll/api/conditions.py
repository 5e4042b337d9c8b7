"""Which conditions does an InferenceDeployment have, and when did each last change?"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from plimsoll.facts.record import Record


class ConditionName(StrEnum):
    """Adjectives that are good when True, and two that are there only while they hold."""

    PLANNED = "Planned"
    """Every pool has a plan that fits."""
    PLAN_VERIFIED = "PlanVerified"
    """The engines agree with their plans."""
    AVAILABLE = "Available"
    """At least one worker serves."""
    MEMORY_STABLE = "MemoryStable"
    """No worker's resident memory grows."""
    READY = "Ready"
    """What was asked for is there: planned, and as many workers ready as wanted."""
    RECONCILING = "Reconciling"
    """On the way; there only while it holds."""
    STALLED = "Stalled"
    """Cannot go on without a person; there only while it holds."""


class Tristate(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionReason(StrEnum):
    """Facts behind conditions that are not a plan's own refusal."""

    PLAN_ACCEPTED = "PlanAccepted"
    """Every pool has a plan that fits."""
    PLAN_REFUSED = "PlanRefused"
    """Pools were refused for different reasons; each pool says its own."""
    SPEC_INVALID = "SpecInvalid"
    """The object cannot be read; the message names field, value and way out."""
    NO_POOLS = "NoPools"
    """No GPU type in reach, so there is nothing to plan for."""
    READING_FACTS = "ReadingFacts"
    """The model's files are being read; the plan follows."""
    NOT_VERIFIED_YET = "NotVerifiedYet"
    """No engine has reported its own figures yet."""
    AS_PLANNED = "AsPlanned"
    """The engines hold what was promised."""
    HOLDS_MORE = "HoldsMore"
    """An engine holds clearly more than was promised; nothing changes by itself."""
    HOLDS_LESS = "HoldsLess"
    """An engine holds less than was promised."""
    ENGINE_UNREADABLE = "EngineUnreadable"
    """An engine's own figures cannot be read."""
    WORKERS_SERVE = "WorkersServe"
    """At least one worker is ready."""
    NO_WORKER_READY = "NoWorkerReady"
    """Not one worker is ready."""
    ALL_WORKERS_READY = "AllWorkersReady"
    """As many workers are ready as were asked for."""
    SCALED_TO_ZERO = "ScaledToZero"
    """No workers are asked for, and there are none."""
    WARMING_UP = "WarmingUp"
    """Workers load the model."""
    ROLLING_OUT = "RollingOut"
    """A changed plan reaches one worker first, the others when it is ready."""
    VERIFYING = "Verifying"
    """The first worker's engine is compared with its plan; the others follow."""
    WAITING_FOR_CARDS = "WaitingForCards"
    """Workers wait for a node with free cards."""
    WORKERS_FAIL = "WorkersFail"
    """Workers start and die; the message has their last words."""
    NO_SERIES = "NoSeries"
    """Nobody measured resident memory, so nothing is known about growth."""
    STEADY = "Steady"
    """No worker's resident memory grows."""
    PRESSURE = "Pressure"
    """No worker's resident memory grows; requests wait for other reasons."""
    GROWTH = "Growth"
    """A worker's resident memory grows, and so does its time to first token."""
    QUIET_GROWTH = "QuietGrowth"
    """A worker's resident memory grows while its latency does not."""
    OUT_OF_STEPS = "OutOfSteps"
    """Workers go on dying after four changes; a person decides."""
    MOVE_HELD_BACK = "MoveHeldBack"
    """A worker died and what would help is pinned, or does not fit."""
    COMMON_CAUSE = "CommonCause"
    """Recycling does not help, or most workers grow together: it is the version or the load."""


class Condition(Record):
    """One condition, with the standard fields."""

    type: str
    """Name of the condition."""
    status: Tristate
    """True, False or Unknown."""
    reason: str
    """The fact behind it, in PascalCase."""
    message: str = ""
    """The sentence for the person at kubectl."""
    observed_generation: int | None = None
    """Generation of the object that it speaks of."""
    last_transition_time: str | None = None
    """When status last changed, RFC 3339 in UTC; None until it is set against the previous ones."""


def set_conditions(
    previous: Iterable[Condition], wanted: Iterable[Condition], now_text: str
) -> tuple[Condition, ...]:
    """The wanted ones, in the order of ConditionName, each dated: the old date while status is the same.

    Previous conditions that are not wanted any more are gone. `now_text` is RFC 3339 in UTC.
    """
    before = {condition.type: condition for condition in previous}
    order = {name.value: place for place, name in enumerate(ConditionName)}
    return tuple(
        condition.model_copy(
            update={"last_transition_time": _since(before.get(condition.type), condition, now_text)}
        )
        for condition in sorted(wanted, key=lambda each: (order.get(each.type, 99), each.type))
    )


def _since(before: Condition | None, after: Condition, now_text: str) -> str:
    if before is None or before.status is not after.status:
        return now_text
    return before.last_transition_time or now_text
