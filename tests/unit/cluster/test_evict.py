"""Taking a worker out, evicting it, and obeying whoever does not allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.api.recycle_around import Act, ActKind
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Unavailable
from plimsoll.cluster.evict import Blocked, carry_out, selects
from plimsoll.cluster.kinds import DISRUPTION_BUDGET, POD
from plimsoll.render.labels import COMPONENT_LABEL, DRAINING_COMPONENT, WORKER_COMPONENT

UID = "uid-chat-a"
BUDGET_WORDS = "Cannot evict pod as it would violate the pod's disruption budget."
EVICTION = ("POST", "/api/v1/namespaces/team/pods/chat-a/eviction")


class Room:
    """A box with one worker."""

    def __init__(self, client: Client, box: StandIn) -> None:
        self.client, self.box = client, box
        self.worker(WORKER_COMPONENT)

    def worker(self, component: str, **metadata: Any) -> None:
        labels = {COMPONENT_LABEL: component, "plimsoll.dev/pool": "a"}
        known = {"name": "chat-a", "namespace": "team", "uid": UID, "labels": labels}
        self.box.put(POD, {"metadata": known | metadata, "spec": {}, "status": {}})

    def budget(self, name: str, allowed: int) -> None:
        self.box.put(
            DISRUPTION_BUDGET,
            {
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"selector": {"matchLabels": {"plimsoll.dev/pool": "a"}}},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1},
            },
        )

    async def act(self, *kinds: ActKind, uid: str = UID) -> Blocked | None:
        self.box.requests.clear()
        acts = [Act(kind=kind, pod="chat-a", uid=uid) for kind in kinds]
        return await carry_out(self.client, acts, "team")

    @property
    def component(self) -> str:
        labels = self.box.get(POD, "team", "chat-a")["metadata"]["labels"]
        return str(labels[COMPONENT_LABEL])


def in_room(work: Callable[[Room], Awaitable[None]]) -> None:
    async def run() -> None:
        box = StandIn()
        async with connected(box) as client:
            await work(Room(client, box))

    asyncio.run(run())


def test_draining_changes_one_label_once() -> None:
    async def story(room: Room) -> None:
        assert await room.act(ActKind.DRAIN) is None
        assert DRAINING_COMPONENT == room.component
        assert 1 == len(room.box.writes)
        version = room.box.get(POD, "team", "chat-a")["metadata"]["resourceVersion"]
        assert await room.act(ActKind.DRAIN) is None
        assert version == room.box.get(POD, "team", "chat-a")["metadata"]["resourceVersion"]
        assert await room.act(ActKind.PUT_BACK) is None
        assert WORKER_COMPONENT == room.component

    in_room(story)


def test_a_namesake_is_left_alone() -> None:
    async def story(room: Room) -> None:
        assert await room.act(ActKind.DRAIN, ActKind.EVICT, uid="uid-before") is None
        assert WORKER_COMPONENT == room.component
        assert EVICTION not in room.box.writes

    in_room(story)


def test_an_eviction_is_asked_for_once() -> None:
    async def story(room: Room) -> None:
        assert await room.act(ActKind.EVICT) is None
        assert [EVICTION] == room.box.writes
        assert await room.act(ActKind.EVICT) is None
        assert [] == room.box.writes

    in_room(story)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (429, BUDGET_WORDS),
        (500, "This pod has more than one PodDisruptionBudget, which the eviction subresource ..."),
    ],
)
def test_what_a_budget_does_not_allow_is_not_done_and_the_worker_serves_on(
    code: int, message: str
) -> None:
    async def story(room: Room) -> None:
        room.worker(DRAINING_COMPONENT)
        room.box.budget_says = (code, message)
        blocked = await room.act(ActKind.EVICT)
        assert blocked is not None
        assert (UID, True) == (blocked.uid, message[:60] in blocked.why)
        assert 1 == room.box.writes.count(EVICTION)
        assert not any(method == "DELETE" for method, _ in room.box.writes)
        assert WORKER_COMPONENT == room.component

    in_room(story)


def test_a_server_in_trouble_is_no_budget() -> None:
    async def story(room: Room) -> None:
        room.box.budget_says = (500, "etcd is away")
        with pytest.raises(Unavailable):
            await room.act(ActKind.EVICT)
        room.box.budget_says = (429, "the server has received too many requests")
        with pytest.raises(Unavailable):
            await room.act(ActKind.EVICT)

    in_room(story)


def test_nobody_is_drained_whose_eviction_would_not_be_allowed() -> None:
    async def story(room: Room) -> None:
        room.budget("chat", 0)
        blocked = await room.act(ActKind.DRAIN)
        assert blocked is not None
        assert (
            "PodDisruptionBudget chat allows no disruption now (1 healthy, 1 needed)" in blocked.why
        )
        assert [] == room.box.writes
        room.budget("chat", 1)
        assert await room.act(ActKind.DRAIN) is None

    in_room(story)


def test_two_budgets_over_one_pod_are_named() -> None:
    async def story(room: Room) -> None:
        room.budget("chat", 1)
        room.budget("of-somebody", 1)
        blocked = await room.act(ActKind.DRAIN)
        assert blocked is not None
        assert "chat, of-somebody all select it" in blocked.why

    in_room(story)


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_a_selector_picks_as_the_api_server_does(selector: Any, is_selected: bool) -> None:
    assert is_selected == selects(selector, {"a": "1"})
