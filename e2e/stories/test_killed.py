"""An operator that is killed at each point of a reconcile converges all the same.

A wire between operator and API server kills the operator before or after its n-th write: before means
that the API server never heard of it, after that the operator never learnt the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from installation import Installation, Operator
from objects import small
from patience import Patience, eventually
from stand_ins.chaos_proxy import ChaosProxy, Moment
from world import World

QUIET_SECONDS = 1.0
WRITES = range(1, 7)  # Service, Deployment, PodDisruptionBudget, status, event, status


@pytest.fixture
def wire(plimsoll: Installation) -> Iterator[ChaosProxy]:
    """The operator's way to the API server, for this story."""
    plimsoll.stop()
    with ChaosProxy.to(plimsoll.cluster) as chaos:
        yield chaos
        plimsoll.stop()


def await_quiet(wire: ChaosProxy) -> None:
    """Wait until nothing of the object before is written any more, so that it is not counted for the next."""
    eventually(
        lambda: not wire.mutations or time.time() - wire.mutations[-1].at_seconds > QUIET_SECONDS,
        within=Patience.PLAN_WRITTEN,
        says="the operator writes nothing",
    )


def is_gone(operator: Operator) -> bool:
    """Whether its process has ended."""
    return not operator.process.is_running


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
def test_it_converges_from_every_write(world: World, wire: ChaosProxy, moment: Moment) -> None:
    kubeconfig = wire.kubeconfig(world.installed.kubeconfig)
    operator = world.installed.start(kubeconfig=kubeconfig)
    for number in WRITES:
        name = f"kill-{moment.value}-{number}"
        await_quiet(wire)
        wire.forget()
        wire.break_at(number, moment, operator.kill)
        world.apply(small(world, name=name, workers=1))
        eventually(
            partial(is_gone, operator),
            within=Patience.PLAN_WRITTEN,
            says=f"the operator was killed {moment.value} write {number}",
        )
        wire.forget()
        operator = world.installed.start(kubeconfig=kubeconfig)
        world.await_ready(name, 1)
        assert len(world.pods(name)) == 1
        world.kubectl("delete", "infd", name)
