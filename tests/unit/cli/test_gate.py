"""What does `plimsoll gate` show of a gate, and of what it cannot see?"""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from api_box import StandIn, connected
from plimsoll.cli import gate
from plimsoll.cli.exits import BadInputError
from plimsoll.cli.gate import Looked
from plimsoll.cli.gate_report import as_data, told
from plimsoll.cli.main import main
from plimsoll.cli.text import Page
from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT, POD
from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.tally import Line, Tally
from plimsoll.gate.visit import visit
from plimsoll.keeper.loop import Told
from plimsoll.keeper.page import metrics_text
from plimsoll.render.gateway_objects import gate_selector
from plimsoll.telemetry.gate_page import read_gate_page

PAGE = Page(width=140, colour=False)
LANES = (
    LaneRoom(name="chat", tokens=1000, share_percent=70, borrow=True),
    LaneRoom(name="batch", tokens=6000, share_percent=30),
)
ROOMS = GateRooms(lanes=LANES, pools=(WorkerRoom(pool="h100", kv_tokens=40_000, max_num_seqs=64),))


def keepers_page(*, answered: int = 95, refused: int = 5) -> str:
    """The keeper's own, of one worker with chat at its slots."""
    seen = GateSeen(
        servers=(ServerSeen("s0", "10.0.0.1:8000", is_open=True, in_flight=29),),
        lanes={"s0": (LaneSeen(34, 28), LaneSeen(1, 1))},
        queued=(3, 0),
    )
    pods = (PodSeen("chat-h100-0", "10.0.0.1:8000", "h100", is_ready=True, is_leaving=False),)
    tally = Tally()
    for _ in range(answered):
        tally.add(Line("chat", 200, "", 0.02, 100))
    for _ in range(refused):
        tally.add(Line("chat", 429, "queue_full", None, 100))
    found = Told(seen=seen, visit=visit(seen, pods, ROOMS))
    return metrics_text(found, tally, tuple(lane.name for lane in LANES))


def saved(tmp_path: Path, *texts: str) -> list[str]:
    words = []
    for number, text in enumerate(texts):
        path = tmp_path / f"gate-{number}.txt"
        path.write_text(text, encoding="utf-8")
        words += ["-f", str(path)]
    return words


def box(status: dict[str, Any] | None, *pods: str, namespace: str = "team") -> StandIn:
    stand_in = StandIn()
    stand_in.put(
        INFERENCE_DEPLOYMENT,
        {
            "metadata": {"name": "chat", "namespace": namespace, "uid": "u"},
            "spec": {},
            "status": {} if status is None else {"gateway": status},
        },
    )
    for pod in pods:
        labels = gate_selector("chat")
        stand_in.put(POD, {"metadata": {"name": pod, "namespace": namespace, "labels": labels}})
    return stand_in


DOOR = {"gates": 2, "readyGates": 1, "isDoor": True, "name": "chat-gate"}


def looked(stand_in: StandIn, name: str = "chat", namespace: str | None = None) -> Looked:
    async def run() -> Looked:
        async with connected(stand_in) as client:
            return await gate._in_cluster(client, name, namespace)

    return asyncio.run(run())


def through(pod: str) -> str:
    return f"/api/v1/namespaces/team/pods/{pod}:8406/proxy/metrics"


def test_saved_pages_of_two_gates_are_added_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["gate", *saved(tmp_path, keepers_page(), keepers_page()), "-o", "json"])
    data = json.loads(capsys.readouterr().out)
    assert (2, 200) == (data["gates"], data["lanes"][0]["requests"])
    assert {"queue_full": 10} == data["lanes"][0]["refused"]


def test_a_pipe_is_read_and_shown_as_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(keepers_page()))
    assert 0 == main(["gate", "-f", "-"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "the gate 1 page" == lines[0]
    assert "LANE PLANNED SLOTS LENT RUNNING QUEUED ENDED 5XX WAIT P95 429 FOR" in lines
    assert "chat 28 34 +6 28 3 100 0 0.025 s 5.0% queue_full 5" in lines
    assert "batch 2 1 -1 1 0 0 0 - -" in lines
    assert "chat-h100-0 40,000 40,000 64 35" in lines


def test_gates_in_the_cluster_are_read_through_the_api_server() -> None:
    stand_in = box(DOOR, "chat-gate-0", "chat-gate-1")
    stand_in.pages[through("chat-gate-0")] = 200, keepers_page()
    found = looked(stand_in)
    assert ["chat-gate-0"] == list(found.pages)
    assert ["chat-gate-1"] == list(found.problems)
    seen = gate._together(found, None, 0)
    text = "\n".join(told(seen, PAGE))
    assert text.startswith("team/chat  1 of 2 gates ready; the Service leads to them\n")
    assert "- chat-gate-1 is not counted: " in text
    assert "Another way to a page: `plimsoll gate --help`." in text
    data = as_data(seen)
    assert ("team", "chat") == (data["namespace"], data["deployment"])
    assert DOOR | {"message": ""} == data["gateway"]
    assert {"chat-gate-1"} == set(data["unread"])


def test_without_the_right_to_pages_the_status_is_told_still() -> None:
    stand_in = box(DOOR, "chat-gate-0")
    message = 'pods "chat-gate-0:8406" is forbidden: User "eve" cannot get resource "pods/proxy"'
    refused = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message})
    stand_in.pages[through("chat-gate-0")] = 403, refused
    found = looked(stand_in)
    assert {"chat-gate-0": message} == found.problems
    assert "1 of 2 gates ready" in told(gate._together(found, None, 0), PAGE)[0]


def test_two_looks_count_what_came_between() -> None:
    def at(**counts: int) -> Looked:
        stand_in = box(DOOR, "chat-gate-0")
        stand_in.pages[through("chat-gate-0")] = 200, keepers_page(**counts)
        return looked(stand_in)

    seen = gate._together(at(answered=95, refused=9), at(answered=90, refused=5), 30)
    assert (9, {"queue_full": 4}) == (seen.figures.lanes[0].requests, seen.figures.lanes[0].refused)
    assert 30 == as_data(seen)["overSeconds"]
    assert "  - Counts are of 30 s." in told(seen, PAGE)


def test_what_is_amiss_is_said() -> None:
    text = keepers_page().replace(
        'kv_tokens{worker="chat-h100-0"} 40000', 'kv_tokens{worker="chat-h100-0"} 9000'
    )
    text = text.replace("answers 1", "answers 0").replace(
        "unseated_workers 0", "unseated_workers 2"
    )
    shown = "\n".join(told(gate._together(Looked({"g": read_gate_page(text)}, {}), None, 0), PAGE))
    assert "more than it holds" in shown
    assert "- 1 of 1 HAProxy do not answer their keeper: limits stay as they are." in shown
    assert "- 2 ready workers have no place at a gate and get no requests from it." in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "whose gate?: name an InferenceDeployment"),
        (["chat", "-f", "-"], "choose one"),
        (["-f", "nowhere.txt"], "-f nowhere.txt: No such file"),
        (["--page", "127.0.0.1:8406"], "write it with http://"),
        (["--page", "http://127.0.0.1:9"], "--page http://127.0.0.1:9: "),
        (["-f", "-", "--over", "5s"], "--over: a saved page stays as it is"),
        (["chat", "--over", "soon"], "--over: "),
    ],
)
def test_what_cannot_be_read_as_meant_is_refused_by_name(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["gate", *words])
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_page_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["gate", *saved(tmp_path, "up 1\n")])
    assert "a keeper's page is at port 8406, /metrics" in capsys.readouterr().err
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    assert 2 == main(["gate", "-f", str(tmp_path / "raw")])
    assert "byte 0 is not UTF-8" in capsys.readouterr().err
    words = saved(tmp_path, keepers_page())
    assert 2 == main(["gate", *words, *words])
    assert "it is there twice" in capsys.readouterr().err


def test_a_name_that_is_not_there_or_twice_or_has_no_gate_is_refused() -> None:
    with pytest.raises(BadInputError, match="'other' is no InferenceDeployment"):
        looked(box(None), "other")
    with pytest.raises(BadInputError, match=r"set spec\.gateway\.enabled and spec\.gateway\.image"):
        looked(box(None))
    both = box(DOOR)
    metadata = {"name": "chat", "namespace": "other", "uid": "v"}
    both.put(INFERENCE_DEPLOYMENT, {"metadata": metadata, "spec": {}})
    with pytest.raises(BadInputError, match="is in other and team; say which"):
        looked(both)
    assert "team/chat" == looked(both, namespace="team").where
