"""What is a source of series, and what does it owe us?

Whatever it cannot say for certain it leaves out: what is missing, late, ahead of our clock, zero or no
number is not there. A source never raises for what others do; it counts the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from plimsoll.facts.watched import EngineReading, MemorySample, PastLife, WatchedWorker

T = TypeVar("T", bound=Hashable)

MOST_AHEAD_SECONDS: Final = 60.0
"""A stamp farther ahead of our clock than this is no time at all; NTP keeps nodes within a second."""
MOST_ROUNDS_LEFT_OUT: Final = 4
"""Whoever does not answer is asked again after one round, two, then every four: 2 minutes at 30 s."""


class Reason(StrEnum):
    """Why a scrape gave nothing, or less than was asked."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    STATUS = "status"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    ABSENT = "absent"
    STALE = "stale"
    CLOCK_SKEW = "clock_skew"


class ScrapeError(Exception):
    """Nothing came that can be used."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Seen(NamedTuple):
    """What one look at workers gave."""

    memory: tuple[MemorySample, ...] = ()
    engines: tuple[EngineReading, ...] = ()


class SeriesSource(Protocol):
    """Where memory and engine figures come from."""

    async def read(self, workers: Sequence[WatchedWorker]) -> Seen:
        """One look at these workers."""

    async def history(
        self, workers: Sequence[WatchedWorker], *, since_seconds: float, until_seconds: float
    ) -> tuple[PastLife, ...]:
        """What the source kept of them; nothing where it keeps nothing."""


class NoHistory:
    """A source that keeps nothing."""

    async def history(
        self,
        workers: Sequence[WatchedWorker],  # noqa: ARG002 - as the protocol has it
        *,
        since_seconds: float,  # noqa: ARG002
        until_seconds: float,  # noqa: ARG002
    ) -> tuple[PastLife, ...]:
        """None."""
        return ()


class Tally(Protocol):
    """Who counts scrapes: telemetry.workers.WorkerMetrics."""

    def scraped(self, source: str, seconds: float) -> None:
        """One was answered."""

    def missed(self, source: str, reason: str, count: int = 1) -> None:
        """One, or one worker in it, gave nothing."""


class Freshness(NamedTuple):
    """Which stamps can be believed."""

    stale_seconds: float = 120.0

    def flaw(self, at_seconds: float, now_seconds: float) -> Reason | None:
        """What is wrong with a figure of that time."""
        if at_seconds > now_seconds + min(MOST_AHEAD_SECONDS, self.stale_seconds):
            return Reason.CLOCK_SKEW
        return Reason.STALE if at_seconds < now_seconds - self.stale_seconds else None


class Rounds:
    """Asks many, few at a time, spread over a part of the round; who fails is left alone for a while."""

    def __init__(
        self,
        *,
        in_flight: int,
        round_seconds: float,
        clock: Callable[[], float],
        chance: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: float = 0.6,
    ) -> None:
        """`spread` is the part of a round over which the asking begins."""
        self._gate = asyncio.Semaphore(in_flight)
        self._round_seconds = round_seconds
        self._clock = clock
        self._chance = chance
        self._pause = pause
        self._spread_seconds = spread * round_seconds
        self._failed: dict[Hashable, tuple[int, float]] = {}

    async def ask(self, targets: Iterable[T], ask: Callable[[T], Awaitable[bool]]) -> None:
        """Ask each that may be asked; `ask` says whether it answered."""
        wanted = set(targets)
        self._failed = {t: seen for t, seen in self._failed.items() if t in wanted}
        now = self._clock()
        due = [t for t in wanted if self._failed.get(t, (0, 0.0))[1] <= now]
        await asyncio.gather(*(self._one(target, ask) for target in due))

    def failures(self, target: Hashable) -> int:
        """How often in a row it did not answer."""
        return self._failed.get(target, (0, 0.0))[0]

    async def _one(self, target: T, ask: Callable[[T], Awaitable[bool]]) -> None:
        if self._spread_seconds:
            await self._pause(self._spread_seconds * self._chance())
        async with self._gate:
            answered = await ask(target)
        if answered:
            self._failed.pop(target, None)
            return
        count = self.failures(target) + 1
        rounds = min(2 ** (count - 1), MOST_ROUNDS_LEFT_OUT)
        # half a round less, so that the round that is meant is not missed by its own jitter
        self._failed[target] = (count, self._clock() + (rounds - 0.5) * self._round_seconds)
