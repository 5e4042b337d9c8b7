"""The three examples, as users apply them, on a real API server with a mixed fleet."""

from __future__ import annotations

import pytest

from world import World, args_of


def value_of(args: list[str], flag: str) -> str:
    """The word after a flag."""
    return args[args.index(flag) + 1]


def test_mixed_fleet_lands_on_both_kinds_of_pool(world: World) -> None:
    world.apply(world.example("mixed-fleet"))
    world.await_ready("llama-70b", 3)
    pods = world.pods("llama-70b")
    nodes = {
        pod["metadata"]["labels"]["plimsoll.dev/pool"]: pod["spec"]["nodeName"] for pod in pods
    }
    assert nodes["a6000-tp4"] in {"a6000-0", "a6000-1"}
    assert nodes["a6000-single"].startswith("a6000-")
    vllm = args_of(world.deployments()["llama-70b-a6000-tp4"])
    assert value_of(vllm, "--tensor-parallel-size") == "4"
    assert value_of(vllm, "--max-model-len") == "16384"
    assert value_of(vllm, "--gpu-memory-utilization") == "0.950"
    assert "--swap-space" not in vllm
    llama = args_of(world.deployments()["llama-70b-a6000-single"])
    assert 50 < int(value_of(llama, "--n-gpu-layers")) < 80
    planned = world.condition("llama-70b", "Planned")
    assert planned["status"] == "True"
    assert "8 sequences of 16,384 tokens at 16 bit (17 at fp8)" in planned["message"]
    columns = world.kubectl("get", "infd", "llama-70b").split()
    assert columns[-1].endswith(("s", "m"))
    assert "AllWorkersReady" in columns


def test_edge_assistant_is_refused_with_both_ways_out(world: World) -> None:
    world.apply(world.example("edge-assistant"))
    planned = world.await_condition(
        "plant-assistant", "Planned", "False", reason="KvBudgetExceeded"
    )
    assert "6 sequences of 8,192 tokens; 20 sequences of 2,560 tokens" in planned["message"]
    assert world.deployments() == {}
    assert world.condition("plant-assistant", "Stalled")["status"] == "True"
    events = world.items(":events")
    assert "PlanRefused" in {event["reason"] for event in events}


def test_chat_and_batch_share_one_set_of_weights(world: World) -> None:
    world.apply(world.example("chat-and-batch"))
    world.await_ready("shared-70b", 2)
    assert {pod["spec"]["nodeName"] for pod in world.pods("shared-70b")} == {"h100-0"}
    args = args_of(world.deployments()["shared-70b-h100-tp2"])
    assert value_of(args, "--max-model-len") == "32768"


@pytest.mark.parametrize("name", ["Planned", "PlanVerified", "Available", "MemoryStable", "Ready"])
def test_every_condition_of_the_design_is_there(world: World, name: str) -> None:
    world.apply(world.example("edge-assistant"))
    world.await_condition("plant-assistant", "Planned", "False")
    assert world.condition("plant-assistant", name)["message"]
