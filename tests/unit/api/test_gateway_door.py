"""Does the Service lead to gates only when they know their workers, and is no slot promised twice?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

import scenes
from plimsoll.api.gateway_words import LOST_SECONDS, GateSeen
from plimsoll.api.inspection_ask import InspectionSeen
from plimsoll.decide import Desired, Manifest, Observed, decide
from plimsoll.facts.worker import WorkerFacts
from plimsoll.gate.records import GateRooms
from plimsoll.keeper.files import read_rooms, read_standing, read_workers
from plimsoll.render.gateway_objects import (
    FILES,
    GATE_ANNOTATION,
    GATE_COMPONENT,
    ROOMS_ANNOTATION,
    STANDING_ANNOTATION,
    TEXT_ANNOTATION,
    WORKERS_ANNOTATION,
)
from plimsoll.render.labels import COMPONENT_LABEL, POOL_LABEL, WORKER_COMPONENT

OURS: Final = "plimsoll/plimsoll:1"
GATEWAY: Final = {"enabled": True, "image": "haproxy:3.2"}
POOL: Final = "h100-tp2"


def think(
    raw: Manifest,
    *,
    children: Sequence[Manifest] = (),
    gates: Sequence[GateSeen] = (),
    workers: Sequence[WorkerFacts] = (),
    image: str = OURS,
    now: float = scenes.NOON,
) -> Desired:
    observed = Observed(
        deployment=raw,
        inventory=scenes.MIXED,
        children=tuple(children),
        workers=tuple(workers),
        gates=tuple(gates),
        inspection=InspectionSeen(image=image),
    )
    return decide(observed, now_seconds=now)


def asked(**gateway: Any) -> Manifest:
    return scenes.example("chat-and-batch", gateway=GATEWAY | gateway)


def component(desired: Desired) -> str:
    (service,) = [each for each in desired.apply if each["kind"] == "Service"]
    return str(service["spec"]["selector"][COMPONENT_LABEL])


def gates_of(desired: Desired) -> dict[str, Manifest]:
    return {
        each["kind"]: each
        for each in desired.apply
        if each["metadata"]["labels"].get(COMPONENT_LABEL) == GATE_COMPONENT
    }


def question(desired: Desired) -> str:
    return str(gates_of(desired)["Deployment"]["metadata"]["annotations"][GATE_ANNOTATION])


def pod(name: str, made_for: str, **more: Any) -> GateSeen:
    return GateSeen(name=name, uid=f"uid-{name}", question=made_for, is_ready=True, **more)


def worker(name: str, **more: Any) -> WorkerFacts:
    return WorkerFacts(
        name=name, uid=name, pool=POOL, address="10.0.0.7:8000", is_ready=True, **more
    )


def heard(gate: GateSeen, desired: Desired) -> GateSeen:
    """The gate after it was told."""
    (word,) = [each for each in desired.words if each.pod == gate.name]
    return gate.model_copy(
        update={
            "rooms": word.annotations[ROOMS_ANNOTATION],
            "workers": word.annotations[WORKERS_ANNOTATION],
            "standing": word.annotations[STANDING_ANNOTATION],
        }
    )


def test_without_a_gateway_nothing_is_different() -> None:
    off = scenes.example("chat-and-batch", gateway={"enabled": False})
    assert scenes.think(off).apply == think(off).apply
    assert WORKER_COMPONENT == component(think(off))
    assert {} == gates_of(think(off))
    assert "gateway" not in (think(off).status or {})


def test_the_service_waits_for_a_gate_that_knows_its_workers() -> None:
    raw = asked()
    before = think(scenes.example("chat-and-batch", gateway={"enabled": False})).apply
    first = think(raw, children=before)
    assert WORKER_COMPONENT == component(first)
    gate = pod("g", question(first))
    second = think(raw, children=before, gates=[gate])
    assert WORKER_COMPONENT == component(second)
    knows = heard(gate, second)
    third = think(raw, children=before, gates=[knows])
    assert GATE_COMPONENT == component(third)
    assert () == third.words
    unready = knows.model_copy(update={"is_ready": False})
    assert WORKER_COMPONENT == component(think(raw, children=before, gates=[unready]))


def test_once_it_is_the_door_it_stays_the_door() -> None:
    """Past the gates there would be no limit: not even when none is there, or none can be made any more."""
    raw = asked()
    live = think(raw).apply
    assert GATE_COMPONENT == component(think(raw, children=live))
    assert GATE_COMPONENT == component(think(raw, children=live, image=""))
    assert () == think(raw, children=live, image="").delete


def test_switched_off_the_service_turns_first_and_then_the_gates_go() -> None:
    off = scenes.example("chat-and-batch", gateway={"enabled": False})
    live = think(asked()).apply
    turning = think(off, children=live)
    assert WORKER_COMPONENT == component(turning)
    assert () == turning.delete
    turned = [each for each in live if each["kind"] != "Service"] + [
        each for each in turning.apply if each["kind"] == "Service"
    ]
    gone = think(off, children=turned).delete
    assert ["Deployment", "PodDisruptionBudget"] == sorted(each.kind for each in gone)
    assert len({each.name for each in gone}) == 1


@pytest.mark.parametrize(
    ("gateway", "image", "way_out"),
    [
        ({"image": None}, OURS, "name an image of HAProxy"),
        ({}, "", "PLIMSOLL_INSPECTION_IMAGE"),
    ],
)
def test_why_there_is_no_gate_is_told(gateway: dict[str, Any], image: str, way_out: str) -> None:
    found = think(asked(**gateway), image=image)
    assert {} == gates_of(found)
    assert WORKER_COMPONENT == component(found)
    assert way_out in (found.status or {})["gateway"]["message"]


def test_a_configuration_that_is_too_long_is_refused_with_the_numbers() -> None:
    raw = asked()
    raw["spec"]["replicas"] = 900
    found = think(raw)
    assert {} == gates_of(found)
    assert "900 workers" in (found.status or {})["gateway"]["message"]


def test_the_keeper_reads_what_the_operator_writes(tmp_path: Any) -> None:
    raw = asked()
    gate = pod("g", question(think(raw)))
    workers = [
        worker("a"),
        worker("b", is_in_service=False),
        worker("c", is_terminating=True),
        worker("d").model_copy(update={"address": None}),
    ]
    (word,) = think(raw, gates=[gate], workers=workers).words
    assert set(FILES.values()) == {TEXT_ANNOTATION, *word.annotations}
    for file, name in FILES.items():
        (tmp_path / file).write_text(word.annotations.get(name, ""))
    rooms = read_rooms(tmp_path / "rooms.json")
    assert isinstance(rooms, GateRooms)
    assert [POOL] == [each.pool for each in rooms.pools]
    assert [("a", False), ("b", True), ("c", True)] == [
        (each.name, each.is_leaving) for each in read_workers(tmp_path / "workers.json")
    ]
    assert (1, 0) == read_standing(tmp_path / "standing.json")[:2]


def standings(found: Desired) -> dict[str, tuple[int, int, list[str]]]:
    """By gate that is told: gates, its place among them, and whom it yields to."""
    said = {each.pod: json.loads(each.annotations[STANDING_ANNOTATION]) for each in found.words}
    return {
        name: (
            each["gates"],
            each["place"],
            [f"{elder['name']} {elder['page']}" for elder in each.get("elders", ())],
        )
        for name, each in said.items()
    }


def since(gate: GateSeen) -> int:
    return int(json.loads(gate.standing)["since"])


def test_two_gates_have_a_place_each_and_keep_it() -> None:
    raw = asked(replicas=2)
    made_for = question(think(raw))
    a, b = pod("a", made_for), pod("b", made_for)
    first = think(raw, gates=[a, b])
    assert {"a": (2, 0, []), "b": (2, 1, [])} == standings(first)
    later = think(raw, gates=[pod("0", made_for), heard(b, first)])
    assert {"0": (2, 0, [])} == standings(later)


def test_the_next_gate_yields_to_one_that_ends_until_it_is_gone() -> None:
    raw = asked()
    made_for = question(think(raw))
    old = heard(pod("a", made_for), think(raw, gates=[pod("a", made_for)]))
    ends = scenes.NOON + 100
    going = old.model_copy(update={"ends_seconds": ends, "address": "10.0.0.9"})
    new = pod("b", made_for)
    told = think(raw, gates=[going, new])
    assert {"b": (1, 0, ["a 10.0.0.9:8406"])} == standings(told)
    knows_it = heard(new, told)
    assert () == think(raw, gates=[going, knows_it], now=scenes.NOON + 9).words
    assert {"b": (1, 0, [])} == standings(think(raw, gates=[knows_it]))
    lost = think(raw, gates=[going, knows_it], now=ends + LOST_SECONDS + 1)
    assert {"b": (1, 0, [])} == standings(lost)


def handing_over() -> tuple[Manifest, GateSeen, GateSeen, Desired]:
    """Another question, the elder that still serves, the younger, and what both are told."""
    before, after = asked(), asked(queue={"length": 3})
    old = pod("a", question(think(before)), address="fd00::9")
    old = heard(old, think(before, gates=[old]))
    new = pod("b", question(think(after))).model_copy(update={"is_ready": False})
    return after, old, new, think(after, gates=[old, new], now=scenes.NOON + 5)


def test_one_that_is_replaced_shares_with_the_next_one_first() -> None:
    raw, old, new, told = handing_over()
    assert {"a": (2, 0, []), "b": (2, 1, ["a [fd00::9]:8406"])} == standings(told)
    shares, waits = heard(old, told), heard(new, told)
    assert since(shares) > since(old)
    assert [since(shares)] == [each["since"] for each in json.loads(waits.standing)["elders"]]
    assert () == think(raw, gates=[shares, waits], now=scenes.NOON + 20).words
    assert old.rooms == shares.rooms


def test_only_when_the_elder_ends_the_next_one_has_it_all() -> None:
    raw, old, new, told = handing_over()
    shares, waits = heard(old, told), heard(new, told)
    going = shares.model_copy(update={"ends_seconds": scenes.NOON + 100})
    later = think(raw, gates=[going, waits])
    assert {"b": (1, 0, ["a [fd00::9]:8406"])} == standings(later)
    has_it = heard(waits, later)
    assert {"b": (1, 0, [])} == standings(think(raw, gates=[has_it]))


def test_after_a_change_of_mind_the_elder_yields_to_the_younger_that_ends() -> None:
    _, old, new, told = handing_over()
    shares, waits = heard(old, told), heard(new, told)
    assert {"a": (2, 0, ["b "])} == standings(think(asked(), gates=[shares, waits]))
    going = waits.model_copy(update={"ends_seconds": scenes.NOON + 100})
    back = think(asked(), gates=[shares, going])
    assert {"a": (1, 0, ["b "])} == standings(back)
    assert "b" not in {each.pod for each in back.words}


def test_one_that_shares_keeps_yielding_to_a_third_that_ends() -> None:
    """Its half was counted with other lanes: what the third still holds is not in it."""
    _, old, new, told = handing_over()
    shares, waits = heard(old, told), heard(new, told)
    going = waits.model_copy(update={"ends_seconds": scenes.NOON + 100})
    whole = heard(shares, think(asked(), gates=[shares, going]))
    third = asked(queue={"length": 4})
    newest = pod("c", question(think(third)))
    found = standings(think(third, gates=[whole, going, newest]))
    assert {
        "a": (2, 0, ["b "]),
        "c": (2, 1, ["b ", "a [fd00::9]:8406"]),
    } == found


def test_of_two_gates_one_is_replaced_while_the_other_serves() -> None:
    before, after = asked(replicas=2), asked(replicas=2, queue={"length": 3})
    made_for = question(think(before))
    told = think(before, gates=[pod("a", made_for), pod("b", made_for)])
    a, b = (heard(pod(name, made_for), told) for name in "ab")
    going = a.model_copy(update={"ends_seconds": scenes.NOON + 100})
    new = pod("c", question(think(after)))
    assert {"c": (2, 0, ["a ", "b "])} == standings(think(after, gates=[going, b, new]))


def test_the_only_gate_stays_until_the_next_one_serves() -> None:
    def strategy(**gateway: Any) -> dict[str, Any]:
        found: dict[str, Any] = gates_of(think(asked(**gateway)))["Deployment"]["spec"]["strategy"]
        return found

    assert {"maxSurge": 1, "maxUnavailable": 0} == strategy()["rollingUpdate"]
    assert {"maxSurge": 0, "maxUnavailable": 1} == strategy(replicas=2)["rollingUpdate"]


def test_a_newer_operator_and_a_newer_plan_replace_no_gate() -> None:
    raw = asked()
    live = think(raw).apply
    newer = gates_of(think(raw, children=live, image="plimsoll/plimsoll:2"))
    assert gates_of(think(raw)) == newer
    more = asked()
    more["spec"]["replicas"] = 4  # there are places for eight more
    assert gates_of(think(raw)) == gates_of(think(more, children=live))
    more["spec"]["replicas"] = 40
    assert gates_of(think(raw)) != gates_of(think(more, children=live))


def test_other_lanes_replace_it() -> None:
    raw = asked()
    live = think(raw).apply
    raw["spec"]["traffic"]["lanes"][0]["queue"] = {"length": 3}
    assert question(think(asked())) != question(think(raw, children=live))


def test_gates_are_no_workers_and_no_pool() -> None:
    found = gates_of(think(asked()))
    template = found["Deployment"]["spec"]["template"]
    assert POOL_LABEL not in template["metadata"]["labels"]
    assert template["spec"]["automountServiceAccountToken"] is False
    sizes = [len(value) for value in template["metadata"]["annotations"].values()]
    assert sum(sizes) < 256 << 10


def test_keys_are_mounted_for_the_keeper_only() -> None:
    spec = gates_of(think(asked(keysSecret="keys")))["Deployment"]["spec"]["template"]["spec"]
    mounted = {
        each["name"]: [mount["name"] for mount in each["volumeMounts"]]
        for each in (*spec["initContainers"], *spec["containers"])
    }
    assert {"prepare": True, "haproxy": False, "keeper": True} == {
        name: "keys" in mounts for name, mounts in mounted.items()
    }


def test_bytes_per_token_reach_a_gate_that_runs() -> None:
    """The keeper sets them while HAProxy runs: no new gate."""
    raw = asked()
    gate = pod("g", question(think(raw)))
    gate = heard(gate, think(raw, gates=[gate]))
    raw["spec"]["traffic"]["lanes"][1]["bytesPerToken"] = 1.8
    assert question(think(asked())) == question(think(raw))
    (word,) = think(raw, gates=[gate]).words
    rooms = GateRooms.model_validate_json(word.annotations[ROOMS_ANNOTATION])
    assert [None, 180] == [each.bytes_per_token_hundredths for each in rooms.lanes]


@pytest.mark.parametrize(
    ("asked_for", "state", "is_spread"),
    [
        (None, None, False),
        (None, "Watching", False),
        (None, "NothingToGain", True),
        ("Auto", "Advised", True),
        ("On", "Advised", False),
        ("Off", None, True),
    ],
)
def test_sessions_are_spread_where_the_prefix_cache_finds_little(
    asked_for: str | None, state: str | None, is_spread: bool
) -> None:
    raw = asked(affinity="Session")
    if asked_for is not None:
        raw["spec"]["kvCache"] = {"prefixCaching": asked_for}
    first = think(raw)
    (pool,) = (first.status or {})["pools"]
    if state is not None:
        pool["prefixCaching"] = {"state": state, "since": "2026-11-29T00:00:00Z"}
    raw["status"] = first.status
    (word,) = think(raw, gates=[pod("g", question(first))]).words
    rooms = GateRooms.model_validate_json(word.annotations[ROOMS_ANNOTATION])
    assert is_spread == rooms.spreads_sessions
