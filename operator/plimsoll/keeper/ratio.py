"""How does the keeper learn how many bytes of a body are one token, and tell HAProxy?

It asks the engines how many prompt tokens they counted, and knows from HAProxy's log how large the bodies were.
An engine that does not say leaves everything as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import aiohttp

from plimsoll.gate.learn import (
    HIGHEST_HUNDREDTHS,
    LOWEST_HUNDREDTHS,
    Learnt,
    Look,
    prompt_tokens,
    ratios,
)
from plimsoll.gate.records import GateRooms
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.tally import Tally
from plimsoll.keeper.loop import Told
from plimsoll.keeper.maps import Map
from plimsoll.keeper.runtime import SilentError

PERIOD_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 2.0
MOST_BYTES: Final = 8 << 20
AT_ONCE: Final = 8

log = logging.getLogger(__name__)


class Ratio:
    """Bytes per token, learnt and told."""

    def __init__(
        self,
        told_map: Map,
        tally: Tally,
        told: Told,
        *,
        rooms: Callable[[], GateRooms],
        workers: Callable[[], Sequence[PodSeen]],
    ) -> None:
        self._map = told_map
        self._tally = tally
        self._told = told
        self._rooms = rooms
        self._workers = workers
        self._learnt: Learnt | None = None

    async def follow(self, *, period_seconds: float = PERIOD_SECONDS) -> None:
        """Look, learn and tell until cancelled."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        connector = aiohttp.TCPConnector(limit=AT_ONCE)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            while True:
                try:
                    await self._go_on(session)
                except SilentError as error:
                    log.info("bytes per token not told", extra={"why": str(error)})
                await asyncio.sleep(period_seconds)

    async def _go_on(self, session: aiohttp.ClientSession) -> None:
        lanes = self._rooms().lanes
        if self._learnt is None:
            self._learnt = Learnt(hundredths=self._kept(await self._map.read()))
        before = self._learnt
        self._learnt = before.after(await self._look(session))
        if self._learnt.hundredths != before.hundredths:
            log.info("bytes per token", extra={"hundredths": self._learnt.hundredths})
        wanted = ratios(lanes, self._learnt.hundredths)
        await self._map.say({lane: str(value) for lane, value in wanted.items()})
        self._told.bytes_per_token = wanted

    def _kept(self, said: dict[str, str]) -> int:
        """What an earlier keeper has learnt: HAProxy still uses it."""
        default = Learnt().hundredths
        for lane in self._rooms().lanes:
            value = said.get(lane.name, "")
            if lane.bytes_per_token_hundredths is None and value.isdecimal():
                return min(HIGHEST_HUNDREDTHS, max(LOWEST_HUNDREDTHS, int(value)))
        return default

    async def _look(self, session: aiohttp.ClientSession) -> Look | None:
        """The counters; None where an engine does not tell."""
        addresses = [pod.address for pod in self._workers() if pod.is_ready and pod.address]
        body_bytes = sum(self._tally.body_bytes.values())
        found = await asyncio.gather(*(_counted(session, each) for each in addresses))
        tokens = {
            address: count
            for address, count in zip(addresses, found, strict=True)
            if count is not None
        }
        return Look(body_bytes, tokens) if tokens and len(tokens) == len(addresses) else None


async def _counted(session: aiohttp.ClientSession, address: str) -> int | None:
    try:
        async with session.get(f"http://{address}/metrics", allow_redirects=False) as answer:
            return prompt_tokens((await answer.content.read(MOST_BYTES)).decode("utf-8", "replace"))
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None
