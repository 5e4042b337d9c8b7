"""How the world looks to one InferenceDeployment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import CONFIG_MAP, DEPLOYMENT, INFERENCE_DEPLOYMENT, POD, SERVICE
from plimsoll.cluster.observe import look, why_not_running, worker_of
from plimsoll.decide import Key, Observed
from plimsoll.render.labels import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    DRAINING_COMPONENT,
    POOL_LABEL,
)

KEY = Key(namespace="team", name="chat")
OURS = {"labels": {DEPLOYMENT_LABEL: "chat", POOL_LABEL: "p"}}


def looking(*things: tuple[Any, dict[str, Any]], spec: Any = None, **metadata: Any) -> Any:
    """Put things into a box beside one InferenceDeployment, and look."""

    async def run() -> tuple[Observed | None, StandIn]:
        box = StandIn()
        if spec is not None:
            mine = {"metadata": {"name": "chat", "namespace": "team"} | metadata, "spec": spec}
            box.put(INFERENCE_DEPLOYMENT, mine)
        for kind, thing in things:
            thing["metadata"] = {"namespace": "team"} | thing["metadata"]
            box.put(kind, thing)
        async with connected(box) as client:
            return await look(client, KEY, Fleet(client, clock=lambda: 0.0)), box

    return asyncio.run(run())


def test_what_is_gone_or_going_is_not_looked_at() -> None:
    seen, box = looking()
    assert seen is None
    assert 1 == len(box.requests)
    assert looking(spec={}, deletionTimestamp="2026-11-29T12:00:00Z")[0] is None


def test_children_and_workers_are_found_by_label_in_the_namespace() -> None:
    seen, _ = looking(
        (DEPLOYMENT, {"metadata": {"name": "a"} | OURS}),
        (SERVICE, {"metadata": {"name": "b"} | OURS}),
        (SERVICE, {"metadata": {"name": "theirs"}}),
        (SERVICE, {"metadata": {"name": "c", "namespace": "other"} | OURS}),
        (POD, {"metadata": {"name": "w"} | OURS, "spec": {}}),
        spec={},
    )
    assert {("Deployment", "a"), ("Service", "b")} == {
        (child["kind"], child["metadata"]["name"]) for child in seen.children
    }
    assert ["w"] == [worker.name for worker in seen.workers]
    assert ["p"] == [worker.pool for worker in seen.workers]


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"name": "facts"}, "layers: 80"),
        ({"name": "facts", "key": "other"}, "layers: 32"),
        ({"name": "facts", "key": "none"}, None),
        ({"name": "none"}, None),
        ({"name": 7}, None),
        ("facts", None),
    ],
)
def test_facts_are_read_from_the_named_config_map(named: object, text: str | None) -> None:
    data = {"facts.yaml": "layers: 80", "other": "layers: 32"}
    seen, _ = looking(
        (CONFIG_MAP, {"metadata": {"name": "facts"}, "data": data}),
        spec={"model": {"facts": {"configMap": named}}},
    )
    assert text == seen.facts_text


def test_no_config_map_is_asked_for_where_none_is_named() -> None:
    _, box = looking(spec={"model": {"facts": {"inline": {}}}})
    assert not [path for _, path in box.requests if "configmaps" in path]


def test_a_pod_becomes_a_worker() -> None:
    worker = worker_of(
        {
            "metadata": {
                "name": "w",
                "uid": "u",
                "labels": {POOL_LABEL: "p", "pod-template-hash": "h"},
                "deletionTimestamp": "2026-11-29T12:00:00Z",
            },
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    assert ("w", "u", "p", "n", "Running", True, "h", True, "") == (
        worker.name,
        worker.uid,
        worker.pool,
        worker.node,
        worker.phase,
        worker.is_ready,
        worker.template_hash,
        worker.is_terminating,
        worker.message,
    )


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, ""),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/4 nodes fit"}
                ]
            },
            "0/4 nodes fit",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "engine",
                        "ready": False,
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "again"}},
                        "lastState": {"terminated": {"message": "CUDA out of memory\n"}},
                    }
                ]
            },
            "engine: CrashLoopBackOff: again: CUDA out of memory",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "e",
                        "ready": False,
                        "state": {"waiting": {"reason": "ContainerCreating"}},
                    }
                ]
            },
            "",
        ),
        (
            {"reason": "Evicted", "message": "The node was low on memory"},
            "The node was low on memory",
        ),
    ],
)
def test_why_a_worker_does_not_run_is_in_one_sentence(status: dict[str, Any], told: str) -> None:
    assert told == why_not_running(status)


def test_a_worker_that_drains_is_out_of_service_and_still_a_worker() -> None:
    labels = OURS["labels"] | {COMPONENT_LABEL: DRAINING_COMPONENT}
    made = {"name": "w", "uid": "u", "creationTimestamp": "2026-11-29T12:00:00Z"}
    worker = worker_of({"metadata": made | {"labels": labels}})
    assert (False, "p", 1795953600.0) == (
        worker.is_in_service,
        worker.pool,
        worker.created_seconds,
    )
    assert worker_of({"metadata": made | OURS}).is_in_service
