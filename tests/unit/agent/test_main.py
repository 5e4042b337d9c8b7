"""The agent's day against an API server in a box: look, tell, wait, and outlive what goes wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.agent.main import Agent, node_of
from plimsoll.agent.reading import CardReading, Memory, Reading, Refused, Trouble
from plimsoll.agent.settings import AgentSettings, read_agent_settings
from plimsoll.api.gpunode import GPUNodeStatus, read_gpunode_status
from plimsoll.cluster.client import Client
from plimsoll.cluster.kinds import GPU_NODE
from plimsoll.cluster.publish import OwnNode

NODE = OwnNode("n", "uid-of-n")
NO_DRIVER = Refused(trouble=Trouble.DRIVER_NOT_LOADED, says="Driver Not Loaded")
QUICK = AgentSettings(rescan_seconds=0.01, calm_seconds=0.0)


def card(uuid: str = "GPU-1", used: int = 0) -> CardReading:
    nothing = Refused(trouble=Trouble.NOT_SUPPORTED)
    return CardReading(
        index=0,
        name="NVIDIA L4",
        uuid=uuid,
        memory=Memory(total=24 << 30, reserved=1 << 29, used=used),
        compute_capability=(8, 9),
        addressing_mode=nothing,
        ecc=nothing,
        mig_enabled=nothing,
    )


class Driver:
    """Answers with the next reading, and with the last one for ever."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = list(readings)
        self.looks = 0

    def __call__(self) -> Reading:
        self.looks += 1
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


def well(*cards: CardReading) -> Reading:
    return Reading(driver="580.95.05", cards=cards)


def wait(seconds: float, *, is_over: Callable[[float], bool]) -> bool:
    """A driver without events."""
    is_over(seconds)
    return False


class Clock:
    """A minute later each time."""

    minute = 0

    def __call__(self) -> str:
        self.minute += 1
        return f"2026-11-30T12:{self.minute:02}:00Z"


def in_box(
    work: Callable[[StandIn, Client], Awaitable[Any]],
) -> Any:
    async def run() -> Any:
        box = StandIn()
        async with connected(box) as client:
            return await work(box, client)

    return asyncio.run(run())


def agent(client: Client, read: Callable[[], Reading], settings: AgentSettings = QUICK) -> Agent:
    return Agent(settings, client, NODE, threading.Event(), read=read, wait=wait, now=Clock())


def told(box: StandIn) -> GPUNodeStatus:
    return read_gpunode_status(box.get(GPU_NODE, "", "n").get("status"))


def test_the_object_is_made_once_and_belongs_to_its_node() -> None:
    async def work(box: StandIn, client: Client) -> None:
        one = agent(client, Driver(well(card())))
        await one.look()
        await one.look()
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-of-n"}
        assert [owner] == box.get(GPU_NODE, "", "n")["metadata"]["ownerReferences"]
        base = "/apis/plimsoll.dev/v1alpha1/gpunodes"
        mine = f"{base}/n/status"
        assert [("PATCH", mine), ("POST", base), ("PATCH", mine), ("PATCH", mine)] == box.writes
        assert "2026-11-30T12:02:00Z" == told(box).heartbeat
        assert "2026-11-30T12:01:00Z" == told(box).observed_at

    in_box(work)


def test_what_an_agent_before_it_knew_stays_when_the_driver_is_gone() -> None:
    async def work(box: StandIn, client: Client) -> None:
        await agent(client, Driver(well(card()))).look()
        before = told(box)
        await agent(client, Driver(Reading(driver=NO_DRIVER, cards=NO_DRIVER))).look()
        assert before.cards == told(box).cards
        assert before.heartbeat == told(box).heartbeat

    in_box(work)


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 429, 500, 503])
def test_an_api_server_that_says_no_ends_nothing(status: int) -> None:
    async def work(box: StandIn, client: Client) -> None:
        one = agent(client, Driver(well(card())))
        box.answers += [(status, {}, {"message": "no"})] * 3
        await one.look()
        box.answers.clear()
        await one.look()
        assert 1 == len(told(box).cards)

    in_box(work)


def test_without_the_kind_it_waits_for_it() -> None:
    async def work(box: StandIn, client: Client) -> None:
        one = agent(client, Driver(well(card())))
        box.missing.add("gpunodes")
        await one.look()
        box.missing.clear()
        await one.look()
        assert 1 == len(told(box).cards)

    in_box(work)


def test_a_driver_that_hangs_is_told_and_asked_nothing_more_until_it_comes_back() -> None:
    release = threading.Event()
    asked: list[int] = []

    def hangs() -> Reading:
        asked.append(1)
        if len(asked) == 2:
            release.wait(30.0)
        return well(card())

    async def work(box: StandIn, client: Client) -> None:
        settings = AgentSettings(rescan_seconds=0.01, answer_seconds=0.05)
        one = agent(client, hangs, settings)
        await one.look()
        try:
            await one.look()
            await one.look()
            conditions = {each.type: each.reason for each in told(box).conditions}
            assert "NoAnswer" == conditions["DriverAnswers"]
            assert 1 == len(told(box).cards)
            assert 2 == len(asked)
        finally:
            release.set()
        while {c.type: c.reason for c in told(box).conditions}["DriverAnswers"] == "NoAnswer":
            await one.look()
        assert 2 <= len(asked)

    in_box(work)


def test_it_looks_again_when_the_driver_tells_of_something_and_ends_when_told() -> None:
    stopped = threading.Event()
    driver = Driver(well(card()), well(card(), card("GPU-2")))
    waits: list[float] = []

    def tells(seconds: float, *, is_over: Callable[[float], bool]) -> bool:
        waits.append(seconds)
        if len(waits) > 1:
            stopped.set()
        return len(waits) == 1

    async def work(box: StandIn, client: Client) -> None:
        settings = AgentSettings(rescan_seconds=600.0, calm_seconds=0.0)
        one = Agent(settings, client, NODE, stopped, read=driver, wait=tells, now=Clock())
        await asyncio.wait_for(one.run(), 30.0)
        assert 2 == len(told(box).cards)
        assert [600.0, 600.0] == waits

    in_box(work)


def test_a_flood_of_events_is_answered_calmly() -> None:
    stopped = threading.Event()
    driver = Driver(well(card()))
    waits: list[float] = []

    def floods(seconds: float, *, is_over: Callable[[float], bool]) -> bool:
        waits.append(seconds)
        return True

    async def work(box: StandIn, client: Client) -> None:
        settings = AgentSettings(rescan_seconds=600.0, calm_seconds=3600.0)
        one = Agent(settings, client, NODE, stopped, read=driver, wait=floods, now=Clock())
        running = asyncio.create_task(one.run())
        while not waits:
            await asyncio.sleep(0)
        stopped.set()
        await asyncio.wait_for(running, 30.0)
        assert (1, 1) == (driver.looks, len(waits))

    in_box(work)


def test_the_named_node_counts_and_its_uid_is_the_tokens_only_if_it_is_the_same() -> None:
    import base64
    import json

    def token(name: str, uid: str) -> str:
        claims = {"kubernetes.io": {"node": {"name": name, "uid": uid}}}
        middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        return f"head.{middle}.signature"

    named = AgentSettings(node_name="n")
    assert OwnNode("n", "1") == node_of(named, token("n", "1"))
    assert OwnNode("n", "") == node_of(named, token("m", "1"))
    assert OwnNode("n", "") == node_of(named, None)
    assert OwnNode("m", "1") == node_of(AgentSettings(), token("m", "1"))
    for nonsense in (None, "", "a.b", "a.b.c", "a.e30.c", "a.W10.c", "a.bnVsbA.c"):
        assert None is node_of(AgentSettings(), nonsense)


def test_settings_come_from_the_environment_and_the_command_line_wins() -> None:
    environment = {"NODE_NAME": "n", "PLIMSOLL_RESCAN_SECONDS": "7", "PLIMSOLL_LOG_LEVEL": "debug"}
    settings = read_agent_settings(environment, log_level="error", rescan_seconds=None)
    assert ("n", 7.0, "error") == (
        settings.node_name,
        settings.rescan_seconds,
        settings.log_level,
    )
    with pytest.raises(ValueError, match="rescan_seconds"):
        read_agent_settings({"PLIMSOLL_RESCAN_SECONDS": "0"})
