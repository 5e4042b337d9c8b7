"""What do we tell the user about their InferenceDeployment?

Conditions are good when True; Reconciling and Stalled are there only while they hold (kstatus).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.api.conditions import (
    Condition,
    ConditionName,
    ConditionReason,
    Tristate,
    set_conditions,
)
from plimsoll.api.memory import Memory
from plimsoll.api.settle import Settled
from plimsoll.api.v1alpha1 import (
    InferenceDeployment,
    InferenceDeploymentStatus,
    PoolStatus,
    UnplannableStatus,
)
from plimsoll.api.verified_status import VerifiedStatus
from plimsoll.api.verified_words import PoolCheck
from plimsoll.api.verified_words import condition_of as verified_condition
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.records import Plan, Reason
from plimsoll.render.labels import worker_selector
from plimsoll.units import counted

UNWATCHED = Memory()
LONGEST_MESSAGE = 2048
"""Characters of a condition's message; the CRD allows more, a person does not read more."""
LONGEST_SUMMARY = 40
"""Characters of the pools' names in a column, before it becomes their number."""


class PoolState(Record):
    """One pool: what was decided and what is there."""

    settled: Settled
    """The plan, or why there is none."""
    wanted: int
    """Workers it should have in the end."""
    workers: tuple[WorkerFacts, ...] = ()
    """Its pods."""
    updated: int = 0
    """Pods that run the newest template."""
    is_rolling: bool = False
    """Whether a changed template is on its way."""
    verified: VerifiedStatus | None = None
    """The plan beside the engine's own figures."""
    held_back: int = 0
    """Workers that wait until the first one's engine was read."""

    @property
    def alive(self) -> tuple[WorkerFacts, ...]:
        """Workers that are not on their way out."""
        return tuple(worker for worker in self.workers if not worker.is_terminating)

    @property
    def ready(self) -> int:
        """Workers that serve."""
        return sum(worker.is_ready for worker in self.alive)


def status_of(
    deployment: InferenceDeployment,
    pools: Sequence[PoolState],
    inventory: Inventory,
    *,
    now_text: str,
    notes: Sequence[str] = (),
    is_reading: bool = False,
    memory: Memory = UNWATCHED,
) -> InferenceDeploymentStatus:
    """The whole status; `now_text` (RFC 3339 in UTC) dates only conditions that change.

    `notes` are what reading the model's files brought up; while they are read (`is_reading`) a model that
    nobody knows yet stands in nobody's way.
    """
    generation = deployment.metadata.generation
    wanted = tuple(
        condition.model_copy(
            update={
                "observed_generation": generation,
                "message": _cut(condition.message),
            }
        )
        for condition in _with_memory(
            _conditions(deployment, pools, inventory, notes, is_reading), memory
        )
    )
    plans = [(pool, pool.settled.plan) for pool in pools if pool.settled.plan is not None]
    return InferenceDeploymentStatus(
        observed_generation=generation,
        conditions=set_conditions(deployment.status.conditions, wanted, now_text),
        replicas=sum(len(pool.alive) for pool in pools),
        ready_replicas=sum(pool.ready for pool in pools),
        selector=worker_selector(deployment.metadata.name),
        model=deployment.spec.model.name,
        pool_count=len(pools),
        pools_summary=_summary([pool.settled.ask.pool for pool in pools]),
        engine_summary=",".join(sorted({pool.settled.ask.engine.value for pool in pools})),
        trend=memory.trend,
        kv_tokens=sum(pool.ready * plan.kv.pool_tokens for pool, plan in plans),
        concurrency=sum(pool.ready * plan.concurrency.max_num_seqs for pool, plan in plans),
        pools=tuple(_pool_status(pool) for pool in pools),
        unplannable=tuple(
            UnplannableStatus(
                node=node.node,
                product=node.product,
                reason=node.problem.value,
                message=node.message,
            )
            for node in inventory.unplannable[:64]
        ),
        workers=memory.workers,
        diagnosed_at=memory.told_at,
        recycling=memory.recycling,
    )


def unreadable_status(
    name: str, generation: int, previous: Sequence[Condition], problems: str, *, now_text: str
) -> InferenceDeploymentStatus:
    """The status of an object whose spec cannot be read: nothing is touched, and it says why."""
    reason = ConditionReason.SPEC_INVALID.value
    message = _cut(f"{problems} The workers that run are left alone.")
    conditions = (
        _condition(ConditionName.PLANNED, Tristate.FALSE, reason, message),
        _condition(ConditionName.READY, Tristate.FALSE, reason, message),
        _condition(ConditionName.STALLED, Tristate.TRUE, reason, message),
    )
    dated = tuple(c.model_copy(update={"observed_generation": generation}) for c in conditions)
    return InferenceDeploymentStatus(
        observed_generation=generation,
        conditions=set_conditions(previous, dated, now_text),
        selector=worker_selector(name),
    )


def _pool_status(pool: PoolState) -> PoolStatus:
    settled = pool.settled
    message = _told(settled.plan) if settled.plan else ""
    if settled.refusal is not None:
        message = settled.refusal.sentence()
    return PoolStatus(
        name=settled.ask.pool,
        gpu_product=settled.ask.gpu_product,
        engine=settled.ask.engine.value,
        replicas=len(pool.alive),
        ready_replicas=pool.ready,
        updated_replicas=pool.updated,
        plan=settled.plan,
        plan_digest=settled.digest,
        template_revision=settled.revision if settled.plan else 0,
        refusal=settled.refusal,
        message=_cut(message),
        verified=pool.verified,
    )


def _conditions(
    deployment: InferenceDeployment,
    pools: Sequence[PoolState],
    inventory: Inventory,
    notes: Sequence[str],
    is_reading: bool,
) -> Iterator[Condition]:
    planned = _planned(pools, inventory)
    if is_reading and planned.reason == Reason.MODEL_UNKNOWN.value:
        planned = planned.model_copy(update={"reason": ConditionReason.READING_FACTS.value})
    if notes:
        message = " ".join((planned.message, *_ended(notes)))
        planned = planned.model_copy(update={"message": message})
    ready = _ready(deployment.spec.replicas, pools, planned)
    serving = sum(pool.ready for pool in pools)
    yield planned
    yield verified_condition(
        PoolCheck(
            pool.settled.ask.pool,
            pool.verified,
            is_wanted=pool.settled.plan is not None and pool.wanted > 0,
        )
        for pool in pools
    )
    yield _condition(
        ConditionName.AVAILABLE,
        Tristate.TRUE if serving else Tristate.FALSE,
        ConditionReason.WORKERS_SERVE.value if serving else ConditionReason.NO_WORKER_READY.value,
        f"{serving} of {deployment.spec.replicas} workers serve.",
    )
    yield _condition(
        ConditionName.MEMORY_STABLE,
        Tristate.UNKNOWN,
        ConditionReason.NO_SERIES.value,
        "Resident memory is not watched yet, so nothing is known about growth.",
    )
    yield ready
    if planned.reason == ConditionReason.READING_FACTS.value:
        yield _condition(ConditionName.RECONCILING, Tristate.TRUE, planned.reason, planned.message)
    elif planned.status is Tristate.FALSE:
        yield _condition(
            ConditionName.STALLED,
            Tristate.TRUE,
            planned.reason,
            "Cannot go on as the spec and the nodes are; Planned says what would help.",
        )
    elif ready.status is Tristate.FALSE:
        yield _condition(ConditionName.RECONCILING, Tristate.TRUE, ready.reason, ready.message)


def _with_memory(conditions: Iterator[Condition], memory: Memory) -> Iterator[Condition]:
    """The conditions with what is known of memory; Stalled where recycling waits for a person."""
    is_stalled = False
    for condition in conditions:
        is_stalled = is_stalled or condition.type == ConditionName.STALLED.value
        is_memory = condition.type == ConditionName.MEMORY_STABLE.value
        yield memory.stable if is_memory and memory.stable is not None else condition
    if memory.common_cause and not is_stalled:
        yield _condition(
            ConditionName.STALLED,
            Tristate.TRUE,
            ConditionReason.COMMON_CAUSE.value,
            memory.common_cause,
        )


def _planned(pools: Sequence[PoolState], inventory: Inventory) -> Condition:
    if not pools:
        return _no_pools(inventory)
    refused = [pool for pool in pools if pool.settled.refusal is not None]
    if refused:
        reasons = {pool.settled.refusal.reason.value for pool in refused if pool.settled.refusal}
        reason = reasons.pop() if len(reasons) == 1 else ConditionReason.PLAN_REFUSED.value
        return _condition(
            ConditionName.PLANNED,
            Tristate.FALSE,
            reason,
            " ".join(
                f"{pool.settled.ask.pool}: {pool.settled.refusal.sentence()}{_left_alone(pool)}"
                for pool in refused
                if pool.settled.refusal
            ),
        )
    sentences = [
        f"{pool.settled.ask.pool}: {_told(plan)}"
        for pool in pools
        if (plan := pool.settled.plan) is not None
    ]
    passed_over = [
        f"Node {node.node} is not planned for: {node.message}" for node in inventory.unplannable
    ]
    return _condition(
        ConditionName.PLANNED,
        Tristate.TRUE,
        ConditionReason.PLAN_ACCEPTED.value,
        " ".join((*sentences, *passed_over)),
    )


def _no_pools(inventory: Inventory) -> Condition:
    """No pools were written and no GPU type in reach can be planned for."""
    if not inventory.unplannable:
        return _condition(
            ConditionName.PLANNED,
            Tristate.FALSE,
            ConditionReason.NO_POOLS.value,
            "No node in reach has a GPU. Add one, or name a GPU type under spec.pools.",
        )
    problems = {node.problem.value for node in inventory.unplannable}
    return _condition(
        ConditionName.PLANNED,
        Tristate.FALSE,
        problems.pop() if len(problems) == 1 else ConditionReason.NO_POOLS.value,
        " ".join(f"Node {node.node}: {node.message}" for node in inventory.unplannable),
    )


def _left_alone(pool: PoolState) -> str:
    running = len(pool.alive)
    return f" The {running} running worker(s) are left alone." if running else ""


def _told(plan: Plan) -> str:
    """What binds, what was chosen, and what else a person should know."""
    return " ".join((plan.explanation, *_ended(plan.notes)))


def _ended(notes: Sequence[str]) -> list[str]:
    """Notes as sentences of their own."""
    return [note[:1].upper() + note[1:].removesuffix(".") + "." for note in notes]


def _ready(wanted: int, pools: Sequence[PoolState], planned: Condition) -> Condition:
    ready = sum(pool.ready for pool in pools)
    if planned.status is Tristate.FALSE:
        return _condition(ConditionName.READY, Tristate.FALSE, planned.reason, planned.message)
    if any(pool.is_rolling for pool in pools):
        return _condition(
            ConditionName.READY,
            Tristate.FALSE,
            ConditionReason.ROLLING_OUT.value,
            "A changed template reaches one worker first, the others when it is ready: "
            + ", ".join(
                f"{pool.settled.ask.pool} {pool.updated} of {pool.wanted}"
                for pool in pools
                if pool.is_rolling
            )
            + ".",
        )
    if wanted == 0 and ready == 0:
        return _condition(
            ConditionName.READY,
            Tristate.TRUE,
            ConditionReason.SCALED_TO_ZERO.value,
            "No workers are asked for.",
        )
    if ready >= wanted:
        return _condition(
            ConditionName.READY,
            Tristate.TRUE,
            ConditionReason.ALL_WORKERS_READY.value,
            f"{ready} of {wanted} workers serve.",
        )
    reason, words = _why_not_ready(pools)
    return _condition(
        ConditionName.READY,
        Tristate.FALSE,
        reason.value,
        f"{ready} of {wanted} workers serve. {words}".strip(),
    )


def _why_not_ready(pools: Sequence[PoolState]) -> tuple[ConditionReason, str]:
    waiting = [w for pool in pools for w in pool.alive if w.node is None and w.message]
    failing = [w for pool in pools for w in pool.alive if w.node and not w.is_ready and w.message]
    if failing:
        return ConditionReason.WORKERS_FAIL, f"{failing[0].name}: {failing[0].message}"
    if waiting:
        return ConditionReason.WAITING_FOR_CARDS, f"{waiting[0].name}: {waiting[0].message}"
    held = sum(pool.held_back for pool in pools)
    if held:
        return (
            ConditionReason.VERIFYING,
            f"{counted(held, 'worker')} more when the first one's engine holds what was promised; "
            "PlanVerified has its figures.",
        )
    return ConditionReason.WARMING_UP, ""


def _condition(name: ConditionName, status: Tristate, reason: str, message: str) -> Condition:
    return Condition(type=name.value, status=status, reason=reason, message=message)


def _summary(names: Sequence[str]) -> str:
    text = ",".join(names)
    return text if len(text) <= LONGEST_SUMMARY else f"{len(names)} pools"


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."
