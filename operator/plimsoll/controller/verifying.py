"""How are engines asked what they hold, once each, without ever holding a visit up?

Visits say which workers there are. A worker that serves is asked beside the visits; when it has answered, its
deployment is visited again. Who does not answer is asked again after a while, longer each time. What was learnt
is written to the namespace's calibration, which is read anew now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from plimsoll.api.verified import Reported, WorkerReport
from plimsoll.cluster.calibration import keep_measured, read_calibration
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError, NotLeading
from plimsoll.controller.settings import Settings
from plimsoll.decide import Key, Observed
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.calibration_text import Calibration
from plimsoll.plan.reported import EngineReport
from plimsoll.telemetry.source import ScrapeError

log = logging.getLogger(__name__)

MOST_WAIT_SECONDS: Final = 300.0
"""Between two tries to read an engine that does not answer."""
MOST_UNKEPT: Final = 64
"""Measurements that wait until they can be written, in one namespace; the newest are kept."""
CALIBRATION_SECONDS: Final = 60.0
"""For so long a namespace's calibration is not read again."""


class Reader(Protocol):
    """telemetry.reported.ReportReader, or a stand-in that a test gives."""

    async def read(self, worker: WorkerFacts) -> EngineReport:
        """What the engine says of itself. Raises ScrapeError."""


class _Life(NamedTuple):
    """One container's life: a new one is asked anew."""

    uid: str
    started_seconds: float | None


class _Try(NamedTuple):
    """A worker that has not answered yet."""

    key: Key
    worker: WorkerFacts
    tries: int = 0
    due_seconds: float = 0.0
    problem: str = ""


class Verifier:
    """What engines said, for as long as they live."""

    def __init__(
        self,
        settings: Settings,
        *,
        client: Client,
        reader: Reader,
        wake: Callable[[Key], None],
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._client = client
        self._reader = reader
        self._wake = wake
        self._clock = clock
        self._pause = pause
        self._due: dict[_Life, _Try] = {}
        self._told: dict[_Life, EngineReport] = {}
        self._lives: dict[Key, set[_Life]] = {}
        self._called = asyncio.Event()
        self._calibrations: dict[str, tuple[float, Calibration]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._unkept: dict[str, list[Measurement]] = defaultdict(list)

    def reported(self, key: Key, observed: Observed) -> Reported:
        """What is known of the workers that this visit sees."""
        self._seen(key, observed)
        return Reported(
            reports=tuple(self._report(life) for life in sorted(self._lives[key])),
            grace_seconds=self._settings.verify_grace_seconds,
        )

    async def calibration(self, namespace: str) -> tuple[Measurement, ...]:
        """As read a minute ago at most. While it cannot be read, what was read last, or nothing."""
        at_seconds, known = self._calibrations.get(namespace, (float("-inf"), Calibration()))
        if self._clock() - at_seconds < CALIBRATION_SECONDS:
            return known.measured
        try:
            known = await read_calibration(self._client, namespace)
        except ApiError as error:
            log.warning(
                "calibration not read", extra={"namespace": namespace, "error": error.message}
            )
        for warning in known.warnings:
            if (namespace, warning) not in self._warned:
                self._warned.add((namespace, warning))
                log.warning(
                    "calibration is passed over in part",
                    extra={"namespace": namespace, "told": warning},
                )
        self._calibrations[namespace] = (self._clock(), known)
        return known.measured

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._drop(self._lives.pop(key, set()))

    async def learn(self, key: Key, measured: Sequence[Measurement]) -> None:
        """Add to the namespace's calibration; what cannot be written now is tried with the next visit."""
        waiting = self._unkept[key.namespace]
        waiting.extend(measured)
        del waiting[:-MOST_UNKEPT]
        if not waiting:
            return
        try:
            whole = await keep_measured(self._client, key.namespace, tuple(waiting))
        except NotLeading:
            raise
        except ApiError as error:
            if error.reason == "NotOurs":
                waiting.clear()
            log.warning(
                "calibration not kept",
                extra={"namespace": key.namespace, "error": error.message},
            )
        else:
            waiting.clear()
            self._calibrations[key.namespace] = (self._clock(), whole)

    async def read_forever(self) -> None:
        """Ask whoever is due, again and again."""
        while True:
            self._called.clear()
            try:
                await self.round()
            except Exception:
                log.exception("reading engines failed on a mistake of ours")
            await self._next()

    async def round(self) -> None:
        """Ask everyone who is due, few at a time."""
        now = self._clock()
        due = [life for life, one in self._due.items() if one.due_seconds <= now]
        gate = asyncio.Semaphore(self._settings.engines_at_once)

        async def ask(life: _Life) -> None:
            async with gate:
                await self._ask(life)

        await asyncio.gather(*(ask(life) for life in due))

    async def _next(self) -> None:
        """Until somebody is due or a visit names somebody new."""
        first = min((one.due_seconds for one in self._due.values()), default=None)
        wait = MOST_WAIT_SECONDS if first is None else max(0.0, first - self._clock())
        calling = asyncio.create_task(self._called.wait())
        waiting = asyncio.ensure_future(self._pause(wait))
        try:
            await asyncio.wait({calling, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            calling.cancel()
            waiting.cancel()

    async def _ask(self, life: _Life) -> None:
        one = self._due.get(life)
        if one is None:
            return
        try:
            report = await self._reader.read(one.worker)
        except ScrapeError as error:
            if life in self._due:
                wait = min(self._settings.verify_seconds * 2**one.tries, MOST_WAIT_SECONDS)
                self._due[life] = self._due[life]._replace(
                    tries=one.tries + 1,
                    due_seconds=self._clock() + wait,
                    problem=f"{error.reason}: {error.message}",
                )
            return
        if self._due.pop(life, None) is not None:
            self._told[life] = report
            self._wake(one.key)

    def _seen(self, key: Key, observed: Observed) -> None:
        now = {
            _Life(worker.uid, worker.started_seconds): worker
            for worker in observed.workers
            if worker.is_ready and worker.address and not worker.is_terminating
        }
        self._drop(self._lives.get(key, set()) - now.keys())
        self._lives[key] = set(now)
        for life, worker in now.items():
            if life not in self._told and life not in self._due:
                self._due[life] = _Try(key, worker, due_seconds=self._clock())
                self._called.set()

    def _drop(self, lives: set[_Life]) -> None:
        for life in lives:
            self._due.pop(life, None)
            self._told.pop(life, None)

    def _report(self, life: _Life) -> WorkerReport:
        if life in self._told:
            return WorkerReport(life.uid, self._told[life])
        one = self._due.get(life)
        return WorkerReport(life.uid, problem=one.problem if one is not None else "")
