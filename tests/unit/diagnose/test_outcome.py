from __future__ import annotations

import pytest

from plimsoll.diagnose.case import Past, Policy, Worker
from plimsoll.diagnose.outcome import outcome
from plimsoll.diagnose.records import Doubt, Finding, Trend, Verdict, VerdictKind
from plimsoll.units import GIB

HOUR = 3600.0
DONE = 100 * HOUR
PAST = Past(
    at_seconds=DONE - HOUR,
    pod="chat-0",
    uid="old",
    pool="h100",
    verdict=VerdictKind.QUIET_GROWTH,
    floor_bytes=20 * GIB,
    ended_seconds=DONE,
)


def successor(
    kind: VerdictKind = VerdictKind.STEADY,
    *,
    floor_bytes: int = 9 * GIB,
    doubt: Doubt | None = None,
) -> Worker:
    trend = Trend.RISING if kind is not VerdictKind.STEADY else Trend.FLAT
    finding = Finding(trend=trend, floor_bytes=floor_bytes, doubt=doubt)
    said = Verdict(kind=kind, sentence="So.", finding=finding)
    return Worker("chat-1", "new", "h100", said, ready_seconds=DONE)


CASES = [
    ("too early", successor(), 5, None),
    ("well for a day", successor(), 25, True),
    ("grows again", successor(VerdictKind.GROWTH), 9, False),
    (
        "grows, and may be filling",
        successor(VerdictKind.QUIET_GROWTH, doubt=Doubt.MAY_BE_FILLING),
        9,
        None,
    ),
    ("grows without a doubt", successor(VerdictKind.QUIET_GROWTH), 9, False),
    ("hung again", successor(VerdictKind.HUNG), 2, False),
    ("freed nothing", successor(floor_bytes=20 * GIB), 2, False),
    ("freed a little", successor(floor_bytes=18 * GIB), 2, None),
    ("nobody known", None, 2, None),
]


@pytest.mark.parametrize(("name", "worker", "hours", "helped"), CASES)
def test_a_recycle_helped_or_did_not(
    name: str, worker: Worker | None, hours: float, helped: bool | None
) -> None:
    assert helped == outcome(PAST, worker, Policy(), DONE + hours * HOUR), name


def test_what_was_said_once_stays() -> None:
    assert outcome(PAST._replace(helped=False), successor(), Policy(), DONE + 99 * HOUR) is False
