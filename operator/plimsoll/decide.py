"""Given everything observed, what should the cluster look like?

The whole thought in one function; the shell carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ConfigDict, SkipValidation, ValidationError

from plimsoll.api.allowed import Allowed
from plimsoll.api.deaths import death_news, with_lessons
from plimsoll.api.gateway_door import door_of
from plimsoll.api.gateway_words import GateSeen, GateWord
from plimsoll.api.hearing import hear
from plimsoll.api.inspection import inspect
from plimsoll.api.inspection_ask import InspectionSeen, allowed_ask
from plimsoll.api.judged import Watched
from plimsoll.api.kv_gate import ProbeSeen, gate_news, gate_step, known_records
from plimsoll.api.memory import Memory, memory_of
from plimsoll.api.model_facts import ReadFacts
from plimsoll.api.news import Announcement, is_moving, plan_news, recycling_news
from plimsoll.api.pool_objects import pool_objects, pool_state
from plimsoll.api.prefix_caching import prefix_news, prefix_steps, with_prefixes
from plimsoll.api.recycle_around import Act
from plimsoll.api.recycle_step import Step, step
from plimsoll.api.recycle_step import after_block as blocked_recycling
from plimsoll.api.replicas import share_out
from plimsoll.api.requests import pool_asks
from plimsoll.api.settle import Settled, claims_of, settle
from plimsoll.api.status import PoolState, status_of, unreadable_status
from plimsoll.api.status_types import PoolStatus, RecyclingStatus, written
from plimsoll.api.surroundings import around_of, is_scaled_by_machine, live_pools
from plimsoll.api.v1alpha1 import (
    InferenceDeployment,
    explain_errors,
    read_status,
)
from plimsoll.api.verified import Reported, verified_news
from plimsoll.facts.gpu import GpuFacts, Inventory
from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.calibration import Measurement
from plimsoll.render.labels import POOL_LABEL

Manifest = dict[str, Any]
"""One Kubernetes object as plain data."""

LOOK_AGAIN_SECONDS: Final = 30.0
"""While something is on its way, look again after this long even when no event came."""

LOOKS_PER_HOUR: Final = 12
"""At workers' memory, where nothing else calls for a look: twice for each bin of floors."""


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
    inspection: InspectionSeen = InspectionSeen()
    """What the cluster shows of the reading of the model's files."""
    probe: ProbeSeen = ProbeSeen()
    """What the cluster shows of probes of a KV cache of fewer bits."""
    watched: SkipValidation[Watched | None] = None
    """What was judged of the workers' memory; None where nobody watches."""
    leaving_nodes: frozenset[str] = frozenset()
    """Nodes that are cordoned or on their way out."""
    reported: SkipValidation[Reported | None] = None
    """What the engines said of themselves; None where nobody asks them."""
    calibration: SkipValidation[tuple[Measurement, ...]] = ()
    """What engines took before, in this namespace."""
    allowed: Allowed = Allowed()
    """What the site allows."""
    gates: tuple[GateSeen, ...] = ()
    """Pods of its gate."""
    drained_at_gates: frozenset[str] | None = None
    """Names of workers that all gates have drained; None where none was asked."""


class Desired(Record):
    """What the shell makes so."""

    apply: tuple[Manifest, ...] = ()
    """Children by server-side apply, whole intent each; the shell skips those already so."""
    delete: tuple[ChildRef, ...] = ()
    """Children that are no longer wanted."""
    read_files: Manifest | None = None
    """The Job to make that reads the model's files; it is never changed afterwards."""
    keep_facts: Manifest | None = None
    """The ConfigMap to write with what such a Job found."""
    probe: Manifest | None = None
    """The Job to make that tries a KV cache of fewer bits; it is never changed afterwards."""
    keep_probes: Manifest | None = None
    """The ConfigMap to write with what such Jobs found."""
    status: dict[str, Any] | None = None
    """The whole status by server-side apply to /status; None leaves it alone."""
    acts: tuple[Act, ...] = ()
    """What is done to workers once the status has been written; at most one of them is evicted."""
    words: tuple[GateWord, ...] = ()
    """What is told to gates."""
    events: tuple[Announcement, ...] = ()
    """What to tell."""
    measured: tuple[Measurement, ...] = ()
    """What engines were seen to take, to be kept for later plans."""
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
    inspection = inspect(
        deployment,
        allowed_ask(observed.deployment, observed.allowed),
        observed.inspection,
        gpus=_gpus(deployment, observed),
        now_text=now_text,
    )
    heard = hear(
        lambda pools: _settled(deployment, observed, inspection.read, pools),
        deployment,
        observed.workers,
        observed.reported,
        now_seconds=now_seconds,
    )
    settled, checked = heard.settled, heard.checked
    gate = gate_step(
        deployment,
        settled,
        observed.probe,
        inventory=observed.inventory,
        workers=observed.workers,
        now_text=now_text,
    )
    shares = share_out(deployment.spec.replicas, claims_of(settled))
    live = live_pools(observed.children)
    pools = [
        pool_state(
            each,
            shares[each.ask.pool],
            live.get(each.ask.pool),
            observed.workers,
            checked[each.ask.pool],
        )
        for each in settled
    ]
    next_step = _step(deployment, observed, pools, live, now_seconds)
    door = door_of(
        deployment,
        settled,
        observed.children,
        observed.gates,
        observed.workers,
        keeper=(observed.inspection.image, observed.inspection.image_pull_policy),
        now_seconds=now_seconds,
    )
    apply = [door.service, *door.manifests]
    for each in settled:
        pool = each.ask.pool
        wanted = shares[pool] + (next_step is not None and pool == next_step.surge_pool)
        if each.is_planned:
            apply.extend(
                pool_objects(
                    deployment,
                    each,
                    wanted,
                    live.get(pool),
                    inventory=observed.inventory,
                    workers=observed.workers,
                    may_follow=checked[pool].may_follow,
                )
            )
    status = status_of(
        deployment,
        pools,
        observed.inventory,
        now_text=now_text,
        notes=(
            *inspection.notes,
            *gate.notes,
            *observed.inventory.notes({each.ask.gpu_product for each in settled}),
        ),
        is_reading=inspection.is_pending,
        memory=_memory(next_step, deployment, observed, now_seconds),
    )
    prefixes = prefix_steps(
        deployment.spec,
        settled,
        observed.watched,
        observed.workers,
        held,
        now_seconds=now_seconds,
    )
    status = with_prefixes(status, prefixes).model_copy(
        update={"retrieval": gate.status, "gateway": door.status}
    )
    status = with_lessons(status, heard.lessons, held.conditions, now_text=now_text)
    is_on_its_way = inspection.is_pending or is_moving(status)
    again = [LOOK_AGAIN_SECONDS] if is_on_its_way else []
    again.extend(gate.again_seconds)
    again.extend(each.again_seconds for each in checked.values() if each.again_seconds is not None)
    if observed.watched is not None:
        again.append(observed.watched.hour_seconds / LOOKS_PER_HOUR)
    if next_step is not None and next_step.again_seconds is not None:
        again.append(next_step.again_seconds)
    return Desired(
        apply=tuple(apply),
        delete=(*_unwanted(deployment, settled, observed), *map(_ref, door.unwanted)),
        read_files=inspection.job,
        keep_facts=inspection.cache,
        probe=gate.job,
        keep_probes=gate.cache,
        status=written(status),
        words=door.words,
        acts=next_step.acts if next_step is not None else (),
        events=(
            *death_news(heard.lessons),
            *verified_news(held, heard.first_checked),
            *gate_news(gate),
            *plan_news(held, status),
            *recycling_news(next_step),
            *prefix_news(prefixes),
        ),
        measured=tuple(one for each in heard.first_checked.values() for one in each.measured),
        look_again_seconds=min(again, default=None),
    )


def after_block(
    status: dict[str, Any], pod_uid: str, why: str, *, now_seconds: float
) -> tuple[dict[str, Any], Announcement]:
    """The status after an eviction was not allowed, and what to tell."""
    held = read_status(status)
    recycling = blocked_recycling(held.recycling or RecyclingStatus(), pod_uid, why, now_seconds)
    event = Announcement(type="Warning", reason="RecycleBlocked", message=why)
    return written(held.model_copy(update={"recycling": recycling})), event


def _settled(
    deployment: InferenceDeployment,
    observed: Observed,
    read: ReadFacts | None,
    before: Sequence[PoolStatus],
) -> tuple[Settled, ...]:
    """Every pool's plan, given what its status holds."""
    asks = pool_asks(
        deployment,
        observed.inventory,
        facts_text=observed.facts_text,
        made_before=before,
        read=read,
        calibration=observed.calibration,
        probes=known_records(deployment.status.retrieval, observed.probe),
        allowed=observed.allowed,
    )
    held = {pool.name: pool for pool in before}
    return tuple(settle(ask, held.get(ask.pool)) for ask in asks)


def _step(
    deployment: InferenceDeployment,
    observed: Observed,
    pools: Sequence[PoolState],
    live: dict[str, Manifest],
    now_seconds: float,
) -> Step | None:
    """The next step of replacing workers; None where nobody watches."""
    if observed.watched is None:
        return None
    managed = observed.deployment["metadata"].get("managedFields") or ()
    return step(
        around_of(
            deployment,
            pools,
            live,
            observed.inventory,
            watched=observed.watched,
            now_seconds=now_seconds,
            is_autoscaled=is_scaled_by_machine(managed),
            leaving_nodes=observed.leaving_nodes,
            drained_at_gates=observed.drained_at_gates,
        )
    )


def _memory(
    next_step: Step | None,
    deployment: InferenceDeployment,
    observed: Observed,
    now_seconds: float,
) -> Memory:
    """What is told of memory. Where nobody watches, the recorded recycles stay."""
    if next_step is None or observed.watched is None:
        return Memory(recycling=deployment.status.recycling)
    return memory_of(
        next_step,
        observed.workers,
        deployment.status,
        now_seconds=now_seconds,
        hour_seconds=observed.watched.hour_seconds,
        operator_started_seconds=observed.watched.operator_started_seconds,
    )


def _gpus(deployment: InferenceDeployment, observed: Observed) -> list[GpuFacts]:
    """GPU types in reach on which workers may run."""
    named = {pool.gpu.product for pool in deployment.spec.pools}
    types = observed.inventory.types()
    return [gpu for gpu in types if gpu.product in named] or list(types)


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
            "recycling": held.recycling,
            "retrieval": held.retrieval,
            "gateway": held.gateway,
        }
    )
    return Desired(status=written(kept), events=tuple(plan_news(held, kept)))


# ---- pools ---------------------------------------------------------------------------------------


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
        yield _ref(child)


def _ref(child: Manifest) -> ChildRef:
    metadata = child["metadata"]
    return ChildRef(
        api_version=child["apiVersion"],
        kind=child["kind"],
        namespace=metadata["namespace"],
        name=metadata["name"],
    )
