"""One visit makes the Job, the next keeps what it found, and then nothing is written."""

from __future__ import annotations

import asyncio
from typing import Any

import scenes
import worlds
from api_box import StandIn, connected
from plimsoll.cluster.apply import ApplyReport, make_so
from plimsoll.cluster.client import Client
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.inspection import Inspector
from plimsoll.cluster.kinds import CONFIG_MAP, INFERENCE_DEPLOYMENT, JOB, POD
from plimsoll.cluster.observe import look
from plimsoll.cluster.settled import Settled
from plimsoll.decide import Key, decide
from plimsoll.facts.inspection import InspectionReport

KEY = Key(namespace="team", name="chat")
INSPECTOR = Inspector(image="plimsoll:1", image_pull_policy="Never")


def ours() -> dict[str, Any]:
    """A model that nobody knows, on a claim."""
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 8192}, gateway={"enabled": False})
    raw["metadata"] = {"name": "chat", "namespace": "team", "generation": 1}
    raw["spec"]["model"] = {"name": "ours", "uri": "pvc://models/ours"}
    return raw


async def visit(client: Client, inspector: Inspector = INSPECTOR) -> ApplyReport:
    """Look, think, do."""
    fleet = Fleet(client, clock=lambda: 0.0)
    observed = await look(client, KEY, fleet, inspector=inspector)
    assert observed is not None
    desired = decide(observed, now_seconds=scenes.NOON)
    return await make_so(client, desired, observed, settled=Settled(), now_seconds=scenes.NOON)


def end_pod(box: StandIn, message: str) -> None:
    """The Job's pod ran and ended."""
    (job,) = [thing for (plural, _, _), thing in box.objects.items() if plural == JOB.plural]
    state = {
        "terminated": {"exitCode": 0, "message": message, "finishedAt": "2026-12-01T12:00:00Z"}
    }
    pod = {
        "metadata": {"name": "reader", "namespace": "team", "labels": job["metadata"]["labels"]},
        "spec": {},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "model", "state": state}]},
    }
    box.put(POD, pod)


def test_the_job_is_made_once_and_its_answer_is_kept() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        facts = worlds.model(worlds.EIGHT_B)
        async with connected(box) as client:
            first = await visit(client)
            assert ["Job"] == [name.partition("/")[0] for name in first.applied if "Job" in name]
            assert not [name for name in (await visit(client)).applied if "Job" in name]
            end_pod(box, InspectionReport(model=facts, fingerprint="sha256:1").to_message())
            third = await visit(client)
            assert "ConfigMap/chat-model-facts" in third.applied
            box.remove(POD, "team", "reader")  # the Job's time is over
            await visit(client)
            before = len(box.writes)
            assert 0 == (await visit(client)).writes
            assert before == len(box.writes)

    asyncio.run(story())


def test_the_job_is_not_even_looked_for_once_its_answer_is_kept() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        async with connected(box) as client:
            await visit(client)
            facts = worlds.model(worlds.EIGHT_B)
            end_pod(box, InspectionReport(model=facts).to_message())
            await visit(client)
            box.requests.clear()
            await visit(client)
            assert not [path for _, path in box.requests if "/jobs" in path]

    asyncio.run(story())


def test_an_inspections_pod_is_no_worker() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        async with connected(box) as client:
            await visit(client)
            end_pod(box, "")
            observed = await look(
                client, KEY, Fleet(client, clock=lambda: 0.0), inspector=INSPECTOR
            )
            assert observed is not None
            assert () == observed.workers
            assert 1 == len(observed.inspection.pods)

    asyncio.run(story())


def test_a_config_map_of_somebody_else_is_left_alone_and_told() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        theirs = {"metadata": {"name": "chat-model-facts", "namespace": "team"}, "data": {"a": "b"}}
        box.put(CONFIG_MAP, theirs)
        async with connected(box) as client:
            await visit(client)
            end_pod(box, InspectionReport(model=worlds.model(worlds.EIGHT_B)).to_message())
            report = await visit(client)
        (failure,) = report.failures
        assert ("ConfigMap", "NotOurs") == (failure.kind, failure.reason)
        assert {"a": "b"} == box.get(CONFIG_MAP, "team", "chat-model-facts")["data"]

    asyncio.run(story())


def test_without_an_image_no_job_is_made_and_kept_facts_still_count() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        async with connected(box) as client:
            assert not [n for n in (await visit(client, Inspector())).applied if "Job" in n]
            await visit(client)
            end_pod(box, InspectionReport(model=worlds.model(worlds.EIGHT_B)).to_message())
            await visit(client)
            await visit(client)
            assert 0 == (await visit(client, Inspector())).writes

    asyncio.run(story())


def test_the_jobs_image_is_the_operators_own() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        async with connected(box) as client:
            await visit(client)
        (job,) = [thing for (plural, _, _), thing in box.objects.items() if plural == JOB.plural]
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert ("plimsoll:1", "Never") == (container["image"], container["imagePullPolicy"])

    asyncio.run(story())
