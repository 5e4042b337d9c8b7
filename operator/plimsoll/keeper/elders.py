"""How does the keeper hear what gates that stood here before still hold?

It reads their keepers' pages, over and over, beside its rounds. A page that does not answer leaves what it said
last, which still holds; one that never answered leaves nothing known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import aiohttp

from plimsoll.gate.elders import Word, beside, counts, read_word
from plimsoll.gate.records import GateRooms, Others
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.visit import Elder, Standing

PERIOD_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 1.0
MOST_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)


class Elders:
    """Gates that this one yields to."""

    def __init__(self, standing: Callable[[], Standing]) -> None:
        self._standing = standing
        self._words: dict[str, Word] = {}
        self._silent: set[str] = set()

    async def follow(self) -> None:
        """Read until cancelled."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                elders = self._standing().elders
                await asyncio.gather(*(self._read(session, each) for each in elders if each.page))
                names = {each.name for each in elders}
                self._words = {name: word for name, word in self._words.items() if name in names}
                await asyncio.sleep(PERIOD_SECONDS)

    def others(
        self, standing: Standing, rooms: GateRooms, pods: Sequence[PodSeen]
    ) -> dict[str, Others]:
        """By address of each worker: what they hold of it."""
        workers = [(pod.address, pod.pool) for pod in pods if pod.address is not None]
        return beside(standing.elders, self._words, rooms, workers) if standing.elders else {}

    async def _read(self, session: aiohttp.ClientSession, elder: Elder) -> None:
        try:
            async with session.get(f"http://{elder.page}/state", allow_redirects=False) as answer:
                word = read_word((await answer.content.read(MOST_BYTES)).decode())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if elder.name not in self._silent:
                log.info("another gate is silent", extra={"gate": elder.name, "why": repr(error)})
            self._silent.add(elder.name)
            return
        self._silent.discard(elder.name)
        if counts(word, elder):
            self._words[elder.name] = word
