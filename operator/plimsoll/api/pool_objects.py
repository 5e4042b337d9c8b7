"""What does one pool come to: its objects, with as many workers as its rollout allows, and its state?"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.rollout import has_a_first, held_back, may_surge, released, startable
from plimsoll.api.settle import Settled
from plimsoll.api.status import PoolState
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.api.verified import Checked
from plimsoll.api.workload import workload_of
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.worker import WorkerFacts
from plimsoll.render.records import Manifest
from plimsoll.render.workload import digest_of_plan, pool_manifests


def pool_objects(
    deployment: InferenceDeployment,
    settled: Settled,
    wanted: int,
    live: Manifest | None,
    *,
    inventory: Inventory,
    workers: Sequence[WorkerFacts],
    may_follow: bool,
) -> tuple[Manifest, ...]:
    """The pool's children, with as many workers as the rollout allows and the strategy it should have.

    `live` is its Deployment as it is; `workers` are those of all pools. Needs a plan.
    """
    workload = workload_of(deployment, settled)
    fresh, plan_id = pool_manifests(workload)[0], digest_of_plan(workload.plan)
    workload = workload.model_copy(
        update={
            "replicas": startable(
                settled.ask, live, released(wanted, live, plan_id, may_follow=may_follow)
            ),
            "spare_card": may_surge(
                settled.ask, live, fresh, inventory.of_type(settled.ask.gpu_product), workers
            ),
            "is_paused": not may_follow and has_a_first(live, plan_id),
        }
    )
    return pool_manifests(workload)


def pool_state(
    settled: Settled,
    wanted: int,
    live: Manifest | None,
    workers: Sequence[WorkerFacts],
    checked: Checked,
) -> PoolState:
    """What was decided for the pool and what is there; `workers` are those of all pools."""
    status = live.get("status", {}) if live else {}
    total, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    return PoolState(
        settled=settled,
        wanted=wanted,
        workers=tuple(worker for worker in workers if worker.pool == settled.ask.pool),
        updated=updated,
        is_rolling=live is not None and updated < total,
        verified=checked.status,
        held_back=held_back(settled, wanted, live, checked),
    )
