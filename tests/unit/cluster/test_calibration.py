"""One ConfigMap a namespace: read, added to, put, and never another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.cluster.calibration import keep_measured, put_calibration, read_calibration
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Conflict
from plimsoll.cluster.kinds import CONFIG_MAP
from plimsoll.plan.calibration import CalibrationKey, Measurement
from plimsoll.plan.calibration_text import text_of
from plimsoll.render.calibration import CALIBRATION_NAME, DATA_KEY, calibration_manifest

GIB = 1 << 30
KEY = CalibrationKey(
    "vllm", "0.22.1", "NVIDIA-L40S", "LlamaForCausalLM", "32x4096/1/2", 1, "kv=auto"
)
ONE = Measurement(KEY, GIB, GIB, 1, "2026-11-30", "2026-11-30")
OTHER = Measurement(KEY._replace(cards=2), GIB, GIB, 1, "2026-11-30", "2026-11-30")


def story(work: Callable[[StandIn, Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        box = StandIn()
        async with connected(box) as client:
            return await work(box, client)

    return asyncio.run(run())


def text(box: StandIn) -> str:
    found: str = box.get(CONFIG_MAP, "team", CALIBRATION_NAME)["data"][DATA_KEY]
    return found


def test_what_is_kept_is_read_and_added_to() -> None:
    async def work(box: StandIn, client: Client) -> None:
        assert (await read_calibration(client, "team")).measured == ()
        await keep_measured(client, "team", (ONE,))
        assert (await read_calibration(client, "team")).measured == (ONE,)
        whole = await keep_measured(client, "team", (OTHER, ONE))
        assert [one.plans for one in whole.measured] == [2, 1]
        assert text(box) == text_of(whole.measured)
        assert (await read_calibration(client, "other")).measured == ()

    story(work)


def test_a_poisoned_entry_is_passed_over_and_gone_with_the_next_write() -> None:
    async def work(box: StandIn, client: Client) -> None:
        poison = ONE._replace(measured_bytes=100 * GIB)
        box.put(CONFIG_MAP, calibration_manifest("team", text_of((poison, OTHER))))
        found = await read_calibration(client, "team")
        assert found.measured == (OTHER,)
        assert len(found.warnings) == 1
        await keep_measured(client, "team", (ONE,))
        assert (await read_calibration(client, "team")).measured == (ONE, OTHER)

    story(work)


@pytest.mark.parametrize("broken", ["", '{"schema": 2, "entries": []}'])
def test_what_a_newer_plimsoll_wrote_is_neither_used_nor_written_over(broken: str) -> None:
    async def work(box: StandIn, client: Client) -> None:
        box.put(CONFIG_MAP, calibration_manifest("team", broken))
        assert (await read_calibration(client, "team")).measured == ()
        with pytest.raises(Conflict) as caught:
            await keep_measured(client, "team", (ONE,))
        assert caught.value.reason == "NotOurs"
        assert text(box) == broken
        await put_calibration(client, "team", ())  # a person resets it
        assert text(box) == text_of(())

    story(work)


def test_somebody_elses_config_map_is_left_alone() -> None:
    async def work(box: StandIn, client: Client) -> None:
        theirs = {"metadata": {"name": CALIBRATION_NAME, "namespace": "team"}, "data": {"a": "b"}}
        box.put(CONFIG_MAP, theirs)
        for write in (keep_measured, put_calibration):
            with pytest.raises(Conflict):
                await write(client, "team", (ONE,))
        assert box.get(CONFIG_MAP, "team", CALIBRATION_NAME)["data"] == {"a": "b"}

    story(work)
