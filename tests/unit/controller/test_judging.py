"""Who is judged when, and under which settings?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import growing
from plimsoll.controller.judging import Judge, slope_of, slope_settings
from plimsoll.controller.settings import Settings
from plimsoll.decide import Key, Observed
from plimsoll.diagnose.settings import DEFAULT
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.series import ContainerLife, EngineSample, WorkerHistory
from plimsoll.units import MIB

KEY = Key(namespace="team", name="chat")
NOON = growing.NOON


def history(name: str, *, pool: str = "h100", **changes: Any) -> WorkerHistory:
    life = ContainerLife(pod_uid=f"uid-{name}", container="engine", started_seconds=0.0)
    return WorkerHistory(life=life, pod=name, pool=pool)._replace(**changes)


class Room:
    """A judge, and what was asked of the one it asks."""

    def __init__(self, *histories: WorkerHistory, **settings: Any) -> None:
        self.histories = histories
        self.asked: list[tuple[str, list[str], float]] = []
        self.judge = Judge(
            Settings(identity="me", **settings),
            histories=lambda _: self.histories,
            judge=self.judge_one,
            started_seconds=1.0,
        )

    def judge_one(
        self, one: WorkerHistory, peers: Any, *, now_seconds: float, settings: Any
    ) -> Any:
        self.asked.append((one.pod, [peer.pod for peer in peers], settings.slope_bytes_per_hour))
        return growing.verdict()

    def watched(self, now: float = NOON, **recycling: Any) -> Any:
        deployment = {"metadata": {}, "spec": {"recycling": recycling}}
        observed = Observed(deployment=deployment, inventory=Inventory())
        return asyncio.run(self.judge.watched(KEY, observed, now_seconds=now))


def test_within_a_minute_nobody_is_judged_twice() -> None:
    room = Room(history("a"))
    room.watched()
    room.watched(NOON + 59)
    assert 1 == len(room.asked)
    room.watched(NOON + 60)
    assert 2 == len(room.asked)


def test_a_restart_is_judged_anew_at_once() -> None:
    room = Room(history("a"))
    room.watched()
    life = ContainerLife(pod_uid="uid-a", container="engine", started_seconds=9.0)
    room.histories = (history("a", life=life),)
    room.watched()
    assert 2 == len(room.asked)


def test_a_changed_slope_is_judged_anew_at_once() -> None:
    room = Room(history("a"))
    room.watched()
    room.watched(slope="200Mi")
    assert [DEFAULT.slope_bytes_per_hour, 200 * MIB] == [asked[2] for asked in room.asked]


def test_peers_are_those_of_the_pool() -> None:
    room = Room(history("a"), history("b"), history("c", pool="other"))
    room.watched()
    assert [("a", ["b"]), ("b", ["a"]), ("c", [])] == [asked[:2] for asked in room.asked]


def test_what_is_in_flight_is_the_newest_even_when_the_verdict_is_kept() -> None:
    room = Room(history("a", engine=(EngineSample(NOON - 1, running=2.0, waiting=1.0),)))
    assert (3.0, NOON - 1) == (room.watched().judged[0][5], room.watched().judged[0][6])
    room.histories = (history("a", engine=(EngineSample(NOON, running=0.0),)),)
    assert 0.0 == room.watched().judged[0].in_flight
    assert 1 == len(room.asked)


def test_a_mistake_about_one_worker_leaves_it_unknown_and_the_others_judged() -> None:
    room = Room(history("a"), history("b"))

    def judge(one: WorkerHistory, _: Any, /, *, now_seconds: float, settings: Any) -> Any:
        if one.pod == "a":
            raise OverflowError("of the arithmetic")
        return growing.verdict()

    room.judge._judge = judge
    kinds = [each.verdict.kind.value for each in room.watched().judged]
    assert ["Unknown", "Growth"] == kinds


def test_who_is_gone_is_forgotten() -> None:
    room = Room(history("a"))
    room.watched()
    room.histories = ()
    assert () == room.watched().judged
    room.judge.forget(KEY)


def test_terms_are_those_of_the_settings() -> None:
    watched = Room(hour_seconds=36.0, stale_seconds=4.0, settle_seconds=5.0).watched()
    assert (1.0, 5.0, 4.0, 36.0) == (
        watched.operator_started_seconds,
        watched.settle_seconds,
        watched.stale_seconds,
        watched.hour_seconds,
    )


def test_the_detector_is_as_measured_unless_hours_are_shorter() -> None:
    assert DEFAULT == slope_settings(Settings(identity="me"))
    short = slope_settings(Settings(identity="me", hour_seconds=36.0, stale_seconds=3.6))
    assert (36.0, 0.1) == (short.hour_seconds, round(short.stale_hours, 6))


@pytest.mark.parametrize("recycling", [None, "often", {}, {"slope": ["1Gi"]}, {"slope": "much"}])
def test_a_slope_that_cannot_be_read_is_for_decide_to_tell(recycling: Any) -> None:
    assert 7.0 == slope_of({"spec": {"recycling": recycling}}, 7.0)
    assert 7.0 == slope_of({"spec": None}, 7.0)
