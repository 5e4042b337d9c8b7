"""Does a real llama-server pod serve with the flags that Plimsoll pinned, and hold what the plan says?"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import real_worker
from controlplane.cluster import ControlPlane
from controlplane.fetch import MODEL_FILE
from controlplane.node import real_node_possible
from installation import USER, Installation
from patience import Patience, eventually
from real_worker import Worker
from world import World, args_of

REASON = real_node_possible()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


@dataclass(frozen=True)
class Served:
    """The object, its plan, and the worker that runs."""

    world: World
    plan: dict[str, Any]
    worker: Worker


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One applied object, and the one worker that Plimsoll made of it."""
    with ControlPlane() as cluster, real_worker.node_for(cluster) as node:
        installed = Installation(cluster)
        installed.start()
        world = World(installed, "real-worker")
        world.apply(real_worker.deployment(world.namespace, node.parts.model))
        world.await_condition(real_worker.NAME, "Ready", "True", within=Patience.REAL_POD_READY)
        (pod,) = world.pods(real_worker.NAME)
        (pool,) = world.object(real_worker.NAME)["status"]["pools"]
        yield Served(world, pool["plan"], Worker(pod))
        installed.stop()
        denied = installed.log.denied(USER)
        assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def test_the_workers_arguments_are_the_pinned_flags(served: Served) -> None:
    told = (
        *("--model", f"/models/{MODEL_FILE}", "--alias", real_worker.MODEL_NAME),
        *("--host", "0.0.0.0", "--port", str(real_worker.PORT)),
    )
    expected = [*told, *real_worker.pinned(served.plan)]
    assert expected == served.worker.args
    deployment = served.world.deployments()[f"{real_worker.NAME}-{real_worker.POOL}"]
    assert expected == args_of(deployment)


def test_it_runs_on_the_real_node_as_nobody_in_particular(served: Served) -> None:
    pod = served.worker.pod
    assert pod["spec"]["nodeName"] == real_worker.NODE
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert 0 == pod["status"]["containerStatuses"][0]["restartCount"]


def test_it_answers_a_chat(served: Served) -> None:
    answer = served.worker.chat("What is the capital of France?")
    assert "Paris" in answer.text
    assert answer.tokens > 0


def test_its_slots_are_as_long_and_as_many_as_planned(served: Served) -> None:
    status, text = served.worker.get("/props")
    assert http.client.OK == status
    props = json.loads(text)
    assert served.plan["maxModelLen"] == props["default_generation_settings"]["n_ctx"]
    assert served.plan["concurrency"]["maxNumSeqs"] == props["total_slots"]


def test_its_metrics_can_be_scraped(served: Served) -> None:
    status, text = served.worker.get("/metrics")
    assert http.client.OK == status
    assert "llamacpp:requests_processing" in text


def test_its_caches_are_as_large_as_the_plan_says(served: Served) -> None:
    log = served.world.kubectl("logs", served.worker.pod["metadata"]["name"])
    assert real_worker.kv_bytes(served.plan) == real_worker.kv_bytes_told(log)


def test_kubectl_get_says_ready(served: Served) -> None:
    columns = served.world.kubectl("get", "infd", real_worker.NAME, "--no-headers").split()
    assert [real_worker.NAME, real_worker.MODEL_NAME, real_worker.POOL, "1", "1"] == columns[:5]
    assert "AllWorkersReady" in columns


def test_its_plan_is_verified_to_the_token(served: Served) -> None:
    told = served.world.await_condition(real_worker.NAME, "PlanVerified", "True")
    assert "AsPlanned" == told["reason"]
    (pool,) = served.world.object(real_worker.NAME)["status"]["pools"]
    verified = pool["verified"]
    assert served.plan["kv"]["poolTokens"] == verified["reportedTokens"]
    assert 0.0 == verified["errorPercent"]
    assert served.worker.pod["metadata"]["name"] == verified["pod"]


def test_facts_that_say_more_than_the_file_are_caught(served: Served) -> None:
    """The last story here: the model was trained for fewer tokens than these facts say, so llama-server
    gives its slots fewer than were asked for."""
    raw = served.world.object(real_worker.NAME)
    facts = raw["spec"]["model"]["facts"]["inline"]["gguf"]
    trained = facts["contextLength"]
    facts["contextLength"] = 2 * trained
    raw["spec"]["limits"] = {"maxModelLen": 2 * trained, "concurrency": 1}
    served.world.kubectl("delete", "infd", real_worker.NAME)
    eventually(lambda: not served.world.pods(), within=Patience.POD_GONE, says="the worker is gone")
    raw["metadata"] = {"name": real_worker.NAME, "namespace": served.world.namespace}
    raw.pop("status")
    served.world.apply(raw)
    told = served.world.await_condition(
        real_worker.NAME, "PlanVerified", "False", within=Patience.REAL_POD_READY
    )
    assert f"1 slots of {trained:,} tokens; planned 1 of {2 * trained:,}" in told["message"]
    planned = served.world.await_condition(real_worker.NAME, "Planned", "False")
    assert f"llama-server gave its slots {trained:,}" in planned["message"]
