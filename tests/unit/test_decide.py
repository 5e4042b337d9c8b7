"""What does one reconcile make of the stories?"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml

import scenes
import worlds
from plimsoll.facts.gpu import GpuProblem, Inventory, UnplannableNode


def test_the_mixed_fleet_gets_one_pool_per_gpu_type_and_one_service() -> None:
    desired = scenes.think(scenes.example("mixed-fleet"))
    kinds = [(each["kind"], each["metadata"]["name"]) for each in desired.apply]
    assert kinds == [
        ("Service", "llama-70b"),
        ("Deployment", "llama-70b-a6000-tp4"),
        ("PodDisruptionBudget", "llama-70b-a6000-tp4"),
        ("Deployment", "llama-70b-a6000-single"),
        ("PodDisruptionBudget", "llama-70b-a6000-single"),
    ]


def test_a_new_plan_starts_with_one_worker_and_goes_on_when_it_is_ready() -> None:
    raw = scenes.example("mixed-fleet")
    first = scenes.think(raw)
    assert {p: d["spec"]["replicas"] for p, d in scenes.deployments(first).items()} == {
        "a6000-tp4": 1,
        "a6000-single": 1,
    }
    raw, children = scenes.applied(raw, first)
    waiting = scenes.think(raw, children=children)
    assert scenes.deployments(waiting)["a6000-tp4"]["spec"]["replicas"] == 1
    then = scenes.think(raw, children=scenes.with_ready(children))
    assert scenes.deployments(then)["a6000-tp4"]["spec"]["replicas"] == 2


def test_what_does_not_fit_makes_no_worker_and_says_what_would() -> None:
    desired = scenes.think(scenes.example("edge-assistant"))
    assert [each["kind"] for each in desired.apply] == ["Service"]
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert (planned["status"], planned["reason"]) == ("False", "KvBudgetExceeded")
    assert "6 sequences of 8,192 tokens; 20 sequences of 2,560 tokens" in planned["message"]
    assert [event.reason for event in desired.events] == ["PlanRefused"]


def test_a_refused_change_leaves_running_workers_alone() -> None:
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 8192, "concurrency": 6})
    raw, children = scenes.applied(raw, scenes.think(raw))
    raw["spec"]["limits"]["concurrency"] = 20
    desired = scenes.think(
        raw, children=scenes.with_ready(children), workers=[scenes.worker("rtx4090")]
    )
    assert [each["kind"] for each in desired.apply] == ["Service"]
    assert desired.delete == ()
    assert desired.status is not None
    pool = desired.status["pools"][0]
    assert pool["plan"]["concurrency"]["maxNumSeqs"] == 6
    assert pool["refusal"]["reason"] == "KvBudgetExceeded"
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert "1 running worker(s) are left alone" in planned["message"]
    available = scenes.condition(desired, "Available")
    assert available is not None
    assert available["status"] == "True"


def test_a_pool_that_is_taken_out_of_the_spec_goes() -> None:
    raw = scenes.example("mixed-fleet")
    raw, children = scenes.applied(raw, scenes.think(raw))
    raw["spec"]["pools"] = raw["spec"]["pools"][:1]
    gone = scenes.think(raw, children=children).delete
    assert [(ref.kind, ref.name) for ref in gone] == [
        ("Deployment", "llama-70b-a6000-single"),
        ("PodDisruptionBudget", "llama-70b-a6000-single"),
    ]


def test_a_spec_that_cannot_be_read_touches_nothing_and_is_told() -> None:
    raw = scenes.example("mixed-fleet")
    raw, children = scenes.applied(raw, scenes.think(raw))
    raw["spec"]["limits"] = {"maxModelLen": "long"}
    desired = scenes.think(raw, children=children)
    assert desired.apply == ()
    assert desired.delete == ()
    stalled = scenes.condition(desired, "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "SpecInvalid"
    assert "spec.limits.maxModelLen: 'long'" in stalled["message"]
    assert desired.status is not None
    assert [pool["name"] for pool in desired.status["pools"]] == ["a6000-tp4", "a6000-single"]


def test_scaling_follows_the_pools_proportion() -> None:
    raw = scenes.example("mixed-fleet", replicas=6)
    raw, children = scenes.applied(raw, scenes.think(raw))
    desired = scenes.think(raw, children=scenes.with_ready(children))
    counts = {p: d["spec"]["replicas"] for p, d in scenes.deployments(desired).items()}
    assert counts == {"a6000-tp4": 4, "a6000-single": 2}


def test_scaling_to_zero_is_ready() -> None:
    raw = scenes.example("mixed-fleet", replicas=0)
    ready = scenes.condition(scenes.think(raw), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "ScaledToZero")


def _open_pools() -> dict[str, Any]:
    """The mixed fleet without pools: Plimsoll finds the GPU types."""
    return scenes.example("mixed-fleet", pools=[])


def test_without_pools_every_type_that_fits_gets_one_best_capacity_first() -> None:
    desired = scenes.think(_open_pools())
    assert desired.status is not None
    pools = desired.status["pools"]
    tokens = [pool["plan"]["kv"]["poolTokens"] for pool in pools]
    assert tokens == sorted(tokens, reverse=True)
    assert {pool["name"]: pool["gpuProduct"] for pool in pools} == {
        "rtx-a6000-x4": "NVIDIA-RTX-A6000",
        "h100-80gb-hbm3-x2": "NVIDIA-H100-80GB-HBM3",
        "rtx-4090-gguf": "NVIDIA-GeForce-RTX-4090",
    }


def test_a_node_of_a_new_type_brings_a_pool() -> None:
    small = scenes.fleet(("a6000-0", "rtx-a6000", 4))
    before = set(scenes.deployments(scenes.think(_open_pools(), small)))
    both = scenes.fleet(("a6000-0", "rtx-a6000", 4), ("h100-0", "h100-sxm", 8))
    after = set(scenes.deployments(scenes.think(_open_pools(), both)))
    assert before == {"rtx-a6000-x4"}
    assert after == {"rtx-a6000-x4", "h100-80gb-hbm3-x2"}


def test_nodes_out_of_sight_take_no_worker_down() -> None:
    raw, children = scenes.applied(_open_pools(), scenes.think(_open_pools()))
    desired = scenes.think(raw, scenes.fleet(), children=children)
    assert desired.delete == ()


def test_larger_nodes_out_of_sight_replace_no_pool() -> None:
    """Only a small node of the type is seen: the pool of four cards is refused, not taken down."""
    seen = scenes.fleet(("a6000-0", "rtx-a6000", 4), ("a6000-2", "rtx-a6000", 1))
    raw, children = scenes.applied(_open_pools(), scenes.think(_open_pools(), seen))
    desired = scenes.think(raw, scenes.fleet(("a6000-2", "rtx-a6000", 1)), children=children)
    assert desired.delete == ()
    assert scenes.deployments(desired) == {}
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert planned["reason"] == "NoGpuInReach"


def test_a_node_that_cannot_be_planned_for_is_named_in_status_and_condition() -> None:
    mixed = UnplannableNode(
        node="mixed-0",
        product="NVIDIA-RTX-A6000",
        problem=GpuProblem.AMBIGUOUS,
        message="several products.",
    )
    desired = scenes.think(scenes.example("mixed-fleet"), scenes.fleet(unplannable=[mixed]))
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert (planned["status"], planned["reason"]) == ("False", "GpuAmbiguous")
    assert desired.status is not None
    assert desired.status["unplannable"][0]["node"] == "mixed-0"


def test_a_flag_that_is_pinned_is_refused_by_name() -> None:
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 4096})
    raw["spec"]["pools"][0]["extraArgs"] = ["--max_model_len=8192"]
    planned = scenes.condition(scenes.think(raw), "Planned")
    assert planned is not None
    assert planned["reason"] == "FlagIsPinned"
    assert "--max-model-len" in planned["message"]


def test_a_missing_facts_map_is_named_with_the_command_that_makes_it() -> None:
    raw = scenes.example("edge-assistant")
    raw["spec"]["model"]["facts"] = {"configMap": {"name": "plant-facts"}}
    planned = scenes.condition(scenes.think(raw), "Planned")
    assert planned is not None
    assert planned["reason"] == "ModelUnknown"
    assert "--config-map plant-facts" in planned["message"]


def test_facts_of_a_map_are_used_and_a_contradiction_is_shown() -> None:
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 4096, "concurrency": 4})
    raw["spec"]["model"]["facts"] = {"configMap": {"name": "plant-facts"}}
    facts = worlds.model(worlds.EIGHT_B).to_json()
    facts["weights"]["totalBytes"] += 1_000_000
    desired = scenes.think(raw, facts_text=yaml.safe_dump({"model": facts}))
    assert desired.status is not None
    notes = desired.status["pools"][0]["plan"]["notes"]
    assert any("weights in bytes" in note and "the facts win" in note for note in notes)


def test_a_surge_is_used_only_where_a_card_is_free() -> None:
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 4096})
    raw, children = scenes.applied(raw, scenes.think(raw))
    raw["spec"]["limits"]["maxModelLen"] = 2048
    free = scenes.think(raw, scenes.fleet(("a", "rtx-4090", 2)), children=children)
    strategy = scenes.deployments(free)["rtx4090"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}
    taken = scenes.fleet(("a", "rtx-4090", 2))
    taken = taken.model_copy(
        update={"nodes": tuple(node.model_copy(update={"free": 0}) for node in taken.nodes)}
    )
    busy = scenes.think(raw, taken, children=children)
    strategy = scenes.deployments(busy)["rtx4090"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


def _surging() -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """A deployment whose last rollout began with a free card."""
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 4096})
    raw, children = scenes.applied(raw, scenes.think(raw))
    raw["spec"]["limits"]["maxModelLen"] = 2048
    free = scenes.fleet(("a", "rtx-4090", 2))
    return scenes.applied(raw, scenes.think(raw, free, children=children))


def _all_taken() -> Inventory:
    taken = scenes.fleet(("a", "rtx-4090", 2))
    return taken.model_copy(
        update={"nodes": tuple(node.model_copy(update={"free": 0}) for node in taken.nodes)}
    )


def test_a_new_image_asks_anew_whether_a_card_is_free() -> None:
    raw, children = _surging()
    raw["spec"]["engines"]["vllm"]["image"] = "registry.plant.local/vllm-openai:v0.22.1-patched"
    desired = scenes.think(raw, _all_taken(), children=children)
    strategy = scenes.deployments(desired)["rtx4090"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_surge_is_taken_back_when_its_card_is_gone() -> None:
    raw, children = _surging()

    def surge(**changes: Any) -> int:
        workers = [scenes.worker("rtx4090", **changes)]
        desired = scenes.think(raw, _all_taken(), children=children, workers=workers)
        found = scenes.deployments(desired)["rtx4090"]["spec"]["strategy"]["rollingUpdate"]
        return int(found["maxSurge"])

    assert surge() == 1
    assert surge(node=None, is_ready=False) == 0


@pytest.mark.parametrize("name", ["mixed-fleet", "chat-and-batch", "edge-assistant"])
def test_a_second_reconcile_of_the_same_world_says_the_same(name: str) -> None:
    raw = scenes.example(name)
    first = scenes.think(raw)
    raw, children = scenes.applied(raw, first)
    second = scenes.think(raw, children=children, now=scenes.NOON + 3600)
    assert second.apply == first.apply
    assert second.status == first.status
    assert second.events == ()
    assert second.delete == ()


def test_deciding_changes_nothing_it_was_given() -> None:
    raw = scenes.example("mixed-fleet")
    before = deepcopy(raw)
    scenes.think(raw)
    assert raw == before
