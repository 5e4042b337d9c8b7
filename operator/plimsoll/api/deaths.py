"""A worker died: is anything changed, for whom, and what is told?

The rule for the one who is woken at night: what serves is left alone. A worker that never came up is moved
for at the first death, when no other serves with the same arguments; one that served is only moved for at
the second death of its kind within a day, because then the others have the same death before them. At most
four steps for one spec, and each death counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from plimsoll.api.conditions import (
    Condition,
    ConditionName,
    ConditionReason,
    Tristate,
    set_conditions,
)
from plimsoll.api.deaths_moves import (
    MOST_STEPS,
    MOVES,
    Made,
    MoveName,
    NotMade,
    Situation,
    move_for,
)
from plimsoll.api.deaths_status import (
    KEPT_DEATHS,
    DeathStatus,
    TaughtStatus,
    numbers_told,
    settings_told,
)
from plimsoll.api.news import Announcement
from plimsoll.api.recycling import seconds_of, text_of
from plimsoll.api.settle import Settled
from plimsoll.api.status_types import InferenceDeploymentStatus, PoolStatus
from plimsoll.diagnose.death import Books, Death, classify
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.engines.base import ByteOwner
from plimsoll.facts.worker import ContainerEnd, WorkerFacts
from plimsoll.plan.records import Plan
from plimsoll.render.workload import digest_of_plan

DAY_SECONDS: Final = 86400.0
LONGEST_MESSAGE: Final = 512

SERVING: Final = frozenset({DeathKind.CUDA_OOM_SERVING, DeathKind.HOST_OOM_SERVING})
"""Deaths of workers that had come up: the second within a day is moved for."""
DEATHS_WHEN_SERVED: Final = 2
"""So many of one kind within a day, where the plan has served before or the cause may have gone by itself."""
PASSING: Final = frozenset({DeathKind.MEMORY_HELD_BY_OTHERS})
"""What another process holds may be what this worker's own last life had not given back yet."""

STEPPED, WATCHED, ELSEWHERE = "Stepped", "Watched", "ServesElsewhere"
NOTHING, HELD_BACK, OUT_OF_STEPS = "NothingToChange", "HeldBack", "OutOfSteps"

TOLD_WHY: Final = frozenset({ELSEWHERE, HELD_BACK, OUT_OF_STEPS})
"""Outcomes whose reason stands beside the death."""

ADVICE: Final = {
    DeathKind.BAD_FLAG: "Set the engine's release to that of its image, or take the argument out of extraArgs.",
    DeathKind.MODEL_UNREADABLE: "Check model.uri and the volume behind it.",
    DeathKind.IMAGE_UNUSABLE: "Check the image's name, and imagePullSecrets.",
    DeathKind.CUDA_OOM_AT_LOAD: "No argument makes weights smaller: more cards for a worker (gpu.perWorker), "
    "a quantised model, or a card that nothing else uses.",
    DeathKind.CUDA_OOM_AT_START: "The container's log says in which phase: after the cache, lower "
    "gpuMemoryUtilization; before it, maxNumBatchedTokens.",
    DeathKind.NO_ROOM_FOR_BLOCKS: "More cards for a worker, a shorter limits.maxModelLen, or kvCache.dtype fp8.",
    DeathKind.LENGTH_TOO_LONG: "A shorter limits.maxModelLen, more cards for a worker, or kvCache.dtype fp8.",
    DeathKind.MEMORY_HELD_BY_OTHERS: "Free the card of what else runs there, or name other nodes.",
    DeathKind.HOST_OOM_BEFORE_READY: "Look at what loading takes: the node may have too little memory for it.",
    DeathKind.HOST_OOM_SERVING: "Memory that grows for days is a leak: see MemoryStable and recycling.",
    DeathKind.CUDA_OOM_SERVING: "A lower gpuMemoryUtilization or maxNumBatchedTokens of your own, or another "
    "release: what runs out is outside of what the engine measures at start.",
}
"""By kind: what only a person can decide."""
FOR_A_PERSON: Final = frozenset({
    DeathKind.BAD_FLAG, DeathKind.MODEL_UNREADABLE, DeathKind.CUDA_OOM_AT_LOAD, DeathKind.CUDA_OOM_AT_START,
})  # fmt: skip
"""Known, and no argument of ours helps: it waits for a person while nobody serves."""


class Lesson(NamedTuple):
    """What one pool's deaths came to."""

    pool: str
    """Name of the pool."""
    taught: TaughtStatus
    """What its status keeps from now on."""
    news: tuple[Announcement, ...] = ()
    """What to tell."""
    waits: tuple[str, str] | None = None
    """Reason and sentence where a person must decide."""
    is_stepped: bool = False
    """Whether something was changed just now."""


def learn(
    settled: Sequence[Settled],
    held: Iterable[PoolStatus],
    workers: Sequence[WorkerFacts],
    *,
    now_seconds: float,
) -> tuple[Lesson, ...]:
    """For each pool: its new deaths, and at most one step. Pure; the same world a second time gives the
    same and tells nothing."""
    before = {pool.name: pool.taught for pool in held}
    return tuple(
        _learn(each, before.get(each.ask.pool), workers, now_seconds)
        for each in settled
        if each.plan is not None
    )


def taught_pools(held: Sequence[PoolStatus], lessons: Iterable[Lesson]) -> Sequence[PoolStatus]:
    """The pools of the last status with the steps made just now; the very same where there are none."""
    stepped = {lesson.pool: lesson.taught for lesson in lessons if lesson.is_stepped}
    if not stepped:
        return held
    return tuple(
        pool.model_copy(update={"taught": stepped[pool.name]}) if pool.name in stepped else pool
        for pool in held
    )


def with_lessons(
    status: InferenceDeploymentStatus,
    lessons: Sequence[Lesson],
    previous: Sequence[Condition],
    *,
    now_text: str,
) -> InferenceDeploymentStatus:
    """The status with what each pool keeps, and Stalled where a person must decide."""
    by_pool = {lesson.pool: lesson.taught for lesson in lessons if lesson.taught != TaughtStatus()}
    if by_pool:
        pools = tuple(
            pool.model_copy(update={"taught": by_pool[pool.name]}) if pool.name in by_pool else pool
            for pool in status.pools
        )
        status = status.model_copy(update={"pools": pools})
    waits = [(lesson.pool, *lesson.waits) for lesson in lessons if lesson.waits is not None]
    if not waits or any(each.type == ConditionName.STALLED.value for each in status.conditions):
        return status
    stalled = Condition(
        type=ConditionName.STALLED.value,
        status=Tristate.TRUE,
        reason=waits[0][1],
        message=" ".join(f"{pool}: {sentence}" for pool, _, sentence in waits)[:2048],
        observed_generation=status.observed_generation,
    )
    # what waits for a person is not on its way (kstatus)
    others = [each for each in status.conditions if each.type != ConditionName.RECONCILING.value]
    conditions = set_conditions(previous, (*others, stalled), now_text)
    return status.model_copy(update={"conditions": conditions})


def death_news(lessons: Iterable[Lesson]) -> tuple[Announcement, ...]:
    """What to tell of all pools."""
    return tuple(told for lesson in lessons for told in lesson.news)


# ---- one pool ------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """One pool, its workers under the plan that runs, and what is known of earlier deaths."""

    settled: Settled
    plan: Plan
    plan_id: str
    workers: tuple[WorkerFacts, ...]
    taught: TaughtStatus
    now_seconds: float

    @property
    def deaths(self) -> tuple[DeathStatus, ...]:
        """Deaths under this plan, newest first."""
        return tuple(death for death in self.taught.deaths if death.plan == self.plan_id)

    @property
    def serves(self) -> bool:
        """Whether a worker serves with these very arguments."""
        return any(worker.is_ready for worker in self.workers)


def _learn(
    settled: Settled,
    before: TaughtStatus | None,
    workers: Sequence[WorkerFacts],
    now_seconds: float,
) -> Lesson:
    plan = settled.plan
    assert plan is not None
    plan_id = digest_of_plan(plan)
    taught = before or TaughtStatus()
    if taught.question and taught.question != settled.ask.question:
        taught = TaughtStatus()  # another spec: a new beginning
    mine = tuple(
        worker
        for worker in workers
        if worker.pool == settled.ask.pool
        and worker.plan_id == plan_id
        and not worker.is_terminating
    )
    served = plan_id if any(worker.is_ready for worker in mine) else taught.served_plan
    taught = taught.model_copy(update={"served_plan": served})
    case = _Case(settled, plan, plan_id, mine, taught, now_seconds)
    lesson = Lesson(settled.ask.pool, taught)
    for worker, death, at in _new_deaths(case):
        lesson = _with(case._replace(taught=lesson.taught), lesson, worker, death, at)
        if lesson.is_stepped:
            return lesson  # the others died of the plan that is left behind
    waits = _waits(case._replace(taught=lesson.taught))
    return lesson._replace(waits=waits)


def _new_deaths(case: _Case) -> list[tuple[WorkerFacts, Death, str]]:
    """Deaths that the status does not have yet, oldest first, as many as it can keep."""
    books = Books(
        weights=case.plan.line(ByteOwner.WEIGHTS),
        activation=case.plan.line(ByteOwner.ACTIVATION),
        pool=case.plan.kv.pool_bytes_per_card,
    )
    known = {(each.uid, each.at or each.kind) for each in case.taught.deaths}
    oldest = min((each.at for each in case.taught.deaths), default="")
    is_full = len(case.taught.deaths) >= KEPT_DEATHS
    found = []
    for worker in case.workers:
        if worker.end is None or _is_old(worker.end, case.now_seconds):
            continue
        death = classify(worker.end, books)
        at = "" if worker.end.finished_seconds is None else text_of(worker.end.finished_seconds)
        if death.kind is DeathKind.STOPPED or (worker.uid, at or death.kind.value) in known:
            continue
        if is_full and at <= oldest:
            continue
        found.append((worker, death, at))
    found.sort(key=lambda each: (each[2], each[0].uid))
    return found[-KEPT_DEATHS:]


def _with(case: _Case, lesson: Lesson, worker: WorkerFacts, death: Death, at: str) -> Lesson:
    """The lesson after one more death."""
    outcome, made, why = _outcome(case, death)
    words = f"{death.sentence} {why}" if outcome in TOLD_WHY else death.sentence
    entry = DeathStatus(
        pod=worker.name,
        uid=worker.uid,
        at=at,
        kind=death.kind.value,
        message=words[:LONGEST_MESSAGE],
        numbers=numbers_told(death.numbers),
        plan=case.plan_id,
        outcome=outcome,
        move=made.name.value if made else "",
        change=made.sentence[:LONGEST_MESSAGE] if made else "",
        settings=settings_told(made.steps) if made else "",
    )
    pool, taught = case.settled.ask.pool, lesson.taught.with_death(entry)
    news = [_told("WorkerDied", f"{pool}: {worker.name}: {death.sentence} {why}".rstrip())]
    if made is not None:
        taught = taught.model_copy(update={"question": case.settled.ask.question})
        after = f"{pool}: after {death.kind.value} {made.name.value}"
        count = f"step {len(taught.steps)} of {MOST_STEPS}"
        news.append(_told("PlanStepped", f"{after}: {made.sentence} ({count})."))
    return lesson._replace(taught=taught, news=(*lesson.news, *news), is_stepped=made is not None)


def _outcome(case: _Case, death: Death) -> tuple[str, Made | None, str]:
    """What follows from one death: its word, the move if one is made, and a sentence."""
    request = case.settled.ask.request
    kind, engine = death.kind, case.settled.ask.engine
    if (kind, engine) not in MOVES:
        return NOTHING, None, ADVICE.get(kind, "")
    if kind not in SERVING and case.serves:
        others = sum(each.is_ready for each in case.workers)
        return (
            ELSEWHERE,
            None,
            (
                f"The same arguments serve on {others} worker(s), so this is a matter of its node or card, and "
                "nothing is changed."
            ),
        )
    needed = _needed(case, kind)
    seen = 1 + sum(
        each.kind == kind.value and _is_recent(each, case.now_seconds) for each in case.deaths
    )
    if seen < needed:
        return WATCHED, None, "Nothing is changed for one; a second within a day is moved for."
    if len(case.taught.steps) >= MOST_STEPS:
        return (
            OUT_OF_STEPS,
            None,
            f"{MOST_STEPS} steps were made for this spec; a person decides now.",
        )
    if request is None or case.settled.refusal is not None:
        return HELD_BACK, None, "The pool's question has no plan, so there is none to change."
    times = sum(step.kind == kind.value for step in case.taught.steps)
    reserves = sum(step.move == MoveName.MORE_RESERVE.value for step in case.taught.steps)
    found = move_for(Situation(request, case.plan, death, reserves), times=times)
    if isinstance(found, NotMade):
        return HELD_BACK, None, f"Nothing is changed: {found.sentence}."
    return STEPPED, found, ""


def _needed(case: _Case, kind: DeathKind) -> int:
    has_served = case.taught.served_plan == case.plan_id
    return DEATHS_WHEN_SERVED if kind in SERVING or kind in PASSING or has_served else 1


def _is_old(end: ContainerEnd, now_seconds: float) -> bool:
    """What ended days ago, as a Plimsoll finds it that was just installed, is nobody's news."""
    at = end.finished_seconds
    return at is not None and now_seconds - at > DAY_SECONDS


def _is_recent(death: DeathStatus, now_seconds: float) -> bool:
    at = seconds_of(death.at)
    return at is None or now_seconds - at < DAY_SECONDS


def _waits(case: _Case) -> tuple[str, str] | None:
    """Why it waits for a person; None while it does not."""
    newest = next(iter(case.deaths), None)
    if newest is None:
        return None
    kind = DeathKind(newest.kind) if newest.kind in set(DeathKind) else DeathKind.UNKNOWN
    is_stuck = newest.outcome in (OUT_OF_STEPS, HELD_BACK)
    if not is_stuck and not (newest.outcome == NOTHING and kind in FOR_A_PERSON):
        return None
    if kind in SERVING:
        if not _is_recent(newest, case.now_seconds):
            return None
    elif case.serves:
        return None
    reason = {
        OUT_OF_STEPS: ConditionReason.OUT_OF_STEPS.value,
        HELD_BACK: ConditionReason.MOVE_HELD_BACK.value,
    }.get(newest.outcome, kind.value)
    made = ", then ".join(step.move for step in case.taught.steps)
    tried = f" Tried: {made}." if made and newest.outcome == OUT_OF_STEPS else ""
    return reason, f"{newest.pod} died: {newest.message}{tried} {ADVICE.get(kind, '')}".rstrip()


def _told(reason: str, message: str) -> Announcement:
    return Announcement(type="Warning", reason=reason, message=message[:1024])
