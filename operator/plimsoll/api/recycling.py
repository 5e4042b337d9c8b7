"""How do `spec.recycling` and the recorded recycles read to the one who decides?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from plimsoll.api.judged import Watched
from plimsoll.api.status_types import RecycleEntry
from plimsoll.api.traffic import RecycleWindow, RecyclingSpec, Surge, Weekday
from plimsoll.diagnose.records import VerdictKind
from plimsoll.diagnose.recycle import DAY, Mode, Past, Policy, Window
from plimsoll.units import parse_seconds

DRAIN_SECONDS: Final = 600.0
"""spec.recycling.drainTimeout when left out."""


class Phase(StrEnum):
    """How far a recycle is; what is written before the act that belongs to it."""

    SURGING = "Surging"
    """The successor starts while the worker still serves."""
    DRAINING = "Draining"
    """The worker gets no new requests and finishes those that it has."""
    EVICTING = "Evicting"
    """It is to be evicted, or has been and we do not know yet."""
    REPLACING = "Replacing"
    """It is gone or going; the successor is not warm yet."""
    DONE = "Done"
    """The successor is warm."""
    GIVEN_UP = "GivenUp"
    """No successor came."""


UNDER_WAY: Final = frozenset({Phase.SURGING, Phase.DRAINING, Phase.EVICTING, Phase.REPLACING})


def policy_of(spec: RecyclingSpec, watched: Watched) -> Policy:
    """What is asked for, with the defaults for what is not. Shorter hours shorten the defaults only."""
    scale = watched.hour_seconds / 3600
    base = Policy()
    return base._replace(
        mode=Mode(spec.mode.value) if spec.mode else base.mode,
        urgent_seconds=_seconds(spec.time_to_limit, base.urgent_seconds * scale),
        report_seconds=base.report_seconds * scale,
        cooldown_seconds=_seconds(spec.cooldown, base.cooldown_seconds * scale),
        max_per_day=spec.max_per_day,
        windows=tuple(_window(each) for each in spec.windows),
        may_surge=spec.surge is not Surge.NEVER,
        recycle_hung=spec.recycle_hung is not False,
        settle_seconds=watched.settle_seconds,
        stale_seconds=watched.stale_seconds,
        warm_up_seconds=base.warm_up_seconds * scale,
        relapse_seconds=base.relapse_seconds * scale,
        stall_seconds=base.stall_seconds * scale,
    )


def drain_seconds(spec: RecyclingSpec) -> float:
    """How long a worker may finish what it has."""
    return _seconds(spec.drain_timeout, DRAIN_SECONDS)


def pasts(history: Iterable[RecycleEntry], now_seconds: float) -> tuple[Past, ...]:
    """Recorded recycles, as the decision takes them. One whose date cannot be read counts as just now,
    for a budget errs downwards."""
    return tuple(past_of(entry, now_seconds) for entry in history)


def budget_left(policy: Policy, past: Sequence[Past], replicas: int, now_seconds: float) -> int:
    """Recycles that may still happen within 24 hours of the oldest one that counts."""
    most = policy.max_per_day
    if most is None:
        most = min(6, 2 * max(1, replicas))
    done = sum(each.at_seconds > now_seconds - DAY for each in past)
    return max(0, most - done)


def is_under_way(entry: RecycleEntry) -> bool:
    """Whether the recycle still keeps the one slot."""
    return entry.phase in UNDER_WAY


def seconds_of(text: str | None) -> float | None:
    """RFC 3339 as epoch seconds; None for nothing, or for what is no time."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def text_of(seconds: float) -> str:
    """Epoch seconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def past_of(entry: RecycleEntry, now_seconds: float) -> Past:
    """One of them."""
    at = seconds_of(entry.at)
    return Past(
        at_seconds=now_seconds if at is None else at,
        pod=entry.pod,
        uid=entry.uid,
        pool=entry.pool,
        verdict=_kind(entry.reason),
        floor_bytes=entry.resident_bytes,
        successor_uid=entry.successor_uid or None,
        ended_seconds=seconds_of(entry.ended_at),
        helped=entry.helped,
    )


def _kind(reason: str) -> VerdictKind:
    """A reason of another release counts as growth: then it is held against the next recycle."""
    return VerdictKind(reason) if reason in set(VerdictKind) else VerdictKind.GROWTH


def _seconds(text: str | None, default: float) -> float:
    return default if text is None else float(parse_seconds(text))


_DAYS: Final = {day: number for number, day in enumerate(Weekday)}


def _window(window: RecycleWindow) -> Window:
    return Window(
        start_minute=_minute(window.start),
        end_minute=_minute(window.end),
        days=tuple(_DAYS[day] for day in window.days),
    )


def _minute(time_of_day: str) -> int:
    hours, minutes = time_of_day.split(":")
    return int(hours) * 60 + int(minutes)
