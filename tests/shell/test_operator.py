"""The whole operator, real kopf included, against an API server in a box: only how the parts are tied."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from api_box import StandIn, kubeconfig, serving, until
from plimsoll.cluster.kinds import (
    CHILDREN,
    GPU_NODE,
    INFERENCE_DEPLOYMENT,
    LEASE,
    NODE,
    POD,
    RESOURCE_SLICE,
    SERVICE,
)
from plimsoll.controller.main import FAILED, WENT_WELL, Operator
from plimsoll.controller.settings import Settings
from plimsoll.decide import Desired, Key, Observed
from plimsoll.render.labels import DEPLOYMENT_LABEL

NODE_WITH_CARDS = {
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
WATCHED = {
    kind.plural for kind in (*CHILDREN, GPU_NODE, INFERENCE_DEPLOYMENT, NODE, POD, RESOURCE_SLICE)
}


class Thinker:
    """Decides on a Service and a status, and remembers for whom."""

    def __init__(self) -> None:
        self.visits: list[Key] = []

    def __call__(self, observed: Observed, *, now_seconds: float) -> Desired:
        metadata = observed.deployment["metadata"]
        self.visits.append(Key(namespace=metadata["namespace"], name=metadata["name"]))
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": {DEPLOYMENT_LABEL: metadata["name"]},
                "ownerReferences": [{"uid": metadata["uid"]}],
            },
            "spec": {"type": "ClusterIP"},
        }
        cards = sum(node.count for node in observed.inventory.nodes)
        return Desired(apply=(service,), status={"cards": cards})

    def count(self, name: str) -> int:
        """How often one was visited."""
        return sum(key.name == name for key in self.visits)


class Stage:
    """A box, an operator in it and its thinker."""

    def __init__(self, box: StandIn, operator: Operator, thinker: Thinker) -> None:
        self.box, self.operator, self.thinker = box, operator, thinker
        self.ended: asyncio.Task[int] = asyncio.create_task(operator.run())

    async def up(self) -> None:
        """Wait until it watches all that it should."""
        await until(
            lambda: self.ended.done() or self.box.watched() >= WATCHED, says="everything is watched"
        )

    async def quiet(self) -> None:
        """Wait until nothing is due and nobody is visited."""
        await until(lambda: len(self.operator.queue) == 0, says="the queue is empty")

    def status(self, name: str) -> Any:
        """The status of one object."""
        return self.box.get(INFERENCE_DEPLOYMENT, "team", name).get("status")

    def deploy(self, name: str, **more: Any) -> None:
        """What a user does."""
        thing = {"metadata": {"name": name, "namespace": "team"}, "spec": more}
        self.box.put(INFERENCE_DEPLOYMENT, thing)


Play = Callable[[Stage], Awaitable[None]]


@pytest.fixture(autouse=True)
def _quiet_kopf() -> Iterator[None]:
    """Kopf says a lot about what is normal here."""
    logger = logging.getLogger("kopf")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., int]:
    """Run a play, stop the operator, give its exit code."""

    def run(
        acts: Play, *, prepare: Callable[[StandIn], None] | None = None, **settings: Any
    ) -> int:
        async def whole() -> int:
            box, thinker = StandIn(), Thinker()
            async with serving(box):
                (tmp_path / "kubeconfig").write_text(kubeconfig(box))
                if prepare is not None:
                    prepare(box)
                given = {
                    "kubeconfig": str(tmp_path / "kubeconfig"),
                    "identity": "me",
                    "lease_namespace": "ours",
                    "host": "127.0.0.1",
                    "metrics_port": 0,
                    "health_port": 0,
                } | settings

                def die(code: int) -> None:
                    box.put(POD, {"metadata": {"name": f"died-{code}"}})

                operator = Operator(
                    Settings.model_validate(given),
                    decide=thinker,
                    chance=lambda: 0.5,
                    die=die,
                )
                stage = Stage(box, operator, thinker)
                await acts(stage)
                operator.stop()
                async with asyncio.timeout(25):
                    return await stage.ended

        return asyncio.run(whole())

    return run


def test_an_object_is_seen_looked_after_and_otherwise_left_alone(play: Callable[..., int]) -> None:
    async def acts(stage: Stage) -> None:
        await stage.up()
        stage.deploy("chat")
        before = deepcopy(stage.box.get(INFERENCE_DEPLOYMENT, "team", "chat"))
        await until(lambda: stage.status("chat"), says="the status is written")
        await stage.quiet()
        after = stage.box.get(INFERENCE_DEPLOYMENT, "team", "chat")
        for field in ("spec", "apiVersion", "kind"):
            assert before[field] == after[field]
        moved = {"resourceVersion"}
        assert {k: v for k, v in before["metadata"].items() if k not in moved} == {
            k: v for k, v in after["metadata"].items() if k not in moved
        }
        assert [
            ("PATCH", SERVICE.path("team", "chat")),
            ("PATCH", INFERENCE_DEPLOYMENT.path("team", "chat", "status")),
        ] == stage.box.writes

    assert WENT_WELL == play(acts)


def test_each_event_wakes_the_one_it_is_about(play: Callable[..., int]) -> None:
    async def acts(stage: Stage) -> None:
        await stage.up()
        stage.deploy("chat")
        stage.deploy("batch")
        await until(lambda: stage.status("chat") and stage.status("batch"), says="both are planned")
        await stage.quiet()
        chat, batch = stage.thinker.count("chat"), stage.thinker.count("batch")
        worker = {"name": "w", "namespace": "team", "labels": {DEPLOYMENT_LABEL: "chat"}}
        stage.box.put(POD, {"metadata": worker, "spec": {}})
        await until(lambda: stage.thinker.count("chat") > chat, says="the pod woke its owner")
        chat = stage.thinker.count("chat")
        changed = deepcopy(stage.box.get(SERVICE, "team", "chat"))
        changed["spec"]["type"] = "NodePort"
        stage.box.put(SERVICE, changed)
        await until(
            lambda: stage.box.get(SERVICE, "team", "chat")["spec"]["type"] == "ClusterIP",
            says="the Service is put right",
        )
        assert stage.thinker.count("chat") > chat
        assert batch == stage.thinker.count("batch")

    assert WENT_WELL == play(acts)


def test_new_cards_wake_everyone_and_a_heartbeat_nobody(play: Callable[..., int]) -> None:
    async def acts(stage: Stage) -> None:
        await stage.up()
        stage.deploy("chat")
        await until(lambda: stage.status("chat"), says="it is planned")
        assert {"cards": 0} == stage.status("chat")
        stage.box.put(NODE, NODE_WITH_CARDS)
        await until(lambda: stage.status("chat") == {"cards": 4}, says="the new cards are seen")
        await stage.quiet()
        visits = len(stage.thinker.visits)
        beat = deepcopy(NODE_WITH_CARDS) | {"spec": {"beat": 1}}
        stage.box.put(NODE, beat)
        stage.deploy("other")
        await until(lambda: stage.status("other"), says="a later event has arrived")
        await stage.quiet()
        assert visits == sum(key.name == "chat" for key in stage.thinker.visits)

    assert WENT_WELL == play(acts)


def test_what_was_there_before_is_visited_once(play: Callable[..., int]) -> None:
    def prepare(box: StandIn) -> None:
        box.put(NODE, NODE_WITH_CARDS)
        box.put(INFERENCE_DEPLOYMENT, {"metadata": {"name": "chat", "namespace": "team"}})

    async def acts(stage: Stage) -> None:
        await stage.up()
        await until(lambda: stage.status("chat"), says="it is planned")
        stage.deploy("later")
        await until(lambda: stage.status("later"), says="a later event has arrived")
        await stage.quiet()
        # The first look, and one for the echo of our own Service.
        assert stage.thinker.count("chat") <= 2

    assert WENT_WELL == play(acts, prepare=prepare)


def test_told_to_stop_it_gives_the_lease_back(play: Callable[..., int]) -> None:
    kept: list[StandIn] = []

    async def acts(stage: Stage) -> None:
        kept.append(stage.box)
        await stage.up()
        assert "me" == stage.box.get(LEASE, "ours", "plimsoll")["spec"]["holderIdentity"]
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(25):
            assert WENT_WELL == await stage.ended

    assert WENT_WELL == play(acts)
    assert "" == kept[0].get(LEASE, "ours", "plimsoll")["spec"]["holderIdentity"]


def test_an_error_on_a_watch_ends_the_process_so_that_it_starts_anew(
    play: Callable[..., int],
) -> None:
    async def acts(stage: Stage) -> None:
        await stage.up()
        error = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
        stage.box.say("pods", {"type": "ERROR", "object": error})
        async with asyncio.timeout(25):
            assert FAILED == await stage.ended

    assert FAILED == play(acts)


def test_a_watch_that_is_open_and_silent_is_asked_for_anew(play: Callable[..., int]) -> None:
    async def acts(stage: Stage) -> None:
        await stage.up()
        before = stage.box.watches_begun.count("nodes")
        await until(
            lambda: stage.box.watches_begun.count("nodes") > before, says="nodes are watched anew"
        )
        stage.deploy("chat")
        await until(lambda: stage.status("chat"), says="it goes on")

    assert WENT_WELL == play(acts, watch_silence_seconds=0.2)


def test_an_object_that_went_while_the_watch_was_away_is_no_longer_visited(
    play: Callable[..., int],
) -> None:
    """The watch ends with a 410; the list after it does not tell of what is gone, the resync does."""

    async def acts(stage: Stage) -> None:
        await stage.up()
        stage.deploy("chat")
        await until(lambda: stage.status("chat"), says="it is planned")
        await stage.quiet()
        place = (INFERENCE_DEPLOYMENT.plural, "team", "chat")
        del stage.box.objects[place]  # and no watch hears of it
        begun = stage.box.watches_begun.count(INFERENCE_DEPLOYMENT.plural)
        writes = list(stage.box.writes)
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        stage.box.say(INFERENCE_DEPLOYMENT.plural, {"type": "ERROR", "object": gone})
        await until(
            lambda: stage.box.watches_begun.count(INFERENCE_DEPLOYMENT.plural) > begun,
            says="it is watched anew",
        )
        registry = stage.operator.metrics.registry
        gone_visits = ("plimsoll_reconciles_total", {"result": "gone"})
        await until(lambda: registry.get_sample_value(*gone_visits), says="the ghost is noticed")
        assert writes == stage.box.writes

    assert WENT_WELL == play(acts, resync_seconds=0.5)


def test_who_loses_the_lease_dies_at_once(play: Callable[..., int]) -> None:
    async def acts(stage: Stage) -> None:
        await stage.up()
        lease = deepcopy(stage.box.get(LEASE, "ours", "plimsoll"))
        lease["spec"]["holderIdentity"] = "other"
        stage.box.put(LEASE, lease)
        await until(lambda: ("pods", "", f"died-{FAILED}") in stage.box.objects, says="it died")
        assert "other" == stage.box.get(LEASE, "ours", "plimsoll")["spec"]["holderIdentity"]

    quick = {"lease_seconds": 3.0, "renew_deadline_seconds": 2.0, "retry_seconds": 0.1}
    assert FAILED == play(acts, **quick)


def test_a_standby_writes_nothing_but_asks_for_the_lease(play: Callable[..., int]) -> None:
    def prepare(box: StandIn) -> None:
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 3600}
        box.put(LEASE, {"metadata": {"name": "plimsoll", "namespace": "ours"}, "spec": spec})
        box.put(INFERENCE_DEPLOYMENT, {"metadata": {"name": "chat", "namespace": "team"}})

    async def acts(stage: Stage) -> None:
        await until(lambda: len(stage.box.requests) >= 3, says="it asked three times")
        assert [] == stage.box.writes
        assert {"/leases"} == {path[path.rindex("/leases") :][:7] for _, path in stage.box.requests}
        assert "standby" == stage.operator.pulse.role

    quick = {"lease_seconds": 3.0, "renew_deadline_seconds": 2.0, "retry_seconds": 0.05}
    assert WENT_WELL == play(acts, prepare=prepare, **quick)


def test_without_the_kind_it_says_so_and_ends(
    play: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(box: StandIn) -> None:
        box.missing = {INFERENCE_DEPLOYMENT.plural}

    async def acts(stage: Stage) -> None:
        async with asyncio.timeout(25):
            assert FAILED == await stage.ended

    with caplog.at_level(logging.ERROR, logger="plimsoll"):
        assert FAILED == play(acts, prepare=prepare)
    assert "kubectl apply --server-side -f crds/" in str(caplog.records[0].__dict__["way_out"])


def test_an_older_cluster_has_no_resource_slices_and_hears_no_complaint(
    play: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(box: StandIn) -> None:
        box.missing = {RESOURCE_SLICE.plural}
        box.put(NODE, NODE_WITH_CARDS)
        box.put(INFERENCE_DEPLOYMENT, {"metadata": {"name": "chat", "namespace": "team"}})

    async def acts(stage: Stage) -> None:
        others = WATCHED - {RESOURCE_SLICE.plural}
        await until(lambda: stage.box.watched() >= others, says="all the others are watched")
        await until(lambda: stage.status("chat") == {"cards": 4}, says="the cards are seen")
        assert RESOURCE_SLICE.plural not in stage.box.watched()

    with caplog.at_level(logging.WARNING, logger="plimsoll"):
        assert WENT_WELL == play(acts, prepare=prepare)
    assert [] == [record.getMessage() for record in caplog.records if record.name != "kopf"]


def test_a_new_resource_slice_wakes_everyone(play: Callable[..., int]) -> None:
    device = {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-1"},
            "productName": {"string": "NVIDIA RTX A6000"},
        },
        "capacity": {"memory": {"value": "49140Mi"}},
    }
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": [device]}

    async def acts(stage: Stage) -> None:
        await stage.up()
        stage.deploy("chat")
        await until(lambda: stage.status("chat") == {"cards": 4}, says="four cards are seen")
        stage.box.put(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": spec})
        await until(lambda: stage.status("chat") == {"cards": 1}, says="the slice is believed")

    def prepare(box: StandIn) -> None:
        box.put(NODE, NODE_WITH_CARDS)

    assert WENT_WELL == play(acts, prepare=prepare)
