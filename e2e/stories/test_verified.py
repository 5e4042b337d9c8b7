"""Is a plan that promises too much caught by what its first engine says, before a second worker starts?

The engines here do vLLM's own sum with the weights that the model really has; the facts of the lying objects
say half of them.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from controlplane.cluster import Manifest
from installation import USER, Installation
from objects import EIGHT_B, small
from patience import Patience, eventually
from plimsoll.catalog.models import find_model
from plimsoll.facts.model import ModelFacts
from stand_ins.engines import Behaviour, FakeEngines
from world import World, args_of

pytestmark = pytest.mark.skipif(
    FakeEngines.why_not() is not None, reason=str(FakeEngines.why_not())
)

PATIENT: Final = {"PLIMSOLL_VERIFY_SECONDS": "0.5", "PLIMSOLL_VERIFY_GRACE_SECONDS": "600"}
"""Silence releases nobody here: only what an engine says does."""
REST_BYTES: Final = 4 << 30
"""Activation, collectives and graphs of the engines."""
BLOCK_BYTES: Final = 32 * 8 * 128 * 2 * 2 * 16
"""32 layers of 8 heads of 128, keys and values of two bytes, 16 tokens."""
LIED: Final = "lied"
HONEST: Final = "honest"
_SCALED: Final = re.compile(r"Scaled up replica set (\S+)(?: from \d+)? to (\d+)")


def eight_b() -> ModelFacts:
    """The model as it is."""
    found = find_model(EIGHT_B)
    assert isinstance(found, ModelFacts)
    return found


class Engines:
    """Engines of a card with so many usable bytes."""

    def __init__(self) -> None:
        self.usable_bytes = 0

    def behave(self, pod: Mapping[str, Any]) -> Behaviour | None:
        """Nothing is said before the card is known."""
        if not self.usable_bytes:
            return None
        args = pod["spec"]["containers"][0]["args"]
        share = args[args.index("--gpu-memory-utilization") + 1]
        pool = math.ceil(self.usable_bytes * float(share))
        pool -= eight_b().weights.total_bytes + REST_BYTES
        labels = {
            "block_size": "16",
            "cache_dtype": "auto",
            "gpu_memory_utilization": share,
            "kv_cache_memory_bytes": "None",
            "num_gpu_blocks": str(pool // BLOCK_BYTES),
            "num_gpu_blocks_override": "None",
        }
        return Behaviour(running=0, requests_per_second=0, cache_config=labels)


@pytest.fixture(scope="module")
def trial(plimsoll: Installation) -> Iterator[World]:
    """Both objects applied, engines that can be read, and an operator that waits for what they say."""
    plimsoll.stop()
    truth = Engines()
    with FakeEngines(plimsoll.cluster, truth.behave):
        plimsoll.start(kubeconfig=None, **PATIENT)
        world = World(plimsoll, "verified")
        world.apply(lying(world, LIED, workers=3), small(world, HONEST, workers=2))
        plan = eventually(
            lambda: pool(world, LIED)["plan"], within=Patience.PLAN_WRITTEN, says="there is a plan"
        )
        truth.usable_bytes = plan["cardBytes"] - owned(plan, "Driver")
        yield world
        world.leave()
        plimsoll.stop()
        denied = plimsoll.log.denied(USER, since_seconds=world.started)
        assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def lying(world: World, name: str, workers: int, length: int = 8192) -> Manifest:
    """The small object with facts that say half of the weights."""
    facts = eight_b()
    weights = facts.weights.model_copy(update={"total_bytes": facts.weights.total_bytes // 2})
    told = facts.model_copy(update={"weights": weights}).to_json()
    raw = small(world, name, workers, limits={"maxModelLen": length})
    raw["spec"]["model"]["facts"] = {"inline": {"model": told}}
    return raw


def owned(plan: Mapping[str, Any], *owners: str) -> int:
    """Bytes of a plan's ledger."""
    return sum(line["bytes"] for line in plan["ledger"] if line["owner"] in owners)


def pool(world: World, name: str) -> dict[str, Any]:
    """The pool's status."""
    (found,) = world.object(name)["status"]["pools"]
    return dict(found)


def sequences_of(args: Sequence[str]) -> int:
    """max_num_seqs in arguments, by which a plan is told from another here."""
    return int(args[args.index("--max-num-seqs") + 1])


def most_workers(world: World, name: str) -> dict[int, int]:
    """By max_num_seqs, the most workers that the controllers ever asked for at once."""
    sequences = {
        each["metadata"]["name"]: sequences_of(args_of(each))
        for each in world.items("apps/v1:replicasets")
        if each["metadata"]["name"].startswith(f"{name}-")
    }
    most: dict[int, int] = defaultdict(int)
    for event in world.items(":events"):
        match = _SCALED.search(event.get("message") or "")
        if match and match[1] in sequences:
            count = sequences[match[1]]
            most[count] = max(most[count], int(match[2]))
    return dict(most)


def reasons(world: World, name: str) -> list[str]:
    """Reasons of the events about the object."""
    return [
        each["reason"]
        for each in world.items(":events")
        if each["involvedObject"].get("name") == name
        and each["involvedObject"]["kind"] == "InferenceDeployment"
    ]


def test_verified_a_lie_is_caught_before_the_second_worker(trial: World) -> None:
    wrong = pool(trial, LIED)["plan"]["concurrency"]["maxNumSeqs"]
    told = trial.await_condition(LIED, "PlanVerified", "False", reason="HoldsLess")
    assert "less than promised" in told["message"]
    trial.await_condition(LIED, "PlanVerified", "True", reason="AsPlanned")
    trial.await_ready(LIED, 3)
    found = pool(trial, LIED)
    right = found["plan"]["concurrency"]["maxNumSeqs"]
    assert right < wrong
    assert {wrong: 1, right: 3} == most_workers(trial, LIED)
    assert 1 == found["verified"]["ceiling"]["lowered"]
    assert 1.0 >= found["verified"]["errorPercent"] >= -8.0
    assert 1 == reasons(trial, LIED).count("EngineHoldsLess")


def test_verified_what_was_learnt_is_kept(trial: World) -> None:
    trial.await_condition(HONEST, "PlanVerified", "True")
    plan = pool(trial, HONEST)["plan"]
    bound = owned(plan, "ActivationPeak", "Collectives", "CudaGraphs")

    def kept() -> dict[str, Any]:
        text = trial.get(":configmaps/plimsoll-calibration")["data"]["calibration.json"]
        (entry,) = [each for each in json.loads(text)["entries"] if each["boundBytes"] == bound]
        return dict(entry)

    entry = eventually(kept, within=Patience.PLAN_WRITTEN, says="what was seen is kept")
    assert 0 <= entry["measuredBytes"] - REST_BYTES < BLOCK_BYTES
    assert ("NVIDIA-H100-80GB-HBM3", "0.22.1", 1) == (
        entry["gpu"],
        entry["release"],
        entry["cards"],
    )


def test_verified_a_rollout_over_running_workers_stops_at_its_first(trial: World) -> None:
    trial.await_ready(HONEST, 2)
    trial.apply(lying(trial, HONEST, workers=2, length=4096))

    def lowered() -> dict[str, Any]:
        found = pool(trial, HONEST)
        assert found["verified"]["ceiling"]["length"] == 4096
        return found

    found = eventually(lowered, within=Patience.POOL_ROLLOUT, says="the plan was lowered")
    trial.await_condition(HONEST, "PlanVerified", "True", within=Patience.POOL_ROLLOUT)
    right = found["plan"]["concurrency"]["maxNumSeqs"]
    most = most_workers(trial, HONEST)
    (wrong,) = [sequences for sequences in most if sequences > right]
    assert 1 == most[wrong]
