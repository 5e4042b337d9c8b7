"""The gate as the operator makes it, on a real kubelet: HAProxy and the keeper in one pod, before two llama-servers.

Clients come through the deployment's Service with the `openai` package; their API keys choose the lane.
"""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest

import real_worker
from controlplane import fleet
from controlplane.cluster import ControlPlane, Manifest
from controlplane.haproxy import gate_possible, haproxy
from controlplane.images import write_image
from controlplane.node import RealNode, real_node_possible
from gate_people import Heard, Person, client, user
from gate_witness import Witness, answered, most_at_once, page, state
from installation import USER, Installation
from own_image import IMAGE_PATH, IMAGE_TAG, own_image
from patience import Patience, eventually, stretched
from plimsoll.render.gateway_objects import PAGE_PORT
from plimsoll.render.lifecycle import PRE_STOP_SECONDS
from real_worker import MODEL_NAME, NAME, POOL
from stand_ins.service_address import ServiceOf
from world import World

REASON = real_node_possible() or gate_possible()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
HAPROXY: Final = "localhost/haproxy:here"
GATES: Final = "app.kubernetes.io/component=gateway"
WORKERS: Final = "app.kubernetes.io/component=worker"
SLOTS: Final = (2, 2)
"""Of each worker, by lane: a half of its four."""
SLOT_TOKENS: Final = 2048
KEYS: Final = {"daytime": "sk-canary-of-the-day", "nightly": "sk-canary-of-the-night"}
CANARY: Final = "Quetzalcoatlus"
"""In every prompt, and in no log."""
LANES: Final = (
    {
        "name": "chat",
        "promptTokens": {"p50": 40, "p99": 500},
        "outputTokens": {"p50": 8, "p99": 100},
        "share": "50%",
        "borrow": False,  # so that what HAProxy saw at once can be held against the plan lane by lane
    },
    {
        "name": "batch",
        "promptTokens": {"p50": 120, "p99": 1500},
        "outputTokens": {"p50": 12, "p99": 200},
        "share": "50%",
        "priority": 10,
        "keys": ["nightly"],
    },
)
CHAT: Final = ("chat", "daytime", f"How large was {CANARY}?", 4)
BATCH: Final = ("batch", "nightly", f"Sum up: {f'{CANARY} flew over a wide sea. ' * 3}", 8)
"""Lane, key, prompt, and tokens of an answer."""
PEOPLE: Final = 3
"""In each lane: more than one worker has slots, so while the other is replaced, some wait."""
ENOUGH: Final = 3
"""Answers of each person, before and after."""
WATCHED: Final[dict[str, Any]] = {"PLIMSOLL_WATCH_SECONDS": "0.5"}


def haproxy_image(out: Path) -> Path:
    """Debian's HAProxy with what its preStop needs: a shell and sleep, this machine's."""
    root = out.with_suffix(".root")
    shutil.copytree(haproxy().parent / "root", root, symlinks=True)
    for name in ("sh", "sleep"):
        shutil.copy(shutil.which(name) or name, root / "usr/bin" / name)
    if not (root / "bin").exists():
        (root / "bin").symlink_to("usr/bin")
    elif not (root / "bin").is_symlink():
        shutil.copy(root / "usr/bin/sh", root / "bin/sh")
    try:
        return write_image(out, HAPROXY, root, entrypoint=("/usr/sbin/haproxy",))
    finally:
        shutil.rmtree(root)


def asked(world: World, model: Path) -> tuple[Manifest, Manifest]:
    """The deployment, and the Secret with its clients' keys."""
    raw = real_worker.deployment(world.namespace, model)
    raw["spec"] |= {
        "replicas": 2,
        "limits": {"maxModelLen": SLOT_TOKENS, "concurrency": sum(SLOTS)},
        "traffic": {"lanes": list(LANES)},
        "gateway": {
            "enabled": True,
            "image": HAPROXY,
            "keysSecret": "gate-keys",
            "queue": {"length": 16, "timeout": "60s"},
        },
        "worker": {"cpu": "100m"},
    }
    secret: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "gate-keys", "namespace": world.namespace},
        "data": {name: base64.b64encode(key.encode()).decode() for name, key in KEYS.items()},
    }
    return raw, secret


@dataclass(frozen=True)
class Gated:
    """The world, the gate's pod once it is the door, and where the Service answers."""

    world: World
    gate: Manifest
    url: str

    def workers(self) -> dict[str, Manifest]:
        """Those that stay, by name of the pod."""
        return {
            pod["metadata"]["name"]: pod
            for pod in self.world.items(":pods", WORKERS)
            if "deletionTimestamp" not in pod["metadata"]
        }


@pytest.fixture(scope="module")
def gated() -> Iterator[Gated]:
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane())
        labels = fleet.card_labels(real_worker.CARD, count=2)
        node = RealNode(cluster, name=real_worker.NODE, labels=labels, gpus=2)
        ours = own_image(cluster.dir / "plimsoll.tar")
        node.images = (*node.images, ours, haproxy_image(cluster.dir / "haproxy.tar"))
        stack.enter_context(node)
        ours.unlink()
        installed = Installation(cluster)
        installed.start(PLIMSOLL_INSPECTION_IMAGE=f"{IMAGE_PATH}:{IMAGE_TAG}", **WATCHED)
        world = World(installed, "gate")
        world.apply(*asked(world, node.parts.model))
        world.await_condition(NAME, "Ready", "True", within=Patience.REAL_POD_READY)
        gate = await_gate(world)
        service = stack.enter_context(ServiceOf(world, NAME))
        yield Gated(world, gate, service.url)
        installed.stop()
        denied = installed.log.denied(USER)
        assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def await_gate(world: World) -> Manifest:
    """The gate's pod once it is ready and knows its workers."""

    def seen() -> Manifest:
        (pod,) = world.items(":pods", GATES)
        said = dict(world.object(NAME)["status"].get("gateway") or {})
        if (said.get("readyGates"), said.get("isDoor")) != (1, True):
            raise LookupError(json.dumps([said, pod["status"]])[:3000])
        return pod

    found = eventually(seen, within=Patience.REAL_POD_READY, says="the gate is the door")
    assert found is not None
    return found


def await_seated(gated: Gated, *, but: str = "") -> dict[str, Manifest]:
    """Both workers, once the gate promises what they hold; a pod that goes counts no more."""

    def seated() -> dict[str, Manifest]:
        workers = {name: pod for name, pod in gated.workers().items() if name != but}
        wanted = {f"{pod['status']['podIP']}:{real_worker.PORT}" for pod in workers.values()}
        held = state(gated.gate)["held"]
        if len(workers) < 2 or {place: list(SLOTS) for place in wanted} != held:
            phases = {name: pod["status"].get("conditions") for name, pod in workers.items()}
            raise LookupError(f"{held} {json.dumps(phases)}")
        return workers

    return eventually(
        seated, within=2 * Patience.REAL_POD_READY, says="the gate has both workers seated"
    )


def test_a_chat_goes_through_the_gate(gated: Gated) -> None:
    await_seated(gated)
    with client(gated.url, KEYS["daytime"]) as person:
        answer = person.chat.completions.create(
            model=MODEL_NAME,
            messages=[*real_worker.SHOWN_HOW, *user("What is the capital of France?")],  # type: ignore[list-item]
            max_tokens=16,
            stop=[real_worker.END_OF_TURN],
            temperature=0,
        )
        assert "Paris" in str(answer.choices[0].message.content)
        assert [MODEL_NAME] == [model.id for model in person.models.list()]
    (pool,) = gated.world.object(NAME)["status"]["pools"]
    assert sum(SLOTS) == pool["plan"]["concurrency"]["maxNumSeqs"]
    assert {"gates": 1, "place": 0, "is_retiring": False} == state(gated.gate)["standing"]
    assert {("chat", "200", ""): 1, ("-", "200", ""): 1} == answered(gated.gate)


def test_the_gate_has_no_token_and_no_root(gated: Gated) -> None:
    spec = gated.gate["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert [] == [each for each in spec["volumes"] if "projected" in each or "hostPath" in each]
    assert 65532 == spec["securityContext"]["runAsUser"]


# ---- a worker is recycled while clients ask ------------------------------------------------------


@dataclass(frozen=True)
class Recycled:
    """What was seen by everybody from before the first request to after the last."""

    victim: str
    successor: str
    heard: dict[str, list[Heard]]
    """By lane."""
    witness: Witness
    written: list[tuple[str, str]]
    """What the operator did to the victim: verb and resource."""


def an_intent(world: World, victim: Manifest) -> None:
    """The operator has decided to recycle this worker, written it down, and died.

    The evidence for such a decision takes many minutes to gather, which is another story; from the record on,
    everything is what an operator does that starts and finds it.
    """
    world.installed.stop()
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {
        "pod": victim["metadata"]["name"],
        "uid": victim["metadata"]["uid"],
        "pool": POOL,
        "at": now,
        "reason": "Growth",
        "message": "Written by a story.",
        "phase": "Draining",
        "phaseAt": now,
    }
    path = f"/apis/plimsoll.dev/v1alpha1/namespaces/{world.namespace}/inferencedeployments/{NAME}"
    change = {"status": {"recycling": {"history": [entry]}}}
    status, answer = world.cluster.request("PATCH", f"{path}/status", change)
    assert http.client.OK == status, answer
    world.installed.start(PLIMSOLL_INSPECTION_IMAGE=f"{IMAGE_PATH}:{IMAGE_TAG}", **WATCHED)


def phase(world: World, victim: str) -> str:
    """How far its recycle is."""
    history = (world.object(NAME)["status"].get("recycling") or {}).get("history") or ()
    return next((str(each["phase"]) for each in history if each["pod"] == victim), "")


class Crowd:
    """People of both lanes who ask until the block ends."""

    def __init__(self, url: str) -> None:
        self._people = [
            (lane, Person(url, KEYS[key], model=MODEL_NAME, prompt=prompt, most_tokens=tokens))
            for lane, key, prompt, tokens in (CHAT, BATCH)
            for _ in range(PEOPLE)
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for _, person in self._people:
            self._stack.enter_context(person)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def await_served(self) -> None:
        """Wait until each of them has had so many answers more."""
        then = [len(person.heard) for _, person in self._people]

        def served() -> bool:
            more = [
                len(person.heard) - had for (_, person), had in zip(self._people, then, strict=True)
            ]
            if min(more) < ENOUGH:
                raise LookupError(more)
            return True

        eventually(served, within=2 * Patience.CHAT_ANSWER, says="everybody is served")

    def heard(self) -> dict[str, list[Heard]]:
        """All that they heard, by lane."""
        found: dict[str, list[Heard]] = {"chat": [], "batch": []}
        for lane, person in self._people:
            found[lane] += person.heard
        return found


@pytest.fixture(scope="module")
def recycled(gated: Gated) -> Recycled:
    before = await_seated(gated)
    victim = min(before)
    witness = Witness()
    witness.sees(*before.values())
    began = time.monotonic()

    def says(what: str) -> None:
        print(f"{time.monotonic() - began:.1f} s: {what}")

    with witness:
        with Crowd(gated.url) as crowd:
            crowd.await_served()
            says("everybody is served")
            an_intent(gated.world, before[victim])
            says("the operator goes on with its recycle")
            eventually(
                lambda: victim in state(gated.gate)["drained"],
                within=Patience.RECYCLE_DONE,
                says="the gate has drained it",
            )
            says("drained")
            eventually(
                lambda: phase(gated.world, victim) == "Replacing",
                within=Patience.RECYCLE_DONE,
                says="it was evicted",
            )
            says("evicted")
            after = await_seated(gated, but=victim)
            (successor,) = set(after) - set(before)
            witness.sees(after[successor])
            says("its successor has its place")
            crowd.await_served()
        heard = crowd.heard()
    answers = {lane: len(each) for lane, each in heard.items()}
    says(f"all is over; answers {answers}, the counters were read {witness.looks} times")
    written = [
        (request.use.verb, request.use.resource)
        for request in gated.world.quiet_writes()
        if request.use.name == victim
    ]
    return Recycled(victim, successor, heard, witness, written)


def test_a_worker_recycled_under_load_costs_no_client_a_request(recycled: Recycled) -> None:
    for lane, heard in recycled.heard.items():
        assert {""} == {each.problem for each in heard}, lane
        assert {True, False} == {each.is_streamed for each in heard}
        assert len(heard) >= 2 * ENOUGH * PEOPLE


def test_the_operator_drained_it_and_evicted_it_once(recycled: Recycled) -> None:
    assert [("patch", "pods"), ("create", "pods/eviction")] == recycled.written
    assert recycled.successor != recycled.victim


def test_the_gate_counted_what_its_clients_did(gated: Gated, recycled: Recycled) -> None:
    def counted() -> dict[tuple[str, str, str], int]:
        found = {key: count for key, count in answered(gated.gate).items() if key[0] != "-"}
        wanted = {(lane, "200", ""): len(heard) for lane, heard in recycled.heard.items()}
        wanted["chat", "200", ""] += 1  # of the story before
        if wanted != found:
            raise LookupError(f"{found}, wanted {wanted}")
        return found

    assert eventually(counted, within=Patience.FIGURE_SEEN, says="the last lines are read")


def test_the_engines_counted_what_clients_were_told(recycled: Recycled) -> None:
    """The tokens of every answer, over three engines of which one is gone."""
    heard = [each for of_lane in recycled.heard.values() for each in of_lane]
    witness = recycled.witness
    assert 3 == len(witness.last)
    assert 0 < sum(each.tokens for each in heard) == witness.total("tokens_predicted_total")
    told = sum(each.prompt_tokens for each in heard)
    assert told == witness.total("prompt_tokens_total", "prompt_tokens_cached_total")


def test_no_worker_ever_had_more_than_was_planned(gated: Gated, recycled: Recycled) -> None:
    """By HAProxy's own highest mark of each lane and worker, and by what llama-servers said while they ran."""
    for lane, slots in zip(("chat", "batch"), SLOTS, strict=True):
        marks = most_at_once(gated.gate, lane)
        used = {place: most for place, most in marks.items() if most}
        assert {slots} == set(used.values()), (lane, used)
        assert len(used) >= 2
    assert 3 == len(recycled.witness.most)
    assert max(recycled.witness.most.values()) <= sum(SLOTS)
    assert recycled.witness.looks > ENOUGH


def test_an_eviction_that_nobody_announced_is_known_before_the_engine_is_told(
    gated: Gated, recycled: Recycled
) -> None:
    """The worker's preStop waits before the signal: by then no request comes to it any more."""
    name = next(name for name in gated.workers() if name != recycled.successor)
    began = time.monotonic()
    gated.world.kubectl("delete", "pod", name, "--wait=false")
    eventually(
        lambda: name in state(gated.gate)["drained"],
        within=Patience.REAL_POD_READY,
        says="the keeper has drained it",
    )
    took = time.monotonic() - began
    print(f"drained {took:.1f} s after the deletion")
    assert took < stretched(PRE_STOP_SECONDS)
    with client(gated.url, KEYS["daytime"]) as person:
        assert person.chat.completions.create(
            model=MODEL_NAME, messages=user("Hello"), max_tokens=2
        )


def test_neither_keys_nor_prompts_are_in_a_log(gated: Gated, recycled: Recycled) -> None:
    """Over all that HAProxy and the keeper have written in this file's stories, and what the keeper shows."""
    name = gated.gate["metadata"]["name"]
    logs = {
        container: gated.world.kubectl("logs", name, "-c", container)
        for container in ("haproxy", "keeper", "prepare")
    }
    assert logs["haproxy"].count('"key":"nightly"') == len(recycled.heard["batch"])
    assert logs["keeper"]
    logs |= {path: page(gated.gate, PAGE_PORT, path) for path in ("/state", "/metrics")}
    for where, text in logs.items():
        assert CANARY not in text, where
        assert [] == [key for key in KEYS.values() if key in text], where
