"""Bytes on cards that no pod has asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api_box import StandIn, connected
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import GPU_NODE, NODE, POD
from plimsoll.cluster.others import STEP_BYTES, Others

GIB = 1 << 30
GPU = "nvidia.com/gpu"
BUSY = {("n", GPU): 1}
IDLE: dict[tuple[str, str], int] = {}


def gpu_node(heartbeat: int, used: int | None, said: int | None = None, **card: Any) -> Any:
    told = {"usedBytes": used, "heldByOthersBytes": said}
    told = {key: value for key, value in told.items() if value is not None}
    cards = [{"uuid": "GPU-1", "product": "NVIDIA-RTX-A6000", "totalBytes": 48 * GIB} | told | card]
    status = {"heartbeat": f"2026-11-30T12:{heartbeat:02}:00Z", "cards": cards}
    return {"metadata": {"name": "n"}, "status": status}


def held(others: Others, *given: Any, requested: Any = IDLE) -> int | None:
    (filled,) = others.look(given, requested)
    found: int | None = filled["status"]["cards"][0].get("heldByOthersBytes")
    return found


def test_what_two_readings_of_an_idle_node_show_is_others() -> None:
    others = Others()
    assert None is held(others, gpu_node(0, 20 * GIB))
    assert None is held(others, gpu_node(1, 20 * GIB))
    assert 20 * GIB == held(others, gpu_node(2, 20 * GIB))


def test_the_same_reading_twice_is_one() -> None:
    others = Others()
    for _ in range(5):
        assert None is held(others, gpu_node(1, 20 * GIB))


def test_it_stays_known_while_a_worker_runs() -> None:
    others = Others()
    for minute in range(3):
        held(others, gpu_node(minute, 2 * GIB))
    assert 2 * GIB == held(others, gpu_node(3, 45 * GIB), requested=BUSY)
    assert 2 * GIB == held(others, gpu_node(4, 45 * GIB), requested=BUSY)


def test_the_rest_of_a_worker_that_is_gone_is_nobodys() -> None:
    """Its pod is gone, and the agent's last reading is from before, or its bytes go one reading late."""
    others = Others()
    held(others, gpu_node(0, 45 * GIB), requested=BUSY)
    assert None is held(others, gpu_node(0, 45 * GIB))
    assert None is held(others, gpu_node(1, 45 * GIB))
    assert 0 == held(others, gpu_node(2, 0))


def test_a_worker_that_comes_begins_the_count_anew() -> None:
    others = Others()
    held(others, gpu_node(0, 45 * GIB))
    held(others, gpu_node(1, 45 * GIB))
    held(others, gpu_node(1, 45 * GIB), requested=BUSY)
    assert None is held(others, gpu_node(2, 45 * GIB))
    assert None is held(others, gpu_node(3, 45 * GIB))


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 46 * GIB), st.integers(0, 2 * GIB)), max_size=12
    )
)
def test_never_more_than_others_ever_held(days: list[tuple[bool, int, int]]) -> None:
    """Whatever workers and others do: as long as a worker's bytes are gone with its pod."""
    others, most = Others(), 0
    for minute, (is_busy, worker, foreign) in enumerate(days):
        most = max(most, foreign)
        used = foreign + (worker if is_busy else 0)
        requested = BUSY if is_busy else IDLE
        known = held(others, gpu_node(minute, used), requested=requested)
        assert known is None or known < most + 3 * STEP_BYTES


def test_what_the_agent_is_certain_of_counts_when_it_is_more() -> None:
    others = Others()
    for minute in range(3):
        assert 3 * GIB == held(others, gpu_node(minute, 2 * GIB, said=3 * GIB))
    assert 2 * GIB == held(others, gpu_node(4, 2 * GIB, said=0))


def test_sliced_cards_and_silent_ones_are_left_open() -> None:
    for card in ({"migEnabled": True}, {"usedBytes": None}):
        others = Others()
        for minute in range(4):
            assert None is held(others, gpu_node(minute, 2 * GIB, **card))


def test_a_status_that_is_no_status_is_passed_on() -> None:
    odd: list[Any] = [
        {"metadata": {"name": "n"}},
        {"metadata": {"name": "m"}, "status": {"cards": "none"}},
        {"metadata": {"name": "o"}, "status": {"cards": [7]}},
    ]
    assert tuple(odd) == Others().look(odd, IDLE)


def test_the_fleet_plans_with_what_others_hold_and_a_heartbeat_wakes_nobody() -> None:
    async def run() -> None:
        box = StandIn()
        labels = {"nvidia.com/gpu.product": "NVIDIA-RTX-A6000", "nvidia.com/gpu.memory": "49140"}
        box.put(
            NODE,
            {
                "metadata": {"name": "n", "labels": labels | {"nvidia.com/gpu.count": "1"}},
                "status": {"allocatable": {GPU: "1", "memory": "64Gi"}},
            },
        )
        async with connected(box) as client:
            fleet = Fleet(client, clock=lambda: 0.0, max_age_seconds=0.0)

            async def seen(minute: int) -> int:
                box.put(GPU_NODE, gpu_node(minute, 20 * GIB))
                (node,) = (await fleet.inventory()).nodes
                return node.gpu.held_by_others_bytes

            assert [0, 0, 20 * GIB] == [await seen(minute) for minute in range(3)]
            assert not fleet.gpu_node_seen(gpu_node(3, 21 * GIB))
            assert fleet.gpu_node_seen(gpu_node(3, 21 * GIB, totalBytes=24 * GIB))
            pod = {
                "metadata": {"name": "w", "namespace": "x"},
                "spec": {
                    "nodeName": "n",
                    "containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}],
                },
                "status": {"phase": "Running"},
            }
            box.put(POD, pod)
            assert 20 * GIB == await seen(4)

    asyncio.run(run())
