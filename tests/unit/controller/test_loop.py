"""Look, think, do, and what happens when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.api.allowed import Allowed
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT, SERVICE
from plimsoll.controller.handlers import Doorbell
from plimsoll.controller.health import Pulse
from plimsoll.controller.loop import Loop, missed
from plimsoll.controller.queue import WorkQueue
from plimsoll.controller.settings import Settings
from plimsoll.decide import Desired, Key, Observed

KEY = Key(namespace="team", name="chat")
NOW = 1_795_970_000.0


class Counted:
    """What was told to the metrics."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.resyncs: list[int] = []
        self.statuses: list[tuple[Key, Any]] = []

    def visited(self, result: str, seconds: float) -> None:
        """A visit ended."""
        self.results.append(result)

    def resynced(self, now_seconds: float, objects: int) -> None:
        """Everyone was listed."""
        self.resyncs.append(objects)

    def planned(self, key: Key, status: Any) -> None:
        """What a status says."""
        self.statuses.append((key, status))


class House:
    """A loop with a box and everything else."""

    def __init__(self, client: Any, box: StandIn, decide: Any, **settings: Any) -> None:
        self.now = 0.0
        self.box, self.tally, self.pulse = box, Counted(), Pulse()
        self.queue = WorkQueue(clock=self.clock, chance=lambda: 0.5)
        self.fleet = Fleet(client, clock=self.clock)
        self.bell = Doorbell(self.queue, self.fleet, clock=self.clock)
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None
        self.loop = Loop(
            Settings(identity="me", **settings),
            client=client,
            fleet=self.fleet,
            queue=self.queue,
            bell=self.bell,
            pulse=self.pulse,
            tally=self.tally,
            decide=decide,
            clock=self.clock,
            wall_clock=lambda: NOW,
            chance=lambda: 0.5,
            pause=self.pause,
        )

    def clock(self) -> float:
        """The monotonic one."""
        return self.now

    async def pause(self, seconds: float) -> None:
        """Let the time pass."""
        self.pauses.append(seconds)
        self.now += seconds
        self.on_pause()
        await asyncio.sleep(0)

    async def visit(self) -> str:
        """One visit, and what came of it."""
        self.queue.put(KEY)
        assert KEY == await self.queue.take()
        await self.loop.visit(KEY)
        return self.tally.results[-1]


def service(observed: Observed) -> dict[str, Any]:
    """A child."""
    metadata = observed.deployment["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "chat",
            "namespace": "team",
            "labels": {"plimsoll.dev/deployment": "chat"},
            "ownerReferences": [{"uid": metadata["uid"]}],
        },
        "spec": {"type": "ClusterIP"},
    }


def decide_simply(observed: Observed, *, now_seconds: float) -> Desired:
    """A Service and a status."""
    assert NOW == now_seconds
    return Desired(apply=(service(observed),), status={"seen": True}, look_again_seconds=30.0)


def in_house(work: Any, decide: Any = decide_simply, **settings: Any) -> Any:
    """Run the work in a house with one InferenceDeployment."""

    async def run() -> Any:
        box = StandIn()
        box.put(INFERENCE_DEPLOYMENT, {"metadata": {"name": "chat", "namespace": "team"}})
        async with connected(box) as client:
            return await work(House(client, box, decide, **settings))

    return asyncio.run(run())


def test_the_first_visit_writes_and_the_second_does_not() -> None:
    async def work(house: House) -> None:
        assert "written" == await house.visit()
        writes = len(house.box.writes)
        assert "unchanged" == await house.visit()
        assert writes == len(house.box.writes)
        assert [(KEY, {"seen": True})] * 2 == house.tally.statuses
        assert 1 == len(house.queue), "it comes again when it asked to"

    in_house(work)


def test_what_the_site_allows_reaches_every_thought() -> None:
    seen: list[Allowed] = []

    def decide(observed: Observed, *, now_seconds: float) -> Desired:
        seen.append(observed.allowed)
        return decide_simply(observed, now_seconds=now_seconds)

    async def work(house: House) -> None:
        await house.visit()

    in_house(work, decide)
    in_house(work, decide, allow_host_path=True, allowed_images=("vllm",), allow_foreign_code=True)
    everything = Allowed(host_path=True, images=("vllm",), foreign_code=True)
    assert [Allowed(host_path=False), everything] == seen


def test_after_a_write_the_next_look_is_not_older_than_it() -> None:
    async def work(house: House) -> None:
        await house.visit()
        versions: list[tuple[str, str]] = []
        original = house.box._list

        def listed(kind: Any, namespace: str, request: Any) -> Any:
            versions.append((kind.kind, request.query.get("resourceVersion", "")))
            return original(kind, namespace, request)

        house.box._list = listed  # type: ignore[method-assign]
        await house.visit()
        made = house.box.get(SERVICE, "team", "chat")["metadata"]["resourceVersion"]
        assert ("Service", made) in versions
        assert ("Deployment", "0") in versions

    in_house(work)


def test_an_object_that_is_gone_is_dropped_everywhere() -> None:
    async def work(house: House) -> None:
        await house.visit()
        house.bell.learn(KEY)
        house.box.remove(INFERENCE_DEPLOYMENT, "team", "chat")
        assert "gone" == await house.visit()
        assert (KEY, None) == house.tally.statuses[-1]
        assert set() == house.bell.known
        assert 0 == len(house.queue)

    in_house(work)


def test_a_mistake_of_ours_comes_back_later_and_the_worker_lives() -> None:
    def broken(observed: Observed, *, now_seconds: float) -> Desired:
        raise ZeroDivisionError("no such thing")

    async def work(house: House) -> None:
        assert "error" == await house.visit()
        assert 1 == len(house.queue)

    in_house(work, broken)


@pytest.mark.parametrize(
    ("answer", "result", "seconds"),
    [
        ((503, {}, {}), "unavailable", 1.0),
        ((409, {}, {}), "conflict", 1.0),
        ((403, {}, {}), "refused", 1.0),
        ((500, {"Retry-After": "9"}, {}), "unavailable", 9.0),
    ],
)
def test_what_the_api_server_refuses_comes_back_later(
    answer: Any, result: str, seconds: float
) -> None:
    async def work(house: House) -> None:
        house.box.answers = [answer]
        assert result == await house.visit()
        house.now = seconds - 0.1
        assert house.queue._schedule.take(house.now) is None
        house.now = seconds
        assert KEY == house.queue._schedule.take(house.now)

    in_house(work)


def test_in_a_long_outage_nobody_waits_longer_than_half_a_minute() -> None:
    async def work(house: House) -> None:
        for _ in range(12):
            house.box.answers = [(503, {}, {})]
            await house.visit()
        house.now += 30.0
        assert KEY == house.queue._schedule.take(house.now)

    in_house(work)


def test_a_visit_that_takes_too_long_is_given_up() -> None:
    async def work(house: House) -> None:
        async def never(*_: Any) -> Any:
            await asyncio.Event().wait()

        house.fleet._look = never  # type: ignore[method-assign]
        assert "unavailable" == await house.visit()

    in_house(work, visit_seconds=0.05)


def test_a_refused_child_is_a_refused_visit_that_comes_back() -> None:
    async def work(house: House) -> None:
        theirs = {"metadata": {"name": "chat", "namespace": "team"}, "spec": {"type": "NodePort"}}
        house.box.put(SERVICE, theirs)
        assert "refused" == await house.visit()
        assert 1 == len(house.queue)

    in_house(work)


def test_a_resync_puts_everyone_and_ghosts_too() -> None:
    async def work(house: House) -> None:
        ghost = Key(namespace="team", name="ghost")
        house.bell.learn(ghost)
        assert await house.loop.resync()
        assert {KEY, ghost} == {await house.queue.take(), await house.queue.take()}
        assert {KEY} == house.bell.known
        assert [1] == house.tally.resyncs

    in_house(work)


def test_a_resync_without_an_answer_is_tried_all_the_same() -> None:
    async def work(house: House) -> None:
        house.now = 77.0
        house.box.answers = [(503, {}, {"message": "away"})]
        assert not await house.loop.resync()
        assert 77.0 == house.pulse.resync_tried_seconds
        assert "away" == house.pulse.list_failed
        assert await house.loop.resync()
        assert house.pulse.list_failed is None

    in_house(work)


def test_only_our_namespaces_are_listed() -> None:
    async def work(house: House) -> None:
        await house.loop.resync()
        assert [INFERENCE_DEPLOYMENT.path("a"), INFERENCE_DEPLOYMENT.path("b")] == [
            path for _, path in house.box.requests
        ]

    in_house(work, namespaces=("a", "b"))


def test_resyncs_go_on_with_a_little_chance() -> None:
    async def work(house: House) -> None:
        forever = asyncio.create_task(house.loop.resync_forever())
        while len(house.tally.resyncs) < 3:
            await asyncio.sleep(0)
        forever.cancel()
        assert {570.0} == set(house.pauses)

    in_house(work)


def test_a_change_that_the_watch_never_told_ends_the_process() -> None:
    async def work(house: House) -> None:
        version = house.box.get(INFERENCE_DEPLOYMENT, "team", "chat")["metadata"]["resourceVersion"]
        house.bell.seen[KEY] = version
        checks = 0

        def change() -> None:
            nonlocal checks
            checks += 1
            if checks == 3:
                house.box.put(
                    INFERENCE_DEPLOYMENT, {"metadata": {"name": "chat", "namespace": "team"}}
                )

        house.on_pause = change
        await asyncio.wait_for(house.loop.check_watches_forever(), timeout=60)
        assert 4 == checks, "seen missing at the third, and still at the fourth"
        assert "the watch is deaf" in str(house.pulse.deaf)

    in_house(work)


def test_an_object_that_changes_all_the_time_is_no_sign_of_deafness() -> None:
    listed = {KEY: "7"}
    assert {KEY: ("7", "6")} == missed(listed, {KEY: "6"})
    assert {KEY: ("8", "7")} == missed({KEY: "8"}, {KEY: "7"})
    assert {} == missed(listed, {KEY: "7"})
    assert {KEY: ("7", None)} == missed(listed, {})


def test_a_worker_goes_home_when_the_queue_is_closed() -> None:
    async def work(house: House) -> None:
        working = asyncio.create_task(house.loop.work())
        house.queue.put(KEY)
        while not house.tally.results:
            await asyncio.sleep(0)
        house.queue.close()
        await working

    in_house(work)
