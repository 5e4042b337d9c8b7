"""Workers that grow, for tests of what follows from it: verdicts by hand, and a cluster of pods in a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api.judged import Judged, Watched
from plimsoll.api.recycle_around import Around, PoolAround
from plimsoll.api.recycle_step import Step, step
from plimsoll.api.status_types import RecyclingStatus
from plimsoll.api.traffic import RecyclingSpec
from plimsoll.diagnose.records import Finding, Trend, Verdict, VerdictKind
from plimsoll.facts.worker import WorkerFacts
from plimsoll.units import GIB, MIB

NOON = 1_796_040_000.0
HOUR = 3600.0
POOL = "h100"


def finding(trend: Trend = Trend.RISING, **changes: Any) -> Finding:
    """A leak of 200 MiB/h, ten hours from its limit."""
    known: dict[str, Any] = {
        "trend": trend,
        "sentence": "Memory grew.",
        "floor_bytes": 12 * GIB,
        "bytes_per_hour": 200 * MIB,
        "lower_bytes_per_hour": 180 * MIB,
        "upper_bytes_per_hour": 220 * MIB,
        "hours_to_limit": 10.0,
    }
    return Finding(**(known | changes))


def verdict(kind: VerdictKind = VerdictKind.GROWTH, **changes: Any) -> Verdict:
    """A verdict with a finding that fits it."""
    trend = {
        VerdictKind.STEADY: Trend.FLAT,
        VerdictKind.PRESSURE: Trend.FLAT,
        VerdictKind.HUNG: Trend.FLAT,
        VerdictKind.UNKNOWN: Trend.UNKNOWN,
        VerdictKind.WARMING_UP: Trend.UNKNOWN,
    }.get(kind, Trend.RISING)
    numbers = changes.pop("numbers", {} if trend is Trend.RISING else {"hours_to_limit": None})
    return Verdict(
        kind=kind,
        sentence=f"It is {kind.value}.",
        finding=finding(trend, **numbers),
        **changes,
    )


def judged(uid: str, kind: VerdictKind = VerdictKind.GROWTH, **changes: Any) -> Judged:
    """A worker that was seen a moment ago."""
    known: dict[str, Any] = {
        "verdict": verdict(kind),
        "newest_seconds": NOON - 20,
        "ready_seconds": NOON - 50 * HOUR,
    }
    return Judged(uid=uid, **(known | changes))


def pod(name: str, **changes: Any) -> WorkerFacts:
    """A worker that has served for two days."""
    known: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "pool": POOL,
        "node": "h100-0",
        "phase": "Running",
        "is_ready": True,
        "created_seconds": NOON - 51 * HOUR,
        "ready_seconds": NOON - 50 * HOUR,
    }
    return WorkerFacts(**(known | changes))


class Cluster:
    """Pods, what was judged of them, and the record that the steps leave."""

    def __init__(self, *pods: WorkerFacts, grows: Sequence[str] = (), **spec: Any) -> None:
        self.now = NOON
        self.pods = list(pods)
        self.kinds: dict[str, VerdictKind] = {
            each.name: VerdictKind.GROWTH if each.name in grows else VerdictKind.STEADY
            for each in pods
        }
        self.spec = RecyclingSpec.model_validate(spec)
        self.record = RecyclingStatus()
        self.wanted = len(pods)
        self.has_spare = False
        self.is_moving = False
        self.around: dict[str, Any] = {}
        self.figures: dict[str, dict[str, Any]] = {}
        self.watch: dict[str, Any] = {"operator_started_seconds": NOON - HOUR}

    def step(self) -> Step:
        """One step; its record is kept."""
        after = step(self.question())
        self.record = after.recycling
        return after

    def question(self) -> Around:
        """What a step would rest on now."""
        return Around(
            now_seconds=self.now,
            spec=self.spec,
            watched=Watched(judged=tuple(self._judged()), **self.watch),
            workers=tuple(self.pods),
            pools={POOL: PoolAround(self.wanted, self.is_moving, self.has_spare)},
            held=self.record,
            **self.around,
        )

    def _judged(self) -> list[Judged]:
        return [
            judged(
                each.uid,
                self.kinds[each.name],
                **({"newest_seconds": self.now - 20} | self.figures.get(each.name, {})),
            )
            for each in self.pods
            if each.name in self.kinds
        ]

    def change(self, name: str, **changes: Any) -> None:
        """Something happened to a pod."""
        self.pods = [
            each.model_copy(update=changes) if each.name == name else each for each in self.pods
        ]

    def idle(self, name: str) -> None:
        """The engine says, at this moment, that nothing is in flight."""
        self.figures[name] = {"in_flight": 0.0, "in_flight_seconds": self.now}

    def replace(self, old: str, new: str, kind: VerdictKind = VerdictKind.STEADY) -> None:
        """The old pod is gone, and a new one is Ready as of now."""
        self.pods = [each for each in self.pods if each.name != old]
        self.pods.append(pod(new, created_seconds=self.now, ready_seconds=self.now))
        self.kinds[new] = kind

    def recycle(self, old: str, new: str, kind: VerdictKind = VerdictKind.STEADY) -> None:
        """A whole recycle, from the intent on, until the successor is warm."""
        self.step()
        self.now += 30
        self.change(old, is_in_service=False)
        self.idle(old)
        self.step()
        self.replace(old, new, VerdictKind.WARMING_UP)
        self.step()
        self.now += HOUR
        self.kinds[new] = kind
        self.step()


def phases(record: RecyclingStatus) -> list[str]:
    """Newest first."""
    return [entry.phase for entry in record.history]


def reasons(holds: Mapping[str, Any]) -> dict[str, str]:
    """Reason of each hold by pod."""
    return {uid.removeprefix("uid-"): hold.reason.value for uid, hold in holds.items()}
