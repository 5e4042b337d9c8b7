"""Do ResourceSlices tell the cards of a node, and nothing that is not so?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.catalog.dra import Device, devices_by_node
from plimsoll.units import MIB

H100 = "NVIDIA H100 80GB HBM3"


def gpu(name: str = "gpu-0", **changes: Any) -> dict[str, Any]:
    """A card as cmd/gpu-kubelet-plugin publishes it; keywords replace attributes."""
    attributes: dict[str, Any] = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{name}"},
        "productName": {"string": H100},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.105.8"},
        "addressingMode": {"string": "HMM"},
    }
    return {
        "name": name,
        "attributes": attributes | changes,
        "capacity": {"memory": {"value": "81559Mi"}},
    }


def mig(name: str, profile: str, memory: str, **changes: Any) -> dict[str, Any]:
    """A slice; static ones have a uuid of their own."""
    device = gpu(name, **changes)
    device["attributes"] |= {
        "type": {"string": "mig"},
        "profile": {"string": profile},
        "parentUUID": {"string": "GPU-0"},
    }
    device["capacity"] = {"memory": {"value": memory}, "multiprocessors": {"value": "16"}}
    return device


def resource_slice(
    *devices: dict[str, Any],
    node: str = "node-a",
    pool: str = "node-a",
    generation: int = 1,
    slices: int = 1,
    driver: str = "gpu.nvidia.com",
) -> dict[str, Any]:
    """One ResourceSlice."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{pool}-{generation}-{len(devices)}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": slices},
            "devices": list(devices),
        },
    }


def names(*slices: dict[str, Any]) -> list[str]:
    """Names of node-a's devices."""
    return [device.name for device in devices_by_node(slices).get("node-a", ())]


def test_a_card_is_read_whole() -> None:
    expected = Device(
        name="gpu-0",
        product="NVIDIA-H100-80GB-HBM3",
        uuid="GPU-gpu-0",
        memory_bytes=81559 * MIB,
        compute_capability="9.0",
        unified_memory=False,
    )
    assert {"node-a": (expected,)} == devices_by_node([resource_slice(gpu())])


def test_a_slice_is_a_product_of_its_own() -> None:
    (found,) = devices_by_node([resource_slice(mig("m", "1g.10gb", "9984Mi"))])["node-a"]
    assert ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "1g.10gb", 9984 * MIB) == (
        found.product,
        found.profile,
        found.memory_bytes,
    )


def test_a_media_profile_reads_as_the_resource_does() -> None:
    (found,) = devices_by_node([resource_slice(mig("m", "1g.10gb+me", "9984Mi"))])["node-a"]
    assert "1g.10gb.me" == found.profile


def test_only_the_newest_generation_counts() -> None:
    old = resource_slice(gpu("old"), generation=3)
    new = resource_slice(gpu("new"), generation=4)
    assert ["new"] == names(old, new) == names(new, old)


def test_a_pool_of_several_slices_counts_when_all_are_there() -> None:
    first = resource_slice(gpu("gpu-0"), generation=7, slices=2)
    second = resource_slice(gpu("gpu-1"), generation=7, slices=2)
    assert ["gpu-0", "gpu-1"] == names(first, second)
    assert [] == names(first)


def test_while_a_pool_is_rewritten_it_says_nothing_not_even_the_old() -> None:
    old = [resource_slice(gpu(f"gpu-{i}"), generation=1, slices=2) for i in range(2)]
    half = resource_slice(gpu("gpu-0"), generation=2, slices=2)
    assert [] == names(*old, half)


def test_pools_do_not_wait_for_each_other() -> None:
    whole = resource_slice(gpu("here"), pool="a")
    half = resource_slice(gpu("there"), pool="b", slices=2)
    assert ["here"] == names(whole, half)


def test_another_driver_is_not_ours_to_read() -> None:
    assert {} == devices_by_node([resource_slice(gpu(), driver="dra.example.com")])


def test_slices_that_could_be_cut_are_no_cards() -> None:
    possible = mig("gpu-0-mig-1g10gb-19-0", "1g.10gb", "9984Mi", uuid={})
    assert ["gpu-0"] == names(resource_slice(gpu(), possible))


def test_a_card_for_virtual_machines_is_no_card_of_ours() -> None:
    assert [] == names(resource_slice(gpu("gpu-vfio-0", type={"string": "vfio"})))


@pytest.mark.parametrize(("effect", "left"), [("NoSchedule", []), ("None", ["gpu-0"])])
def test_a_sick_card_is_passed_over(effect: str, left: list[str]) -> None:
    device = gpu() | {"taints": [{"key": "gpu.nvidia.com/xid", "effect": effect}]}
    assert left == names(resource_slice(device))


def test_names_may_carry_their_domain() -> None:
    device = gpu()
    device["attributes"] = {f"gpu.nvidia.com/{k}": v for k, v in device["attributes"].items()}
    device["capacity"] = {"gpu.nvidia.com/memory": {"value": "81559Mi"}}
    assert devices_by_node([resource_slice(device)]) == devices_by_node([resource_slice(gpu())])


def test_memory_that_nobody_told_is_unknown_and_not_zero() -> None:
    silent = gpu(productName={"string": "NVIDIA GB10"}, addressingMode={"string": "ATS"})
    del silent["capacity"]
    zero = gpu("gpu-1") | {"capacity": {"memory": {"value": "0"}}}
    one, other = devices_by_node([resource_slice(silent, zero)])["node-a"]
    assert (None, True) == (one.memory_bytes, one.unified_memory)
    assert (None, False) == (other.memory_bytes, other.unified_memory)


def test_an_unknown_card_without_memory_that_reads_the_hosts_pages_shares_its_memory() -> None:
    device = gpu(productName={"string": "NVIDIA N9"}, addressingMode={"string": "ATS"})
    with_memory = devices_by_node([resource_slice(device)])["node-a"][0]
    del device["capacity"]
    without = devices_by_node([resource_slice(device)])["node-a"][0]
    assert (None, True) == (with_memory.unified_memory, without.unified_memory)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"spec": None},
        {"spec": {"driver": "gpu.nvidia.com"}},
        {"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "p"}, "devices": [{}]}},
        resource_slice(gpu(productName={"int": 3})),
        resource_slice({"name": "x", "attributes": [], "capacity": 3}),
        resource_slice(gpu(type={}), {"name": 3, "attributes": {}}),
    ],
)
def test_what_cannot_be_read_is_passed_over(broken: dict[str, Any]) -> None:
    assert {} == devices_by_node([broken])
