"""Who is woken by what."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import DEPLOYMENT, NODE, SERVICE
from plimsoll.controller.handlers import Doorbell, address, kopf_settings
from plimsoll.controller.queue import WorkQueue
from plimsoll.decide import Key
from plimsoll.render.labels import DEPLOYMENT_LABEL, label_value

KEY = Key(namespace="team", name="chat")


class House:
    """A doorbell, its queue and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue = WorkQueue(clock=lambda: self.now, chance=lambda: 0.5)
        no_client: Any = None
        self.fleet = Fleet(no_client, clock=lambda: self.now)
        self.bell = Doorbell(self.queue, self.fleet, clock=lambda: self.now)

    def due(self, *, within: float = 0.0) -> list[Key]:
        """Who is due by then; they count as visited."""
        keys = []
        while (key := self.queue._schedule.take(self.now + within)) is not None:
            self.queue.done(key)
            keys.append(key)
        return keys


def thing(version: str = "1", name: str = "chat") -> dict[str, Any]:
    """An InferenceDeployment."""
    return {"metadata": {"name": name, "namespace": "team", "resourceVersion": version}}


def child(label: str = "chat") -> dict[str, Any]:
    """Something with our label."""
    return {"metadata": {"name": "x", "namespace": "team", "labels": {DEPLOYMENT_LABEL: label}}}


@pytest.fixture
def house() -> House:
    """A new one."""
    return House()


def test_a_new_object_is_visited_at_once(house: House) -> None:
    house.bell.deployment_seen(thing(), is_gone=False)
    assert [KEY] == house.due()
    assert {KEY: "1"} == house.bell.seen


def test_an_object_that_goes_is_visited_so_that_it_is_dropped(house: House) -> None:
    house.bell.deployment_seen(thing(), is_gone=False)
    house.due()
    house.bell.deployment_seen(thing("2"), is_gone=True)
    assert [KEY] == house.due()
    assert {} == house.bell.seen
    assert set() == house.bell.known


def test_the_version_looked_at_and_the_echo_of_our_status_wake_nobody(house: House) -> None:
    house.bell.deployment_seen(thing("1"), is_gone=False)
    house.due()
    house.bell.visited(KEY, frozenset({"1", "2"}))
    house.bell.deployment_seen(thing("1"), is_gone=False)
    house.bell.deployment_seen(thing("2"), is_gone=False)
    assert [] == house.due(within=1e6)
    house.bell.deployment_seen(thing("3"), is_gone=False)
    assert [KEY] == house.due()


def test_a_users_change_during_the_visit_is_not_taken_for_the_echo(house: House) -> None:
    house.bell.deployment_seen(thing("1"), is_gone=False)
    assert KEY == house.queue._schedule.take(0.0)
    house.bell.deployment_seen(thing("2"), is_gone=False)  # the user's
    house.bell.deployment_seen(thing("3"), is_gone=False)  # ours
    house.bell.visited(KEY, frozenset({"1", "3"}))
    house.queue.done(KEY)
    assert [KEY] == house.due()


def test_an_echo_that_is_faster_than_the_answer_wakes_nobody(house: House) -> None:
    house.bell.deployment_seen(thing("1"), is_gone=False)
    assert KEY == house.queue._schedule.take(0.0)
    house.bell.deployment_seen(thing("2"), is_gone=False)
    house.bell.visited(KEY, frozenset({"1", "2"}))
    house.queue.done(KEY)
    assert [] == house.due(within=1e6)


def test_a_failed_visit_leaves_what_came_meanwhile_to_be_seen(house: House) -> None:
    house.bell.deployment_seen(thing("1"), is_gone=False)
    assert KEY == house.queue._schedule.take(0.0)
    house.bell.deployment_seen(thing("2"), is_gone=False)
    house.queue.failed(KEY)
    house.bell.visited(KEY, frozenset())
    assert [KEY] == house.due()


def test_a_child_wakes_its_owner_soon_and_a_flock_once_a_second(house: House) -> None:
    house.bell.deployment_seen(thing(), is_gone=False)
    house.due()
    house.now = 100.0
    for _ in range(20):
        house.bell.child_seen(child())
    assert [] == house.due(within=0.09)
    assert [KEY] == house.due(within=0.11)
    house.bell.visited(KEY, frozenset())
    for _ in range(20):
        house.bell.child_seen(child())
    assert [] == house.due(within=0.9)
    assert [KEY] == house.due(within=1.1)


def test_the_owner_of_a_long_name_is_found_by_its_shortened_label(house: House) -> None:
    name = "x" * 80
    house.bell.deployment_seen(thing(name=name), is_gone=False)
    house.due()
    house.bell.child_seen(child(label_value(name)))
    assert [Key(namespace="team", name=name)] == house.due(within=1.0)


def test_what_has_no_label_of_ours_wakes_nobody(house: House) -> None:
    house.bell.child_seen({"metadata": {"name": "x", "namespace": "team"}})
    assert [] == house.due(within=1e6)


def test_a_node_with_new_cards_wakes_everyone_and_its_heartbeat_nobody(house: House) -> None:
    house.bell.deployment_seen(thing(), is_gone=False)
    house.bell.deployment_seen(thing(name="other"), is_gone=False)
    house.due()
    node = {
        "metadata": {
            "name": "n",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-RTX-A6000",
                "nvidia.com/gpu.memory": "49140",
                "nvidia.com/gpu.count": "4",
            },
        },
        "status": {"allocatable": {"nvidia.com/gpu": "4", "memory": "256Gi"}},
    }
    house.bell.node_seen(node, is_gone=False)
    assert 2 == len(house.due(within=1.0))
    house.bell.node_seen(node, is_gone=False)
    assert [] == house.due(within=1e6)
    house.bell.node_seen(node, is_gone=True)
    assert 2 == len(house.due(within=1.0))


def test_who_has_no_plan_is_first_to_hear_of_new_cards(house: House) -> None:
    waits = thing(name="waits")
    waits["status"] = {"conditions": [{"type": "Planned", "status": "False"}]}
    for one in (*(thing(name=f"chat-{n}") for n in range(4)), waits, thing(name="last")):
        house.bell.deployment_seen(one, is_gone=False)
    house.due()
    house.bell.wake_everyone(after_seconds=1.0)
    house.now = 1.0
    assert "waits" == house.due()[0].name
    waits["status"]["conditions"][0]["status"] = "True"
    house.bell.deployment_seen(
        waits | {"metadata": waits["metadata"] | {"resourceVersion": "2"}}, is_gone=False
    )
    house.due()
    house.bell.wake_everyone(after_seconds=0.0)
    assert not house.queue._schedule._heaps[True]


def test_a_list_alone_makes_an_object_known_but_not_seen(house: House) -> None:
    house.bell.learn(KEY)
    assert {KEY} == house.bell.known
    assert {} == house.bell.seen


def test_kopf_is_a_watcher_and_no_more() -> None:
    settings = kopf_settings(watch_silence_seconds=70.0)
    assert 70.0 == settings.watching.inactivity_timeout
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    timeout: Any = settings.watching.server_timeout
    assert isinstance(timeout, int), "a float goes out as 300.0 and is refused"


def test_kinds_of_the_core_group_have_no_group_for_kopf() -> None:
    assert ("v1", "services") == address(SERVICE)
    assert ("v1", "nodes") == address(NODE)
    assert ("apps", "v1", "deployments") == address(DEPLOYMENT)
