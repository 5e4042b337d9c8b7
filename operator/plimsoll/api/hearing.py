"""Which plans do the pools run, once their workers' deaths and their engines' own figures have been heard?

What is heard may change a question: a death makes one step, an engine that holds less lowers a ceiling. Each is
written into what the status keeps of the pools, and then all pools are settled anew, so that the plan and the
reason for it are of one visit. In this order, for a step of a death is compared with no engine yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from plimsoll.api.deaths import Lesson, learn, taught_pools
from plimsoll.api.settle import Settled
from plimsoll.api.status_types import PoolStatus
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.api.verified import Checked, Reported, check_pools, lowered_pools
from plimsoll.facts.worker import WorkerFacts

Settle = Callable[[Sequence[PoolStatus]], tuple[Settled, ...]]
"""Every pool's plan, given what the status holds of the pools."""


class Heard(NamedTuple):
    """The pools' plans, and what led to them."""

    settled: tuple[Settled, ...]
    """Every pool with its plan."""
    lessons: tuple[Lesson, ...]
    """What the deaths came to."""
    first_checked: dict[str, Checked]
    """By pool: how the plans that run compare with what their engines said."""
    checked: dict[str, Checked]
    """The same for the plans that stand now."""


def hear(
    settle: Settle,
    deployment: InferenceDeployment,
    workers: Sequence[WorkerFacts],
    reported: Reported | None,
    *,
    now_seconds: float,
) -> Heard:
    """Settle every pool, and again after whatever changes a question."""
    pools: Sequence[PoolStatus] = deployment.status.pools
    settled = settle(pools)
    lessons = learn(settled, pools, workers, now_seconds=now_seconds)
    if (taught := taught_pools(pools, lessons)) is not pools:
        pools, settled = taught, settle(taught)
    first = check_pools(
        deployment, settled, workers, reported, now_seconds=now_seconds, pools=pools
    )
    if (lowered := lowered_pools(pools, first)) is None:
        return Heard(settled, lessons, first, first)
    settled = settle(lowered)
    checked = check_pools(
        deployment, settled, workers, reported, now_seconds=now_seconds, pools=lowered
    )
    return Heard(settled, lessons, first, checked)
