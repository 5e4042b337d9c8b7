"""How does an agent spend its day?

It looks, says what it saw, and waits until the driver tells of something or the time has come. The API
server or the driver being away is no reason to end: the next look is not far.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from plimsoll.agent import events, nvml
from plimsoll.agent.look import host_memory, now_text
from plimsoll.agent.reading import Reading, Refused, Trouble
from plimsoll.agent.settings import AgentSettings
from plimsoll.agent.status import status_of
from plimsoll.api.gpunode import GPUNodeStatus
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError, Forbidden, NotFound, Unauthorized
from plimsoll.cluster.publish import OwnNode, own_node, publish, read_own
from plimsoll.telemetry.log import set_up

log = logging.getLogger(__name__)

WENT_WELL: Final = 0
FAILED: Final = 1
HUNG: Final = Refused(trouble=Trouble.NO_ANSWER, says="NVML did not answer in time")

Read = Callable[[], Reading]
Wait = Callable[..., bool]


def run(settings: AgentSettings) -> int:
    """Run the agent until it is told to stop; gives the exit code."""
    set_up(settings.log_format, settings.log_level)
    try:
        return asyncio.run(_run(settings))
    except Unauthorized as error:
        log.error("not signed in", extra={"error": error.message})
        return FAILED


async def _run(settings: AgentSettings) -> int:
    client = await Client.connect(settings.kubeconfig)
    try:
        node = node_of(settings, (await client.access()).token)
        if node is None:
            log.error("which node this is is not known: name it with NODE_NAME or --node-name")
            return FAILED
        stopped = threading.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stopped.set)
        await Agent(settings, client, node, stopped).run()
        return WENT_WELL
    finally:
        await client.close()


def node_of(settings: AgentSettings, token: str | None) -> OwnNode | None:
    """The node that was named, with the UID that the token gives it; else the token's own."""
    bound = own_node(token)
    if settings.node_name is None:
        return bound
    if bound is not None and bound.name == settings.node_name:
        return bound
    return OwnNode(settings.node_name, "")


class Agent:
    """Looks and tells, again and again."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        node: OwnNode,
        stopped: threading.Event,
        *,
        read: Read = nvml.read,
        wait: Wait = events.wait,
        now: Callable[[], str] | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._node = node
        self._stopped = stopped
        self._read = read
        self._wait = wait
        self._now = now or now_text
        self._known: GPUNodeStatus | None = None
        self._hung: asyncio.Future[Reading] | None = None
        # one thread: NVML is started and ended around each use, so two uses must not meet
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nvml")

    async def run(self) -> None:
        """Until told to stop."""
        try:
            while not self._stopped.is_set():
                await self.look()
                await self._until_next()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """One look, published. What the API server says against it is told in the log."""
        reading = await self._reading()
        try:
            if self._known is None:
                self._known = await read_own(self._client, self._node)
            host = host_memory(self._settings.meminfo)
            status = status_of(reading, host, self._known, self._now())
            await publish(self._client, self._node, status)
        except NotFound:
            log.warning("GPUNode is not installed; install the chart's CRDs")
        except Forbidden as error:
            log.error("not let write", extra={"node": self._node.name, "error": error.message})
        except ApiError as error:
            log.warning("not published", extra={"node": self._node.name, "error": error.message})
        else:
            if status.observed_at != self._known.observed_at or _words(status) != _words(
                self._known
            ):
                log.info("seen", extra={"node": self._node.name, **_words(status)})
            self._known = status

    async def _reading(self) -> Reading:
        """What NVML says, or that it does not come back. A call that hangs is asked nothing more until it
        has come back."""
        if self._hung is None:
            loop = asyncio.get_running_loop()
            self._hung = loop.run_in_executor(self._thread, self._read)
        done, _ = await asyncio.wait({self._hung}, timeout=self._settings.answer_seconds)
        if not done:
            return Reading(driver=HUNG, cards=HUNG)
        asked, self._hung = self._hung, None
        return await asked

    async def _until_next(self) -> None:
        if self._hung is not None:  # the thread is not free to wait for events
            await asyncio.to_thread(self._stopped.wait, self._settings.rescan_seconds)
            return
        seconds = self._settings.rescan_seconds
        loop = asyncio.get_running_loop()
        told = await loop.run_in_executor(
            self._thread, lambda: self._wait(seconds, is_over=self._stopped.wait)
        )
        if told:
            log.info("the driver told of something; looking again")
            await asyncio.to_thread(self._stopped.wait, self._settings.calm_seconds)


def _words(status: GPUNodeStatus) -> dict[str, str]:
    """Conditions, for the log: what changed is logged once."""
    return {each.type: f"{each.status.value} {each.reason}" for each in status.conditions}
