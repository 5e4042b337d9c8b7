"""How are all workers watched, round by round, without ever holding a visit up?

Visits say which workers there are; a round asks the sources about them, ends the bins that are over,
and now and then writes down floors that have changed. A source that fails leaves unknown what it would
have said; nothing else happens.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError, NotLeading
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.floors import keep_floors, read_floors
from plimsoll.controller.history import Histories
from plimsoll.controller.kept import pack, unpack
from plimsoll.controller.life import Terms
from plimsoll.controller.settings import Settings
from plimsoll.decide import Key, Observed
from plimsoll.facts.series import WorkerHistory
from plimsoll.facts.watched import WatchedWorker, WorkerNow
from plimsoll.facts.worker import WorkerFacts
from plimsoll.telemetry.source import SeriesSource

log = logging.getLogger(__name__)

READS_AT_ONCE: Final = 8
RUNNING: Final = "Running"


class Show(Protocol):
    """Who tells Prometheus: telemetry.workers.WorkerMetrics."""

    def watched(self, now: Sequence[WorkerNow], round_seconds: float) -> None:
        """A round is over."""


class Watch(Protocol):
    """What a visit does with the watcher."""

    def seen(self, key: Key, observed: Observed) -> None:
        """A visit saw these workers."""

    def forget(self, key: Key) -> None:
        """The object is gone."""


class NoWatch:
    """Watches nobody."""

    def seen(self, key: Key, observed: Observed) -> None:
        """Nothing to do."""

    def forget(self, key: Key) -> None:
        """Nothing to do."""


class Watcher:
    """The rounds, and the floors that outlive us."""

    def __init__(
        self,
        settings: Settings,
        *,
        client: Client,
        fleet: Fleet,
        source: SeriesSource,
        show: Show,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        chance: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._client = client
        self._fleet = fleet
        self._source = source
        self._show = show
        self._clock = clock
        self._wall_clock = wall_clock
        self._chance = chance
        self._pause = pause
        self.histories = Histories(terms_of(settings))
        self._uids: dict[Key, str] = {}
        self._unread: set[Key] = set()
        self._flush_seconds: dict[Key, float] = {}
        self._kept: dict[Key, bytes] = {}

    def seen(self, key: Key, observed: Observed) -> None:
        """A visit saw these workers."""
        uid = observed.deployment["metadata"]["uid"]
        if self._uids.get(key) != uid:
            self.forget(key)
            self._uids[key] = uid
            self._unread.add(key)
            # spread, so that not everybody's floors are due at once
            spread = 0.5 + 0.5 * self._chance()
            self._flush_seconds[key] = self._clock() + spread * self._settings.floor_flush_seconds
        watched = [
            watched_worker(key, worker, self._fleet)
            for worker in observed.workers
            if worker.container and worker.phase == RUNNING
        ]
        self.histories.watch(key, watched)

    def forget(self, key: Key) -> None:
        """The object is gone; its ConfigMap goes with it."""
        self.histories.forget(key)
        self._uids.pop(key, None)
        self._unread.discard(key)
        self._flush_seconds.pop(key, None)
        self._kept.pop(key, None)

    def histories_of(self, key: Key) -> tuple[WorkerHistory, ...]:
        """All that is known of its workers."""
        return self.histories.of(key)

    async def watch_forever(self) -> None:
        """Round after round, one every `watch_seconds`; a late one is not made up for."""
        while True:
            started = self._clock()
            try:
                await self.round()
            except Exception:
                log.exception("round failed on a mistake of ours")
            took = self._clock() - started
            await self._pause(max(0.0, self._settings.watch_seconds - took))

    async def round(self) -> None:
        """Ask about everyone once, end bins, write floors that are due."""
        started = self._clock()
        await self._read_kept()
        seen = await self._source.read(self.histories.workers())
        self.histories.take(*seen)
        now_seconds = self._wall_clock()
        self.histories.close_bins(now_seconds)
        self._show.watched(self.histories.now(now_seconds), self._clock() - started)
        await self._flush()

    async def _read_kept(self) -> None:
        """What was kept before our start, once for each InferenceDeployment."""
        gate = asyncio.Semaphore(READS_AT_ONCE)

        async def read(key: Key) -> None:
            async with gate:
                await self._read_one(key)

        await asyncio.gather(*(read(key) for key in tuple(self._unread)))

    async def _read_one(self, key: Key) -> None:
        uid = self._uids.get(key)
        if uid is None:
            return
        try:
            kept = await read_floors(self._client, key, uid)
        except ApiError as error:
            log.warning("floors not read", extra={**_named(key), "error": error.message})
            return
        if self._uids.get(key) != uid:
            return
        self._unread.discard(key)
        if kept is not None:
            try:
                self.histories.remember(key, unpack(kept))
            except ValueError as error:
                log.warning(
                    "kept floors are unreadable and left out",
                    extra={**_named(key), "error": str(error)},
                )
            else:
                self._kept[key] = hashlib.sha256(kept).digest()
        workers = self.histories.workers(key)
        if workers:
            size = self._settings.floor_bin_seconds
            until = self._wall_clock() // size * size
            since = until - self._settings.history_hours * 3600 // size * size
            past = await self._source.history(workers, since_seconds=since, until_seconds=until)
            self.histories.remember(key, past)

    async def _flush(self) -> None:
        """Write the floors that are due and have changed. What fails is due again in a while."""
        now = self._clock()
        for key in [key for key, due in self._flush_seconds.items() if due <= now]:
            self._flush_seconds[key] = now + self._settings.floor_flush_seconds
            uid = self._uids.get(key)
            lives = self.histories.lives(key)
            if uid is None or key in self._unread or not lives:
                continue
            # in a thread: days of a thousand workers take seconds
            packed = await asyncio.to_thread(
                pack, lives, bin_seconds=self._settings.floor_bin_seconds
            )
            digest = hashlib.sha256(packed).digest()
            if self._kept.get(key) == digest:
                continue
            try:
                await keep_floors(self._client, key, uid, packed)
            except NotLeading:
                return
            except ApiError as error:
                log.warning("floors not kept", extra={**_named(key), "error": error.message})
            else:
                self._kept[key] = digest


def terms_of(settings: Settings) -> Terms:
    """How much is remembered under these settings."""
    return Terms(
        bin_seconds=settings.floor_bin_seconds,
        keep_seconds=settings.history_hours * 3600,
        stale_seconds=settings.stale_seconds,
        engine_step_seconds=2 * settings.watch_seconds,
    )


def watched_worker(key: Key, worker: WorkerFacts, fleet: Fleet) -> WatchedWorker:
    """Whom to ask about this worker. Without a limit of its own, the node's memory is its limit."""
    node = worker.node or ""
    limit = worker.memory_limit_bytes
    return WatchedWorker(
        namespace=key.namespace,
        deployment=key.name,
        pool=worker.pool,
        pod=worker.name,
        pod_uid=worker.uid,
        container=worker.container,
        engine=worker.engine,
        node=node,
        kubelet=fleet.kubelet(node),
        address=worker.address or "",
        started_seconds=worker.started_seconds,
        ready_seconds=worker.ready_seconds,
        limit_bytes=fleet.allocatable_bytes(node) if limit is None else limit,
        limit_is_node=limit is None,
        cache_cap_bytes=worker.cache_cap_bytes,
        is_healthy=worker.is_healthy,
    )


def _named(key: Key) -> dict[str, str]:
    return {"namespace": key.namespace, "deployment": key.name}
