"""What has been seen of every worker so far?

Readings come in, WorkerHistory goes out. A worker has one life at a time, its container's; when that
starts anew, what was known of it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from plimsoll.controller.life import Life, Terms
from plimsoll.decide import Key
from plimsoll.facts.series import ContainerLife, WorkerHistory
from plimsoll.facts.watched import EngineReading, MemorySample, PastLife, WatchedWorker, WorkerNow

MOST_KEPT_BINS: Final = 60_000
"""Days of 140 workers, hours of 2,000: more than a ConfigMap holds, and 25 MB while it is packed
(measured: docs/measured/watching.md)."""


class _Entry:
    """One worker and its life."""

    def __init__(self, worker: WatchedWorker, terms: Terms) -> None:
        self.worker = worker
        self.life = Life(terms)
        self.life.status_started_seconds = worker.started_seconds
        self.over_until_seconds: float | None = None
        """Start of the life before, of which a late sample may still come."""
        self.past: tuple[PastLife, ...] = ()


class Histories:
    """All workers that are watched, by their InferenceDeployment."""

    def __init__(self, terms: Terms = Terms()) -> None:  # noqa: B008 - a frozen record
        self._terms = terms
        self._by_key: dict[Key, dict[str, _Entry]] = {}
        self._by_uid: dict[str, _Entry] = {}

    @property
    def keys(self) -> tuple[Key, ...]:
        """Everyone who has workers, or had."""
        return tuple(self._by_key)

    def watch(self, key: Key, workers: Sequence[WatchedWorker]) -> None:
        """These are its workers now; others' series end here."""
        before = self._by_key.get(key, {})
        entries: dict[str, _Entry] = {}
        for worker in workers:
            entry = before.get(worker.pod_uid) or _Entry(worker, self._terms)
            entry.worker = worker
            self._heed_status(entry)
            entries[worker.pod_uid] = entry
        for gone in before.keys() - entries.keys():
            self._by_uid.pop(gone, None)
        self._by_key[key] = entries
        self._by_uid |= entries

    def forget(self, key: Key) -> None:
        """The InferenceDeployment is gone."""
        for pod_uid in self._by_key.pop(key, {}):
            self._by_uid.pop(pod_uid, None)

    def workers(self, key: Key | None = None) -> tuple[WatchedWorker, ...]:
        """Everyone who is watched, or those of one InferenceDeployment."""
        entries = self._by_uid if key is None else self._by_key.get(key, {})
        return tuple(entry.worker for entry in entries.values())

    def remember(self, key: Key, past: Iterable[PastLife]) -> int:
        """What was kept of lives that may still go on; how many were known at once. The others are
        taken up as soon as a source says that they are the same."""
        known = 0
        for each in past:
            entry = self._by_key.get(key, {}).get(each.pod_uid)
            if entry is None or entry.worker.container != each.container:
                continue
            entry.past = (*entry.past, each)
            known += self._take_up_past(entry)
        return known

    def take(self, memory: Iterable[MemorySample], engines: Iterable[EngineReading]) -> None:
        """What a round brought. Of pods that are not watched nothing is kept."""
        for sample in memory:
            entry = self._by_uid.get(sample.pod_uid)
            if entry is not None and entry.worker.container == sample.container:
                self._take_memory(entry, sample)
        for reading in engines:
            entry = self._by_uid.get(reading.pod_uid)
            if entry is not None:
                entry.life.take_engine(reading)

    def close_bins(self, now_seconds: float) -> None:
        """End the bins whose time is over."""
        for entry in self._by_uid.values():
            entry.life.close_bins(now_seconds)

    def of(self, key: Key) -> tuple[WorkerHistory, ...]:
        """All that is known of its workers, in the order of their names."""
        entries = self._by_key.get(key, {}).values()
        return tuple(
            _history(entry) for entry in sorted(entries, key=lambda entry: entry.worker.pod)
        )

    def now(self, now_seconds: float) -> tuple[WorkerNow, ...]:
        """The newest figures of everyone."""
        return tuple(
            WorkerNow(
                entry.worker,
                entry.life.resident_bytes(now_seconds),
                entry.life.ttft_p95_seconds(now_seconds),
                entry.life.kv_used(now_seconds),
            )
            for entry in self._by_uid.values()
        )

    def lives(self, key: Key, *, most_bins: int = MOST_KEPT_BINS) -> tuple[PastLife, ...]:
        """What is worth keeping, by pod: lives whose start is known and which have a bin. Of very many
        workers only the newest bins, the same number of each."""
        found: list[PastLife] = []
        entries = self._by_key.get(key, {})
        newest = max(1, most_bins // max(1, len(entries)))
        for pod_uid, entry in sorted(entries.items()):
            life = entry.life
            if life.started_seconds is None:
                found += entry.past  # not seen again yet: what was kept stays kept
            elif bins := life.bins(newest):
                found.append(
                    PastLife(
                        pod_uid,
                        entry.worker.container,
                        life.started_seconds,
                        bins,
                        life.latencies(newest),
                    )
                )
        return tuple(found)

    def _heed_status(self, entry: _Entry) -> None:
        """The pod's status may be the first to say that the container started anew."""
        started = entry.worker.started_seconds
        known = entry.life.status_started_seconds
        if started is None or started == known:
            return
        if known is not None:
            self._begin_anew(entry)
        entry.life.status_started_seconds = started

    def _take_memory(self, entry: _Entry, sample: MemorySample) -> None:
        if entry.over_until_seconds is not None and (
            sample.started_seconds <= entry.over_until_seconds
        ):
            return  # of the life before
        life = entry.life
        if life.started_seconds is None:
            life.started_seconds = sample.started_seconds
            self._take_up_past(entry)
        elif not life.is_same_start(sample.started_seconds):
            if sample.started_seconds < life.started_seconds:
                return
            self._begin_anew(entry)
            entry.life.started_seconds = sample.started_seconds
        entry.life.take_memory(sample)

    def _begin_anew(self, entry: _Entry) -> None:
        entry.over_until_seconds = entry.life.started_seconds
        entry.life = Life(self._terms)
        entry.past = ()

    def _take_up_past(self, entry: _Entry) -> bool:
        if entry.life.started_seconds is None:
            return False
        for past in entry.past:
            if entry.life.is_same_start(past.started_seconds):
                entry.life.remember(past)
        entry.past = ()
        return True


def _history(entry: _Entry) -> WorkerHistory:
    worker, life = entry.worker, entry.life
    started = life.started_seconds or life.status_started_seconds or 0.0
    return WorkerHistory(
        life=ContainerLife(worker.pod_uid, worker.container, started),
        pod=worker.pod,
        pool=worker.pool,
        node=worker.node,
        ready_seconds=worker.ready_seconds,
        limit_bytes=worker.limit_bytes,
        limit_is_node=worker.limit_is_node,
        cache_cap_bytes=worker.cache_cap_bytes,
        bins=life.bins(),
        latencies=life.latencies(),
        engine=life.engine(),
        resident=life.resident(),
        newest_seconds=life.newest_seconds,
    )
