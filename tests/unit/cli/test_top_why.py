"""What do `plimsoll top` and `plimsoll why` show of a cluster?"""

from __future__ import annotations

import argparse
import asyncio
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.cli import top, why
from plimsoll.cli.curve import svg_curve, terminal_curve
from plimsoll.cli.exits import BadInputError
from plimsoll.cli.text import Page
from plimsoll.cli.watched import Row, look, rows_of
from plimsoll.cluster.floors import keep_floors
from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT
from plimsoll.controller.kept import pack
from plimsoll.decide import Key
from plimsoll.diagnose.recycle import CHECKS, HoldReason
from plimsoll.facts.series import FloorBin
from plimsoll.facts.watched import PastLife
from plimsoll.units import GIB, MIB

PAGE = Page(width=140, colour=False)
GROWS = {
    "pod": "chat-a",
    "uid": "uid-a",
    "pool": "h100",
    "verdict": "QuietGrowth",
    "message": "Memory grew 2.0 GiB in 10 h.",
    "hold": "LimitIsFar",
    "holdMessage": "It grows and reaches its memory limit in 4 days.",
    "residentBytes": 12 * GIB,
    "limitBytes": 32 * GIB,
    "bytesPerHour": 205 * MIB,
    "lowerBytesPerHour": 190 * MIB,
    "upperBytesPerHour": 220 * MIB,
    "hoursToLimit": 107.8,
    "ttftP95Seconds": 0.412,
    "kvUsed": 0.31,
}
CALM = {"pod": "chat-b", "uid": "uid-b", "verdict": "Steady", "hold": "Steady", "message": "Flat."}
BINS = tuple(
    FloorBin(at_seconds=600.0 * number, floor_bytes=10 * GIB + number * 34 * MIB)
    for number in range(1, 61)
)


def box(*workers: Any, namespace: str = "team") -> StandIn:
    stand_in = StandIn()
    stand_in.put(
        INFERENCE_DEPLOYMENT,
        {
            "metadata": {"name": "chat", "namespace": namespace, "uid": "uid-chat"},
            "spec": {},
            "status": {
                "trend": "QuietGrowth 1/2",
                "workers": list(workers or (GROWS, CALM)),
                "recycling": {
                    "total": 3,
                    "budgetLeft": 4,
                    "history": [
                        {
                            "pod": "chat-z",
                            "at": "2026-11-28T12:00:00Z",
                            "reason": "Growth",
                            "phase": "Done",
                            "endedAt": "2026-11-28T13:00:00Z",
                            "helped": True,
                        }
                    ],
                },
            },
        },
    )
    return stand_in


def in_box(stand_in: StandIn, work: Any) -> Any:
    async def run() -> Any:
        async with connected(stand_in) as client:
            return await work(client)

    return asyncio.run(run())


def rows(stand_in: StandIn | None = None) -> tuple[Row, ...]:
    return rows_of(in_box(stand_in or box(), lambda client: look(client, None)))


def test_the_table_has_slope_with_its_bounds_and_the_time_to_the_limit() -> None:
    head, titles, grows, calm = top.shown(rows(), PAGE)
    assert head == "team/chat  QuietGrowth 1/2; recycled 3, 4 left today; mode Auto"
    assert titles.split()[:4] == ["WORKER", "POOL", "MEMORY", "LIMIT"]
    words = (
        "chat-a h100 12.0 GiB 32.0 GiB +205 (190..220) MiB/h 4 d 0.41 s 31% QuietGrowth LimitIsFar"
    )
    assert words == " ".join(grows.split())
    assert calm.split() == ["chat-b", "-", "-", "-", "-", "-", "-", "Steady"]


def test_nobody_to_show_says_what_to_look_at() -> None:
    assert [
        "No workers whose memory is told. Does the operator run, and does it look after them?"
    ] == (top.shown((), PAGE))


def test_data_for_programs_is_the_status_entry_with_its_place() -> None:
    data = top.as_data(rows()[0])
    assert {"namespace": "team", "deployment": "chat"} | GROWS == data


def test_only_the_named_namespace_is_asked() -> None:
    seen = in_box(box(namespace="other"), lambda client: look(client, "team"))
    assert () == rows_of(seen)


def found(stand_in: StandIn, pod: str, namespace: str | None = None) -> Any:
    arguments = argparse.Namespace(pod=pod, namespace=namespace)
    return in_box(stand_in, lambda client: why._found(client, arguments))


def test_why_tells_evidence_and_the_chain_up_to_the_hold() -> None:
    row, bins = found(box(), "chat-a")
    text = "\n".join(why.told(row, bins, PAGE))
    assert "Memory grew 2.0 GiB in 10 h." in text
    assert "memory      12.0 GiB of 32.0 GiB" in text
    assert "  yes  its growth can be nothing else\n  no   LimitIsFar\n" in text
    assert "It grows and reaches its memory limit in 4 days." in text
    assert "chat-z  Growth  helped" in text


def test_the_chain_has_every_check_in_order_and_every_reason_once() -> None:
    assert CHECKS == tuple(why.CHAIN)
    reasons = [reason for among, _ in why.CHAIN.values() for reason in among]
    assert sorted(HoldReason) == sorted(reasons)


def test_the_curve_is_of_the_floors_that_were_kept() -> None:
    async def work(client: Any) -> Any:
        life = PastLife("uid-a", "engine", 0.0, BINS)
        key = Key(namespace="team", name="chat")
        await keep_floors(client, key, "uid-chat", pack((life,), bin_seconds=600.0))
        return await why._found(client, argparse.Namespace(pod="chat-a", namespace=None))

    row, bins = in_box(box(), work)
    assert len(BINS) == len(bins)
    assert any("█" in line for line in why.told(row, bins, PAGE))


def test_a_worker_that_is_not_there_or_twice_there_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="'chat-x' is no worker"):
        found(box(), "chat-x")
    both = box()
    raw = box(namespace="other").get(INFERENCE_DEPLOYMENT, "other", "chat")
    both.put(INFERENCE_DEPLOYMENT, raw)
    with pytest.raises(BadInputError, match="other and team; say which with --namespace"):
        found(both, "chat-a")


def test_a_rising_line_rises_in_the_terminal() -> None:
    lines = terminal_curve(BINS, width=70, height=4)
    assert 5 == len(lines)
    assert lines[0].startswith(" 12.0 GiB")
    filled = [line.count("█") for line in lines[:4]]
    assert sorted(filled) == filled
    assert lines[-1].strip() == "the last 9.8 h"
    assert [] == terminal_curve((), width=70)


def test_the_drawing_is_whole_xml_with_the_limit_where_it_is_near() -> None:
    root = ET.fromstring(svg_curve(BINS, title="a < b", limit_bytes=13 * GIB))
    assert root.tag.endswith("svg")
    assert 1 == len(root.findall("{*}line"))
    far = ET.fromstring(svg_curve(BINS, title="a", limit_bytes=64 * GIB))
    assert [] == far.findall("{*}line")
    ET.fromstring(svg_curve((), title="nothing yet"))
