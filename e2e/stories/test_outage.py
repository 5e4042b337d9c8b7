"""The API server away: workers serve on, the operator neither dies nor acts, and catches up.

A cluster of its own: an API server that has just started refuses for a moment what its roles allow.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane import fleet
from controlplane.cluster import ControlPlane
from installation import Installation
from objects import small
from patience import Patience, steadily
from world import World


@pytest.fixture
def corner() -> Iterator[World]:
    """One H100 node and an installed Plimsoll."""
    with ControlPlane() as cluster:
        cluster.add_nodes(fleet.h100_x8("h100-0"))
        installed = Installation(cluster)
        # it keeps its Lease through a short outage; what happens beyond is the Lease's own story
        installed.start(PLIMSOLL_LEASE_SECONDS="60", PLIMSOLL_RENEW_DEADLINE_SECONDS="40")
        yield World(installed, "outage")
        installed.stop()


def test_an_outage_kills_nobody_and_is_caught_up_with(corner: World) -> None:
    operator = corner.installed.operator
    assert operator is not None
    corner.apply(small(corner))
    corner.await_ready("small", 2)
    uids = {pod["metadata"]["uid"] for pod in corner.pods("small")}
    corner.cluster.stop_part("kube-apiserver")
    steadily(
        lambda: operator.process.is_running and operator.get("/healthz")[0] == 200,
        during=Patience.NOTHING_HAPPENS,
        says="the operator is alive and says so",
    )
    corner.cluster.revive("kube-apiserver")
    corner.kubectl("scale", "infd/small", "--replicas=3")
    corner.await_ready("small", 3)
    assert operator.process.is_running
    assert uids <= {pod["metadata"]["uid"] for pod in corner.pods("small")}
