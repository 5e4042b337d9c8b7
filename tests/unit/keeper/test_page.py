"""Does the page say what runs, in a form that Prometheus reads?"""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.gate.elders import read_word
from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, LaneRoom, Promise, WorkerRoom
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.tally import Line, Tally
from plimsoll.gate.visit import ALONE, Standing, visit
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


def told(standing: Standing = ALONE) -> Told:
    seen = GateSeen(
        servers=(ServerSeen("s0", "10.0.0.1:8000", is_open=True, in_flight=7),),
        lanes={"s0": (LaneSeen(20, 6), LaneSeen(2, 1))},
        queued=(3, 0),
    )
    pods = (PodSeen("pod-a", "10.0.0.1:8000", "large", is_ready=True, is_leaving=False),)
    found = visit(seen, pods, ROOMS, standing=standing)
    return Told(seen=seen, visit=found, changes=5, standing=standing)


def test_prometheus_reads_the_page() -> None:
    tally = Tally()
    tally.add(Line("chat", 200, "", 0.02, 100))
    tally.add(Line("chat", 429, "queue_full", None, 100))
    families = {
        family.name: family
        for family in text_string_to_metric_families(metrics_text(told(), tally, NAMES))
    }
    slots = {
        (sample.labels["lane"], sample.labels["worker"]): sample.value
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


@pytest.mark.parametrize("standing", [ALONE, Standing(2, 1)])
def test_what_is_promised_stands_beside_the_whole_worker(standing: Standing) -> None:
    """Also where a gate has only its part: the sum over gates is held against it."""
    page = metrics_text(told(standing), Tally(), NAMES)
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines())
    assert {
        "promised_tokens": str(20 * 1000 + 2 * 9000),
        "kv_tokens": "40000",
        "promised_sequences": "22",
        "sequences": "64",
    } == {
        name: lines[f'plimsoll_gate_{name}{{worker="pod-a"}}']
        for name in ("promised_tokens", "kv_tokens", "promised_sequences", "sequences")
    }


def test_before_the_first_visit_nothing_is_claimed() -> None:
    text = metrics_text(Told(), Tally(), NAMES)
    assert "plimsoll_gate_answers 0" in text
    assert "plimsoll_gate_slots" not in text


def test_another_keeper_learns_what_is_held_by_address() -> None:
    shares = Standing(2, 1, since=7)
    said = told(shares)
    said.acting = shares
    said.bytes_per_token = {"chat": 408}
    assert {
        "name": "gate-a",
        "lanes": ["chat", "batch"],
        "standing": {"gates": 2, "place": 1, "is_retiring": False},
        "since": 7,
        "isLeaving": False,
        "held": {"10.0.0.1:8000": [20, 2]},
        "may": {"10.0.0.1:8000": [20 * 1000 + 2 * 9000, 22]},
        "drained": [],
        "bytesPerToken": {"chat": 4.08},
    } == json.loads(state_json(said, NAMES, "gate-a"))


def test_what_it_tells_another_keeper_reads() -> None:
    leaving = Standing(is_retiring=True, is_leaving=True, since=3)
    said = told(leaving)
    said.acting = leaving
    word = read_word(state_json(said, NAMES, "gate-a"))
    assert ("gate-a", 3, True, True, NAMES) == word[:5]
    assert {"10.0.0.1:8000": Promise(20 * 1000 + 2 * 9000, 22)} == word.may
    unseen = read_word(state_json(Told(), NAMES))
    assert (-1, {}) == (unseen.since, unseen.may)
