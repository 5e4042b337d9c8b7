"""What happens to workers over the life of an object: scaling, drift, change, refusal, deletion."""

from __future__ import annotations

import json
import time

from controlplane import fleet
from controlplane.cluster import Manifest
from objects import small
from patience import Patience, eventually, steadily
from world import World, args_of, with_args


def test_kubectl_scale_works_in_both_directions(world: World) -> None:
    world.apply(small(world))
    world.await_ready("small", 2)
    world.kubectl("scale", "inferencedeployment/small", "--replicas=4")
    world.await_ready("small", 4)
    assert world.object("small")["status"]["replicas"] == 4
    scale = json.loads(world.kubectl("get", "--raw", _scale_path(world, "small")))
    assert scale["status"]["replicas"] == 4
    assert scale["status"]["selector"].startswith("app.kubernetes.io/component=worker")
    world.kubectl("scale", "inferencedeployment/small", "--replicas=1")
    world.await_ready("small", 1)
    world.kubectl("scale", "inferencedeployment/small", "--replicas=0")
    world.await_condition("small", "Ready", "True", reason="ScaledToZero")
    eventually(lambda: not world.pods("small"), within=Patience.POD_GONE, says="no pod is left")


def _scale_path(world: World, name: str) -> str:
    base = "/apis/plimsoll.dev/v1alpha1/namespaces"
    return f"{base}/{world.namespace}/inferencedeployments/{name}/scale"


def test_flags_changed_by_hand_are_put_back(world: World) -> None:
    world.apply(small(world, workers=1))
    world.await_ready("small", 1)
    live = world.deployments()["small-h100"]
    pinned = args_of(live)
    changed = with_args(live, [*pinned[:-1], "--max-num-seqs", "9999"])
    world.cluster.request(
        "PATCH",
        f"/apis/apps/v1/namespaces/{world.namespace}/deployments/small-h100",
        {"spec": {"template": {"spec": changed["spec"]["template"]["spec"]}}},
    )
    eventually(
        lambda: args_of(world.deployments()["small-h100"]) == pinned,
        within=Patience.PLAN_WRITTEN,
        says="the pinned flags are back",
    )


def test_environment_added_by_hand_is_taken_out(world: World) -> None:
    world.apply(small(world, workers=1))
    world.await_ready("small", 1)

    def names() -> list[str]:
        pod = world.deployments()["small-h100"]["spec"]["template"]["spec"]
        return [each["name"] for each in pod["containers"][0].get("env", [])]

    before = names()
    world.kubectl("set", "env", "deployment/small-h100", "VLLM_PP_LAYER_PARTITION=1,2")
    assert "VLLM_PP_LAYER_PARTITION" in names() or names() == before
    eventually(lambda: names() == before, within=Patience.PLAN_WRITTEN, says="the variable is gone")


def test_children_deleted_by_hand_come_back(world: World) -> None:
    world.apply(small(world, workers=1))
    world.await_ready("small", 1)
    world.kubectl("delete", "service/small", "pdb/small-h100", "deployment/small-h100")
    eventually(
        lambda: (
            world.items(":services")
            and world.items("policy/v1:poddisruptionbudgets")
            and "small-h100" in world.deployments()
        ),
        within=Patience.PLAN_WRITTEN,
        says="Service, budget and Deployment are back",
    )
    world.await_ready("small", 1)


def test_workers_scaled_by_hand_are_counted_back(world: World) -> None:
    world.apply(small(world))
    world.await_ready("small", 2)
    world.kubectl("scale", "deployment/small-h100", "--replicas=5")
    world.await_ready("small", 2)


def test_a_refused_change_keeps_workers_and_says_so(world: World) -> None:
    world.apply(small(world))
    world.await_ready("small", 2)
    before = {pod["metadata"]["uid"] for pod in world.pods("small")}
    world.apply(small(world, limits={"maxModelLen": 8192, "concurrency": 2000}))
    planned = world.await_condition("small", "Planned", "False", reason="KvBudgetExceeded")
    assert "2 running worker(s) are left alone" in planned["message"]
    steadily(
        lambda: {pod["metadata"]["uid"] for pod in world.pods("small")} == before,
        during=Patience.NOTHING_HAPPENS,
        says="the same workers run",
    )
    assert world.condition("small", "Available")["status"] == "True"
    assert world.condition("small", "Stalled")["status"] == "True"
    world.apply(small(world))
    world.await_ready("small", 2)
    assert {pod["metadata"]["uid"] for pod in world.pods("small")} == before


def test_a_changed_plan_reaches_one_worker_first(world: World) -> None:
    slow = {"annotations": {"fake.plimsoll.test/ready-after": "4s"}}
    world.apply(small(world, workers=3))
    world.await_ready("small", 3)
    old = {pod["metadata"]["uid"] for pod in world.pods("small")}
    world.apply(small(world, workers=3, limits={"maxModelLen": 4096}, worker=slow))

    def changed() -> list[Manifest]:
        return [pod for pod in world.pods("small") if pod["metadata"]["uid"] not in old]

    eventually(changed, within=Patience.PLAN_WRITTEN, says="a worker has the new plan")
    most = 0
    while not _all_changed(world, old):
        unready = [pod for pod in changed() if not _is_ready(pod)]
        most = max(most, len(unready))
        assert len(unready) <= 1, "a second worker was changed before the first was ready"
    assert most == 1
    world.await_ready("small", 3)


def _all_changed(world: World, old: set[str]) -> bool:
    alive = [pod for pod in world.pods("small") if "deletionTimestamp" not in pod["metadata"]]
    ready = [pod for pod in alive if _is_ready(pod) and pod["metadata"]["uid"] not in old]
    return len(ready) == 3


def _is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_a_plan_that_never_gets_ready_stops_at_one_worker(world: World) -> None:
    world.apply(small(world, workers=3))
    world.await_ready("small", 3)
    stuck = {"annotations": {"fake.plimsoll.test/never-ready": "true"}}
    world.apply(small(world, workers=3, limits={"maxModelLen": 4096}, worker=stuck))
    world.await_condition("small", "Ready", "False", reason="RollingOut")
    eventually(
        lambda: sum(_is_ready(pod) for pod in world.pods("small")) >= 2,
        within=Patience.CONDITION_SEEN,
        says="the others serve",
    )
    steadily(
        lambda: sum(_is_ready(pod) for pod in world.pods("small")) >= 2,
        during=Patience.NOTHING_HAPPENS,
        says="two of three workers serve with the old plan",
    )


def test_a_pool_taken_out_of_the_spec_goes(world: World) -> None:
    raw = small(world, workers=2)
    raw["spec"]["pools"].append(
        {"name": "again", "engine": "vllm", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
    )
    world.apply(raw)
    world.await_ready("small", 2)
    assert set(world.deployments()) == {"small-h100", "small-again"}
    world.apply(small(world, workers=2))
    eventually(
        lambda: set(world.deployments()) == {"small-h100"},
        within=Patience.PLAN_WRITTEN,
        says="the pool is gone",
    )
    world.await_ready("small", 2)
    budgets = [each["metadata"]["name"] for each in world.items("policy/v1:poddisruptionbudgets")]
    assert budgets == ["small-h100"]


def test_a_node_of_a_new_type_brings_a_pool(world: World) -> None:
    raw = small(world, workers=1)
    del raw["spec"]["pools"]
    world.apply(raw)
    world.await_condition("small", "Planned", "True")
    before = {pool["gpuProduct"] for pool in world.object("small")["status"]["pools"]}
    assert "NVIDIA-L40S" not in before
    world.cluster.add_nodes(fleet.l40s_x4("l40s-0"))
    try:
        eventually(
            lambda: (
                "NVIDIA-L40S"
                in {pool["gpuProduct"] for pool in world.object("small")["status"]["pools"]}
            ),
            within=Patience.PLAN_WRITTEN,
            says="the L40S node has a pool",
        )
        assert "small-l40s" in world.deployments()
    finally:
        world.cluster.kubectl("delete", "node", "l40s-0")


def test_nodes_that_cannot_be_planned_for_are_named_with_the_reason(world: World) -> None:
    odd = {
        "mixed-0": (fleet.mixed_products, "GpuAmbiguous"),
        "invalid-0": (fleet.mig_invalid, "MigInvalid"),
        "sliced-0": (fleet.time_sliced, "GpuTimeSliced"),
    }
    world.cluster.add_nodes(*(make(name) for name, (make, _) in odd.items()))
    try:
        world.apply(small(world, workers=1))

        def reasons() -> dict[str, str]:
            unplannable = world.object("small").get("status", {}).get("unplannable", [])
            return {each["node"]: each["reason"] for each in unplannable}

        eventually(
            lambda: (
                {name: reasons().get(name) for name in odd}
                == {name: reason for name, (_, reason) in odd.items()}
            ),
            within=Patience.PLAN_WRITTEN,
            says="each odd node is named with its reason",
        )
        planned = world.condition("small", "Planned")
        assert planned["status"] == "True"
        assert "Node sliced-0 is not planned for" in planned["message"]
        sliced = small(world, name="sliced", workers=1)
        sliced["spec"]["pools"][0]["gpu"]["product"] = fleet.time_sliced("x")["metadata"]["labels"][
            "nvidia.com/gpu.product"
        ]
        world.apply(sliced)
        world.await_condition("sliced", "Planned", "False", reason="GpuTimeSliced")
    finally:
        world.cluster.kubectl("delete", "node", *odd)


def test_facts_of_an_agent_win_over_labels(world: World) -> None:
    """GPUNode says that something else holds 30 GiB of each card on the only H100 node."""
    world.apply(small(world, workers=1))
    world.await_ready("small", 1)
    first = world.object("small")["status"]["pools"][0]["plan"]
    node = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": "h100-0"},
    }
    world.apply(node)
    card = {
        "product": "NVIDIA-H100-80GB-HBM3",
        "totalBytes": 81559 * 2**20,
        "reservedBytes": 480 * 2**20,
        "heldByOthersBytes": 30 * 2**30,
    }
    cards = [{"uuid": f"GPU-{number}", **card} for number in range(8)]
    code, answer = world.cluster.request(
        "PATCH",
        "/apis/plimsoll.dev/v1alpha1/gpunodes/h100-0/status",
        {"status": {"cards": cards}},
    )
    assert code == 200, answer
    try:

        def sources() -> set[str]:
            plan = world.object("small")["status"]["pools"][0]["plan"]
            return {each["source"] for each in plan["provenance"]}

        eventually(
            lambda: "Agent" in sources(),
            within=Patience.PLAN_WRITTEN,
            says="the plan goes by the agent's facts",
        )
        plan = world.object("small")["status"]["pools"][0]["plan"]
        assert plan["kv"]["poolTokens"] < first["kv"]["poolTokens"]
    finally:
        world.cluster.kubectl("delete", "gpunode", "h100-0")


def test_facts_of_a_config_map_are_read(world: World) -> None:
    raw = small(world, workers=1)
    raw["spec"]["model"]["facts"] = {"configMap": {"name": "facts"}}
    world.apply(raw)
    planned = world.await_condition("small", "Planned", "False", reason="ModelUnknown")
    assert "ConfigMap facts" in planned["message"]


def test_pinned_flags_in_extra_args_are_refused_by_name(world: World) -> None:
    raw = small(world, workers=1)
    raw["spec"]["pools"][0]["extraArgs"] = ["--gpu_memory_util", "0.99"]
    world.apply(raw)
    planned = world.await_condition("small", "Planned", "False", reason="FlagIsPinned")
    assert "--gpu-memory-utilization" in planned["message"]
    assert world.deployments() == {}


def test_nothing_of_the_users_object_is_written_but_status(world: World) -> None:
    started = time.time()
    world.apply(small(world))
    world.await_ready("small", 2)
    seen = world.object("small")
    assert "finalizers" not in seen["metadata"]
    assert "labels" not in seen["metadata"]
    assert set(seen["metadata"].get("annotations", {})) <= {
        "kubectl.kubernetes.io/last-applied-configuration"
    }
    managers = {
        (entry["manager"], entry.get("subresource", ""))
        for entry in seen["metadata"]["managedFields"]
    }
    assert managers == {("kubectl-client-side-apply", ""), ("plimsoll-status", "status")}
    written = {
        request.use.resource
        for request in world.writes(started)
        if request.use.resource.startswith("inferencedeployments")
    }
    assert written == {"inferencedeployments/status"}
