"""Do the user's lanes and the pools' plans become what the gate promises?"""

from __future__ import annotations

from typing import Any

import scenes
from goldens import assert_golden
from plimsoll.api.gateway import problems_of, rooms_of, text_of
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.api.v1alpha1 import read
from plimsoll.gate.allocate import slots_of, weights_of
from plimsoll.gate.records import GateRooms, WorkerRoom
from plimsoll.plan.records import Plan
from plimsoll.render.gateway import haproxy_text
from plimsoll.render.gateway_records import Affinity


def asked(story: str, **spec: Any) -> tuple[InferenceDeploymentSpec, dict[str, Plan]]:
    raw = scenes.example(story, **spec)
    status = scenes.think(raw).status or {}
    plans = {
        pool["name"]: Plan.model_validate(pool["plan"])
        for pool in status["pools"]
        if pool.get("plan") is not None
    }
    return read(raw).spec, plans


def lane(name: str, *, prompt: int, share: str, **more: Any) -> dict[str, Any]:
    lengths = {"p50": prompt // 2, "p99": prompt}
    return {
        "name": name,
        "promptTokens": lengths,
        "outputTokens": {"p50": 50, "p99": 100},
        "share": share,
    } | more


def test_lanes_become_slots_within_the_plan() -> None:
    spec, plans = asked("chat-and-batch")
    rooms = rooms_of(spec, plans)
    (pool,) = rooms.pools
    assert [("chat", 3900, 70), ("batch", 31_200, 30)] == [
        (each.name, each.tokens, each.share_percent) for each in rooms.lanes
    ]
    assert plans["h100-tp2"].kv.pool_tokens == pool.kv_tokens
    chat, batch = slots_of(pool, rooms.lanes)
    assert chat * 3904 + batch * 31_200 <= pool.kv_tokens
    assert chat > 40
    assert 2 == batch


def test_traffic_that_is_not_split_has_the_plans_own_concurrency() -> None:
    spec, plans = asked("mixed-fleet")
    rooms = rooms_of(spec, plans)
    assert len(rooms.pools) > 1
    for pool in rooms.pools:
        assert (plans[pool.pool].concurrency.max_num_seqs,) == slots_of(pool, rooms.lanes)


def test_short_lanes_borrow_and_long_ones_do_not_unless_they_say_so() -> None:
    lanes = [lane("chat", prompt=1000, share="50%"), lane("batch", prompt=9000, share="50%")]
    spec, plans = asked("chat-and-batch", traffic={"lanes": lanes})
    assert [True, False] == [each.borrow for each in rooms_of(spec, plans).lanes]
    lanes[0]["borrow"], lanes[1]["borrow"] = False, True
    spec, plans = asked("chat-and-batch", traffic={"lanes": lanes})
    assert [False, True] == [each.borrow for each in rooms_of(spec, plans).lanes]


def test_long_prompts_are_computed_two_at_a_time_unless_somebody_says_otherwise() -> None:
    lanes = [lane("chat", prompt=1000, share="50%"), lane("batch", prompt=9000, share="50%")]
    spec, plans = asked("chat-and-batch", traffic={"lanes": lanes})
    assert [None, 2] == [each.most_per_worker for each in rooms_of(spec, plans).lanes]
    lanes[1]["maxPerWorker"] = 5
    spec, plans = asked("chat-and-batch", traffic={"lanes": lanes})
    assert [None, 5] == [each.most_per_worker for each in rooms_of(spec, plans).lanes]


def test_slower_cards_get_fewer_long_prompts_and_less_of_the_rest() -> None:
    lanes = [lane("chat", prompt=1000, share="50%"), lane("batch", prompt=9000, share="50%")]
    spec, plans = asked("mixed-fleet", traffic={"lanes": lanes})
    rooms = rooms_of(spec, plans)
    speeds = [pool.speed for pool in rooms.pools]
    assert None not in speeds
    assert 1.0 == max(speed for speed in speeds if speed is not None)
    assert len(set(speeds)) > 1
    weights = weights_of(rooms.pools, rooms.lanes)
    assert [round(256 * (speed or 0)) for speed in speeds] == list(weights)


def test_a_lane_that_no_worker_holds_is_told_with_the_numbers() -> None:
    spec, plans = asked("chat-and-batch")
    rooms = rooms_of(spec, plans)
    assert () == problems_of(rooms)
    small = GateRooms(
        lanes=rooms.lanes, pools=(WorkerRoom(pool="a", kv_tokens=30_000, max_num_seqs=9),)
    )
    (told,) = problems_of(small)
    assert told.startswith(
        "lane batch: one request of 31,200 tokens fits no worker; the largest holds 30,000."
    )


def test_queues_affinity_and_keys_are_passed_on() -> None:
    gateway = {
        "enabled": True,
        "queue": {"length": 8, "timeout": "20s"},
        "keysSecret": "keys",
        "affinity": "Session",
    }
    lanes = [
        lane("chat", prompt=1000, share="50%", queue={"timeout": "3s"}),
        lane("batch", prompt=9000, share="50%", keys=["nightly"]),
    ]
    spec, plans = asked("chat-and-batch", traffic={"lanes": lanes}, gateway=gateway)
    text = text_of(spec, rooms_of(spec, plans), max_model_len=32_768)
    assert [(8, 3, (1, 3)), (8, 20, (5, 15))] == [
        (each.queue_length, each.queue_seconds, each.retry_after_seconds) for each in text.lanes
    ]
    assert [(), ("nightly",)] == [each.keys for each in text.lanes]
    assert text.has_keys
    assert Affinity.SESSION is text.affinity
    assert 64 << 10 == text.most_body_bytes


def test_there_are_more_places_than_workers() -> None:
    spec, plans = asked("chat-and-batch")
    rooms = rooms_of(spec, plans)
    seated = [("h100-tp2", f"10.0.0.{n}:8000") for n in range(30)] + [("gone", "10.0.1.1:8000")]
    text = text_of(spec, rooms, max_model_len=32_768, workers=seated)
    assert 30 == sum(server.address is not None for server in text.servers)
    assert 38 == len(text.servers)
    assert 12 == len(text_of(spec, rooms, max_model_len=32_768).servers)


def test_golden_gateway_of_the_story() -> None:
    spec, plans = asked("chat-and-batch")
    rooms = rooms_of(spec, plans)
    workers = [("h100-tp2", "10.0.0.11:8000"), ("h100-tp2", "10.0.0.12:8000")]
    text = text_of(spec, rooms, max_model_len=plans["h100-tp2"].max_model_len, workers=workers)
    assert_golden("chat-and-batch/haproxy.cfg", haproxy_text(text))
