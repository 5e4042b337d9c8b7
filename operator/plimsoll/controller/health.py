"""Are we alive, and are we ready?

Alive means that the work goes on: a web server that answers proves nothing. It must not depend on the
API server, or an outage would restart every operator. A visit that fails is work too; so is a resync
that got no answer. Ready may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from plimsoll.controller.queue import Lateness

# A resync is overdue when it was not even tried for so many of its periods.
RESYNC_PERIODS: Final = 2.5


@dataclass
class Pulse:
    """What the loop did last, in seconds of the monotonic clock."""

    role: str = "starting"
    """starting, standby (another operator leads), leading or stopping."""
    worked_seconds: float = 0.0
    """When a visit began or ended."""
    resync_tried_seconds: float = 0.0
    """When a resync was tried."""
    list_failed: str | None = None
    """Why the last list of all objects failed; None when it went well."""
    deaf: str | None = None
    """Why the watches are held to be deaf."""
    lateness: Callable[[], Lateness] = field(default=lambda: Lateness(0.0, 0))
    """How the queue does."""


def complaint(
    pulse: Pulse, *, now_seconds: float, stall_seconds: float, resync_seconds: float
) -> str | None:
    """Why we should be restarted, or None.

    A standby has no work and is alive as long as it answers.
    """
    if pulse.role != "leading":
        return None
    if pulse.deaf is not None:
        return pulse.deaf
    late = pulse.lateness()
    idle_seconds = now_seconds - pulse.worked_seconds
    if (late.overdue_seconds > stall_seconds or late.running) and idle_seconds > stall_seconds:
        return (
            f"reconciling has stopped: nothing was finished for {idle_seconds:.0f} s, with "
            f"{late.running} visits under way and one due for {late.overdue_seconds:.0f} s"
        )
    resync_age_seconds = now_seconds - pulse.resync_tried_seconds
    if resync_age_seconds > RESYNC_PERIODS * resync_seconds:
        return f"no resync was tried for {resync_age_seconds:.0f} s"
    return None


def unreadiness(pulse: Pulse) -> str | None:
    """Why we are not ready, or None. A standby is ready: it waits for the Lease, as it should."""
    if pulse.role in ("starting", "stopping"):
        return pulse.role
    if pulse.role == "leading" and pulse.list_failed is not None:
        return f"the last list of InferenceDeployments failed: {pulse.list_failed}"
    return None


class HealthServer:
    """/healthz and /readyz: 200 with "ok" or the role, 503 with the reason."""

    def __init__(self, *, is_alive: Callable[[], str | None], pulse: Pulse) -> None:
        self._is_alive = is_alive
        self._pulse = pulse
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Begin to answer; gives the port, which is a free one for port 0."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """No longer answer."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._is_alive(), "ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(unreadiness(self._pulse), self._pulse.role)


def _answer(problem: str | None, well: str) -> web.Response:
    if problem is None:
        return web.Response(text=well + "\n")
    return web.Response(status=503, text=problem + "\n")
