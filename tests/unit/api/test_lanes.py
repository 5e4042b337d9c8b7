"""Does a plan depend on the gateway where it must, and nowhere else?"""

from __future__ import annotations

from typing import Any

import pytest

import scenes
from plimsoll.api.lanes import at_the_gate
from plimsoll.api.v1alpha1 import read


def digests(story: str, **spec: Any) -> list[str]:
    status = scenes.think(scenes.example(story, **spec)).status or {}
    return [pool["planDigest"] for pool in status["pools"]]


WITH_A_GATE: dict[str, Any] = {"enabled": True, "image": "haproxy:3.2"}


def at(story: str, **spec: Any) -> Any:
    found = read(scenes.example(story, **spec)).spec
    return at_the_gate(found, found.pools[0])


def test_lanes_at_a_gate_are_those_that_the_gate_counts() -> None:
    gate = at("chat-and-batch", gateway=WITH_A_GATE)
    assert [("chat", 3900, None, False), ("batch", 31_200, 2, True)] == [
        (lane.name, lane.tokens, lane.most_per_worker, lane.is_long) for lane in gate.lanes
    ]
    assert gate.gap_seconds is None
    assert frozenset() == gate.said


@pytest.mark.parametrize(
    "gateway", [{}, {"enabled": False}, WITH_A_GATE | {"enabled": False}, {"enabled": True}]
)
def test_without_a_gate_no_digest_changes(gateway: dict[str, Any]) -> None:
    assert at("chat-and-batch", gateway=gateway) is None
    assert ["sha256:ec5ef9753b26eebc"] == digests("chat-and-batch", gateway=gateway)


def test_one_that_is_on_changes_it_once() -> None:
    on = digests("chat-and-batch", gateway=WITH_A_GATE)
    assert ["sha256:ec5ef9753b26eebc"] != on
    assert on == digests("chat-and-batch", gateway=WITH_A_GATE | {"replicas": 2})
    assert on == digests("chat-and-batch", gateway=WITH_A_GATE | {"image": "haproxy:3.3"})
    target = WITH_A_GATE | {"interTokenMilliseconds": 200}
    assert on != digests("chat-and-batch", gateway=target)
    assert at("chat-and-batch", gateway=target).gap_seconds == 0.2


def test_traffic_in_one_piece_and_llama_cpp_are_as_they_were() -> None:
    on = WITH_A_GATE
    assert digests("mixed-fleet") == digests("mixed-fleet", gateway=on)
    assert at("mixed-fleet", gateway=on) is None
    assert digests("edge-assistant", gateway={}) == digests("edge-assistant", gateway=on)


@pytest.mark.parametrize(
    "words",
    [
        ["--long-prefill-token-threshold", "900"],
        ["--long_prefill_token_threshold=900"],
        ["--long-prefill-token-threshold=900"],
    ],
)
def test_flags_that_the_user_writes_are_known_and_not_refused(words: list[str]) -> None:
    engines = {"vllm": {"image": "vllm/vllm-openai:v0.33.0", "extraArgs": words}}
    changed: dict[str, Any] = {"engines": engines, "gateway": WITH_A_GATE}
    assert "--long-prefill-token-threshold" in at("chat-and-batch", **changed).said
    status = scenes.think(scenes.example("chat-and-batch", **changed)).status or {}
    (pool,) = status["pools"]
    names = [flag["name"] for flag in pool["plan"]["flags"]]
    assert "--long-prefill-token-threshold" not in names
    assert "--max-num-queued-reqs" in names
