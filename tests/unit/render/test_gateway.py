"""Is the configuration written as decided, the same bytes for the same plan?"""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from goldens import assert_golden
from plimsoll.gate import reading
from plimsoll.render import gateway
from plimsoll.render.gateway import haproxy_text, most_connections
from plimsoll.render.gateway_records import Affinity, GateLane, GateServer, GateText
from plimsoll.render.gateway_words import Refusal, own_error, refuse

CHAT: Final = GateLane(
    name="chat",
    most_tokens=4096,
    answer_tokens=1024,
    queue_seconds=3,
    retry_after_seconds=(1, 3),
    priority=0,
)
BATCH: Final = GateLane(
    name="batch",
    most_tokens=32_768,
    answer_tokens=1200,
    queue_length=16,
    queue_seconds=60,
    retry_after_seconds=(5, 15),
    priority=10,
    keys=("nightly", "weekly"),
    min_body_bytes=14_000,
)
SERVERS: Final = (
    GateServer(name="s000", address="10.0.0.11:8000", slots=(9, 0), weight=100),
    GateServer(name="s001", address="10.0.0.12:8000", slots=(16, 2), weight=256),
    GateServer(name="s002"),
)
TWO_LANES: Final = GateText(lanes=(CHAT, BATCH), servers=SERVERS)
TEXTS: Final = {
    "one-lane": GateText(
        lanes=(GateLane(name="all", most_tokens=8192, answer_tokens=0, queue_length=0),),
        servers=(
            GateServer(name="s000", address="[fd00::1]:8000", slots=(20,)),
            GateServer(name="s001"),
        ),
    ),
    "two-lanes": TWO_LANES,
    "keys-and-affinity": TWO_LANES._replace(has_keys=True, affinity=Affinity.CONVERSATION),
    "session": TWO_LANES._replace(affinity=Affinity.SESSION),
    "begins-closed": TWO_LANES._replace(begins_closed=True),
}
"""Read by HAProxy itself in e2e/stories/test_gateway_goldens.py."""


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_golden_gateway(name: str) -> None:
    assert_golden(f"gateway/{name}.cfg", haproxy_text(TEXTS[name]))


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_limit_is_never_zero(name: str) -> None:
    servers = [
        line for line in haproxy_text(TEXTS[name]).splitlines() if line.startswith("    server ")
    ]
    assert servers
    assert [] == [
        line for line in servers if re.search(r"maxconn 0\b", line) or "maxconn" not in line
    ]


def test_a_lane_that_does_not_fit_a_card_is_closed_there() -> None:
    text = haproxy_text(TWO_LANES)
    batch = text[text.index("backend batch") :]
    assert "server s000 10.0.0.11:8000 maxconn 1 weight 100 track pool/s000 disabled\n" in batch
    assert "server s001 10.0.0.12:8000 maxconn 2 weight 256 track pool/s001\n" in batch


def test_places_without_a_worker_are_closed_in_every_lane() -> None:
    servers = [line for line in haproxy_text(TWO_LANES).splitlines() if " s002 " in line]
    assert 3 == len(servers)
    assert all(line.endswith(" disabled") for line in servers)


def test_a_gate_that_begins_closed_promises_nothing() -> None:
    text = haproxy_text(TEXTS["begins-closed"])
    lanes = [line for line in text.splitlines() if "track pool/" in line]
    assert 6 == len(lanes)
    assert all(line.endswith(" disabled") for line in lanes)


def test_every_answer_of_the_gate_is_an_openai_error() -> None:
    bodies = re.findall(r"string '(\{.*?\})'(?: hdr|$| )", haproxy_text(TWO_LANES), re.MULTILINE)
    assert len(bodies) > 15
    for body in bodies:
        error = json.loads(re.sub(r"%\[[^\]]*\]", "1", body))["error"]
        assert {"message", "type", "code", "param"} <= set(error)


def test_no_live_worker_is_told_before_a_full_queue() -> None:
    text = haproxy_text(TWO_LANES)
    assert text.index("{ nbsrv(chat) eq 0 }") < text.index("{ queue(chat) ge 64 }")


def test_without_a_queue_a_full_lane_is_full_at_once() -> None:
    assert "{ be_conn_free(all) le 0 }" in haproxy_text(TEXTS["one-lane"])


def test_one_lane_asks_nobody_for_a_lane_and_tells_the_engine_no_priority() -> None:
    text = haproxy_text(TEXTS["one-lane"])
    assert "req.hdr(X-Lane)" not in text
    assert "set-header X-Vllm-Priority" not in text


def test_what_the_client_may_not_say_is_removed_before_anything_is_set() -> None:
    text = haproxy_text(TWO_LANES)
    for header in gateway.SET_BY_US:
        assert text.index(f"del-header {header}") < text.index("set-var(txn.lane)")


def test_a_key_outdoes_header_and_size() -> None:
    text = haproxy_text(TEXTS["keys-and-affinity"])
    places = [
        text.index(part)
        for part in ("req.hdr(X-Lane) -m str", "-m int ge 14000", "-m str nightly weekly")
    ]
    assert sorted(places) == places


def test_text_and_reading_call_the_pool_the_same() -> None:
    assert reading.POOL == gateway.POOL


def test_slots_for_other_lanes_are_refused() -> None:
    wrong = TWO_LANES._replace(servers=(SERVERS[0]._replace(slots=(1,)),))
    with pytest.raises(ValueError, match="s000 has 1 numbers of slots for 2 lanes"):
        haproxy_text(wrong)


def test_a_flood_finds_room_to_be_refused() -> None:
    assert 1000 == most_connections(TWO_LANES)
    large = TWO_LANES._replace(servers=tuple(SERVERS[1]._replace(slots=(90, 2)) for _ in range(16)))
    assert 4 * (16 * 92 + 64 + 16) == most_connections(large)


def test_a_quote_in_a_sentence_is_refused_here_and_not_by_haproxy() -> None:
    with pytest.raises(ValueError, match="quote"):
        refuse(Refusal(400, "a", "it's"), "TRUE")
    with pytest.raises(ValueError, match="quote"):
        own_error(Refusal(400, "a", "it's"))
