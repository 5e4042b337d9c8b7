"""How does the operator hear from gates whom they have drained?

It asks their keepers' pages, only while a worker drains, and not for long: a visit waits for the answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from plimsoll.api.gate_drains import drained_everywhere, gates_to_ask
from plimsoll.api.gateway_words import GateSeen
from plimsoll.decide import Observed
from plimsoll.gate.elders import Word, read_word
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.source import ScrapeError

TIMEOUT_SECONDS: Final = 2.0
MOST_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)

Get = Callable[[str], Awaitable[bytes]]
"""The body of a 200. Raises ScrapeError."""


class Drains:
    """Asks gates."""

    def __init__(self, get: Get) -> None:
        self._get = get

    async def drained(self, observed: Observed) -> frozenset[str] | None:
        """Names of workers that all gates have drained; None where nobody had to be asked."""
        asked = gates_to_ask(observed.deployment.get("status") or {}, observed.gates)
        words = await asyncio.gather(*(self._word(each) for each in asked))
        return drained_everywhere(
            asked, dict(zip((each.name for each in asked), words, strict=True))
        )

    async def _word(self, gate: GateSeen) -> Word | None:
        if not gate.page:
            return None
        try:
            return read_word((await self._get(f"http://{gate.page}/state")).decode())
        except (ScrapeError, ValueError) as error:
            log.info(
                "a gate does not say whom it has drained",
                extra={"gate": gate.name, "why": str(error)},
            )
            return None


def drains_of(fetcher: Fetcher) -> Drains:
    """By that pool of connections."""
    return Drains(partial(fetcher.get, most_bytes=MOST_BYTES, timeout_seconds=TIMEOUT_SECONDS))
