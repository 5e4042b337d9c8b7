"""Making it so, by counting what is sent."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.api.news import Announcement
from plimsoll.cluster.apply import ApplyReport, make_so
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Unavailable
from plimsoll.cluster.kinds import (
    CHILDREN,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    INFERENCE_DEPLOYMENT,
    SERVICE,
    Kind,
)
from plimsoll.cluster.settled import Settled
from plimsoll.decide import ChildRef, Desired, Observed
from plimsoll.facts.gpu import Inventory

NOW = 1_795_970_000.0


class Room:
    """A box with one InferenceDeployment, and what we do in it."""

    def __init__(self, client: Client, box: StandIn) -> None:
        self.client, self.box, self.settled = client, box, Settled()
        self.owner = box.put(
            INFERENCE_DEPLOYMENT, {"metadata": {"name": "chat", "namespace": "team"}}
        )

    def child(self, kind: Kind, spec: Any, name: str = "chat") -> dict[str, Any]:
        """A child as we want it."""
        metadata = self.owner["metadata"]
        owner = {"apiVersion": "v1", "kind": "x", "name": "chat", "uid": metadata["uid"]}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": "team", "ownerReferences": [owner]},
            "spec": spec,
        }

    def workload(self, *args: str) -> dict[str, Any]:
        """A Deployment as we want it."""
        container = {"name": "engine", "image": "i", "args": list(args)}
        return self.child(DEPLOYMENT, {"template": {"spec": {"containers": [container]}}})

    async def make(self, *wanted: Any, **more: Any) -> ApplyReport:
        """Look and make it so; the requests of this step alone stay in the box."""
        children = [
            deepcopy(thing) for (plural, *_), thing in self.box.objects.items() if plural in PLURALS
        ]
        observed = Observed(
            deployment=self.box.get(INFERENCE_DEPLOYMENT, "team", "chat"),
            inventory=Inventory(),
            children=tuple(children),
        )
        self.box.requests.clear()
        desired = Desired(apply=wanted, **more)
        return await make_so(self.client, desired, observed, settled=self.settled, now_seconds=NOW)


PLURALS = {kind.plural for kind in CHILDREN}


def in_room(work: Any) -> Any:
    """Run the work in a room."""

    async def run() -> Any:
        box = StandIn()
        async with connected(box) as client:
            return await work(Room(client, box))

    return asyncio.run(run())


def test_the_second_time_nothing_is_sent() -> None:
    async def work(room: Room) -> None:
        wanted = (
            room.workload("serve"),
            room.child(DISRUPTION_BUDGET, {"maxUnavailable": 1}),
            room.child(SERVICE, {"ports": [{"name": "http", "port": 80}]}),
        )
        status = {"observedGeneration": 1}
        first = await room.make(*wanted, status=status)
        assert 4 == first.writes == len(room.box.requests)
        second = await room.make(*wanted, status=status)
        assert 0 == second.writes
        assert [] == room.box.requests

    in_room(work)


def test_children_come_before_the_status_and_events_last_with_workers_after_their_service() -> None:
    async def work(room: Room) -> None:
        told = Announcement(type="Normal", reason="PlanAccepted", message="fits")
        await room.make(
            room.workload("serve"),
            room.child(DISRUPTION_BUDGET, {"maxUnavailable": 1}),
            room.child(SERVICE, {"ports": []}),
            status={"a": 1},
            events=(told,),
        )
        assert ["services", "poddisruptionbudgets", "deployments", "status", "events"] == [
            next(word for word in (*PLURALS, "status", "events") if word in path)
            if not path.endswith("/status")
            else "status"
            for _, path in room.box.writes
        ]

    in_room(work)


def test_what_was_changed_by_hand_is_put_back_with_one_request() -> None:
    async def work(room: Room) -> None:
        wanted = room.workload("serve", "--max-model-len=16384")
        await room.make(wanted)
        live = deepcopy(room.box.get(DEPLOYMENT, "team", "chat"))
        live["spec"]["template"]["spec"]["containers"][0]["args"] = ["serve"]
        room.box.put(DEPLOYMENT, live)
        report = await room.make(wanted)
        assert ("Deployment/chat",) == report.applied
        assert 1 == len(room.box.writes)
        back = room.box.get(DEPLOYMENT, "team", "chat")["spec"]["template"]["spec"]
        assert ["serve", "--max-model-len=16384"] == back["containers"][0]["args"]

    in_room(work)


def test_what_was_added_by_hand_is_taken_out_by_replacing_the_pod_spec() -> None:
    async def work(room: Room) -> None:
        wanted = room.workload("serve")
        await room.make(wanted)
        live = deepcopy(room.box.get(DEPLOYMENT, "team", "chat"))
        container = live["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "VLLM_X", "value": "1"}]
        room.box.put(DEPLOYMENT, live)
        await room.make(wanted)
        back = room.box.get(DEPLOYMENT, "team", "chat")["spec"]["template"]["spec"]
        assert "env" not in back["containers"][0]
        assert 0 == (await room.make(wanted)).writes

    in_room(work)


def test_a_contest_with_an_admission_webhook_ends_after_one_try() -> None:
    async def work(room: Room) -> None:
        wanted = room.child(SERVICE, {"type": "ClusterIP"})
        await room.make(wanted)
        original = room.box.put

        def mutating(kind: Kind, manifest: Any) -> Any:
            thing = deepcopy(dict(manifest))
            if kind is SERVICE or kind.kind == "Service":
                thing["spec"]["type"] = "NodePort"
            return original(kind, thing)

        room.box.put = mutating  # type: ignore[method-assign]
        room.box.put(SERVICE, room.box.get(SERVICE, "team", "chat"))
        assert 1 == (await room.make(wanted)).writes
        assert 0 == (await room.make(wanted)).writes
        other = room.child(SERVICE, {"type": "LoadBalancer"})
        assert 1 == (await room.make(other)).writes, "another wish is tried again"

    in_room(work)


def test_an_object_of_somebody_else_is_left_alone_and_told_once() -> None:
    async def work(room: Room) -> None:
        theirs = room.child(SERVICE, {"type": "NodePort"})
        theirs["metadata"]["ownerReferences"] = []
        room.box.put(SERVICE, theirs)
        wanted = room.child(SERVICE, {"type": "ClusterIP"})
        report = await room.make(wanted, status={"a": 1})
        assert ("NotOurs",) == tuple(f.reason for f in report.failures)
        assert "NodePort" == room.box.get(SERVICE, "team", "chat")["spec"]["type"]
        assert {"a": 1} == room.box.get(INFERENCE_DEPLOYMENT, "team", "chat")["status"]
        assert 1 == report.announced
        again = await room.make(wanted, status={"a": 1})
        assert 1 == len(again.failures)
        assert 0 == again.announced
        events = [t for (plural, *_), t in room.box.objects.items() if plural == EVENT.plural]
        assert ["ChildNotApplied"] == [event["reason"] for event in events]

    in_room(work)


def test_our_child_that_lost_its_label_is_found_by_name() -> None:
    async def work(room: Room) -> None:
        wanted = room.child(SERVICE, {"type": "ClusterIP"})
        changed = room.child(SERVICE, {"type": "NodePort"})
        room.box.put(SERVICE, changed)
        desired = Desired(apply=(wanted,))
        blind = Observed(deployment=room.owner, inventory=Inventory())
        report = await make_so(room.client, desired, blind, settled=room.settled, now_seconds=NOW)
        assert ("Service/chat",) == report.applied
        assert "ClusterIP" == room.box.get(SERVICE, "team", "chat")["spec"]["type"]

    in_room(work)


def test_only_our_own_children_are_deleted() -> None:
    async def work(room: Room) -> None:
        room.box.put(SERVICE, room.child(SERVICE, {}, name="ours"))
        theirs = room.child(SERVICE, {}, name="theirs")
        theirs["metadata"]["ownerReferences"] = [{"uid": "another"}]
        room.box.put(SERVICE, theirs)
        refs = tuple(
            ChildRef(api_version="v1", kind="Service", namespace="team", name=name)
            for name in ("ours", "theirs", "gone")
        )
        report = await room.make(delete=refs)
        assert ("Service/ours",) == report.deleted
        assert [("DELETE", SERVICE.path("team", "ours"))] == room.box.writes

    in_room(work)


def test_the_status_of_a_namesake_is_not_written() -> None:
    async def work(room: Room) -> None:
        before = deepcopy(room.owner)
        room.box.remove(INFERENCE_DEPLOYMENT, "team", "chat")
        observed = Observed(deployment=before, inventory=Inventory())
        desired = Desired(status={"a": 1})
        report = await make_so(
            room.client, desired, observed, settled=room.settled, now_seconds=NOW
        )
        assert report.status_version is None, "the object is gone, and that is no error"

    in_room(work)


def test_a_status_that_the_server_keeps_otherwise_is_written_once() -> None:
    async def work(room: Room) -> None:
        original = room.box.put

        def pruning(kind: Kind, manifest: Any) -> Any:
            thing = deepcopy(dict(manifest))
            thing.get("status", {}).pop("unknown", None)
            return original(kind, thing)

        room.box.put = pruning  # type: ignore[method-assign]
        status = {"a": 1, "unknown": 2}
        assert (await room.make(status=status)).status_version is not None
        assert (await room.make(status=status)).status_version is None

    in_room(work)


def test_an_outage_ends_the_attempt_at_once() -> None:
    async def work(room: Room) -> None:
        room.box.answers = [(503, {}, {})]
        with pytest.raises(Unavailable):
            await room.make(room.child(SERVICE, {}), room.workload("x"), status={"a": 1})
        assert 1 == len(room.box.requests)

    in_room(work)


def test_a_refused_event_holds_nothing_up() -> None:
    async def work(room: Room) -> None:
        told = Announcement(type="Normal", reason="R", message="m" * 2000)
        room.box.answers = [(403, {}, {"reason": "Forbidden", "message": "no"})]
        report = await room.make(events=(told, told))
        assert 1 == report.announced
        event = next(t for (plural, *_), t in room.box.objects.items() if plural == "events")
        assert 1024 == len(event["message"])
        assert "2026-11-29T16:33:20Z" == event["lastTimestamp"]

    in_room(work)
