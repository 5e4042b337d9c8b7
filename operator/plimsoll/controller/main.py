"""How does the operator start, lead and stop?

Its servers first, then the Lease, then one look at everyone, then the watches. It stops the other way
round: workers, Lease, watches, servers. Whatever ends unasked ends the process: starting anew is the
tested way, and writes nothing where nothing differs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import kopf

from plimsoll.catalog.profiles import GpuProfile
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError, NotFound, Unauthorized
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT
from plimsoll.cluster.lease import Elector, Terms
from plimsoll.controller.draining import Drains, drains_of
from plimsoll.controller.gpu_types import read_gpu_types
from plimsoll.controller.handlers import Doorbell, kopf_settings, register
from plimsoll.controller.health import HealthServer, Pulse, complaint
from plimsoll.controller.judging import Judge
from plimsoll.controller.loop import Decide, Loop
from plimsoll.controller.queue import WorkQueue
from plimsoll.controller.settings import Settings
from plimsoll.controller.sources import fetcher_of, source_of
from plimsoll.controller.verifying import Verifier
from plimsoll.controller.watching import Watcher
from plimsoll.decide import decide as decide_by_plan
from plimsoll.diagnose.verdict import verdict
from plimsoll.telemetry import export
from plimsoll.telemetry.log import set_up
from plimsoll.telemetry.reported import ReportReader
from plimsoll.telemetry.workers import WorkerMetrics

log = logging.getLogger(__name__)

# Together below 25 s, which is below the 30 s that a pod is given to end.
FINISH_VISITS_SECONDS: Final = 8.0
STOP_WATCHES_SECONDS: Final = 8.0
FIRST_LIST_RETRY_SECONDS: Final = 2.0
WENT_WELL: Final = 0
FAILED: Final = 1
MISREAD: Final = 2


def run(
    settings: Settings,
    *,
    decide: Decide = decide_by_plan,
    chance: Callable[[], float] = random.random,
    die: Callable[[int], None] = os._exit,
) -> int:
    """Run the operator until it is told to stop; gives the exit code."""
    set_up(settings.log_format, settings.log_level)
    try:
        profiles = read_gpu_types(settings.gpu_types_file)
    except ValueError as error:
        log.error("table of cards cannot be used", extra={"error": str(error)})
        return MISREAD
    try:
        operator = Operator(settings, decide=decide, chance=chance, die=die, profiles=profiles)
        return asyncio.run(operator.run())
    except Unauthorized as error:
        log.error("not signed in", extra={"error": error.message})
        return FAILED


class Operator:
    """All that runs in one process."""

    def __init__(
        self,
        settings: Settings,
        *,
        decide: Decide = decide_by_plan,
        chance: Callable[[], float] = random.random,
        die: Callable[[int], None] = os._exit,
        profiles: tuple[GpuProfile, ...] = (),
    ) -> None:
        self._settings = settings
        self._decide = decide
        self._chance = chance
        self._die = die
        self._clock = time.monotonic
        self._wall_clock = time.time  # noqa: TID251 - here the time of day becomes an argument
        self._profiles = profiles
        self._stop = asyncio.Event()
        self.pulse = Pulse(worked_seconds=self._clock(), resync_tried_seconds=self._clock())
        self.queue = WorkQueue(clock=self._clock, chance=chance)
        self.metrics = export.Metrics(queue_keys=lambda: float(len(self.queue)))
        self.worker_metrics = WorkerMetrics(self.metrics.registry)
        self.pulse.lateness = self.queue.lateness
        self._health = HealthServer(is_alive=self._complaint, pulse=self.pulse)
        self._stop_metrics: Callable[[], None] = lambda: None
        self.ports: dict[str, int] = {}

    async def run(self) -> int:
        """Until told to stop, or something ends unasked; gives the exit code."""
        self._heed_signals()
        settings = self._settings
        client = await Client.connect(settings.kubeconfig)
        lease_client = await Client.connect(settings.kubeconfig)
        client.on_call = lease_client.on_call = lambda verb, kind, status: self.metrics.called(
            verb, kind.kind, status
        )
        elector = Elector(
            lease_client, _terms(settings), clock=self._clock, wall_clock=self._wall_clock
        )
        client.may_write = elector.may_write
        try:
            await self._serve()
            self.pulse.role = "standby"
            if not await self._unless_stopped(elector.acquire()):
                return WENT_WELL
            keeping = _task(elector.keep(), "lease")
            try:
                return await self._lead(client, elector, keeping)
            finally:
                await _finish([keeping], 0.0)
        finally:
            self.pulse.role = "stopping"
            await elector.release()
            await self._health.stop()
            self._stop_metrics()
            await client.close()
            await lease_client.close()

    def stop(self) -> None:
        """Begin to end in good order."""
        self._stop.set()

    async def _serve(self) -> None:
        settings = self._settings
        if settings.health_port:
            self.ports["health"] = await self._health.start(settings.host, settings.health_port)
        if settings.metrics_port:
            self._stop_metrics = export.serve(self.metrics, settings.host, settings.metrics_port)

    async def _lead(self, client: Client, elector: Elector, keeping: asyncio.Task[Any]) -> int:
        settings = self._settings
        fleet = Fleet(
            client,
            clock=self._clock,
            max_age_seconds=settings.fleet_seconds,
            namespaces=settings.namespaces,
            profiles=self._profiles,
            wall_clock=self._wall_clock,
            stale_seconds=settings.gpu_facts_stale_seconds,
        )
        fetcher = fetcher_of(settings)
        watcher = Watcher(
            settings,
            client=client,
            fleet=fleet,
            source=source_of(
                settings,
                fetcher,
                client.access,
                tally=self.worker_metrics,
                clock=self._clock,
                wall_clock=self._wall_clock,
                chance=self._chance,
            ),
            show=self.worker_metrics,
            clock=self._clock,
            wall_clock=self._wall_clock,
            chance=self._chance,
        )
        try:
            return await self._lead_on(
                client,
                elector,
                keeping,
                fleet,
                watcher,
                reader=ReportReader(fetcher),
                drains=drains_of(fetcher),
            )
        finally:
            await fetcher.close()

    async def _lead_on(
        self,
        client: Client,
        elector: Elector,
        keeping: asyncio.Task[Any],
        fleet: Fleet,
        watcher: Watcher,
        *,
        reader: ReportReader,
        drains: Drains,
    ) -> int:
        settings = self._settings
        bell = Doorbell(self.queue, fleet, clock=self._clock)
        verifier = Verifier(
            settings, client=client, reader=reader, wake=self.queue.put, clock=self._clock
        )
        loop = Loop(
            settings,
            client=client,
            fleet=fleet,
            queue=self.queue,
            bell=bell,
            pulse=self.pulse,
            tally=self.metrics,
            decide=self._decide,
            clock=self._clock,
            wall_clock=self._wall_clock,
            chance=self._chance,
            watch=watcher,
            judge=Judge(
                settings,
                histories=watcher.histories_of,
                judge=verdict,
                started_seconds=self._wall_clock(),
            ),
            verifier=verifier,
            drains=drains,
        )
        self.metrics.leads(True)
        self.pulse.worked_seconds = self.pulse.resync_tried_seconds = self._clock()
        self.pulse.role = "leading"
        try:
            begun = await self._unless_stopped(self._begin(client, loop, fleet), keeping)
        except NotFound:
            log.error(
                "kind not served",
                extra={
                    "kind": INFERENCE_DEPLOYMENT.kind,
                    "way_out": "install the CRDs first: kubectl apply --server-side -f crds/",
                },
            )
            return FAILED
        if not begun and not keeping.done():
            return WENT_WELL
        # kopf ends every task that was born after it started, so ours are born before it.
        workers = [_task(loop.work(), f"worker {i}") for i in range(settings.workers)]
        resyncing = _task(loop.resync_forever(), "resync")
        checking = _task(loop.check_watches_forever(), "watch check")
        asking = _task(watcher.watch_forever(), "watcher")
        verifying = _task(verifier.read_forever(), "verifier")
        stopping = _task(self._stop.wait(), "stop")
        stop_watches = asyncio.Event()
        watching = _task(
            self._watch(client, bell, stop_watches, has_slices=fleet.has_slices), "kopf"
        )
        ours = {keeping, resyncing, checking, asking, verifying, watching, stopping, *workers}
        done, _ = await asyncio.wait(ours, return_when=asyncio.FIRST_COMPLETED)
        asked = stopping in done
        for task in done - {stopping}:
            _tell_why(task)
        if keeping in done:
            # Another operator may lead already: nothing in good order any more.
            self.queue.close()
            self._die(FAILED)
        self.pulse.role = "stopping"
        self.queue.close()
        await _finish(workers, FINISH_VISITS_SECONDS)
        await _finish([keeping, resyncing, checking, asking, verifying], 0.0)
        await elector.release()
        self.metrics.leads(False)
        await self._health.stop()
        stop_watches.set()
        await _finish([watching], STOP_WATCHES_SECONDS)
        return WENT_WELL if asked else FAILED

    async def _begin(self, client: Client, loop: Loop, fleet: Fleet) -> None:
        """See everyone and every card once, before the watches tell of them: their first word is then no
        news. Waits while there is no answer; raises NotFound where the kind is not installed."""
        while True:
            try:
                await client.list_all(
                    INFERENCE_DEPLOYMENT, next(iter(self._settings.namespaces), None)
                )
                await fleet.inventory()
            except NotFound:
                raise
            except ApiError as error:
                log.warning("first look failed", extra={"error": error.message})
            else:
                if await loop.resync():
                    return
            await asyncio.sleep(FIRST_LIST_RETRY_SECONDS)

    async def _watch(
        self, client: Client, bell: Doorbell, stop: asyncio.Event, *, has_slices: bool
    ) -> None:
        registry = kopf.OperatorRegistry()
        register(registry, bell, access=client.access, has_slices=has_slices)
        namespaces = self._settings.namespaces
        # Said here, or kopf asks the system for our user's name, which a container may not have.
        identity: Any = self._settings.identity
        born_before = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=kopf_settings(watch_silence_seconds=self._settings.watch_silence_seconds),
            identity=identity,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
        self._heed_signals()  # kopf took them over; the order in which we stop is ours
        await kopf.run_tasks(tasks, ignored=born_before)

    async def _unless_stopped(
        self, work: Coroutine[Any, Any, None], *others: asyncio.Task[Any]
    ) -> bool:
        """Do the work, and whether it was done before we were told to stop or another task ended."""
        task, stopping = _task(work, "beginning"), _task(self._stop.wait(), "stop")
        await asyncio.wait({task, stopping, *others}, return_when=asyncio.FIRST_COMPLETED)
        is_done = task.done()
        await _finish([stopping, *([] if is_done else [task])], 0.0)
        if is_done:
            task.result()
        return is_done

    def _heed_signals(self) -> None:
        """SIGTERM and SIGINT ask us to stop."""
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)

    def _complaint(self) -> str | None:
        return complaint(
            self.pulse,
            now_seconds=self._clock(),
            stall_seconds=self._settings.stall_seconds,
            resync_seconds=self._settings.resync_seconds,
        )


def _terms(settings: Settings) -> Terms:
    return Terms(
        namespace=settings.lease_namespace,
        name=settings.lease_name,
        identity=settings.identity,
        lease_seconds=settings.lease_seconds,
        renew_deadline_seconds=settings.renew_deadline_seconds,
        retry_seconds=settings.retry_seconds,
    )


def _task(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(work, name=name)


def _tell_why(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    log.error(
        "part of the operator ended unasked",
        extra={"part": task.get_name(), "error": str(error) if error else "no error"},
        exc_info=error,
    )


async def _finish(tasks: list[asyncio.Task[Any]], patience_seconds: float) -> None:
    """Wait for the tasks, then cancel those that are left and see them end."""
    if patience_seconds:
        await asyncio.wait(tasks, timeout=patience_seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
