"""Promises held while everything fails: three minutes of what `make soak` does for thirty.

Then the checker itself: a history in which something bad happened is found out, one bad thing at a time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from installation import USER
from soak import Outcome, Soak, ground, report
from soak_checks import (
    CHECKS,
    Cause,
    Deed,
    Departure,
    History,
    Quiet,
    Sight,
    Write,
    violations,
)
from soak_faults import FAULTS, Fault, Happened

SEED: Final = 20261130
ROUNDS: Final = 2
"""A dozen faults each: every kind that fits once."""


def test_promises_hold_while_everything_fails() -> None:
    with ground() as made:
        outcome = Soak(made, SEED).run(minutes=0.0, rounds=ROUNDS)
    said = "\n".join((*outcome.violations, outcome.sequence()))
    assert not outcome.violations, said
    could = {each.fault for each in outcome.happened if each.could}
    assert len(could) >= 18, f"too few kinds could be brought about\n{said}"
    assert outcome.history.departures, f"no worker ever went, so nothing was tried\n{said}"


def test_every_kind_of_fault_can_be_brought_about() -> None:
    assert set(Fault) == set(FAULTS)


# ---- the checker --------------------------------------------------------------------------------

NAMESPACE: Final = "/apis/apps/v1/namespaces/soak"
POOL: Final = f"{NAMESPACE}/deployments/steady-h100"
STATUS: Final = "/apis/plimsoll.dev/v1alpha1/namespaces/soak/inferencedeployments/steady/status"
REPLICASETS: Final = "system:serviceaccount:kube-system:replicaset-controller"
WORKER: Final = "steady-h100-5d4f-abcde"


def applied(at: float, replicas: int, image: str = "v1") -> Write:
    spec = {"replicas": replicas, "template": {"spec": {"containers": [{"image": image}]}}}
    return Write(at, "PATCH", POOL, {"spec": spec})


def told(at: float, *pods: str) -> Write:
    history = [{"pod": pod, "phase": "Evicting"} for pod in pods]
    return Write(at, "PATCH", STATUS, {"status": {"recycling": {"history": history}}})


LEFT: Final[dict[str, Any]] = {"spec": {"replicas": 3}, "labels": None}
GOOD: Final = History(
    deeds=(
        Deed(10.0, Cause.SCALED_DOWN, "steady"),
        Deed(40.0, Cause.EDITED, "steady"),
        Deed(70.0, Cause.WORKER_KILLED, pod="steady-h100-5d4f-other"),
    ),
    writes=(
        applied(1.0, 3),
        applied(11.0, 2),
        applied(41.0, 2, "v2"),
        told(80.0, WORKER),
        Write(81.0, "POST", f"/api/v1/namespaces/soak/pods/{WORKER}/eviction", {}),
    ),
    departures=(
        Departure(12.0, "steady-h100-5d4f-third", "steady", REPLICASETS),
        Departure(70.5, "steady-h100-5d4f-other", "steady", "admin"),
        Departure(81.0, WORKER, "steady", USER, is_eviction=True),
    ),
    sights=(Sight(5.0, "steady", LEFT, LEFT),),
    quiets=(Quiet(20.0, 5.0), Quiet(50.0, 5.0)),
    budgets={"steady": 1, "other": 0},
)
"""A soak in which a user scaled and edited, somebody deleted a worker and one was recycled."""
BAD: Final[dict[str, tuple[History, str]]] = {
    "a worker that nobody asked to go": (
        GOOD._replace(
            departures=(*GOOD.departures, Departure(60.0, "steady-x", "steady", REPLICASETS))
        ),
        "nothing explains it",
    ),
    "a worker that went after all had been well again": (
        GOOD._replace(
            departures=(*GOOD.departures, Departure(30.0, "steady-x", "steady", REPLICASETS))
        ),
        "nothing explains it",
    ),
    "a worker that vanished from the log": (
        GOOD._replace(departures=(*GOOD.departures, Departure(60.0, "steady-x", "steady", ""))),
        "nobody that the audit log names",
    ),
    "a worker that the operator deleted": (
        GOOD._replace(departures=(*GOOD.departures, Departure(90.0, "steady-x", "steady", USER))),
        "nothing explains it",
    ),
    "an eviction that was not on record": (
        GOOD._replace(writes=tuple(w for w in GOOD.writes if w.path != STATUS)),
        "nothing explains it",
    ),
    "an eviction that was recorded afterwards": (
        GOOD._replace(writes=(*(w for w in GOOD.writes if w.path != STATUS), told(82.0, WORKER))),
        "nothing explains it",
    ),
    "one eviction too many": (
        GOOD._replace(
            writes=(*GOOD.writes, told(90.0, WORKER, "steady-x")),
            departures=(*GOOD.departures, Departure(91.0, "steady-x", "steady", USER, True)),
        ),
        "steady may have 1 recycles and had 2",
    ),
    "an eviction where none is allowed": (
        GOOD._replace(
            writes=(
                *GOOD.writes,
                told(90.0)._replace(path=STATUS.replace("steady", "other"), body=told(0, "o").body),
            ),
            departures=(*GOOD.departures, Departure(91.0, "o", "other", USER, True)),
        ),
        "other may have 0",
    ),
    "a write to the user's object": (
        GOOD._replace(
            writes=(*GOOD.writes, Write(90.0, "PATCH", STATUS.removesuffix("/status"), {}))
        ),
        "the operator sent PATCH",
    ),
    "a pod that was deleted instead": (
        GOOD._replace(
            writes=(*GOOD.writes, Write(90.0, "DELETE", "/api/v1/namespaces/soak/pods/p", {}))
        ),
        "the operator sent DELETE",
    ),
    "another field of a pod": (
        GOOD._replace(
            writes=(
                *GOOD.writes,
                Write(
                    90.0,
                    "PATCH",
                    "/api/v1/namespaces/soak/pods/p",
                    [{"op": "replace", "path": "/spec/nodeName", "value": "x"}],
                ),
            )
        ),
        "/spec/nodeName",
    ),
    "a finalizer on the user's object": (
        GOOD._replace(
            sights=(*GOOD.sights, Sight(90.0, "steady", LEFT, LEFT | {"finalizers": ["kopf"]}))
        ),
        "finalizers",
    ),
    "fewer workers, unasked": (
        GOOD._replace(writes=(*GOOD.writes, applied(90.0, 1, "v2"))),
        "1 workers after 2, unasked",
    ),
    "another template, unasked": (
        GOOD._replace(writes=(*GOOD.writes, applied(90.0, 2, "v3"))),
        "another template, unasked: .spec.containers",
    ),
    "a pool deleted, unasked": (
        GOOD._replace(writes=(*GOOD.writes, Write(90.0, "DELETE", POOL, {}))),
        "deleted Deployment steady-h100",
    ),
    "never well again": (
        GOOD._replace(quiets=(*GOOD.quiets, Quiet(90.0, 150.0, "steady: not ready"))),
        "150 s without faults and steady: not ready",
    ),
    "still writing": (
        GOOD._replace(quiets=(*GOOD.quiets, Quiet(90.0, 5.0, "", ("PATCH /a",)))),
        "there was still written: PATCH /a",
    ),
}


def test_a_good_history_has_no_violation() -> None:
    assert () == violations(GOOD, operator=USER)


@pytest.mark.parametrize("what", BAD)
def test_a_planted_violation_is_found(what: str) -> None:
    history, sentence = BAD[what]
    (found,) = violations(history, operator=USER)
    assert sentence in found


def test_every_check_finds_something() -> None:
    finding = {
        check.__name__ for history, _ in BAD.values() for check in CHECKS if check(history, USER)
    }
    assert {check.__name__ for check in CHECKS} == finding


def test_the_report_counts_faults_and_names_what_was_violated() -> None:
    happened = (
        Happened(1.0, Fault.SCALED, "steady: 3 to 2"),
        Happened(2.0, Fault.NODE_GONE, "h100-0", could=False),
    )
    outcome = Outcome(
        seed=7,
        seconds=120.0,
        happened=happened,
        history=GOOD,
        violations=("a promise was broken",),
        exits=Counter({"exit 1": 2}),
        looks=9,
    )
    page = report(outcome, "make soak")
    assert "| the user scales | 1 | 0 |" in page
    assert "| node deleted and back | 0 | 1 |" in page
    assert "| the user wants fewer | 1 |" in page
    assert "| evictions of `steady`, of 1 allowed | 1 |" in page
    assert "- a promise was broken" in page
    assert outcome.sequence().startswith("seed 7\n      1.0 s  the user scales: steady: 3 to 2")
    assert "could not be brought about" in outcome.sequence()
