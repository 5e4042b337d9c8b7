"""The edge example as its user meets it: refused, then as the plan offers, with twenty people at once and one more.

API server, operator, HAProxy and keeper are real, and people use the `openai` package at the Service's address. The
card is a number on a fake node, and the engine is the stand-in of vLLM's scheduler, started with the flags of the
plan. It computes when the story lets it, so that twenty people surely are there together.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import openai
import pytest

from controlplane import netns
from controlplane.cluster import Manifest
from controlplane.haproxy import gate_possible
from gate_people import Heard, client, user, whole
from gate_played import PlayedGate
from gate_witness import page, samples
from installation import REPOSITORY, USER, Installation
from patience import Patience, eventually, stretched
from plimsoll.render.gateway_objects import PAGE_PORT
from stand_ins.background import Background
from stand_ins.batching import Card, Engine, Pinned
from stand_ins.engines import PORT
from stand_ins.pod_addresses import route
from stand_ins.service_address import ServiceOf
from world import World, args_of

pytestmark = [
    pytest.mark.skipif(not netns.inside(), reason="addresses of pods need a network namespace"),
    pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible())),
]
NAME: Final = "plant-assistant"
WORKERS: Final = "app.kubernetes.io/component=worker"
GATES: Final = "app.kubernetes.io/component=gateway"
PEOPLE: Final = 20
QUEUE: Final = 8
QUEUE_SECONDS: Final = 5
RETRY_SECONDS: Final = {"1", "2", "3"}
CARD: Final = Card(step_seconds=0.004)
CANARY: Final = "Quetzalcoatlus"
PROMPT_TOKENS: Final = 1500
ANSWER_TOKENS: Final = 400


class OneEngine(Background):
    """The stand-in of vLLM in the place of one fake pod, which computes unless it is held."""

    def __init__(self, pod: Manifest, pinned: Pinned) -> None:
        super().__init__("engine")
        self._address = str(pod["status"]["podIP"])
        name = str(pod["metadata"]["name"])
        self.engine = Engine(name, pinned, CARD, lane_tokens={"all": pinned.max_model_len})

    async def _start(self) -> None:
        await self.engine.serve(PORT, self._address)

    async def _stop(self) -> None:
        await self.engine.stop()

    def hold(self) -> None:
        """Not a token more until `go_on`: requests run and stay."""
        self._run(self.engine.turn.acquire())

    def go_on(self) -> None:
        """Compute."""
        self._loop.call_soon_threadsafe(self.engine.turn.release)


@dataclass(frozen=True)
class Edge:
    """All that stands, and the plan that its user took."""

    plan: dict[str, Any]
    gate: PlayedGate
    served: OneEngine
    url: str

    def queued(self) -> int:
        """Who waits at the gate."""
        text = page(self.gate.pod, PAGE_PORT, "/metrics")
        return int(sum(value for _, value in samples(text, "plimsoll_gate_queued")))

    def ask(self) -> Heard:
        """One person who fills what a request may have, streaming. Raises what the package raises."""
        text = f"{CANARY} ".ljust(4 * PROMPT_TOKENS, "a")
        with client(self.url, "none") as person:
            return whole(
                person.chat.completions.create(
                    model="llama-3-8b",
                    messages=user(text),
                    max_tokens=ANSWER_TOKENS,
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )


def printed_offers() -> list[dict[str, str]]:
    """What `plimsoll plan` offers to somebody who has only the example."""
    file = REPOSITORY / "docs" / "examples" / "edge-assistant.yaml"
    command = (sys.executable, "-m", "plimsoll.cli.main", "plan", "-f", file, "-o", "json")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    (pool,) = json.loads(ran.stdout)
    offers: list[dict[str, str]] = pool["outcome"]["offers"]
    return offers


def offered_length(world: World) -> int:
    """The example is refused, and says with which length it would not be."""
    world.apply(world.example("edge-assistant"))
    said = world.await_condition(NAME, "Planned", "False", reason="KvBudgetExceeded")["message"]
    (pool,) = world.object(NAME)["status"]["pools"]
    assert printed_offers() == pool["refusal"]["offers"]
    (offer,) = (each for each in printed_offers() if each["change"] == "limits.maxModelLen")
    assert offer["sentence"] in said
    assert f"{PEOPLE} sequences of {int(offer['value']):,} tokens" == offer["sentence"]
    return int(offer["value"])


def its_gate(world: World) -> Manifest:
    """The gate's pod, once it is the door and is told its worker."""

    def seen() -> Manifest:
        (pod,) = world.items(":pods", GATES)
        said = dict(world.object(NAME)["status"].get("gateway") or {})
        if (said.get("readyGates"), said.get("isDoor")) != (1, True):
            raise LookupError(said)
        return pod

    return eventually(seen, within=Patience.POOL_ROLLOUT, says="the gate is the door")


@pytest.fixture(scope="module")
def edge(plimsoll: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    plimsoll.stop()
    plimsoll.start(PLIMSOLL_INSPECTION_IMAGE="plimsoll/plimsoll:story")
    world = World(plimsoll, "edge")
    with ExitStack() as stack:
        route("replace")
        stack.callback(route, "delete")
        asked = world.example("edge-assistant")
        asked["spec"]["limits"]["maxModelLen"] = length = offered_length(world)
        world.apply(asked)
        world.await_ready(NAME, 1)
        (worker,) = world.items(":pods", WORKERS)
        (deployment,) = (
            each for name, each in world.deployments().items() if name.endswith("rtx4090")
        )
        args = args_of(deployment)
        assert str(length) == args[args.index("--max-model-len") + 1]
        (pool,) = world.object(NAME)["status"]["pools"]
        pinned = Pinned(
            kv_tokens=pool["plan"]["kv"]["poolTokens"],
            max_num_seqs=int(args[args.index("--max-num-seqs") + 1]),
            max_model_len=length,
        )
        served = stack.enter_context(OneEngine(worker, pinned))
        folder = tmp_path_factory.mktemp("edge")
        gate = stack.enter_context(PlayedGate(its_gate(world), folder))
        service = stack.enter_context(ServiceOf(world, NAME))
        yield Edge(pool["plan"], gate, served, service.url)
    world.leave()
    plimsoll.stop()
    denied = plimsoll.log.denied(USER, since_seconds=world.started)
    assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def refused(answer: Future[Heard]) -> openai.RateLimitError:
    """What a person is told who is turned away."""
    error = answer.exception(timeout=stretched(Patience.CHAT_ANSWER))
    assert isinstance(error, openai.RateLimitError), error or answer.result()
    return error


def told(error: openai.RateLimitError) -> tuple[Any, ...]:
    """Status, and the parts of an OpenAI error."""
    body: Any = error.body
    return error.status_code, error.type, error.code, error.param, body["lane"]


def test_the_plan_and_the_gate_promise_twenty(edge: Edge) -> None:
    assert PEOPLE == edge.plan["concurrency"]["maxNumSeqs"]
    state = json.loads(page(edge.gate.pod, PAGE_PORT, "/state"))
    assert [[PEOPLE]] == list(state["held"].values())


def test_the_21st_is_turned_away_with_429_and_the_20_others_are_answered_in_full(
    edge: Edge,
) -> None:
    engine = edge.served.engine
    edge.served.hold()
    with ThreadPoolExecutor(PEOPLE + QUEUE + 1) as people:
        try:
            twenty = [people.submit(edge.ask) for _ in range(PEOPLE)]
            eventually(
                lambda: engine.in_flight == PEOPLE,
                within=Patience.STAND_IN_ANSWER,
                says="twenty run",
            )
            began = time.monotonic()
            waited = [people.submit(edge.ask)]
            error = refused(waited[0])
            assert time.monotonic() - began >= QUEUE_SECONDS
            assert (429, "rate_limit_error", "queue_wait", None, "all") == told(error)
            assert error.response.headers["retry-after"] in RETRY_SECONDS

            waiting = [people.submit(edge.ask) for _ in range(QUEUE)]
            eventually(
                lambda: edge.queued() == QUEUE,
                within=Patience.STAND_IN_ANSWER,
                says=f"{QUEUE} more wait",
            )
            error = refused(people.submit(edge.ask))
            assert (429, "rate_limit_error", "queue_full", None, "all") == told(error)
            assert error.response.headers["retry-after"] in RETRY_SECONDS
            reasons = Counter(refused(each).code for each in waiting)
            assert {"queue_wait": QUEUE} == reasons
            assert [False] * PEOPLE == [each.done() for each in twenty]
        finally:
            edge.served.go_on()
        heard = [each.result(timeout=stretched(Patience.CHAT_ANSWER)) for each in twenty]
    assert {("", ANSWER_TOKENS)} == {(each.problem, each.tokens) for each in heard}
    assert PEOPLE == engine.peaks.in_flight == engine.answered
    assert engine.peaks.promised_tokens <= edge.plan["kv"]["poolTokens"]
    assert 0 == engine.preempted
    assert ANSWER_TOKENS == edge.ask().tokens


def test_who_waited_was_told_in_time_and_nothing_private_is_in_a_log(edge: Edge) -> None:
    """HAProxy's own clock: a busy machine does not stretch it."""

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in re.findall(r"\{.*\}", edge.gate.logged())]
        return [each for each in found if each.get("lane") == "all"]

    counts = eventually(
        lambda: (
            found
            if sum(
                (found := Counter((each["status"], each["reason"]) for each in lines())).values()
            )
            >= PEOPLE + QUEUE + 3
            else None
        ),
        within=Patience.FIGURE_SEEN,
        says="all lines are written",
    )
    assert {
        (200, "-"): PEOPLE + 1,
        (429, "queue_wait"): QUEUE + 1,
        (429, "queue_full"): 1,
    } == dict(counts or {})
    waits = [each["waited_ms"] for each in lines() if each["reason"] == "queue_wait"]
    assert all(1000 * QUEUE_SECONDS <= wait < 1000 * (QUEUE_SECONDS + 1) for wait in waits), waits
    assert CANARY not in edge.gate.logged()
