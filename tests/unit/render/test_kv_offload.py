"""Do /dev/shm, the container's memory and its time to start follow what is kept in host memory?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.plan.records import KvOffloadPlan
from plimsoll.render import lifecycle
from plimsoll.render.pod import container_memory_bytes, pod_template_1
from plimsoll.render.records import PoolWorkload
from plimsoll.units import GIB, MIB


def offloading(workload: PoolWorkload, **where: int) -> PoolWorkload:
    """The same worker with 64 GiB of KV in host memory."""
    kept = KvOffloadPlan(host_bytes=64 * GIB, tokens=1, **where)
    return workload.model_copy(
        update={"plan": workload.plan.model_copy(update={"kv_offload": kept})}
    )


def shm_of(workload: PoolWorkload) -> dict[str, Any]:
    """The volume of /dev/shm."""
    volumes = pod_template_1(workload, "sha256:0")["spec"]["volumes"]
    found: dict[str, Any] = next(each["emptyDir"] for each in volumes if each["name"] == "shm")
    return found


def test_a_file_in_dev_shm_makes_it_larger_and_the_limit_with_it(vllm: PoolWorkload) -> None:
    found = offloading(vllm, shared_memory_bytes=64 * GIB)
    assert {"medium": "Memory", "sizeLimit": f"{64 * 1024 + 2304}Mi"} == shm_of(found)
    assert container_memory_bytes(vllm) + 64 * GIB == container_memory_bytes(found)


def test_pinned_memory_needs_no_dev_shm(vllm: PoolWorkload) -> None:
    found = offloading(vllm)
    assert {"medium": "Memory", "sizeLimit": "2304Mi"} == shm_of(found)
    assert 24 * GIB + 2304 * MIB == container_memory_bytes(found)  # the plan's line has it


@pytest.mark.parametrize(("gibibytes", "longer"), [(64, 0), (900, 900)])
def test_memory_takes_time_to_fill(vllm: PoolWorkload, gibibytes: int, longer: int) -> None:
    kept = KvOffloadPlan(host_bytes=gibibytes * GIB, tokens=1)
    plan = vllm.plan.model_copy(update={"kv_offload": kept})
    assert lifecycle.startup_seconds(vllm.plan) + longer == lifecycle.startup_seconds(plan)
