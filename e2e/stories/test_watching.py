"""Does the operator see what memory workers hold, and does a kubelet's silence stay silence?"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from audit import Use
from installation import USER, Operator
from objects import small
from patience import Patience, eventually, steadily
from stand_ins.kubelet import FakeKubelets
from world import World

GIB = 1 << 30
RESIDENT = "plimsoll_worker_resident_bytes"
NODE = "h100-0"
# Minutes become seconds; nothing else differs from a real installation. A stamp of a kubelet is in whole
# seconds, so a bin of fewer could not have its five samples.
SHORT = {
    "PLIMSOLL_WATCH_SECONDS": "0.5",
    "PLIMSOLL_STALE_SECONDS": "4",
    "PLIMSOLL_FLOOR_BIN_SECONDS": "10",
    "PLIMSOLL_FLOOR_FLUSH_SECONDS": "3",
}


@pytest.fixture
def kubelets(world: World) -> Iterator[FakeKubelets]:
    """Kubelets that answer, and an operator that asks them often."""
    world.installed.stop()
    with FakeKubelets(world.cluster) as answering:
        world.installed.start(kubeconfig=None, **SHORT)
        yield answering
        world.installed.stop()


def operator(world: World) -> Operator:
    """The one that runs."""
    assert world.installed.operator is not None
    return world.installed.operator


def resident(world: World) -> dict[str, float]:
    """What the operator's metrics say of this story's workers, by pod."""
    found = {}
    for line in operator(world).metrics().splitlines():
        name, _, rest = line.partition("{")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if name == RESIDENT and labels["namespace"] == world.namespace:
            found[labels["pod"]] = float(line.rpartition(" ")[2])
    return found


def failures(world: World, reason: str) -> float:
    """How often a kubelet gave nothing for this reason."""
    line = f'plimsoll_scrape_failures_total{{reason="{reason}",source="kubelet"}} '
    lines = operator(world).metrics().splitlines()
    return sum(float(each.removeprefix(line)) for each in lines if each.startswith(line))


def two_workers(world: World, kubelets: FakeKubelets) -> list[str]:
    """Names of two ready workers that hold 3 and 5 GiB, the second a gibibyte of it in swap."""
    world.apply(small(world, workers=2))
    world.await_ready("small", 2)
    one, other = sorted(pod["metadata"]["name"] for pod in world.pods("small"))
    kubelets.hold(world.namespace, one, resident_bytes=3 * GIB)
    kubelets.hold(world.namespace, other, resident_bytes=4 * GIB, swap_bytes=GIB)
    return [one, other]


def await_figures(world: World, expected: dict[str, float]) -> None:
    """Wait until the metrics say exactly this of the story's workers."""

    def same() -> bool:
        found = resident(world)
        if found != expected:
            raise LookupError(found)
        return True

    eventually(same, within=Patience.FIGURE_SEEN, says=f"the metrics say {expected}")


def kept(world: World) -> list[dict[str, Any]]:
    """The lives in the ConfigMap with floors, those that have any."""
    found = world.get(":configmaps/small-memory-floors")
    packed = base64.b64decode(found["binaryData"]["floors"])
    lives: list[dict[str, Any]] = json.loads(zlib.decompress(packed))["lives"]
    return [life for life in lives if life["bins"][0]]


def first_bins(world: World) -> dict[str, int]:
    """The first bin of each worker."""
    return {life["pod"]: life["bins"][0][0] for life in kept(world)}


def test_watching_shows_what_each_worker_holds(world: World, kubelets: FakeKubelets) -> None:
    one, other = two_workers(world, kubelets)
    await_figures(world, {one: 3 * GIB, other: 5 * GIB})
    world.kubectl("scale", "infd/small", "--replicas=1")
    eventually(
        lambda: len(world.pods("small")) == 1, within=Patience.POD_GONE, says="one worker is left"
    )
    (left,) = (pod["metadata"]["name"] for pod in world.pods("small"))
    await_figures(world, {left: 3 * GIB if left == one else 5 * GIB})


def test_watching_asks_for_figures_and_nothing_else(world: World, kubelets: FakeKubelets) -> None:
    one, other = two_workers(world, kubelets)
    await_figures(world, {one: 3 * GIB, other: 5 * GIB})
    used = world.installed.log.verbs_used(USER, since_seconds=world.started)
    of_nodes = {use for use in used if use.resource.startswith("nodes/")}
    assert Use("", "nodes/stats", "get", name=NODE) in of_nodes
    assert {"nodes/stats"} == {use.resource for use in of_nodes}
    assert "nodes/proxy" not in {grant.resource for grant in world.installed.grants()}


def test_watching_a_silent_kubelet_does_nothing(world: World, kubelets: FakeKubelets) -> None:
    one, other = two_workers(world, kubelets)
    await_figures(world, {one: 3 * GIB, other: 5 * GIB})
    before = {pod["metadata"]["uid"] for pod in world.pods("small")}
    kubelets.fail(NODE, status=503)
    await_figures(world, {})
    assert failures(world, "status") > 0

    def nothing_happens() -> bool:
        written = {(r.use.verb, r.use.resource) for r in world.quiet_writes()}
        assert not {use for use in written if use[1] in ("pods/eviction", "pods")}, written
        same = before == {pod["metadata"]["uid"] for pod in world.pods("small")}
        return same and not resident(world)

    steadily(nothing_happens, during=Patience.NOTHING_HAPPENS, says="the workers are left alone")
    kubelets.recover(NODE)
    await_figures(world, {one: 3 * GIB, other: 5 * GIB})


def test_watching_goes_on_with_old_floors(world: World, kubelets: FakeKubelets) -> None:
    two_workers(world, kubelets)
    eventually(
        lambda: len(kept(world)) == 2,
        within=Patience.FLOORS_KEPT,
        says="floors of both workers are kept",
    )
    world.installed.stop()
    before = first_bins(world)
    bins_before = {life["pod"]: len(life["bins"][0]) for life in kept(world)}
    world.installed.start(kubeconfig=None, **SHORT)

    def has_grown() -> bool:
        now = {life["pod"]: len(life["bins"][0]) for life in kept(world)}
        return all(now[pod] > count for pod, count in bins_before.items())

    eventually(has_grown, within=Patience.FLOORS_KEPT, says="a new bin stands after the old ones")
    assert before == first_bins(world)
    newest = {sum(life["bins"][1]) for life in kept(world)}  # KiB, as differences
    assert {3 * GIB // 1024, 5 * GIB // 1024} == newest
