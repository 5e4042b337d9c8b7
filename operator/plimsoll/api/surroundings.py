"""How do things stand around the workers of one InferenceDeployment, for whoever would replace one?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from plimsoll.api.judged import Watched
from plimsoll.api.recycle_around import Around, PoolAround
from plimsoll.api.recycling import is_under_way
from plimsoll.api.status import PoolState
from plimsoll.api.status_types import RecyclingStatus
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.facts.gpu import Inventory
from plimsoll.render.labels import POOL_LABEL

BY_HAND: Final = "kubectl"
"""Field managers of people start with it."""


def around_of(
    deployment: InferenceDeployment,
    pools: Sequence[PoolState],
    live: Mapping[str, Mapping[str, Any]],
    inventory: Inventory,
    *,
    watched: Watched,
    now_seconds: float,
    is_autoscaled: bool = False,
    leaving_nodes: frozenset[str] = frozenset(),
    drained_at_gates: frozenset[str] | None = None,
) -> Around:
    """What `step` rests on. `live` are the pools' Deployments by pool, as the API server has them."""
    held = deployment.status.recycling or RecyclingStatus()
    surging = {entry.pool for entry in held.history if is_under_way(entry) and entry.surge}
    return Around(
        now_seconds=now_seconds,
        spec=deployment.spec.recycling,
        watched=watched,
        workers=tuple(worker for state in pools for worker in state.workers),
        pools={
            state.settled.ask.pool: PoolAround(
                wanted=state.wanted,
                is_moving=_is_moving(
                    state,
                    live.get(state.settled.ask.pool),
                    is_surging=state.settled.ask.pool in surging,
                ),
                has_spare=state.settled.is_planned and has_spare(state, inventory),
            )
            for state in pools
        },
        held=held,
        is_autoscaled=is_autoscaled,
        leaving_nodes=leaving_nodes,
        drained_at_gates=drained_at_gates,
    )


def live_pools(children: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Live Deployments by the pool they are for."""
    return {
        child["metadata"]["labels"][POOL_LABEL]: child
        for child in children
        if child["kind"] == "Deployment" and POOL_LABEL in child["metadata"].get("labels", {})
    }


def has_spare(state: PoolState, inventory: Inventory) -> bool:
    """Whether one node has the free cards of one worker."""
    ask = state.settled.ask
    return any(node.free >= ask.cards for node in inventory.of_type(ask.gpu_product))


def is_scaled_by_machine(managed_fields: Iterable[Mapping[str, Any]]) -> bool:
    """Whether something other than a person has set `spec.replicas` through the scale subresource."""
    return any(
        entry.get("subresource") == "scale"
        and not str(entry.get("manager", "")).startswith(BY_HAND)
        for entry in managed_fields
    )


def _is_moving(state: PoolState, live: Mapping[str, Any] | None, *, is_surging: bool) -> bool:
    """Whether a template, a plan or another number of workers is on its way."""
    if live is None or state.is_rolling or state.settled.is_new:
        return True
    status, metadata = live.get("status") or {}, live["metadata"]
    seen, generation = status.get("observedGeneration"), metadata.get("generation")
    if seen is not None and generation is not None and seen < generation and not is_surging:
        return True
    running = live["spec"].get("replicas", 0)
    most = state.wanted + (1 if is_surging else 0)
    return not state.wanted <= running <= most
