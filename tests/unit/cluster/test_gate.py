"""Telling a gate what it has to know, and reading it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from api_box import StandIn, connected
from plimsoll.api.gateway_words import GateWord
from plimsoll.cluster.client import Client
from plimsoll.cluster.gate import gate_of, is_gate, kept_annotations, tell_gates
from plimsoll.cluster.kinds import POD
from plimsoll.render.gateway_objects import (
    GATE_ANNOTATION,
    GATE_COMPONENT,
    STANDING_ANNOTATION,
    TEXT_ANNOTATION,
    TOLD,
)
from plimsoll.render.labels import COMPONENT_LABEL, WORKER_COMPONENT

TEXTS: Final = {name: f'{{"of": "{name}"}}' for name in TOLD}


def pod(component: str = GATE_COMPONENT, **metadata: Any) -> dict[str, Any]:
    known = {
        "name": "gate-a",
        "namespace": "team",
        "uid": "uid-a",
        "labels": {COMPONENT_LABEL: component},
        "annotations": {GATE_ANNOTATION: "asked", TEXT_ANNOTATION: "global"},
    }
    return {"metadata": known | metadata, "spec": {}, "status": {}}


def in_box(work: Callable[[Client, StandIn], Awaitable[None]]) -> None:
    async def run() -> None:
        box = StandIn()
        box.put(POD, pod())
        async with connected(box) as client:
            await work(client, box)

    asyncio.run(run())


def test_what_is_told_is_read_again() -> None:
    async def story(client: Client, box: StandIn) -> None:
        word = GateWord(pod="gate-a", uid="uid-a", annotations=TEXTS)
        told = await tell_gates(client, [word], "team")
        after = box.get(POD, "team", "gate-a")
        assert {"gate-a": after["metadata"]["resourceVersion"]} == told
        assert TEXTS | {GATE_ANNOTATION: "asked"} == kept_annotations(after)
        assert "global" == after["metadata"]["annotations"][TEXT_ANNOTATION]
        assert TEXTS[STANDING_ANNOTATION] == gate_of(after).standing
        assert "asked" == gate_of(after).question

    in_box(story)


def test_a_namesake_and_one_that_is_gone_are_told_nothing() -> None:
    async def story(client: Client, box: StandIn) -> None:
        for name, uid in (("gate-a", "uid-before"), ("gate-b", "uid-b")):
            word = GateWord(pod=name, uid=uid, annotations=TEXTS)
            assert {} == await tell_gates(client, [word], "team")
        assert "" == gate_of(box.get(POD, "team", "gate-a")).standing

    in_box(story)


def test_gates_are_told_from_workers() -> None:
    assert is_gate(pod())
    assert not is_gate(pod(WORKER_COMPONENT))
    assert gate_of(pod()).place is None
    assert gate_of(pod()).ends_seconds is None
    going = gate_of(pod(deletionTimestamp="2026-11-30T10:00:00Z"))
    assert going.ends_seconds is not None
