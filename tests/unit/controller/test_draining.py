"""Are gates asked only while a worker drains, and does a silent one drain nobody?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from plimsoll.api.gateway_words import GateSeen
from plimsoll.controller.draining import Drains
from plimsoll.decide import Observed
from plimsoll.facts.gpu import Inventory
from plimsoll.telemetry.source import Reason, ScrapeError

PLACED = json.dumps({"gates": 2, "place": 0})


def gate(name: str, address: str | None, standing: str = PLACED) -> GateSeen:
    return GateSeen(name=name, uid=name, address=address, standing=standing)


TWO = (gate("gate-a", "10.0.0.1"), gate("gate-b", "fd00::2"))


def page(name: str, *drained: str) -> str:
    said: dict[str, Any] = {
        "name": name,
        "lanes": [],
        "standing": None,
        "since": 1,
        "isLeaving": False,
    }
    return json.dumps(said | {"held": {}, "may": {}, "drained": drained})


def drained(
    pages: dict[str, str],
    *,
    gates: tuple[GateSeen, ...] = TWO,
    phase: str = "Draining",
    is_door: bool = True,
) -> tuple[frozenset[str] | None, list[str]]:
    """Who is drained, and whom we asked for it."""
    asked: list[str] = []

    async def get(url: str) -> bytes:
        asked.append(url)
        if url not in pages:
            raise ScrapeError(Reason.TIMEOUT, "no answer in 2 s")
        return pages[url].encode()

    status: dict[str, Any] = {
        "gateway": {"isDoor": is_door},
        "recycling": {"history": [{"phase": phase}]},
    }
    observed = Observed(deployment={"status": status}, inventory=Inventory(), gates=gates)
    return asyncio.run(Drains(get).drained(observed)), sorted(asked)


A, B = "http://10.0.0.1:8406/state", "http://[fd00::2]:8406/state"


def test_all_gates_must_have_drained_it() -> None:
    both = {A: page("gate-a", "w1", "w2"), B: page("gate-b", "w1")}
    assert (frozenset({"w1"}), [A, B]) == drained(both)


def test_a_silent_gate_and_one_that_is_no_gate_have_drained_nobody() -> None:
    said = page("gate-a", "w1")
    for other in (None, "<html>", page("gate-c", "w1"), "{}"):
        pages = {A: said} if other is None else {A: said, B: other}
        assert frozenset() == drained(pages)[0]
    nowhere = (TWO[0], gate("gate-b", None))
    assert (frozenset(), [A]) == drained({A: said}, gates=nowhere)


def test_nobody_is_asked_while_nobody_drains() -> None:
    for phase in ("Surging", "Evicting", "Done"):
        assert (None, []) == drained({}, phase=phase)


def test_where_the_service_leads_past_the_gates_they_have_no_say() -> None:
    assert (None, []) == drained({}, is_door=False)
    assert (None, []) == drained({}, gates=(gate("gate-a", "10.0.0.1", standing=""),))
