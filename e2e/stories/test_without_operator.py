"""The operator absent: workers serve on, deletion works, and what was missed is made up for."""

from __future__ import annotations

from installation import ANOTHER_POD, SHORT_LEASE
from objects import small
from patience import Patience, eventually, steadily
from world import World


def test_workers_serve_on_and_deletion_works(world: World) -> None:
    world.apply(small(world))
    world.await_ready("small", 2)
    uids = {pod["metadata"]["uid"] for pod in world.pods("small")}
    assert world.installed.operator is not None
    world.installed.operator.kill()
    steadily(
        lambda: {pod["metadata"]["uid"] for pod in world.pods("small")} == uids,
        during=Patience.NOTHING_HAPPENS,
        says="the same workers run",
    )
    world.kubectl("delete", "infd", "small", "--timeout=30s")
    eventually(
        lambda: not world.pods("small") and not world.deployments(),
        within=Patience.POD_GONE,
        says="children are collected",
    )
    assert world.items(":services") == []
    assert world.items("policy/v1:poddisruptionbudgets") == []
    world.installed.operator = None


def test_a_namespace_goes_with_the_operator_gone(world: World) -> None:
    world.apply(small(world))
    world.await_ready("small", 2)
    assert world.installed.operator is not None
    world.installed.operator.kill()
    world.installed.operator = None
    world.cluster.kubectl("delete", "namespace", world.namespace, "--timeout=60s")
    world.cluster.ensure_namespace(world.namespace)


def test_changes_made_meanwhile_are_caught_up_with(world: World) -> None:
    """By another pod, which waits until the Lease of the killed one has run out."""
    world.installed.stop()
    world.installed.start(kubeconfig=None, **SHORT_LEASE)
    world.apply(small(world))
    world.await_ready("small", 2)
    assert world.installed.operator is not None
    world.installed.operator.kill()
    world.apply(small(world, workers=3, limits={"maxModelLen": 4096}))
    world.kubectl("delete", "pdb/small-h100")
    world.installed.start(kubeconfig=None, **SHORT_LEASE, **ANOTHER_POD)
    world.await_ready("small", 3)
    assert world.items("policy/v1:poddisruptionbudgets")
    world.installed.stop()
