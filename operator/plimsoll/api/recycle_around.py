"""What does the next step of recycling rest on, and what may it ask for?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from plimsoll.api.judged import Judged, Watched
from plimsoll.api.status_types import RecyclingStatus
from plimsoll.api.traffic import RecyclingSpec
from plimsoll.diagnose.recycle import Worker
from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts


class ActKind(StrEnum):
    """What can be done to a worker."""

    DRAIN = "Drain"
    """Take it out of the Service."""
    PUT_BACK = "PutBack"
    """Put it in again."""
    EVICT = "Evict"
    """Evict it, as budgets allow."""


class Act(Record):
    """One thing to do to one pod, of exactly this UID."""

    kind: ActKind
    """What."""
    pod: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""


class Told(Record):
    """News for the person at kubectl."""

    reason: str
    """PascalCase fact."""
    message: str
    """One sentence."""
    is_warning: bool = False
    """Whether somebody should look."""


class PoolAround(NamedTuple):
    """How things stand in one pool."""

    wanted: int
    """Workers that it should have."""
    is_moving: bool = False
    """Whether it rolls out or is being scaled."""
    has_spare: bool = False
    """Whether cards for one more worker are free."""


class Around(NamedTuple):
    """All that the step rests on."""

    now_seconds: float
    spec: RecyclingSpec
    watched: Watched
    workers: Sequence[WorkerFacts]
    pools: Mapping[str, PoolAround]
    held: RecyclingStatus
    is_autoscaled: bool = False
    leaving_nodes: frozenset[str] = frozenset()
    """Nodes that are cordoned or go."""
    drained_at_gates: frozenset[str] | None = None
    """Names of workers that all gates have drained; None where no gate has a say."""


def worker_of(facts: WorkerFacts, judged: Judged) -> Worker:
    """The worker as the decision takes it."""
    return Worker(
        pod=facts.name,
        uid=facts.uid,
        pool=facts.pool,
        verdict=judged.verdict,
        is_ready=facts.is_ready,
        ready_seconds=facts.ready_seconds,
        newest_seconds=judged.newest_seconds,
        is_leaving=facts.is_terminating,
    )
