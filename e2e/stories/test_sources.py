"""Who is believed about a card: labels, then ResourceSlices, then the user's own table; and who differed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controlplane import fleet
from controlplane.cluster import Manifest
from installation import CHART, RELEASE
from objects import small
from patience import Patience, eventually
from world import World

L40S: Final = "NVIDIA-L40S"
NODE: Final = "l40s-0"
MIB: Final = 2**20
BY_LABELS_MIB: Final = 46068
BY_SLICE_MIB: Final = 43000
BY_TABLE_MIB: Final = 36864


@pytest.fixture
def on_l40s(world: World) -> Iterator[World]:
    """The world with a node of L40S beside the others, and no word but its labels."""
    world.cluster.add_nodes(fleet.l40s_x4(NODE))
    yield world
    world.kubectl("delete", "infd", "--all", "--timeout=20s")
    eventually(
        lambda: not world.pods(), within=Patience.POD_GONE, says="the node's pods have gone first"
    )
    world.cluster.kubectl("delete", "resourceslices", "--all", "--wait=false")
    world.cluster.kubectl("delete", "gpunode", NODE, "--ignore-not-found")
    world.cluster.kubectl("delete", "node", NODE)
    world.installed.stop()


def resource_slice(
    name: str, *devices: str, mib: int = BY_SLICE_MIB, generation: int = 1, slices: int = 1
) -> Manifest:
    """A word of NVIDIA's DRA driver on the node, as it writes it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": generation, "resourceSliceCount": slices},
            "devices": [
                {
                    "name": device,
                    "attributes": {
                        "type": {"string": "gpu"},
                        "uuid": {"string": f"GPU-{device}"},
                        "productName": {"string": "NVIDIA L40S"},
                        "cudaComputeCapability": {"version": "8.9.0"},
                        "driverVersion": {"version": "580.105.8"},
                    },
                    "capacity": {"memory": {"value": f"{mib}Mi"}},
                }
                for device in devices
            ],
        },
    }


def on_cards(world: World, name: str = "small") -> Manifest:
    """An 8B model on one L40S."""
    pool = {"name": "l40s", "engine": "vllm", "gpu": {"product": L40S, "perWorker": 1}}
    return small(world, name, workers=1, pools=[pool])


def planned_mib(world: World, name: str) -> tuple[int, str]:
    """The card that the plan is for, and who told it."""
    plan: dict[str, Any] = world.object(name)["status"]["pools"][0]["plan"]
    sources = {each["source"] for each in plan["provenance"]}
    return plan["cardBytes"] // MIB, " ".join(sorted(sources))


def await_card(world: World, name: str, mib: int, source: str) -> None:
    """Wait until the plan is for a card of this size, told by this source."""

    def seen() -> bool:
        found = planned_mib(world, name)
        if found[0] != mib or source not in found[1]:
            raise LookupError(str(found))
        return True

    eventually(seen, within=Patience.CONDITION_SEEN, says=f"{name} is planned for {mib} MiB")


def await_told(world: World, name: str, *words: str) -> None:
    """Wait until Planned says all these words."""

    def told() -> bool:
        message = str(world.condition(name, "Planned")["message"])
        if missing := [word for word in words if word not in message]:
            raise LookupError(f"{missing} not in {message}")
        return True

    eventually(told, within=Patience.CONDITION_SEEN, says=f"{name} says {words}")


def table_by_helm(world: World, folder: Path) -> Path:
    """The user's table as the chart hands it to the operator: from values to the mounted file."""
    values = folder / "values.yaml"
    row = {"product": L40S, "nodeSelector": {"kubernetes.io/hostname": NODE}}
    values.write_text(yaml.safe_dump({"gpuTypes": [row | {"total": f"{BY_TABLE_MIB}Mi"}]}))
    text = world.cluster.helm("template", RELEASE, CHART, "-f", values).stdout
    objects = [each for each in yaml.safe_load_all(text) if each]
    maps = [each for each in objects if each["kind"] == "ConfigMap"]
    (found,) = [each for each in maps if each["metadata"]["name"].endswith("-gpu-types")]
    pod = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]
    assert "plimsoll.dev/gpu-types" in pod["metadata"]["annotations"]
    variables = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
    path = variables["PLIMSOLL_GPU_TYPES_FILE"]["value"]
    mounted = folder / Path(path).name
    mounted.write_text(found["data"][mounted.name])
    return mounted


def test_slices_go_before_labels_the_table_before_both_and_differences_are_told(
    on_l40s: World, tmp_path: Path
) -> None:
    world = on_l40s
    world.apply(on_cards(world))
    await_card(world, "small", BY_LABELS_MIB, "NodeLabels")

    # Half of a pool says nothing; the whole of it is believed, heard by the watch, and told.
    world.cluster.apply(resource_slice("a", "gpu-0", "gpu-1", slices=2))
    world.cluster.apply(resource_slice("b", "gpu-2", "gpu-3", slices=2))
    await_told(world, "small", f"{BY_SLICE_MIB:,} MiB", f"{BY_LABELS_MIB:,} MiB", "ResourceSlice")
    await_card(world, "small", BY_SLICE_MIB, "ResourceSlice")

    # A newer generation that is not whole yet: the labels speak again, and the plan that fits stays.
    world.cluster.apply(resource_slice("c", "gpu-0", mib=9999, generation=2, slices=2))
    world.apply(on_cards(world, "late"))
    await_card(world, "late", BY_LABELS_MIB, "NodeLabels")
    assert BY_SLICE_MIB == planned_mib(world, "small")[0]
    world.cluster.kubectl("delete", "resourceslice", "c")

    # The user's own table, by way of the chart's values.
    world.installed.stop()
    world.installed.start(PLIMSOLL_GPU_TYPES_FILE=str(table_by_helm(world, tmp_path)))
    await_told(world, "small", f"{BY_TABLE_MIB:,} MiB", f"{BY_SLICE_MIB:,} MiB", "your table")
    await_card(world, "small", BY_TABLE_MIB, "Profile")


def agent_says(world: World, heartbeat_seconds: float) -> None:
    """The GPUNode of the node as its agent left it at that time."""
    name = {"metadata": {"name": NODE}}
    world.cluster.apply({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "GPUNode", **name})
    beat = datetime.fromtimestamp(heartbeat_seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    card = {"product": L40S, "totalBytes": BY_LABELS_MIB * MIB, "reservedBytes": 609 * MIB}
    status = {
        "heartbeat": beat,
        "cards": [{"uuid": f"GPU-{at}", **card} for at in range(4)],
    }
    world.cluster.kubectl(
        "patch", "gpunode", NODE, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": status}),
    )  # fmt: skip


def test_a_silent_agent_keeps_a_plan_and_starts_none_until_it_speaks_again(on_l40s: World) -> None:
    world = on_l40s
    agent_says(world, time.time())
    world.apply(on_cards(world))
    await_card(world, "small", BY_LABELS_MIB, "Agent")
    world.await_ready("small", 1)

    agent_says(world, time.time() - 3600)
    world.apply(on_cards(world, "late"))
    world.await_condition("late", "Planned", "False", reason="GpuFactsStale")
    world.kubectl("patch", "infd/small", "--type=merge", "-p", '{"spec": {"replicas": 3}}')
    await_told(world, "small", "last heard of")
    assert "True" == world.condition("small", "Planned")["status"]
    assert 1 == world.deployments()["small-l40s"]["spec"]["replicas"]

    agent_says(world, time.time())
    world.await_ready("small", 3)
    world.await_condition("late", "Planned", "True")
