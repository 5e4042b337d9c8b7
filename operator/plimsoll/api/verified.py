"""Do the engines hold what was promised, who may start next, and what may the next plan promise?

From records to records: a pool's plan, its workers, what their engines said, and what its status kept. A plan
that was accepted before plans were verified is compared and told of, and nothing else follows from it: an
upgrade holds nobody back and rolls nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.api.asks import extras_digest
from plimsoll.api.news import Announcement
from plimsoll.api.recycling import text_of
from plimsoll.api.settle import Settled
from plimsoll.api.status_types import InferenceDeploymentStatus, PoolStatus
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.api.verified_status import (
    AWAITED,
    MORE,
    SHORT,
    UNREADABLE,
    VERIFIED,
    CeilingStatus,
    VerifiedStatus,
)
from plimsoll.api.verified_words import sentence
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.calibration_reading import reading_of
from plimsoll.plan.records import Plan
from plimsoll.plan.reported import Ceiling, EngineReport
from plimsoll.plan.verify import (
    Geometry,
    More,
    Outcome,
    Short,
    Unreadable,
    Verified,
    geometry_of,
    verify,
)
from plimsoll.render.workload import digest_of_plan

MOST_LOWERED: Final = 4
"""A question's plan is lowered so often; what is still short then is a person's to look at."""
_EVENTS: Final = {
    VERIFIED: ("Normal", "PlanVerified"),
    MORE: ("Normal", "EngineHoldsMore"),
    SHORT: ("Warning", "EngineHoldsLess"),
    UNREADABLE: ("Warning", "EngineUnreadable"),
}
_VERDICTS: Final = {Verified: VERIFIED, Short: SHORT, More: MORE, Unreadable: UNREADABLE}


class WorkerReport(NamedTuple):
    """What one worker's engine said, or why it said nothing."""

    uid: str
    """UID of the pod."""
    report: EngineReport | None = None
    problem: str = ""
    """Why it could not be read so far."""


class Reported(NamedTuple):
    """What the engines said, and the terms under which silence counts."""

    reports: tuple[WorkerReport, ...] = ()
    grace_seconds: float = 120.0
    """A worker that has been Ready for so long and cannot be read holds nobody back."""


class Checked(NamedTuple):
    """One pool after the comparison."""

    status: VerifiedStatus | None = None
    """What its status keeps; None while nothing was compared."""
    may_follow: bool = True
    """Whether the workers after the first may start."""
    again_seconds: float | None = None
    """When silence will have lasted long enough."""
    measured: tuple[Measurement, ...] = ()
    """What is to be kept for later plans."""


class _Seen(NamedTuple):
    worker: WorkerFacts
    report: EngineReport
    outcome: Outcome


def check(
    settled: Settled,
    workers: Sequence[WorkerFacts],
    reported: Reported | None,
    before: VerifiedStatus | None,
    *,
    now_seconds: float,
    now_text: str,
    extras: str = "",
) -> Checked:
    """Compare one pool's plan with its engines; `workers` are the pool's own.

    `reported` is None where nobody asks engines: then all stays as it was, and Ready is enough to go on.
    """
    plan = settled.plan
    if plan is None:
        return Checked()
    plan_id = digest_of_plan(plan)
    if settled.is_new:
        before = _awaited(settled, before, plan_id, now_text) if reported is not None else None
    elif before is not None and before.plan != plan_id:
        before = None  # of another plan, so it says nothing of this one
    if reported is None:
        return Checked(status=before)
    mine = [w for w in workers if w.plan_id == plan_id and not w.is_terminating]
    told = {each.uid: each for each in reported.reports}
    answered = [
        (worker, report)
        for worker in mine
        if worker.uid in told and (report := told[worker.uid].report) is not None
    ]
    geometry = _geometry(settled, plan) if answered else None
    seen = [_Seen(worker, report, verify(plan, report, geometry)) for worker, report in answered]
    worst = min(seen, key=_capacity, default=None)
    if worst is None or _is_worse(before, worst, mine, told):
        return _silent(before, mine, told, reported, now_seconds=now_seconds, now_text=now_text)
    status = _status(plan, settled.ask.question, worst, before, now_text)
    if status == before:
        return Checked(status, _may_follow(status))
    measured = _measured(worst, plan, settled, geometry, extras=extras, now_text=now_text)
    return Checked(status, _may_follow(status), measured=measured)


def check_pools(
    deployment: InferenceDeployment,
    settled: Sequence[Settled],
    workers: Sequence[WorkerFacts],
    reported: Reported | None,
    *,
    now_seconds: float,
    pools: Sequence[PoolStatus],
) -> dict[str, Checked]:
    """Every pool by its name; `pools` are those of the last status, with what was heard since."""
    had = {pool.name: pool for pool in pools}
    return {
        each.ask.pool: check(
            each,
            [worker for worker in workers if worker.pool == each.ask.pool],
            reported,
            had[each.ask.pool].verified if each.ask.pool in had else None,
            now_seconds=now_seconds,
            now_text=text_of(now_seconds),
            extras=extras_digest(deployment.spec, each.ask.spec),
        )
        for each in settled
    }


def lowered_pools(
    pools: Sequence[PoolStatus], checked: Mapping[str, Checked]
) -> tuple[PoolStatus, ...] | None:
    """The pools of the last status with new ceilings in them; None where there are none."""
    if not any(
        pool.name in checked and narrowed(checked[pool.name], pool.verified) for pool in pools
    ):
        return None
    return tuple(
        pool.model_copy(update={"verified": checked[pool.name].status})
        if pool.name in checked and narrowed(checked[pool.name], pool.verified)
        else pool
        for pool in pools
    )


def verified_news(
    before: InferenceDeploymentStatus, checked: Mapping[str, Checked]
) -> Iterator[Announcement]:
    """One event for each pool whose verdict changed."""
    for name, each in checked.items():
        status = each.status
        pool = before.pool(name)
        had = pool.verified if pool is not None else None
        if status is None or status.verdict not in _EVENTS or status == had:
            continue
        kind, reason = _EVENTS[status.verdict]
        if had is None or (had.verdict, had.message) != (status.verdict, status.message):
            yield Announcement(type=kind, reason=reason, message=f"{name}: {status.message}")


def narrowed(checked: Checked, before: VerifiedStatus | None) -> bool:
    """Whether the next plan may promise less than the one that was compared."""
    old = before.ceiling if before is not None else None
    new = checked.status.ceiling if checked.status is not None else None
    return new is not None and new != old


# ---- one pool ------------------------------------------------------------------------------------


def _geometry(settled: Settled, plan: Plan) -> Geometry | None:
    """How the plan's KV cache lies on a card; None where the question cannot be asked."""
    request = settled.ask.request
    if request is None:
        return None
    # where the newest question is refused, the plan that runs may be of another dtype
    return geometry_of(request._replace(kv_dtype=plan.kv.dtype), plan)


def _awaited(
    settled: Settled, before: VerifiedStatus | None, plan_id: str, now_text: str
) -> VerifiedStatus:
    ceiling = before.ceiling if before is not None else None
    if ceiling is not None and ceiling.question != settled.ask.question:
        ceiling = None
    message = "No engine's own figures were compared with this plan yet."
    if ceiling is not None and before is not None and settled.plan is not None:
        was_short = f"{before.message} " if before.verdict == SHORT else ""
        message = (
            f"{was_short}The plan was lowered to {settled.plan.kv.pool_tokens:,} tokens; no engine was "
            "compared with it yet."
        )
    return VerifiedStatus(
        plan=plan_id,
        verdict=AWAITED,
        message=message,
        at=now_text,
        accepted_at=now_text,
        ceiling=ceiling,
    )


def _capacity(seen: _Seen) -> tuple[bool, int, str]:
    """Least first; what cannot be read last."""
    outcome = seen.outcome
    if isinstance(outcome, Unreadable):
        return True, 0, seen.worker.name
    return False, outcome.compared.tokens.reported, seen.worker.name


def _is_worse(
    before: VerifiedStatus | None,
    worst: _Seen,
    mine: Sequence[WorkerFacts],
    told: dict[str, WorkerReport],
) -> bool:
    """Whether what was kept is of a worker that is there, holds less, and was not read anew."""
    if before is None or before.reported_tokens is None:
        return False
    unread = {w.uid for w in mine if w.uid not in told or told[w.uid].report is None}
    if before.uid not in unread:
        return False
    outcome = worst.outcome
    return isinstance(outcome, Unreadable) or (
        outcome.compared.tokens.reported >= before.reported_tokens
    )


def _silent(
    before: VerifiedStatus | None,
    mine: Sequence[WorkerFacts],
    told: dict[str, WorkerReport],
    reported: Reported,
    *,
    now_seconds: float,
    now_text: str,
) -> Checked:
    """Nothing new was said. Silence that lasts is told, and holds nobody back any longer."""
    if before is None:
        return Checked()
    if before.verdict != AWAITED:
        return Checked(before, _may_follow(before))
    ready = [w for w in mine if w.is_ready and w.ready_seconds is not None]
    if not ready:
        return Checked(before, may_follow=False)
    first = min(ready, key=lambda w: w.ready_seconds or 0.0)
    left = (first.ready_seconds or 0.0) + reported.grace_seconds - now_seconds
    if left > 0:
        return Checked(before, may_follow=False, again_seconds=left)
    why = told[first.uid].problem if first.uid in told else ""
    update = {
        "verdict": UNREADABLE,
        "at": now_text,
        "pod": first.name,
        "uid": first.uid,
        "message": f"{first.name} has been Ready for {reported.grace_seconds:g} s and its engine's own figures "
        f"could not be read{': ' + why if why else ''}. The other workers are not held back for it.",
    }
    return Checked(before.model_copy(update=update))


def _may_follow(status: VerifiedStatus) -> bool:
    """A plan from before plans were verified holds nobody back."""
    return status.accepted_at is None or status.verdict in (VERIFIED, MORE, UNREADABLE)


def _status(
    plan: Plan, question: str, seen: _Seen, before: VerifiedStatus | None, now_text: str
) -> VerifiedStatus:
    """What the status keeps; what it has already where the figures are the same."""
    outcome = seen.outcome
    compared = None if isinstance(outcome, Unreadable) else outcome.compared
    ceiling = before.ceiling if before is not None else None
    was_accepted = before.accepted_at if before is not None else None
    if isinstance(outcome, Short) and was_accepted is not None:
        ceiling = _lowered(ceiling, outcome.ceiling, question)
    blocks = compared.blocks if compared else None
    found = VerifiedStatus(
        plan=digest_of_plan(plan),
        verdict=_VERDICTS[type(outcome)],
        message=sentence(seen.worker.name, outcome, plan, is_held=was_accepted is not None),
        at=now_text,
        pod=seen.worker.name,
        uid=seen.worker.uid,
        planned_blocks=blocks.planned if blocks else None,
        reported_blocks=blocks.reported if blocks else None,
        planned_tokens=compared.tokens.planned if compared else None,
        reported_tokens=compared.tokens.reported if compared else None,
        error_percent=compared.tokens.error_percent if compared else None,
        accepted_at=was_accepted,
        ceiling=ceiling,
    )
    return before if before is not None and _figures_of(before) == _figures_of(found) else found


def _figures_of(status: VerifiedStatus) -> tuple[object, ...]:
    """What makes two comparisons differ; whose and when does not."""
    return (
        status.verdict,
        status.planned_blocks,
        status.reported_blocks,
        status.planned_tokens,
        status.reported_tokens,
        status.ceiling,
    )


def _lowered(had: CeilingStatus | None, found: Ceiling, question: str) -> CeilingStatus | None:
    """The lower of two ceilings of one question, a bounded number of times."""
    if had is None or had.question != question:
        return CeilingStatus(
            question=question,
            tokens=found.tokens,
            length=found.length,
            sequences=found.sequences,
        )
    is_lower = (
        found.tokens < had.tokens
        or found.length < had.length
        or (found.sequences is not None and found.sequences < (had.sequences or found.sequences))
    )
    if not is_lower or had.lowered >= MOST_LOWERED:
        return had
    return CeilingStatus(
        question=question,
        tokens=min(found.tokens, had.tokens),
        length=min(found.length, had.length),
        sequences=found.sequences,
        lowered=had.lowered + 1,
    )


def _measured(
    seen: _Seen,
    plan: Plan,
    settled: Settled,
    geometry: Geometry | None,
    *,
    extras: str,
    now_text: str,
) -> tuple[Measurement, ...]:
    request = settled.ask.request
    if request is None or settled.refusal is not None or isinstance(seen.outcome, Unreadable):
        return ()
    found = reading_of(plan, request, seen.report, geometry, extras=extras, at_text=now_text)
    return (found,) if isinstance(found, Measurement) else ()
