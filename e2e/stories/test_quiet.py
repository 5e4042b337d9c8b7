"""In steady state nothing is written: the audit log is the witness."""

from __future__ import annotations

import time

from installation import Operator
from patience import Patience, eventually, steadily
from world import World


def quiet(world: World, since_seconds: float) -> bool:
    """No write in this namespace since then; says which, if there was one."""
    written = [
        request
        for request in world.writes(since_seconds)
        if request.use.namespace == world.namespace
    ]
    assert not written, [(r.use.verb, r.use.resource, r.use.name) for r in written]
    return True


def visits(operator: Operator) -> float:
    """Reconciles so far, by its own metrics."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in operator.metrics().splitlines()
        if line.startswith("plimsoll_reconciles_total{")
    )


def settled(world: World) -> float:
    """Wait until the writing is over; now."""

    def no_write_for_a_while() -> bool:
        since = time.time() - 2.0
        return not [r for r in world.writes(since) if r.use.namespace == world.namespace]

    eventually(no_write_for_a_while, within=Patience.PLAN_WRITTEN, says="the operator is quiet")
    return time.time()


def test_applying_the_same_twice_writes_nothing(world: World) -> None:
    world.apply(world.example("mixed-fleet"))
    world.await_ready("llama-70b", 3)
    since = settled(world)
    world.apply(world.example("mixed-fleet"))
    steadily(
        lambda: quiet(world, since),
        during=Patience.NOTHING_HAPPENS,
        says="nothing is written",
    )


def test_an_operator_restart_writes_nothing(world: World) -> None:
    world.apply(world.example("mixed-fleet"))
    world.apply(world.example("edge-assistant"))
    world.await_ready("llama-70b", 3)
    world.await_condition("plant-assistant", "Planned", "False")
    since = settled(world)
    world.installed.stop()
    operator = world.installed.start()
    eventually(
        lambda: visits(operator) >= 2, within=Patience.OPERATOR_UP, says="both objects were visited"
    )
    steadily(
        lambda: quiet(world, since),
        during=Patience.NOTHING_HAPPENS,
        says="nothing is written",
    )


def test_a_visit_for_a_label_of_the_user_writes_nothing(world: World) -> None:
    world.apply(world.example("edge-assistant"))
    world.await_condition("plant-assistant", "Planned", "False")
    since = settled(world)
    operator = world.installed.operator
    assert operator is not None
    before = visits(operator)
    world.kubectl("label", "infd/plant-assistant", "team=plant")
    eventually(
        lambda: visits(operator) > before,
        within=Patience.PLAN_WRITTEN,
        says="the object was visited",
    )
    steadily(
        lambda: quiet(world, since),
        during=Patience.NOTHING_HAPPENS,
        says="nothing is written",
    )
