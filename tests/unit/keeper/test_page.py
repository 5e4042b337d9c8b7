"""Does the page say what runs, in a form that Prometheus reads?"""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.tally import Line, Tally
from plimsoll.gate.visit import Standing, visit
from plimsoll.keeper.loop import Told
from plimsoll.keeper.page import metrics_text, state_json

ROOMS = GateRooms(
    lanes=(
        LaneRoom(name="chat", tokens=1000, share_percent=50),
        LaneRoom(name="batch", tokens=9000, share_percent=50),
    ),
    pools=(WorkerRoom(pool="large", kv_tokens=40_000, max_num_seqs=64),),
)
NAMES = ("chat", "batch")


def told() -> Told:
    seen = GateSeen(
        servers=(ServerSeen("s0", "10.0.0.1:8000", is_open=True, in_flight=7),),
        lanes={"s0": (LaneSeen(20, 6), LaneSeen(2, 1))},
        queued=(3, 0),
    )
    pods = (PodSeen("pod-a", "10.0.0.1:8000", "large", is_ready=True, is_leaving=False),)
    return Told(seen=seen, visit=visit(seen, pods, ROOMS), changes=5, standing=Standing(2, 1))


def test_prometheus_reads_the_page() -> None:
    tally = Tally()
    tally.add(Line("chat", 200, "", 0.02, 100))
    tally.add(Line("chat", 429, "queue_full", None, 100))
    families = {
        family.name: family
        for family in text_string_to_metric_families(metrics_text(told(), tally, NAMES))
    }
    slots = {
        (sample.labels["lane"], sample.labels["pod"]): sample.value
        for sample in families["plimsoll_gate_slots"].samples
    }
    assert {("chat", "pod-a"): 20, ("batch", "pod-a"): 2} == slots
    assert [3, 0] == [sample.value for sample in families["plimsoll_gate_queued"].samples]
    requests = {
        (sample.labels["status"], sample.labels["reason"]): sample.value
        for sample in families["plimsoll_gate_requests"].samples
    }
    assert {("200", ""): 1, ("429", "queue_full"): 1} == requests
    waits = {
        sample.labels["le"]: sample.value
        for sample in families["plimsoll_gate_wait_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert (0, 1, 1) == (waits["0.01"], waits["0.025"], waits["+Inf"])
    assert [1] == [sample.value for sample in families["plimsoll_gate_answers"].samples]


def test_before_the_first_visit_nothing_is_claimed() -> None:
    text = metrics_text(Told(), Tally(), NAMES)
    assert "plimsoll_gate_answers 0" in text
    assert "plimsoll_gate_slots" not in text


def test_another_keeper_learns_what_is_held_by_address() -> None:
    assert {
        "lanes": ["chat", "batch"],
        "standing": {"gates": 2, "place": 1, "is_retiring": False},
        "held": {"10.0.0.1:8000": [20, 2]},
        "drained": [],
    } == json.loads(state_json(told(), NAMES))
