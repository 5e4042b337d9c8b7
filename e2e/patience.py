"""How long may each thing take? Every wait of the stories is named here and nowhere else.

The figures suit two cores that other work shares. They bound a failure, they do not slow a success.
`PLIMSOLL_PATIENCE=3` stretches all of them for a slower machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")


class Patience:
    """Seconds, by what is waited for."""

    # the control plane
    API_READY: Final = 180.0
    PART_READY: Final = 120.0
    PROCESS_GONE: Final = 15.0
    KUBECTL_ANSWER: Final = 120.0
    HTTP_ANSWER: Final = 10.0
    # what it does
    NODE_READY: Final = 60.0
    POOL_ROLLOUT: Final = 150.0
    POD_GONE: Final = 60.0
    CRD_SERVED: Final = 30.0
    AUDIT_WRITTEN: Final = 15.0
    # the operator
    OPERATOR_UP: Final = 90.0
    OPERATOR_GONE: Final = 30.0
    PLAN_WRITTEN: Final = 60.0
    CONDITION_SEEN: Final = 60.0
    RECYCLE_DONE: Final = 120.0
    VERDICT_REACHED: Final = 240.0
    TWO_RECYCLES: Final = 420.0
    FIGURE_SEEN: Final = 60.0
    FLOORS_KEPT: Final = 90.0
    NOTHING_HAPPENS: Final = 5.0
    SOAK_QUIET: Final = 150.0
    SOAK_UNWRITTEN: Final = 180.0
    """A verdict on a new worker is news, and comes within five hours of 20 s."""
    # a real node
    CONTAINERD_UP: Final = 60.0
    KUBELET_UP: Final = 120.0
    REAL_POD_READY: Final = 120.0
    CGROUP_EMPTY: Final = 30.0
    CHAT_ANSWER: Final = 120.0
    # stand-ins
    STAND_IN_ANSWER: Final = 15.0


# What a check may raise while the world is not there yet. A typo in a test is not among them.
NOT_YET: Final = (AssertionError, LookupError, OSError)

FIRST_LOOK_SECONDS: Final = 0.05
SLOWEST_LOOK_SECONDS: Final = 1.0


class OutOfPatienceError(AssertionError):
    """The state that was waited for did not come."""


def stretched(seconds: float) -> float:
    """These seconds on this machine."""
    return seconds * float(os.environ.get("PLIMSOLL_PATIENCE", "1"))


def eventually(check: Callable[[], T], *, within: float, says: str) -> T:
    """Return the first true value of `check`, or raise with the last one seen."""
    started = time.monotonic()
    pause = FIRST_LOOK_SECONDS
    while True:
        try:
            if seen := check():
                return seen
            last = f"last seen: {seen!r}"
        except NOT_YET as error:
            last = f"last error: {type(error).__name__}: {error}"
        waited = time.monotonic() - started
        if waited >= stretched(within):
            raise OutOfPatienceError(f"waited {waited:.1f} s until {says}; {last}")
        time.sleep(pause)
        pause = min(pause * 1.3, SLOWEST_LOOK_SECONDS)


def steadily(check: Callable[[], object], *, during: float, says: str) -> None:
    """Raise as soon as `check` is not true; what holds for the whole time is enough."""
    started = time.monotonic()
    while (held := time.monotonic() - started) < during:
        if not (seen := check()):
            raise AssertionError(f"after {held:.1f} s no longer {says}; seen: {seen!r}")
        time.sleep(FIRST_LOOK_SECONDS)
