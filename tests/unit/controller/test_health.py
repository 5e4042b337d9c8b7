"""Alive means that the work goes on."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from plimsoll.controller.health import HealthServer, Pulse, complaint, unreadiness
from plimsoll.controller.queue import Lateness


def pulse(
    *,
    role: str = "leading",
    worked: float = 0.0,
    resync: float = 0.0,
    late: float = 0.0,
    running: int = 0,
) -> Pulse:
    """What the loop did last."""
    return Pulse(
        role=role,
        worked_seconds=worked,
        resync_tried_seconds=resync,
        lateness=lambda: Lateness(late, running),
    )


def heard(state: Pulse, now: float) -> str | None:
    """The complaint, with the limits of the tests."""
    return complaint(state, now_seconds=now, stall_seconds=180.0, resync_seconds=600.0)


@pytest.mark.parametrize(
    ("state", "now"),
    [
        (pulse(), 100.0),
        (pulse(late=500.0, worked=100.0), 200.0),  # busy, and something is finished now and then
        (pulse(worked=0.0, resync=1000.0), 1000.0),  # nothing to do
        (pulse(running=8, worked=100.0), 200.0),
        (pulse(role="standby"), 1e6),
        (pulse(role="starting"), 1e6),
    ],
)
def test_all_is_well(state: Pulse, now: float) -> None:
    assert heard(state, now) is None


def test_work_that_is_due_and_never_done_is_death() -> None:
    assert "reconciling has stopped" in str(heard(pulse(late=181.0, resync=181.0), 181.0))


def test_visits_that_never_end_are_death() -> None:
    told = str(heard(pulse(running=8, resync=181.0), 181.0))
    assert "nothing was finished for 181 s, with 8 visits under way" in told


def test_a_resync_that_is_not_even_tried_is_death() -> None:
    assert "no resync was tried for 1600 s" == heard(pulse(worked=1600.0), 1600.0)


def test_deaf_watches_are_death() -> None:
    state = pulse()
    state.deaf = "the watch is deaf"
    assert "the watch is deaf" == heard(state, 1.0)


def test_an_outage_of_the_api_server_is_no_death_but_not_ready() -> None:
    state = pulse(worked=100.0, resync=100.0)
    state.list_failed = "connection refused"
    assert heard(state, 110.0) is None
    assert "the last list of InferenceDeployments failed: connection refused" == unreadiness(state)


@pytest.mark.parametrize(
    ("role", "problem"),
    [("starting", "starting"), ("stopping", "stopping"), ("standby", None), ("leading", None)],
)
def test_a_standby_is_ready(role: str, problem: str | None) -> None:
    assert problem == unreadiness(pulse(role=role))


def test_the_answers_say_why() -> None:
    async def run() -> list[tuple[int, str]]:
        state = pulse()
        problems: list[str | None] = [None, "stuck"]
        server = HealthServer(is_alive=lambda: problems.pop(0), pulse=state)
        port = await server.start("127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession() as session:
                answers = []
                for path in ("healthz", "healthz", "readyz"):
                    async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                        answers.append((response.status, await response.text()))
                return answers
        finally:
            await server.stop()

    assert [(200, "ok\n"), (503, "stuck\n"), (200, "leading\n")] == asyncio.run(run())
