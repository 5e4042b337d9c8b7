"""The example manifests, and the fleets they meet, for tests without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

import worlds
from plimsoll.api.inspection_ask import InspectionSeen
from plimsoll.api.judged import Watched
from plimsoll.api.kv_gate import ProbeSeen
from plimsoll.api.verified import Reported
from plimsoll.decide import Desired, Manifest, Observed, decide
from plimsoll.facts.gpu import Inventory, NodeGpus, UnplannableNode
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.calibration import Measurement
from plimsoll.render.labels import POOL_LABEL

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
NOON = 1_796_040_000.0


def example(name: str, **spec: Any) -> Manifest:
    """An example as the API server would hand it out; keyword arguments replace parts of its spec."""
    raw: Manifest = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    raw["metadata"] |= {"uid": "0f5c", "generation": 1}
    raw["spec"] |= spec
    return raw


def fleet(*nodes: tuple[str, str, int], unplannable: Sequence[UnplannableNode] = ()) -> Inventory:
    """(node, GPU type, cards): every card free."""
    return Inventory(
        nodes=tuple(
            NodeGpus(node=name, gpu=worlds.card(gpu), count=count, free=count)
            for name, gpu, count in nodes
        ),
        unplannable=tuple(unplannable),
    )


MIXED = fleet(
    ("a6000-0", "rtx-a6000", 4), ("a6000-1", "rtx-a6000", 4), ("a6000-2", "rtx-a6000", 1),
    ("4090-0", "rtx-4090", 1), ("h100-0", "h100-sxm", 8),
)  # fmt: skip


def think(
    raw: Manifest,
    inventory: Inventory = MIXED,
    *,
    children: Sequence[Manifest] = (),
    workers: Sequence[WorkerFacts] = (),
    facts_text: str | None = None,
    inspection: InspectionSeen | None = None,
    watched: Watched | None = None,
    leaving_nodes: frozenset[str] = frozenset(),
    reported: Reported | None = None,
    calibration: tuple[Measurement, ...] = (),
    probe: ProbeSeen | None = None,
    now: float = NOON,
) -> Desired:
    """One decision."""
    observed = Observed(
        deployment=raw,
        inventory=inventory,
        children=tuple(children),
        workers=tuple(workers),
        facts_text=facts_text,
        inspection=inspection or InspectionSeen(),
        watched=watched,
        leaving_nodes=leaving_nodes,
        reported=reported,
        calibration=calibration,
        probe=probe or ProbeSeen(),
    )
    return decide(observed, now_seconds=now)


def applied(raw: Manifest, desired: Desired) -> tuple[Manifest, tuple[Manifest, ...]]:
    """The object with its new status, and its children, as the API server holds them afterwards."""
    after = deepcopy(raw)
    if desired.status is not None:
        after["status"] = deepcopy(desired.status)
    return after, deepcopy(desired.apply)


def deployments(desired: Desired) -> dict[str, Manifest]:
    """Deployments to apply, by pool."""
    return {
        each["metadata"]["labels"][POOL_LABEL]: each
        for each in desired.apply
        if each["kind"] == "Deployment"
    }


def with_ready(children: Sequence[Manifest], ready: int = 1) -> tuple[Manifest, ...]:
    """The children with so many workers ready in every Deployment."""
    after = deepcopy(tuple(children))
    for child in after:
        if child["kind"] == "Deployment":
            child["status"] = {
                "replicas": ready,
                "readyReplicas": ready,
                "updatedReplicas": ready,
            }
    return after


def worker(pool: str, number: int = 0, **changes: Any) -> WorkerFacts:
    """A pod that serves."""
    facts = WorkerFacts(
        name=f"{pool}-{number}",
        uid=f"{pool}-{number}",
        pool=pool,
        node="a6000-0",
        phase="Running",
        is_ready=True,
    )
    return facts.model_copy(update=changes)


def condition(desired: Desired, name: str) -> Manifest | None:
    """One condition of the status to write."""
    assert desired.status is not None
    return next((each for each in desired.status["conditions"] if each["type"] == name), None)
