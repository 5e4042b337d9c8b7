"""Is memory that really leaks seen by a real kubelet, and is its worker replaced without a lost request?

Two nodes: a worker of the plan's size fits one of them once. Beside the two that serve a stand-in, of
which one leaks, runs a real llama-server under load. An hour lasts 40 s.
"""

from __future__ import annotations

import http.client
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

import real_worker
from audit import Use
from controlplane import fleet, netns
from controlplane.cluster import ControlPlane, Manifest
from controlplane.node import RealNode, real_node_possible
from installation import USER, Installation
from objects import small
from patience import Patience, eventually
from real_worker import Worker
from stand_ins import leaking
from world import World

GIB = 1 << 30
NEEDED_BYTES = 21 * GIB
"""A node must hold a worker of 18 GiB, a llama-server and what the system keeps for itself."""


def why_not() -> str | None:
    """Why these stories cannot run here; None when they can."""
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if held < NEEDED_BYTES:
        return f"needs {NEEDED_BYTES / GIB:.0f} GiB of memory, there are {held / GIB:.0f}"
    return real_node_possible()


REASON = why_not()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

HOUR = 40.0
MIB = 1 << 20
LEAK_PER_REQUEST = 2 * MIB
SEEN_TO_LEAK = 400 * MIB
QUICK_TTFT, SLOW_TTFT = 0.05, 0.4
BETWEEN_REQUESTS = 0.25
BETWEEN_CHATS = 2.0
NAME = "leaks"
SHORT: dict[str, Any] = {
    "PLIMSOLL_HOUR_SECONDS": str(HOUR),
    "PLIMSOLL_GROWTH_SHARE": "0.1",
    "PLIMSOLL_WATCH_SECONDS": "0.5",
    "PLIMSOLL_STALE_SECONDS": "6",
    "PLIMSOLL_FLOOR_BIN_SECONDS": str(HOUR / 6),
    "PLIMSOLL_FLOOR_FLUSH_SECONDS": "5",
    "PLIMSOLL_SETTLE_SECONDS": "5",
    "PLIMSOLL_LEASE_SECONDS": "15",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "10",
    "PLIMSOLL_RETRY_SECONDS": "2",
}
RECYCLING = {"cooldown": "1s", "drainTimeout": "30s", "surge": "Never"}


class Repeated:
    """Does one thing again and again in a thread, with pauses, until the block ends."""

    def __init__(self, does: Callable[[], None], pause_seconds: float) -> None:
        self._does, self._pause = does, pause_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._ended.wait(self._pause):
            self._does()


class Client:
    """Asks the ready endpoints of a Service in turn, as a proxy does, and remembers every answer."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.answers: Counter[str] = Counter()
        self.turns = count()
        self.lock = threading.Lock()

    def endpoints(self) -> dict[str, str]:
        """Address by pod of all that are ready."""
        found = self.world.items(
            "discovery.k8s.io/v1:endpointslices", f"kubernetes.io/service-name={self.name}"
        )
        return {
            endpoint["targetRef"]["name"]: endpoint["addresses"][0]
            for each in found
            for endpoint in each.get("endpoints") or ()
            if endpoint["conditions"].get("ready")
        }

    def ask(self) -> None:
        """One request to the next of them."""
        addresses = sorted(self.endpoints().values())
        if not addresses:
            self._remember("no endpoint")
            return
        try:
            self._remember(str(leaking.complete(addresses[next(self.turns) % len(addresses)])))
        except (OSError, http.client.HTTPException) as error:
            self._remember(repr(error))

    def _remember(self, answer: str) -> None:
        with self.lock:  # two threads ask
            self.answers[answer] += 1


class Chatter:
    """Says something else each time, so that llama-server's cache of prompts fills."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.numbers = worker, count(1)
        self.tokens = 0

    def say(self) -> None:
        """One exchange."""
        self.tokens += self.worker.chat(
            f"What comes after {next(self.numbers)}?", most_tokens=8
        ).tokens


@dataclass(frozen=True)
class Trial:
    """Workers under load, and the one that leaks."""

    world: World
    nodes: tuple[RealNode, ...]
    client: Client
    chatter: Chatter
    victim: Manifest

    @property
    def victims_name(self) -> str:
        """The one that leaks."""
        return str(self.victim["metadata"]["name"])

    def workers(self, name: str) -> dict[str, Manifest]:
        """What its status says of each worker, by pod."""
        return {each["pod"]: each for each in self.world.object(name)["status"].get("workers", ())}

    def recycling(self) -> Manifest:
        """What its status says of recycling."""
        found: Manifest = self.world.object(NAME)["status"].get("recycling") or {}
        return found

    def await_phase(self, *phases: str, within: float) -> Manifest:
        """Wait until the newest recycle is in one of these phases."""

        def there() -> Manifest:
            history = self.recycling().get("history") or ()
            if not history or history[0]["phase"] not in phases:
                raise LookupError(f"{self.recycling()} {self.workers(NAME)}")
            entry: Manifest = history[0]
            return entry

        return eventually(there, within=within, says=f"the recycle is {' or '.join(phases)}")


def node(cluster: ControlPlane, number: int) -> RealNode:
    """A real node with two cards."""
    labels = fleet.card_labels(real_worker.CARD, count=2)
    return RealNode(
        cluster, name=f"l40s-{number}", address=netns.NODE_ADDRESSES[number], labels=labels, gpus=2
    )


def leaky(world: World, folder: str) -> Manifest:
    """Two workers whose engine is the stand-in, asked for as if it were vLLM."""
    raw = small(world, name=NAME, workers=2, recycling=RECYCLING, worker={"cpu": "100m"})
    raw["spec"]["model"]["uri"] = f"hostPath://{folder}"
    raw["spec"]["pools"][0] = {
        "name": "l40s",
        "engine": "vllm",
        "gpu": {"product": real_worker.CARD.product, "perWorker": 1},
    }
    raw["spec"]["engines"] = {"vllm": {"image": leaking.IMAGE, "release": "0.22.1"}}
    return raw


def steady(world: World, started: RealNode) -> Manifest:
    """One real llama-server."""
    raw: dict[str, Any] = real_worker.deployment(world.namespace, started.parts.model)
    raw["spec"] |= {"recycling": RECYCLING, "worker": {"cpu": "100m"}}
    return raw


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """Everyone ready and under load; one has begun to leak."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane())
        nodes = tuple(node(cluster, number) for number in range(2))
        for each in nodes:
            each.images = (*each.images, leaking.image())
            stack.enter_context(each)
        installed = Installation(cluster)
        installed.start(**SHORT)
        world = World(installed, "real-recycling")
        folder = cluster.dir / "model"
        folder.mkdir()
        world.apply(steady(world, nodes[0]), leaky(world, str(folder)))
        for name in (NAME, real_worker.NAME):
            world.await_condition(name, "Ready", "True", within=Patience.REAL_POD_READY)
        victim = min(world.pods(NAME), key=lambda pod: str(pod["metadata"]["name"]))
        client = Client(world, NAME)
        chatter = Chatter(Worker(world.pods(real_worker.NAME)[0]))
        leaking.behave(victim, leak_bytes=LEAK_PER_REQUEST, ttft_seconds=QUICK_TTFT)
        with (
            Repeated(client.ask, BETWEEN_REQUESTS),
            Repeated(client.ask, BETWEEN_REQUESTS),
            Repeated(chatter.say, BETWEEN_CHATS),
        ):
            yield Trial(world, nodes, client, chatter, victim)
        installed.stop()
        denied = installed.log.denied(USER)
        assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def test_a_real_kubelet_tells_the_operator_what_each_worker_holds(trial: Trial) -> None:
    def grows() -> bool:
        leaks, llama = trial.workers(NAME), trial.workers(real_worker.NAME)
        held = {pod: each.get("residentBytes", 0) for pod, each in (leaks | llama).items()}
        if len(held) < 3 or not all(held.values()):
            raise LookupError(held)
        return True

    eventually(grows, within=Patience.VERDICT_REACHED, says="each worker's memory is known")
    asked = {
        use
        for use in trial.world.installed.log.verbs_used(USER)
        if use.resource.startswith("nodes/")
    }
    assert {Use("", "nodes/stats", "get", name=each.name) for each in trial.nodes} == asked


def test_a_real_leak_is_growth_and_its_worker_is_drained_and_evicted_once(trial: Trial) -> None:
    eventually(
        lambda: trial.workers(NAME)[trial.victims_name]["residentBytes"] > SEEN_TO_LEAK,
        within=Patience.VERDICT_REACHED,
        says="the leak is seen",
    )
    leaking.behave(trial.victim, leak_bytes=LEAK_PER_REQUEST, ttft_seconds=SLOW_TTFT)
    entry = trial.await_phase("Draining", "Evicting", "Replacing", within=Patience.TWO_RECYCLES)
    assert (trial.victims_name, "Growth") == (entry["pod"], entry["reason"])
    eventually(
        lambda: trial.victims_name not in trial.client.endpoints(),
        within=Patience.CONDITION_SEEN,
        says="the Service leads to it no longer",
    )
    trial.await_phase("Done", within=Patience.RECYCLE_DONE + HOUR)
    written = [
        (request.use.verb, request.use.resource, request.use.name)
        for request in trial.world.quiet_writes()
        if request.use.resource.partition("/")[0] == "pods"
    ]
    assert [
        ("patch", "pods", trial.victims_name),
        ("create", "pods/eviction", trial.victims_name),
    ] == written
    assert 1 == trial.recycling()["total"]
    assert 2 == len(trial.client.endpoints())
    assert trial.victims_name not in trial.client.endpoints()


def test_no_request_failed_meanwhile(trial: Trial) -> None:
    answers = Counter(trial.client.answers)
    assert {"200"} == set(answers), answers
    assert answers["200"] > 100


def test_a_real_llama_server_under_load_is_steady(trial: Trial) -> None:
    assert "--cache-ram" in trial.chatter.worker.args

    def is_steady() -> bool:
        (worker,) = trial.workers(real_worker.NAME).values()
        if worker["verdict"] != "Steady":
            raise LookupError(worker)
        return True

    eventually(is_steady, within=Patience.VERDICT_REACHED, says="it is Steady")
    assert trial.chatter.tokens > 0
    (pod,) = trial.world.pods(real_worker.NAME)
    assert trial.chatter.worker.pod["metadata"]["uid"] == pod["metadata"]["uid"]
    assert not trial.world.object(real_worker.NAME)["status"].get("recycling", {}).get("total")
