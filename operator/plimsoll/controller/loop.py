"""Look, think, do: for whom the queue names, and now and then for everyone.

Nothing here knows what a plan is. A visit that fails comes back later and holds nobody else up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from plimsoll.cluster.apply import ApplyReport, make_so
from plimsoll.cluster.client import Client
from plimsoll.cluster.difference import Difference
from plimsoll.cluster.errors import ApiError, Conflict, NotLeading, Unavailable
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.inspection import Inspector
from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT
from plimsoll.cluster.observe import look
from plimsoll.cluster.settled import Settled
from plimsoll.controller.draining import Drains
from plimsoll.controller.handlers import Doorbell, key_of
from plimsoll.controller.health import Pulse
from plimsoll.controller.judging import Judge
from plimsoll.controller.queue import WorkQueue
from plimsoll.controller.settings import Settings
from plimsoll.controller.verifying import Verifier
from plimsoll.controller.watching import NoWatch, Watch
from plimsoll.decide import Desired, Key, Observed

log = logging.getLogger(__name__)

RESYNC_JITTER: Final = 0.1
# While the API server is away everybody fails; then nobody should wait long once it is back.
LONGEST_WAIT_IN_OUTAGE_SECONDS: Final = 30.0
SHOWN_DIFFERENCES: Final = 12


class Decide(Protocol):
    """plimsoll.decide.decide, or a stand-in that a test gives."""

    def __call__(self, observed: Observed, *, now_seconds: float) -> Desired: ...


class Tally(Protocol):
    """Who counts: telemetry.export.Metrics."""

    def visited(self, result: str, seconds: float) -> None:
        """A visit ended."""

    def resynced(self, now_seconds: float, objects: int) -> None:
        """Everyone was listed."""

    def planned(self, key: Key, status: dict[str, object] | None) -> None:
        """What the status of one object says now; None when the object is gone."""


class Loop:
    """The workers, the resync and the watch over the watches."""

    def __init__(
        self,
        settings: Settings,
        *,
        client: Client,
        fleet: Fleet,
        queue: WorkQueue,
        bell: Doorbell,
        pulse: Pulse,
        tally: Tally,
        decide: Decide,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        chance: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        watch: Watch | None = None,
        judge: Judge | None = None,
        verifier: Verifier | None = None,
        drains: Drains | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._fleet = fleet
        self._queue = queue
        self._bell = bell
        self._pulse = pulse
        self._tally = tally
        self._decide = decide
        self._clock = clock
        self._wall_clock = wall_clock
        self._chance = chance
        self._pause = pause
        self._watch = NoWatch() if watch is None else watch
        self._judge = judge
        self._verifier = verifier
        self._drains = drains
        self._allowed = settings.allowed
        self._settled = Settled()
        self._inspector = Inspector(
            image=settings.inspection_image or "",
            image_pull_policy=settings.inspection_pull_policy,
        )
        self._uids: dict[Key, set[str]] = {}
        self._written: dict[Key, Mapping[str, str]] = {}

    async def work(self) -> None:
        """One worker: visits until the queue is closed."""
        while (key := await self._queue.take()) is not None:
            await self.visit(key)

    async def visit(self, key: Key) -> ApplyReport | None:
        """Look, think, do. Never raises: what went wrong decides when to come again."""
        started = self._pulse.worked_seconds = self._clock()
        report: ApplyReport | None = None
        versions: set[str] = set()
        try:
            async with asyncio.timeout(self._settings.visit_seconds):
                report, again_seconds = await self._look_think_do(key, versions)
        except (ApiError, TimeoutError) as error:
            result = self._come_again(key, error)
        except Exception:
            after_seconds = self._queue.failed(key)
            log.exception(
                "visit failed on a mistake of ours",
                extra={**_named(key), "again_after_seconds": round(after_seconds, 1)},
            )
            result = "error"
        else:
            result = self._went(key, report, again_seconds)
        self._bell.visited(key, frozenset(versions))
        ended = self._pulse.worked_seconds = self._clock()
        self._tally.visited(result, ended - started)
        return report

    async def _look_think_do(
        self, key: Key, versions: set[str]
    ) -> tuple[ApplyReport | None, float | None]:
        """`versions` takes those of the object that need no other visit, when this one went well."""
        observed = await look(
            self._client,
            key,
            self._fleet,
            written=self._written.pop(key, {}),
            inspector=self._inspector,
        )
        if observed is None:
            self._forget(key)
            return None, None
        self._remember(key, observed)
        self._watch.seen(key, observed)
        observed = observed.model_copy(update={"allowed": self._allowed})
        if self._drains is not None:
            drained = await self._drains.drained(observed)
            observed = observed.model_copy(update={"drained_at_gates": drained})
        now_seconds = self._wall_clock()
        if self._judge is not None:
            watched = await self._judge.watched(key, observed, now_seconds=now_seconds)
            observed = observed.model_copy(update={"watched": watched})
        if self._verifier is not None:
            said = {
                "reported": self._verifier.reported(key, observed),
                "calibration": await self._verifier.calibration(key.namespace),
            }
            observed = observed.model_copy(update=said)
        desired = self._decide(observed, now_seconds=now_seconds)
        report = await make_so(
            self._client,
            desired,
            observed,
            settled=self._settled,
            now_seconds=now_seconds,
            reporter=self._settings.identity,
            on_write=lambda kind, name, differences: _log_write(key, kind, name, differences),
        )
        if self._verifier is not None:
            await self._verifier.learn(key, desired.measured)
        self._written[key] = report.versions
        versions.add(observed.deployment["metadata"]["resourceVersion"])
        if report.status_version is not None:
            versions.add(report.status_version)
        status = desired.status
        self._tally.planned(key, observed.deployment.get("status") if status is None else status)
        return report, desired.look_again_seconds

    def _went(self, key: Key, report: ApplyReport | None, again_seconds: float | None) -> str:
        """The visit ended; what to call it."""
        if report is None:
            self._queue.forget(key)
            return "gone"
        if report.failures:
            after_seconds = self._queue.failed(key)
            for failure in report.failures:
                log.warning(
                    "child not applied",
                    extra={
                        **_named(key),
                        "child": f"{failure.kind}/{failure.name}",
                        "reason": failure.reason,
                        "error": failure.message,
                        "again_after_seconds": round(after_seconds, 1),
                    },
                )
            return "refused"
        self._queue.done(key, again_after_seconds=again_seconds)
        return "written" if report.writes else "unchanged"

    def _come_again(self, key: Key, error: ApiError | TimeoutError) -> str:
        """The API server did not play along; what to call it."""
        retry_after, most, result = 0.0, None, "refused"
        if isinstance(error, Unavailable):
            retry_after, most, result = (
                error.retry_after_seconds,
                LONGEST_WAIT_IN_OUTAGE_SECONDS,
                "unavailable",
            )
        elif isinstance(error, Conflict):
            result = "conflict"
        elif isinstance(error, NotLeading | TimeoutError):
            most, result = LONGEST_WAIT_IN_OUTAGE_SECONDS, "unavailable"
        after_seconds = self._queue.failed(key, at_least_seconds=retry_after, at_most_seconds=most)
        log.warning(
            "visit failed",
            extra={
                **_named(key),
                "result": result,
                "error": str(error) or "the visit took too long",
                "again_after_seconds": round(after_seconds, 1),
            },
        )
        return result

    def _remember(self, key: Key, observed: Observed) -> None:
        uid = observed.deployment["metadata"]["uid"]
        now = {uid, f"{uid}/status"} | {c["metadata"]["uid"] for c in observed.children}
        self._settled.forget(*(self._uids.get(key, set()) - now))
        self._uids[key] = now

    def _forget(self, key: Key) -> None:
        self._settled.forget(*self._uids.pop(key, set()))
        self._written.pop(key, None)
        self._bell.forget(key)
        self._watch.forget(key)
        if self._judge is not None:
            self._judge.forget(key)
        if self._verifier is not None:
            self._verifier.forget(key)
        self._tally.planned(key, None)

    async def resync_forever(self) -> None:
        """Visit everyone now and then, asked or not. The first resync is `resync`, made before."""
        while True:
            spread = 1 - RESYNC_JITTER * self._chance()
            await self._pause(self._settings.resync_seconds * spread)
            await self.resync(over_seconds=self._settings.resync_seconds * RESYNC_JITTER)

    async def resync(self, *, over_seconds: float = 0.0) -> bool:
        """List all objects and put each on the queue, spread over so many seconds; ghosts (objects that
        went while a watch was away) are put too, so that they are dropped. False when the list failed."""
        self._pulse.resync_tried_seconds = self._clock()
        listed = await self._list()
        if listed is None:
            return False
        self._fleet.forget()
        for key in {*listed, *self._bell.known}:
            if key in listed:
                self._bell.learn(key)
            else:
                self._bell.forget(key)
            self._queue.put(key, after_seconds=over_seconds * self._chance())
        self._tally.resynced(self._wall_clock(), len(listed))
        log.info("resync", extra={"objects": len(listed)})
        return True

    async def check_watches_forever(self) -> None:
        """Compare what the watch delivered with a list, now and then. Returns when it is deaf."""
        before: dict[Key, tuple[str, str | None]] = {}
        while True:
            await self._pause(self._settings.watch_check_seconds)
            listed = await self._list()
            if listed is None:
                before = {}
                continue
            seen = dict(self._bell.seen)
            now = missed(listed, seen)
            if deaf_to := [key for key, pair in now.items() if before.get(key) == pair]:
                self._pulse.deaf = (
                    f"the watch is deaf: {len(deaf_to)} objects changed and it did not say so for "
                    f"{self._settings.watch_check_seconds:.0f} s, for example "
                    f"{deaf_to[0].namespace}/{deaf_to[0].name}"
                )
                log.error("watch is deaf", extra={"told": self._pulse.deaf})
                return
            for ghost in seen.keys() - listed.keys():
                self._queue.put(ghost)
            before = now

    async def _list(self) -> dict[Key, str] | None:
        """Every object and its resourceVersion; None when there was no answer."""
        found: dict[Key, str] = {}
        try:
            for namespace in self._settings.namespaces or (None,):
                listing = await self._client.list_all(
                    INFERENCE_DEPLOYMENT, namespace, metadata_only=True
                )
                for item in listing.items:
                    found[key_of(item)] = item["metadata"]["resourceVersion"]
        except ApiError as error:
            self._pulse.list_failed = error.message
            log.warning("list failed", extra={"error": error.message})
            return None
        self._pulse.list_failed = None
        return found


def missed(listed: dict[Key, str], seen: dict[Key, str]) -> dict[Key, tuple[str, str | None]]:
    """Objects whose listed version is not the one that the watch delivered, with both versions.

    Versions are compared for equality only. One such pair may be a change on its way; the same pair a
    minute later was missed.
    """
    return {
        key: (version, seen.get(key)) for key, version in listed.items() if seen.get(key) != version
    }


def _log_write(key: Key, kind: str, name: str, differences: tuple[Difference, ...]) -> None:
    child = {**_named(key), "child": f"{kind}/{name}"}
    if not differences:
        log.info("child created", extra=child)
        return
    shown = ", ".join(str(difference) for difference in differences[:SHOWN_DIFFERENCES])
    more = len(differences) - SHOWN_DIFFERENCES
    log.info(
        "child put right",
        extra={**child, "differs_in": shown + (f" and {more} more" if more > 0 else "")},
    )


def _named(key: Key) -> dict[str, str]:
    return {"namespace": key.namespace, "deployment": key.name}
