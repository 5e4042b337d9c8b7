"""The gate as the operator makes it, on a real kubelet: HAProxy and the keeper in one pod, before llama-server."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import real_worker
from controlplane.cluster import ControlPlane, Manifest
from controlplane.haproxy import haproxy
from controlplane.images import write_image
from controlplane.node import real_node_possible
from installation import USER, Installation
from own_image import IMAGE_PATH, IMAGE_TAG, own_image
from patience import Patience, eventually, stretched
from plimsoll.render.gateway_objects import PAGE_PORT
from plimsoll.render.lifecycle import PRE_STOP_SECONDS
from real_worker import NAME, Worker
from world import World

REASON = real_node_possible()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
HAPROXY: Final = "localhost/haproxy:here"
GATES: Final = "app.kubernetes.io/component=gateway"


def haproxy_image(out: Path) -> Path:
    """Debian's HAProxy with what its preStop needs: a shell and sleep, this machine's."""
    root = out.with_suffix(".root")
    shutil.copytree(haproxy().parent / "root", root, symlinks=True)
    for name in ("sh", "sleep"):
        shutil.copy(shutil.which(name) or name, root / "usr/bin" / name)
    if not (root / "bin").exists():
        (root / "bin").symlink_to("usr/bin")
    elif not (root / "bin").is_symlink():
        shutil.copy(root / "usr/bin/sh", root / "bin/sh")
    try:
        return write_image(out, HAPROXY, root, entrypoint=("/usr/sbin/haproxy",))
    finally:
        shutil.rmtree(root)


@dataclass(frozen=True)
class Gated:
    """The world, and the gate's pod once it is the door."""

    world: World
    gate: Manifest


@pytest.fixture(scope="module")
def gated() -> Iterator[Gated]:
    with ControlPlane() as cluster:
        node = real_worker.node_for(cluster)
        ours = own_image(cluster.dir / "plimsoll.tar")
        haproxys = haproxy_image(cluster.dir / "haproxy.tar")
        node.images = (*node.images, ours, haproxys)
        with node:
            ours.unlink()
            installed = Installation(cluster)
            installed.start(PLIMSOLL_INSPECTION_IMAGE=f"{IMAGE_PATH}:{IMAGE_TAG}")
            world = World(installed, "gate")
            raw = real_worker.deployment(world.namespace, node.parts.model)
            raw["spec"]["gateway"] = {"enabled": True, "image": HAPROXY}
            world.apply(raw)
            world.await_condition(NAME, "Ready", "True", within=Patience.REAL_POD_READY)
            yield Gated(world, await_gate(world))
            installed.stop()
            denied = installed.log.denied(USER)
            assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def await_gate(world: World) -> Manifest:
    """The gate's pod once it is ready and knows its workers."""

    def seen() -> Manifest:
        (pod,) = world.items(":pods", GATES)
        said = dict(world.object(NAME)["status"].get("gateway") or {})
        if (said.get("readyGates"), said.get("isDoor")) != (1, True):
            raise LookupError(json.dumps([said, pod["status"]])[:3000])
        return pod

    found = eventually(seen, within=Patience.REAL_POD_READY, says="the gate is the door")
    assert found is not None
    return found


def page(gate: Manifest, path: str) -> str:
    """What the keeper says."""
    connection = http.client.HTTPConnection(
        gate["status"]["podIP"], PAGE_PORT, timeout=stretched(Patience.HTTP_ANSWER)
    )
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def state(gate: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page(gate, "/state"))
    return found


def serves(gate: Manifest) -> bool:
    status, text = Worker(gate).get("/health")
    assert http.client.OK == status, text
    return True


def test_a_chat_goes_through_the_gate(gated: Gated) -> None:
    eventually(
        lambda: serves(gated.gate), within=Patience.REAL_POD_READY, says="the gate has a worker"
    )
    assert "Paris" in Worker(gated.gate).chat("What is the capital of France?").text
    (pool,) = gated.world.object(NAME)["status"]["pools"]
    slots = pool["plan"]["concurrency"]["maxNumSeqs"]
    assert [[slots]] == list(state(gated.gate)["held"].values())
    assert {"gates": 1, "place": 0, "is_retiring": False} == state(gated.gate)["standing"]
    assert 'plimsoll_gate_requests_total{lane="all",status="200"' in page(gated.gate, "/metrics")


def test_the_gate_has_no_token_and_no_root(gated: Gated) -> None:
    spec = gated.gate["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert [] == [each for each in spec["volumes"] if "projected" in each or "hostPath" in each]
    assert 65532 == spec["securityContext"]["runAsUser"]


def test_an_eviction_that_nobody_announced_is_known_before_the_engine_is_told(gated: Gated) -> None:
    """The worker's preStop waits before the signal: by then no request comes to it any more."""
    (worker,) = gated.world.items(":pods", "app.kubernetes.io/component=worker")
    name = worker["metadata"]["name"]
    began = time.monotonic()
    gated.world.kubectl("delete", "pod", name, "--wait=false")
    eventually(
        lambda: name in state(gated.gate)["drained"],
        within=Patience.REAL_POD_READY,
        says="the keeper has drained it",
    )
    took = time.monotonic() - began
    print(f"drained {took:.1f} s after the deletion")
    assert took < stretched(PRE_STOP_SECONDS)
    eventually(
        lambda: serves(gated.gate),
        within=2 * Patience.REAL_POD_READY,
        says="the gate has the next worker",
    )
    assert "Paris" in Worker(gated.gate).chat("What is the capital of France?").text
