"""Who may write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.cluster.client import Client
from plimsoll.cluster.kinds import LEASE
from plimsoll.cluster.lease import Elector, Sighting, Step, Terms, lease_after, next_step

TERMS = Terms(namespace="ours", name="plimsoll", identity="me")
THEIRS = TERMS.model_copy(update={"identity": "other"})
WALL = 1_795_970_000.0


def lease(holder: str, version: str = "1", seconds: int = 15) -> dict[str, Any]:
    """A Lease."""
    return {
        "metadata": {"resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3},
    }


@pytest.mark.parametrize(
    ("seen", "sighting", "now", "step"),
    [
        (None, None, 0.0, Step.CREATE),
        (lease("me"), None, 0.0, Step.RENEW),
        (lease(""), None, 0.0, Step.TAKE),
        (lease("other"), None, 1e9, Step.WAIT),
        (lease("other"), Sighting(version="0", at_seconds=0.0), 1e9, Step.WAIT),
        (lease("other"), Sighting(version="1", at_seconds=0.0), 14.9, Step.WAIT),
        (lease("other"), Sighting(version="1", at_seconds=0.0), 15.0, Step.WAIT),
        (lease("other"), Sighting(version="1", at_seconds=0.0), 15.1, Step.TAKE),
        (lease("other", seconds=60), Sighting(version="1", at_seconds=0.0), 15.1, Step.WAIT),
    ],
)
def test_a_lease_is_old_when_it_did_not_change_for_as_long_as_it_promised(
    seen: Any, sighting: Sighting | None, now: float, step: Step
) -> None:
    assert step == next_step(seen, TERMS, sighting, now_seconds=now)


def test_taking_counts_a_change_of_hands_and_renewing_does_not() -> None:
    taken = lease_after(lease("other"), TERMS, Step.TAKE, wall_seconds=WALL)
    assert 4 == taken["spec"]["leaseTransitions"]
    assert "1" == taken["metadata"]["resourceVersion"], "the lock"
    assert "2026-11-29T16:33:20.000000Z" == taken["spec"]["acquireTime"]
    renewed = lease_after(lease("me"), TERMS, Step.RENEW, wall_seconds=WALL)
    assert 3 == renewed["spec"]["leaseTransitions"]
    created = lease_after(None, TERMS, Step.CREATE, wall_seconds=WALL)
    assert 0 == created["spec"]["leaseTransitions"]
    assert "resourceVersion" not in created["metadata"]


class Time:
    """A clock that moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        """Let the time pass, and the others have a turn."""
        self.now += seconds
        await asyncio.sleep(0)


def electing(work: Any) -> Any:
    """Run the work with a box, a client and a clock."""

    async def run() -> Any:
        box, time = StandIn(), Time()
        async with connected(box) as client:
            return await work(box, client, time)

    return asyncio.run(run())


def elector(client: Client, time: Time, terms: Terms = TERMS) -> Elector:
    """One of the candidates."""
    return Elector(client, terms, clock=time, wall_clock=lambda: WALL, pause=time.pause)


def test_the_first_one_leads_and_the_second_waits_until_it_is_given_back() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> None:
        first, second = elector(client, time), elector(client, time, THEIRS)
        await first.acquire()
        assert first.may_write()
        assert not await second.try_once()
        assert not second.may_write()
        assert "me" == second.holder
        await first.release()
        assert not first.may_write()
        assert await second.try_once()
        assert second.may_write()

    electing(work)


def test_a_silent_holder_is_followed_after_its_time() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> float:
        await elector(client, time).acquire()
        await elector(client, time, THEIRS).acquire()
        return time.now

    assert 15.0 < electing(work) <= 18.0


def test_the_right_to_write_ends_before_anybody_can_follow() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> None:
        first = elector(client, time)
        await first.acquire()
        time.now = 9.9
        assert first.may_write()
        time.now = 10.0
        assert not first.may_write(), "5 s before the Lease can be taken"

    electing(work)


def test_no_answer_for_long_enough_ends_the_lead() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> float:
        first = elector(client, time)
        await first.acquire()
        box.answers = [(503, {}, {})] * 100
        await first.keep()
        assert not first.may_write()
        return time.now

    assert 10.0 == electing(work)


def test_a_short_outage_does_not() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> None:
        first = elector(client, time)
        await first.acquire()
        box.answers = [(503, {}, {})] * 3
        keeping = asyncio.create_task(first.keep())
        while box.answers or time.now < 30.0:
            await asyncio.sleep(0)
        assert first.may_write()
        keeping.cancel()

    electing(work)


def test_another_holder_ends_the_lead_at_once() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> float:
        first = elector(client, time)
        await first.acquire()
        stolen = box.get(LEASE, "ours", "plimsoll")
        box.put(LEASE, stolen | {"spec": stolen["spec"] | {"holderIdentity": "other"}})
        await first.keep()
        return time.now

    assert 2.0 == electing(work)


def test_of_two_that_take_it_at_once_one_leads() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> int:
        candidates = [elector(client, time), elector(client, time, THEIRS)]
        took = await asyncio.gather(*(each.try_once() for each in candidates))
        assert sum(took) == sum(each.may_write() for each in candidates)
        return sum(took)

    assert 1 == electing(work)


def test_what_is_not_ours_is_not_given_back() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> str:
        first = elector(client, time)
        await first.acquire()
        stolen = box.get(LEASE, "ours", "plimsoll")
        box.put(LEASE, stolen | {"spec": stolen["spec"] | {"holderIdentity": "other"}})
        await first.release()
        return str(box.get(LEASE, "ours", "plimsoll")["spec"]["holderIdentity"])

    assert "other" == electing(work)


def test_one_who_never_led_gives_nothing_back() -> None:
    async def work(box: StandIn, client: Client, time: Time) -> int:
        await elector(client, time).release()
        return len(box.requests)

    assert 0 == electing(work)
