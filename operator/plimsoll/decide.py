"""Given everything observed, what should the cluster look like?

The whole thought in one function; the shell carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ConfigDict, ValidationError

from plimsoll.api.asks import PoolAsk
from plimsoll.api.conditions import Condition
from plimsoll.api.replicas import Share, share_out
from plimsoll.api.requests import pool_asks
from plimsoll.api.settle import Settled, settle
from plimsoll.api.status import PoolState, status_of, unreadable_status
from plimsoll.api.status_types import written
from plimsoll.api.v1alpha1 import (
    InferenceDeployment,
    InferenceDeploymentStatus,
    explain_errors,
    read_status,
)
from plimsoll.api.workload import owner_of, workload_of
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts
from plimsoll.render.labels import PLAN_ANNOTATION, POOL_LABEL, TEMPLATE_ANNOTATION
from plimsoll.render.service import service_manifest
from plimsoll.render.workload import pool_manifests

Manifest = dict[str, Any]
"""One Kubernetes object as plain data."""

LOOK_AGAIN_SECONDS: Final = 30.0
"""While something is on its way, look again after this long even when no event came."""


class Key(Record):
    """Which InferenceDeployment."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class ChildRef(Record):
    """A child to remove."""

    api_version: str
    """For example apps/v1."""
    kind: str
    """For example Deployment."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class Announcement(Record):
    """An Event for the person at kubectl."""

    type: str
    """Normal or Warning."""
    reason: str
    """PascalCase fact."""
    message: str
    """One sentence."""


class Observed(Record):
    """The world as one reconcile sees it. Raw objects stay raw: `decide` opens what it needs."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    deployment: Manifest
    """The InferenceDeployment as the API server gave it, status included."""
    inventory: Inventory
    """Every card in reach."""
    children: tuple[Manifest, ...] = ()
    """Live objects of ours that belong to it: Deployments, PodDisruptionBudgets, Service."""
    workers: tuple[WorkerFacts, ...] = ()
    """Its pods."""
    facts_text: str | None = None
    """Content of the ConfigMap that model.facts names; None when none is named or it is missing."""


class Desired(Record):
    """What the shell makes so."""

    apply: tuple[Manifest, ...] = ()
    """Children by server-side apply, whole intent each; the shell skips those already so."""
    delete: tuple[ChildRef, ...] = ()
    """Children that are no longer wanted."""
    status: dict[str, Any] | None = None
    """The whole status by server-side apply to /status; None leaves it alone."""
    events: tuple[Announcement, ...] = ()
    """What to tell."""
    look_again_seconds: float | None = None
    """Visit again after this long, events or not."""


def decide(observed: Observed, *, now_seconds: float) -> Desired:
    """One reconcile, from records to records. `now_seconds` is Unix time and only dates conditions."""
    now_text = datetime.fromtimestamp(now_seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        deployment = InferenceDeployment.model_validate(observed.deployment)
    except ValidationError as error:
        return _unreadable(observed.deployment, explain_errors(error), now_text)
    held = deployment.status
    asks = pool_asks(
        deployment,
        observed.inventory,
        facts_text=observed.facts_text,
        made_before=held.pools,
    )
    settled = tuple(settle(ask, held.pool(ask.pool)) for ask in asks)
    shares = share_out(deployment.spec.replicas, _claims(settled))
    live = _live_deployments(observed.children)
    pools: list[PoolState] = []
    apply: list[Manifest] = [service_manifest(owner_of(deployment))]
    for each in settled:
        wanted = shares[each.ask.pool]
        there = live.get(each.ask.pool)
        if each.is_planned:
            apply.extend(_manifests(deployment, each, wanted, there, observed))
        pools.append(_state(each, wanted, there, observed.workers))
    status = status_of(deployment, pools, observed.inventory, now_text=now_text)
    return Desired(
        apply=tuple(apply),
        delete=tuple(_unwanted(deployment, settled, observed)),
        status=written(status),
        events=tuple(_events(held, status)),
        look_again_seconds=LOOK_AGAIN_SECONDS if _is_moving(status) else None,
    )


def _unreadable(raw: Manifest, problems: Sequence[str], now_text: str) -> Desired:
    metadata = raw.get("metadata", {})
    held = read_status(raw.get("status"))
    status = unreadable_status(
        metadata.get("name", ""),
        metadata.get("generation", 0),
        held.conditions,
        "; ".join(problems) + ".",
        now_text=now_text,
    )
    kept = status.model_copy(
        update={
            "pools": held.pools,
            "replicas": held.replicas,
            "ready_replicas": held.ready_replicas,
        }
    )
    return Desired(status=written(kept), events=tuple(_events(held, kept)))


# ---- pools ---------------------------------------------------------------------------------------


def _claims(settled: Sequence[Settled]) -> list[Share]:
    return [Share(pool=each.ask.pool, wanted=each.ask.wanted, room=_room(each)) for each in settled]


def _room(settled: Settled) -> int | None:
    """A pool without a plan takes none of the workers that nobody assigned."""
    return settled.ask.room if settled.is_planned else 0


def _live_deployments(children: Sequence[Manifest]) -> dict[str, Manifest]:
    """Live Deployments by the pool they are for."""
    return {
        child["metadata"]["labels"][POOL_LABEL]: child
        for child in children
        if child["kind"] == "Deployment" and POOL_LABEL in child["metadata"].get("labels", {})
    }


def _manifests(
    deployment: InferenceDeployment,
    settled: Settled,
    wanted: int,
    live: Manifest | None,
    observed: Observed,
) -> tuple[Manifest, ...]:
    """The pool's children, with as many workers as the rollout allows and the strategy it should have."""
    workload = workload_of(deployment, settled)
    fresh = pool_manifests(workload)[0]
    workload = workload.model_copy(
        update={
            "replicas": _released(wanted, live, _annotation(fresh, PLAN_ANNOTATION)),
            "spare_card": _may_surge(settled.ask, live, fresh, observed),
        }
    )
    return pool_manifests(workload)


def _annotation(manifest: Manifest, name: str) -> str | None:
    found: str | None = manifest["metadata"].get("annotations", {}).get(name)
    return found


def _released(wanted: int, live: Manifest | None, plan_id: str | None) -> int:
    """One worker first; the others when it is ready. What runs already is not taken down for it."""
    if wanted <= 1 or live is None:
        return min(wanted, 1)
    running = live["spec"].get("replicas", 0)
    status = live.get("status", {})
    has_plan = _annotation(live, PLAN_ANNOTATION) == plan_id
    if running > 1 or (has_plan and status.get("readyReplicas", 0) >= 1):
        return wanted
    return 1


def _may_surge(ask: PoolAsk, live: Manifest | None, fresh: Manifest, observed: Observed) -> bool:
    """Whether a rollout may start the new worker before the old one stops.

    Decided when the rollout begins, and taken back when the card that was free then is gone: else the
    new worker would wait for a card that only the old one could give.
    """
    if live is None:
        return False
    has_spare = any(
        node.free >= ask.cards
        for node in observed.inventory.nodes
        if node.gpu.product == ask.gpu_product
    )
    if _annotation(live, TEMPLATE_ANNOTATION) != _annotation(fresh, TEMPLATE_ANNOTATION):
        return has_spare
    surges = bool(live["spec"].get("strategy", {}).get("rollingUpdate", {}).get("maxSurge", 0))
    waits = any(
        worker.node is None and not worker.is_terminating
        for worker in observed.workers
        if worker.pool == ask.pool
    )
    return surges and (has_spare or not waits)


def _state(
    settled: Settled, wanted: int, live: Manifest | None, workers: Sequence[WorkerFacts]
) -> PoolState:
    status = live.get("status", {}) if live else {}
    total, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    return PoolState(
        settled=settled,
        wanted=wanted,
        workers=tuple(worker for worker in workers if worker.pool == settled.ask.pool),
        updated=updated,
        is_rolling=live is not None and total > 0 and updated < min(total, wanted),
    )


def _unwanted(
    deployment: InferenceDeployment, settled: Sequence[Settled], observed: Observed
) -> Iterator[ChildRef]:
    """Children of pools that nobody wants any more.

    Where Plimsoll makes the pools, one whose GPU type is out of sight is kept: that we do not see
    its nodes is no reason to take its workers down.
    """
    asked = {each.ask.pool for each in settled}
    in_sight = {gpu.product for gpu in observed.inventory.types()}
    for child in observed.children:
        pool = child["metadata"].get("labels", {}).get(POOL_LABEL)
        if pool is None or pool in asked:
            continue
        if not deployment.spec.pools:
            held = deployment.status.pool(pool)
            if held is None or held.gpu_product not in in_sight:
                continue
        yield ChildRef(
            api_version=child["apiVersion"],
            kind=child["kind"],
            namespace=child["metadata"]["namespace"],
            name=child["metadata"]["name"],
        )


# ---- telling -------------------------------------------------------------------------------------


def _events(
    before: InferenceDeploymentStatus, after: InferenceDeploymentStatus
) -> Iterator[Announcement]:
    """One event for each pool whose plan or refusal changed, and one for a spec that cannot be read."""
    for pool in after.pools:
        old = before.pool(pool.name)
        if pool.refusal is not None:
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


def _condition(status: InferenceDeploymentStatus, name: str) -> Condition | None:
    return next((each for each in status.conditions if each.type == name), None)


def _message(status: InferenceDeploymentStatus, name: str) -> str:
    found = _condition(status, name)
    return found.message if found else ""


def _is_moving(status: InferenceDeploymentStatus) -> bool:
    return _condition(status, "Reconciling") is not None
