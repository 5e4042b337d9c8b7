"""A gate comes in front of running workers, is told of them, and goes again; no worker moves for it."""

from __future__ import annotations

import datetime
import http.client
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from controlplane.cluster import Manifest
from objects import small
from patience import Patience, eventually, steadily
from plimsoll.gate.records import GateRooms
from plimsoll.render.gateway_objects import (
    ROOMS_ANNOTATION,
    STANDING_ANNOTATION,
    WORKERS_ANNOTATION,
)
from stand_ins.keepers import FakeKeepers
from stories.test_quiet import quiet, settled
from world import World

IMAGE: Final = "plimsoll/plimsoll:story"
HAPROXY: Final = "haproxy:3.2.26"
GATES: Final = "app.kubernetes.io/component=gateway"
WORKERS: Final = "app.kubernetes.io/component=worker"


@pytest.fixture
def gated(world: World) -> Iterator[World]:
    """The same world, with an operator that knows its own image, in a namespace that is restricted."""
    world.cluster.kubectl(
        "label", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    world.installed.stop()
    world.installed.start(PLIMSOLL_INSPECTION_IMAGE=IMAGE)
    yield world
    world.installed.stop()


def leads_to(world: World, component: str) -> bool:
    """Whether the Service picks pods of that kind."""
    selector = world.get(":services/small")["spec"]["selector"]
    assert component == selector["app.kubernetes.io/component"], selector
    return True


def addresses(world: World) -> dict[str, str]:
    """Where the workers answer, by name of the pod."""
    return {
        pod["metadata"]["name"]: f"{pod['status']['podIP']}:8000"
        for pod in world.items(":pods", WORKERS)
        if "deletionTimestamp" not in pod["metadata"]
    }


def told(world: World) -> Manifest:
    """The one gate's pod once it knows exactly the workers that there are."""
    (pod,) = world.items(":pods", GATES)
    known = json.loads(pod["metadata"]["annotations"].get(WORKERS_ANNOTATION) or "[]")
    staying = {each["name"]: each["address"] for each in known if not each["isLeaving"]}
    assert addresses(world) == staying
    return pod


def gate_of(world: World) -> dict[str, Any]:
    """What the status says of it."""
    return dict(world.object("small")["status"].get("gateway") or {})


def test_a_gate_comes_and_goes_and_no_worker_moves(gated: World) -> None:
    world = gated
    world.apply(small(world))
    world.await_ready("small", 2)
    workers = addresses(world)
    assert leads_to(world, "worker")
    assert {} == gate_of(world)

    asked = small(world, gateway={"enabled": True, "image": HAPROXY})
    world.apply(asked)
    eventually(
        lambda: leads_to(world, "gateway"),
        within=Patience.POOL_ROLLOUT,
        says="the Service leads to the gate",
    )
    pod = eventually(
        lambda: told(world), within=Patience.CONDITION_SEEN, says="the gate knows both workers"
    )
    rooms = GateRooms.model_validate_json(pod["metadata"]["annotations"][ROOMS_ANNOTATION])
    (pool,) = world.object("small")["status"]["pools"]
    assert [("h100", pool["plan"]["kv"]["poolTokens"])] == [
        (each.pool, each.kv_tokens) for each in rooms.pools
    ]
    standing = json.loads(pod["metadata"]["annotations"][STANDING_ANNOTATION])
    assert {"gates": 1, "place": 0} == {key: standing[key] for key in ("gates", "place")}
    eventually(
        lambda: (gate_of(world)["readyGates"], gate_of(world)["isDoor"]) == (1, True),
        within=Patience.CONDITION_SEEN,
        says="the status says that the gate is the door",
    )

    # one worker is replaced: the gate hears of both
    (gone, _) = sorted(workers)
    world.kubectl("delete", "pod", gone, "--wait=false")
    world.await_ready("small", 2)
    eventually(
        lambda: gone not in addresses(world) and len(addresses(world)) == 2 and told(world),
        within=Patience.POOL_ROLLOUT,
        says="the gate knows the new worker",
    )
    workers = addresses(world)

    since = settled(world)
    world.kubectl("label", "infd/small", "team=a")
    steadily(
        lambda: quiet(world, since), during=Patience.NOTHING_HAPPENS, says="nothing is written"
    )

    world.apply(small(world, gateway={"enabled": False}))
    eventually(
        lambda: leads_to(world, "worker") and not world.items("apps/v1:deployments", GATES),
        within=Patience.POOL_ROLLOUT,
        says="the gate is gone",
    )
    eventually(
        lambda: gate_of(world) == {} and not world.items(":pods", GATES),
        within=Patience.POD_GONE,
        says="nothing is left of it",
    )
    assert [] == world.items("policy/v1:poddisruptionbudgets", GATES)
    assert workers == addresses(world)
    order = [
        (request.use.verb, request.use.resource)
        for request in world.quiet_writes()
        if request.use.resource in ("services", "pods")
        or (request.use.verb, request.use.resource) == ("delete", "deployments")
    ]
    last_service = max(place for place, use in enumerate(order) if use[1] == "services")
    first_told = order.index(("patch", "pods"))
    assert ("patch", "services") in order[first_told:last_service], order
    assert order.index(("delete", "deployments")) > last_service, order


def evictions(world: World) -> list[str]:
    """Pods whose eviction the operator asked for."""
    return [
        request.use.name
        for request in world.quiet_writes()
        if request.use.resource == "pods/eviction"
    ]


def an_intent(world: World, victim: Manifest) -> None:
    """The operator has decided to recycle this worker, written it down, and died: what leads to it is another
    story."""
    world.installed.stop()
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = victim["metadata"]
    entry = {"pod": metadata["name"], "uid": metadata["uid"], "pool": "h100", "reason": "Growth"}
    entry |= {"message": "Written by a story.", "phase": "Draining", "at": now, "phaseAt": now}
    path = f"/apis/plimsoll.dev/v1alpha1/namespaces/{world.namespace}/inferencedeployments/small"
    change = {"status": {"recycling": {"history": [entry]}}}
    status, answer = world.cluster.request("PATCH", f"{path}/status", change)
    assert http.client.OK == status, answer
    world.installed.start(PLIMSOLL_INSPECTION_IMAGE=IMAGE)


@pytest.mark.skipif(FakeKeepers.why_not() is not None, reason=str(FakeKeepers.why_not()))
def test_a_worker_is_evicted_when_its_gate_has_drained_it(gated: World) -> None:
    """Not when it looks idle, and not when the gate is silent."""
    world = gated
    asked = {"enabled": True, "image": HAPROXY}
    world.apply(small(world, gateway=asked, recycling={"drainTimeout": "1h"}))
    world.await_ready("small", 2)
    eventually(
        lambda: gate_of(world)["isDoor"] and told(world),
        within=Patience.POOL_ROLLOUT,
        says="the gate is the door",
    )
    victim = world.items(":pods", WORKERS)[0]
    name = victim["metadata"]["name"]
    with FakeKeepers(world.cluster) as keepers:

        def is_asked(times: int) -> bool:
            if keepers.asked < times:
                raise LookupError(keepers.asked)
            return True

        an_intent(world, victim)
        eventually(lambda: is_asked(2), within=Patience.OPERATOR_UP, says="it asks the gate twice")
        assert name not in addresses(world)
        eventually(
            lambda: told(world), within=Patience.CONDITION_SEEN, says="the gate is told of it"
        )
        keepers.speaks = True
        asked_before = keepers.asked
        eventually(
            lambda: is_asked(asked_before + 2),
            within=Patience.CONDITION_SEEN,
            says="it is told that the worker is not drained",
        )
        assert [] == evictions(world)
        keepers.drained.add(name)
        eventually(
            lambda: evictions(world)[0],
            within=Patience.CONDITION_SEEN,
            says="it is evicted",
        )
    assert [name] == evictions(world)
