"""How many of a pool's workers may run now, and does a rollout go on?

One worker of a new plan first; the others when its engine was read. What runs already is not taken down.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.asks import PoolAsk
from plimsoll.api.settle import Settled
from plimsoll.api.verified import Checked
from plimsoll.facts.gpu import NodeGpus
from plimsoll.facts.worker import WorkerFacts
from plimsoll.render.labels import PLAN_ANNOTATION, TEMPLATE_ANNOTATION
from plimsoll.render.records import Manifest
from plimsoll.render.workload import digest_of_plan


def released(wanted: int, live: Manifest | None, plan_id: str | None, *, may_follow: bool) -> int:
    """One worker first; the others when it is ready and its engine holds what was promised.

    What runs already is not taken down for it.
    """
    if wanted <= 1 or live is None:
        return min(wanted, 1)
    running: int = live["spec"].get("replicas", 0)
    if not may_follow and has_a_first(live, plan_id):
        return min(wanted, running)
    if running > 1 or (may_follow and _first_is_ready(live, plan_id)):
        return wanted
    return 1


def has_a_first(live: Manifest | None, plan_id: str | None) -> bool:
    """Whether a rollout over running workers has made its first: the others wait for what its engine says."""
    if live is None or _annotation(live, PLAN_ANNOTATION) != plan_id:
        return False
    updated: int = live.get("status", {}).get("updatedReplicas", 0)
    running: int = live["spec"].get("replicas", 0)
    return 0 < updated < running


def held_back(settled: Settled, wanted: int, live: Manifest | None, checked: Checked) -> int:
    """Workers that wait for nothing but what the first one's engine says."""
    if live is None or settled.plan is None or checked.may_follow:
        return 0
    plan_id = digest_of_plan(settled.plan)
    if not _first_is_ready(live, plan_id):
        return 0
    return wanted - released(wanted, live, plan_id, may_follow=False)


def startable(ask: PoolAsk, live: Manifest | None, released: int) -> int:
    """From facts of cards that are too old no worker is started: as many as there are, at most."""
    if ask.stale is None:
        return released
    return min(released, live["spec"].get("replicas", 0) if live else 0)


def may_surge(
    ask: PoolAsk,
    live: Manifest | None,
    fresh: Manifest,
    nodes: Iterable[NodeGpus],
    workers: Iterable[WorkerFacts],
) -> bool:
    """Whether a rollout may start the new worker before the old one stops.

    Decided when the rollout begins, and taken back when the card that was free then is gone: else the
    new worker would wait for a card that only the old one could give.
    """
    if live is None:
        return False
    has_spare = any(node.free >= ask.cards for node in nodes if node.gpu.product == ask.gpu_product)
    if _annotation(live, TEMPLATE_ANNOTATION) != _annotation(fresh, TEMPLATE_ANNOTATION):
        return has_spare
    surges = bool(live["spec"].get("strategy", {}).get("rollingUpdate", {}).get("maxSurge", 0))
    waits = any(
        worker.node is None and not worker.is_terminating
        for worker in workers
        if worker.pool == ask.pool
    )
    return surges and (has_spare or not waits)


def _first_is_ready(live: Manifest, plan_id: str | None) -> bool:
    """Whether it is, and no worker of a template before is left: the Deployment's controller would hand
    that template a part of the new workers."""
    status = live.get("status", {})
    is_alone: bool = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    has_plan = _annotation(live, PLAN_ANNOTATION) == plan_id
    ready: int = status.get("readyReplicas", 0)
    return has_plan and is_alone and ready >= 1


def _annotation(manifest: Manifest, name: str) -> str | None:
    found: str | None = manifest["metadata"].get("annotations", {}).get(name)
    return found
