from __future__ import annotations

import pytest

from plimsoll.engines.base import Flag
from plimsoll.render import lifecycle
from plimsoll.render.records import PoolWorkload


@pytest.mark.parametrize(("timeout", "grace"), [("60", 85), ("300", 325), ("0", 30)])
def test_the_grace_period_holds_pre_stop_drain_and_teardown(
    vllm: PoolWorkload, timeout: str, grace: int
) -> None:
    flags = (Flag(name="--shutdown-timeout", value=timeout),)
    plan = vllm.plan.model_copy(update={"flags": flags})
    assert grace == lifecycle.grace_period_seconds(plan)


def test_an_engine_that_does_not_drain_gets_kubernetes_own_grace(llama_cpp: PoolWorkload) -> None:
    assert lifecycle.shutdown_timeout_seconds(llama_cpp.plan) == 0
    assert lifecycle.grace_period_seconds(llama_cpp.plan) == 30


def test_weights_of_all_cards_load_from_a_slow_disk_in_time(vllm: PoolWorkload) -> None:
    # 4 x 35.28 GB at 100 MB/s is 1412 s; with 600 s for the rest 2012 s, in steps of 300 s.
    assert lifecycle.startup_seconds(vllm.plan) == 2100
    assert lifecycle.startup_failures(vllm.plan) == 210


def test_layers_in_host_memory_are_read_too(llama_cpp: PoolWorkload) -> None:
    # 41 GB on the card and at most 20 GiB beside it: 625 s, with the rest 1225 s.
    assert lifecycle.startup_seconds(llama_cpp.plan) == 1500


def test_a_slow_start_and_a_slow_pull_are_not_called_stuck(vllm: PoolWorkload) -> None:
    assert lifecycle.progress_deadline_seconds(vllm.plan) == 3900
