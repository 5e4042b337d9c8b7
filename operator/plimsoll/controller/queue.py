"""Who is to be visited next, and when?

A key that is put twice is visited once. A key that is put while it is being visited is visited once
more. After a failure it comes back later and later, with a little chance in it, so that many that
failed together do not return together.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from plimsoll.decide import Key

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 300.0
GROWTH: Final = 2.0
JITTER: Final = 0.2


def delay_seconds(
    failures: int, chance: float, *, longest_seconds: float = LONGEST_DELAY_SECONDS
) -> float:
    """How long to wait after so many failures in a row: 1, 2, 4, ... seconds, give or take a fifth.

    `chance` is a number from 0 to 1.
    """
    doublings = min(max(failures - 1, 0), 32)
    grown = min(FIRST_DELAY_SECONDS * GROWTH**doublings, longest_seconds)
    return grown * (1 - JITTER + 2 * JITTER * chance)


class _Due(NamedTuple):
    at_seconds: float
    is_urgent: bool


_Entry = tuple[float, int, Key]


class Schedule:
    """Who is due when. Time comes in as an argument, in seconds of any one clock."""

    def __init__(self) -> None:
        self._due: dict[Key, _Due] = {}
        self._heaps: tuple[list[_Entry], list[_Entry]] = ([], [])
        self._order = 0
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}

    def put(self, key: Key, at_seconds: float, *, is_urgent: bool = False) -> None:
        """Visit this key at that time, or at an earlier one that was asked for before. Of the keys that
        are due the urgent ones go first."""
        before = self._due.get(key)
        due = _Due(at_seconds, is_urgent)
        if before is not None:
            due = _Due(min(before.at_seconds, at_seconds), before.is_urgent or is_urgent)
        if due == before:
            return
        self._due[key] = due
        self._order += 1
        heapq.heappush(self._heaps[is_urgent], (due.at_seconds, self._order, key))

    def take(self, now_seconds: float) -> Key | None:
        """A key that is due and is not being visited: an urgent one if there is one, and of those the one
        that has been due longest. It counts as visited now."""
        for heap in reversed(self._heaps):
            if (key := self._take(heap, now_seconds)) is not None:
                return key
        return None

    def _take(self, heap: list[_Entry], now_seconds: float) -> Key | None:
        waiting: list[_Entry] = []
        taken: Key | None = None
        while heap and heap[0][0] <= now_seconds and taken is None:
            entry = heapq.heappop(heap)
            at_seconds, _, key = entry
            due = self._due.get(key)
            if due is None or due.at_seconds != at_seconds:
                continue  # visited, or asked for at an earlier time
            if key in self._running:
                waiting.append(entry)
            else:
                taken = key
        for entry in waiting:
            heapq.heappush(heap, entry)
        if taken is not None:
            del self._due[taken]
            self._running.add(taken)
        return taken

    def done(self, key: Key) -> None:
        """The visit went well."""
        self._running.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: Key) -> int:
        """The visit did not; how many times in a row now."""
        self._running.discard(key)
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key]

    def forget(self, key: Key) -> None:
        """The object is gone: no visit is due and its failures do not count."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    def is_running(self, key: Key) -> bool:
        """Whether the key is being visited."""
        return key in self._running

    def next_due_seconds(self) -> float | None:
        """When the next key that is not being visited is due."""
        times = (self._next_of(heap) for heap in self._heaps)
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _next_of(self, heap: list[_Entry]) -> float | None:
        """Every event asks, so it must not take longer where more keys wait."""
        waiting: list[_Entry] = []
        found: float | None = None
        while heap and found is None:
            at_seconds, _, key = heap[0]
            due = self._due.get(key)
            if due is None or due.at_seconds != at_seconds:
                heapq.heappop(heap)  # visited, or asked for at an earlier time
            elif key in self._running:
                waiting.append(heapq.heappop(heap))
            else:
                found = at_seconds
        for entry in waiting:
            heapq.heappush(heap, entry)
        return found

    def waiting(self) -> int:
        """Keys that are due now or later."""
        return len(self._due)

    def running(self) -> int:
        """Keys that are being visited."""
        return len(self._running)


class Lateness(NamedTuple):
    """How the queue does, for the health check."""

    overdue_seconds: float
    """How long the key that has been due longest has waited; 0 when none is due."""
    running: int
    """Keys that are being visited."""


class WorkQueue:
    """The schedule with a clock, for workers that wait."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        chance: Callable[[], float],
        longest_delay_seconds: float = LONGEST_DELAY_SECONDS,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._longest_delay_seconds = longest_delay_seconds
        self._schedule = Schedule()
        self._changed = asyncio.Event()
        self.is_closed = False

    def put(self, key: Key, *, after_seconds: float = 0.0, is_urgent: bool = False) -> None:
        """Visit this key after so long, or earlier if that was asked for before."""
        self._schedule.put(key, self._clock() + after_seconds, is_urgent=is_urgent)
        self._changed.set()

    async def take(self) -> Key | None:
        """Wait for a key that is due. None when the queue was closed."""
        while not self.is_closed:
            if (key := self._schedule.take(self._clock())) is not None:
                return key
            self._changed.clear()
            due_seconds = self._schedule.next_due_seconds()
            pause = None if due_seconds is None else max(0.0, due_seconds - self._clock())
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def done(self, key: Key, *, again_after_seconds: float | None = None) -> None:
        """The visit went well; perhaps come again after so long."""
        self._schedule.done(key)
        if again_after_seconds is not None:
            self.put(key, after_seconds=again_after_seconds)
        self._changed.set()

    def failed(
        self, key: Key, *, at_least_seconds: float = 0.0, at_most_seconds: float | None = None
    ) -> float:
        """The visit did not; it comes back by itself, after so many seconds."""
        failures = self._schedule.failed(key)
        longest = self._longest_delay_seconds if at_most_seconds is None else at_most_seconds
        after = delay_seconds(failures, self._chance(), longest_seconds=longest)
        after = max(after, at_least_seconds)
        self.put(key, after_seconds=after)
        return after

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._schedule.done(key)
        self._schedule.forget(key)
        self._changed.set()

    def is_running(self, key: Key) -> bool:
        """Whether the key is being visited."""
        return self._schedule.is_running(key)

    def close(self) -> None:
        """Hand out no more keys; those who wait get None."""
        self.is_closed = True
        self._changed.set()

    def __len__(self) -> int:
        return self._schedule.waiting() + self._schedule.running()

    def lateness(self) -> Lateness:
        """How the queue does."""
        due_seconds = self._schedule.next_due_seconds()
        overdue = 0.0 if due_seconds is None else max(0.0, self._clock() - due_seconds)
        return Lateness(overdue_seconds=overdue, running=self._schedule.running())
