"""Which of several operators may write?

The one that holds the Lease. Others' clocks are never read: a Lease is old when its record has not
changed for its duration by our own monotonic clock. The resourceVersion is the lock, so of two that
take it at once one is refused. client-go's periods: 15 s, 10 s, 2 s (tools/leaderelection, v0.37).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError, Conflict, NotFound
from plimsoll.cluster.kinds import LEASE
from plimsoll.decide import Manifest
from plimsoll.facts.record import Record

log = logging.getLogger(__name__)

RELEASE_SECONDS: Final = 3.0


class Terms(Record):
    """Whose Lease, and for how long."""

    namespace: str
    """Namespace of the Lease."""
    name: str
    """Its name."""
    identity: str
    """Ours."""
    lease_seconds: float = 15.0
    """How long others wait after a renewal."""
    renew_deadline_seconds: float = 10.0
    """How long we may write after a renewal."""
    retry_seconds: float = 2.0
    """Between two tries."""


class Sighting(Record):
    """A state of the Lease and when we first saw it, in seconds of our monotonic clock."""

    version: str
    """Its resourceVersion."""
    at_seconds: float
    """When we first saw it like that."""


class Step(StrEnum):
    """What to do now."""

    CREATE = "Create"
    TAKE = "Take"
    RENEW = "Renew"
    WAIT = "Wait"


def next_step(
    lease: Manifest | None, terms: Terms, sighting: Sighting | None, *, now_seconds: float
) -> Step:
    """What to do about the Lease as it is now.

    A holder that says nothing for as long as it promised to be heard has lost it. A record that we see
    for the first time counts from now.
    """
    if lease is None:
        return Step.CREATE
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == terms.identity:
        return Step.RENEW
    if not holder:
        return Step.TAKE
    if sighting is None or sighting.version != lease["metadata"]["resourceVersion"]:
        return Step.WAIT
    promised_seconds = float(spec.get("leaseDurationSeconds") or terms.lease_seconds)
    return Step.TAKE if now_seconds - sighting.at_seconds > promised_seconds else Step.WAIT


def lease_after(
    lease: Manifest | None, terms: Terms, step: Step, *, wall_seconds: float
) -> Manifest:
    """The Lease as we want to write it; times in it are for people."""
    now = datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    before: dict[str, Any] = dict((lease or {}).get("spec") or {})
    spec = before | {
        "holderIdentity": terms.identity,
        "leaseDurationSeconds": max(1, round(terms.lease_seconds)),
        "renewTime": now,
    }
    if step is not Step.RENEW:
        spec["acquireTime"] = now
        spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + (lease is not None)
    metadata = {"namespace": terms.namespace, "name": terms.name}
    if lease is not None:
        metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": metadata,
        "spec": spec,
    }


class Elector:
    """Takes the Lease, keeps it, gives it back."""

    def __init__(
        self,
        client: Client,
        terms: Terms,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`client` must be one that may always write: this is how the right to write is won."""
        self._client = client
        self._terms = terms
        self._clock = clock
        self._wall_clock = wall_clock
        self._pause = pause
        self._sighting: Sighting | None = None
        self._renewed_seconds: float | None = None

    def may_write(self) -> bool:
        """Whether the Lease was renewed lately enough. Asked before every write, so that a process that
        was frozen and goes on does not write on an old right."""
        if self._renewed_seconds is None:
            return False
        return self._clock() - self._renewed_seconds < self._terms.renew_deadline_seconds

    async def acquire(self) -> None:
        """Return once the Lease is ours. Waits as long as it takes, also while nothing answers."""
        told = ""
        while not await self.try_once():
            holder = self.holder or "nobody we can ask"
            if holder != told:
                told = holder
                log.info("standing by", extra={"holder": holder})
            await self._pause(self._terms.retry_seconds)
        log.info("leading", extra={"identity": self._terms.identity})

    async def keep(self) -> None:
        """Renew until that fails for too long or another one holds it; then return. We no longer lead."""
        while self.may_write():
            await self._pause(self._terms.retry_seconds)
            if not await self.try_once() and self.holder not in (None, self._terms.identity):
                break
        self._renewed_seconds = None
        log.error("lease lost", extra={"holder": self.holder or "unknown"})

    async def try_once(self) -> bool:
        """One try to take or renew it. False when another one holds it or there was no answer."""
        started_seconds = self._clock()
        try:
            async with asyncio.timeout(self._terms.renew_deadline_seconds / 2):
                lease = await self._read()
                step = next_step(lease, self._terms, self._sighting, now_seconds=started_seconds)
                self._look_at(lease)
                if step is Step.WAIT:
                    return False
                await self._write(lease, step)
        except Conflict:
            return False  # another one was faster; the next look tells who
        except (ApiError, TimeoutError) as error:
            told = str(error) or "no answer in time"
            log.warning("lease not renewed", extra={"error": told})
            self.holder = None
            return False
        self._renewed_seconds = started_seconds
        self.holder = self._terms.identity
        return True

    async def release(self) -> None:
        """Give it back, so that a successor need not wait. Silent when that fails."""
        if self._renewed_seconds is None:
            return
        self._renewed_seconds = None
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self._read()
                if lease is None or lease["spec"].get("holderIdentity") != self._terms.identity:
                    return
                given_back = lease_after(
                    lease, self._terms, Step.RENEW, wall_seconds=self._wall_clock()
                )
                given_back["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update(LEASE, self._terms.namespace, given_back)
        except (ApiError, TimeoutError) as error:
            log.warning("lease not given back", extra={"error": str(error) or "no answer in time"})
        else:
            log.info("lease given back")

    holder: str | None = None
    """Who held it when we looked last; None when there was no answer."""

    async def _read(self) -> Manifest | None:
        try:
            return await self._client.get(LEASE, self._terms.namespace, self._terms.name)
        except NotFound:
            return None

    def _look_at(self, lease: Manifest | None) -> None:
        if lease is None:
            self._sighting, self.holder = None, ""
            return
        version = lease["metadata"]["resourceVersion"]
        if self._sighting is None or self._sighting.version != version:
            self._sighting = Sighting(version=version, at_seconds=self._clock())
        self.holder = (lease.get("spec") or {}).get("holderIdentity") or ""

    async def _write(self, lease: Manifest | None, step: Step) -> None:
        wanted = lease_after(lease, self._terms, step, wall_seconds=self._wall_clock())
        if step is Step.CREATE:
            await self._client.create(LEASE, self._terms.namespace, wanted)
        else:
            await self._client.update(LEASE, self._terms.namespace, wanted)
