"""An fp8 cache comes into use when a probe's Job has passed, on a card of its own, and never before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from controlplane.cluster import Manifest
from objects import small
from patience import Patience, eventually
from plimsoll.facts.retrieval import RetrievalReport, RetrievalVerdict
from stand_ins.inspector import end
from world import World, args_of

IMAGE: Final = "plimsoll/plimsoll:story"
PROBES: Final = "app.kubernetes.io/component=probe"
LENGTH: Final = 8192


@pytest.fixture
def probing(world: World) -> Iterator[World]:
    """The same world, with an operator that knows its own image, in a namespace that is restricted."""
    world.cluster.kubectl(
        "label", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    world.installed.stop()
    world.installed.start(PLIMSOLL_INSPECTION_IMAGE=IMAGE)
    yield world
    world.installed.stop()


def gate(world: World, name: str) -> dict[str, Any]:
    """The pool's entry in the status."""
    (entry,) = world.object(name)["status"].get("retrieval", [])
    return dict(entry)


def await_gate(world: World, name: str, state: str) -> dict[str, Any]:
    """Wait until the gate says this."""

    def seen() -> dict[str, Any] | None:
        found = gate(world, name)
        if found["state"] != state:
            raise LookupError(str(found))
        return found

    found = eventually(seen, within=Patience.POOL_ROLLOUT, says=f"the gate of {name} says {state}")
    assert found is not None
    return found


def running_probe(world: World) -> Manifest:
    """The probe's pod once it runs."""

    def seen() -> Manifest | None:
        pods = [p for p in world.items(":pods", PROBES) if p["status"].get("phase") == "Running"]
        return pods[0] if pods else None

    pod = eventually(seen, within=Patience.POOL_ROLLOUT, says="a probe's pod runs")
    assert pod is not None
    return pod


def dtype(args: list[str]) -> str:
    """Of the KV cache."""
    return args[args.index("--kv-cache-dtype") + 1]


def test_fp8_is_probed_on_its_own_card_used_when_it_passed_and_not_when_it_failed(
    probing: World,
) -> None:
    world = probing
    world.apply(small(world, workers=1, kvCache={"tryDtype": "fp8"}))
    pod = running_probe(world)
    await_gate(world, "small", "Probing")
    (worker,) = [p for p in world.pods("small") if "plimsoll.dev/pool" in p["metadata"]["labels"]]
    (engine,), (asking,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert ("fp8", "auto") == (
        dtype(engine["args"]),
        dtype(worker["spec"]["containers"][0]["args"]),
    )
    assert f"http://{worker['status']['podIP']}:8000" in asking["args"]
    endpoints = world.items("discovery.k8s.io/v1:endpointslices")
    assert pod["status"]["podIP"] not in str(endpoints)
    report = RetrievalReport(
        verdict=RetrievalVerdict.PASSED, sentence="200 of 200.", longest_tokens=LENGTH
    )
    end(world, pod, [(0, report.to_message())])
    found = await_gate(world, "small", "Passed")
    assert found["at"] is not None
    assert "200 of 200" in world.get(":configmaps/small-retrieval")["data"]["retrieval.json"]
    eventually(
        lambda: dtype(args_of(world.deployments()["small-h100"])) == "fp8",
        within=Patience.PLAN_WRITTEN,
        says="the workers get fp8",
    )
    world.await_ready("small", 1)
    assert 1 == len([j for j in world.items("batch/v1:jobs") if "-probe-" in j["metadata"]["name"]])

    world.apply(small(world, "other", workers=1, kvCache={"tryDtype": "fp8"}))
    report = RetrievalReport(
        verdict=RetrievalVerdict.FAILED, sentence="120 of 200.", longest_tokens=LENGTH
    )
    end(world, running_probe(world), [(3, report.to_message())])
    found = await_gate(world, "other", "Failed")
    assert "16 bit stays. 120 of 200." in found["message"]
    assert "auto" == dtype(args_of(world.deployments()["other-h100"]))
