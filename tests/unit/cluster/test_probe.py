"""One visit makes the probe's Job, the next keeps what it found, and who tries nothing asks nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import scenes
from api_box import StandIn, connected
from plimsoll.api.kv_gate_records import Probed, ProbeRecord, record_data
from plimsoll.cluster.client import Client
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.inspection import Inspector
from plimsoll.cluster.kinds import CONFIG_MAP, INFERENCE_DEPLOYMENT, POD
from plimsoll.cluster.observe import look
from plimsoll.cluster.probe import is_probe, look_at_probe
from plimsoll.decide import Key, Observed
from plimsoll.facts.retrieval import RetrievalReport, RetrievalVerdict
from plimsoll.render.labels import probe_labels

KEY = Key(namespace="team", name="chat")
INSPECTOR = Inspector(image="plimsoll:1", image_pull_policy="Never")
RECORD = ProbeRecord(
    probed=Probed(source="pvc://models/ours", engine="vllm", release="0.22.1", dtype="fp8"),
    at="2026-12-01T12:00:00Z",
    report=RetrievalReport(verdict=RetrievalVerdict.PASSED, sentence="all.", longest_tokens=8192),
)


def ours(**spec: Any) -> dict[str, Any]:
    """An object of the test."""
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 8192}, **spec)
    raw["metadata"] = {"name": "chat", "namespace": "team", "generation": 1, "uid": "u-1"}
    return raw


async def seen(client: Client) -> Observed:
    """One look."""
    observed = await look(client, KEY, Fleet(client, clock=lambda: 0.0), inspector=INSPECTOR)
    assert observed is not None
    return observed


def test_who_tries_nothing_asks_nothing() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours())
        async with connected(box) as client:
            await seen(client)
        assert not [path for _, path in box.requests if "retrieval" in path or "probe" in path]

    asyncio.run(story())


def test_the_config_map_is_read_and_whose_it_is() -> None:
    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours(kvCache={"tryDtype": "fp8"}))
        held: dict[str, Any] = {
            "metadata": {"name": "chat-retrieval", "namespace": "team"},
            "data": record_data((RECORD,)),
        }
        box.put(CONFIG_MAP, held)
        async with connected(box) as client:
            observed = await seen(client)
            assert observed.probe.cache is not None
            assert ("plimsoll:1", False) == (observed.probe.image, observed.probe.is_ours)
            uid = observed.deployment["metadata"]["uid"]
            held["metadata"]["ownerReferences"] = [{"uid": uid}]
            box.put(CONFIG_MAP, held)
            assert (await seen(client)).probe.is_ours

    asyncio.run(story())


def test_the_job_that_the_status_names_is_looked_for() -> None:
    async def story() -> None:
        box = StandIn()
        raw = ours(kvCache={"tryDtype": "fp8"})
        entry = {"pool": "rtx4090", "state": "Probing", "job": "chat-probe-0123"}
        raw["status"] = {"retrieval": [entry]}
        async with connected(box) as client:
            found = await look_at_probe(client, raw, INSPECTOR)
        assert found.job is None
        assert [path for _, path in box.requests if path.endswith("/jobs/chat-probe-0123")]

    asyncio.run(story())


def test_a_probes_pod_is_no_worker() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "team", "labels": probe_labels("chat", "0123")},
        "spec": {"containers": []},
        "status": {"phase": "Running"},
    }
    assert is_probe(pod)

    async def story() -> None:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, ours(kvCache={"tryDtype": "fp8"}))
        box.put(POD, pod)
        async with connected(box) as client:
            observed = await seen(client)
        assert (0, 1) == (len(observed.workers), len(observed.probe.pods))

    asyncio.run(story())
