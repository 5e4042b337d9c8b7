"""Do lanes, workers and refusals add up over gates, and over the time between two looks?"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.gate.figures import LaneFigures, Page, Sample, WorkerFigures, figures_of
from plimsoll.gate.tally import WAIT_BOUNDS_SECONDS, Line, Tally


def of(name: str, value: float, **labels: str) -> Sample:
    return Sample(f"plimsoll_gate_{name}", labels, value)


def lane(name: str, planned: int, slots: int, running: int, *, worker: str = "a") -> Page:
    where = {"lane": name, "worker": worker}
    return (
        of("slots", slots, **where),
        of("planned_slots", planned, **where),
        of("in_flight", running, **where),
    )


def waits(name: str, *seconds: float) -> Page:
    """As the keeper tells them."""
    bounds = (*WAIT_BOUNDS_SECONDS, math.inf)
    return tuple(
        of(
            "wait_seconds_bucket",
            sum(each <= bound for each in seconds),
            lane=name,
            le="+Inf" if bound == math.inf else f"{bound:g}",
        )
        for bound in bounds
    )


def ended(name: str, status: str, reason: str, count: int) -> Sample:
    return of("requests_total", count, lane=name, status=status, reason=reason)


PAGE: Page = (
    of("answers", 1),
    of("unseated_workers", 0),
    of("commands_refused_total", 2),
    of("promised_tokens", 900, worker="a"),
    of("kv_tokens", 1000, worker="a"),
    of("promised_sequences", 9, worker="a"),
    of("sequences", 12, worker="a"),
    *lane("chat", 6, 8, 7),
    *lane("batch", 3, 1, 1),
    of("queued", 4, lane="chat"),
    of("queued", 0, lane="batch"),
    ended("chat", "200", "", 90),
    ended("chat", "429", "queue_full", 6),
    ended("chat", "429", "queue_wait", 3),
    ended("chat", "503", "no_worker", 1),
    ended("-", "404", "not_found", 50),
    *waits("chat", *[0.004] * 90, 0.9, 2.0, 2.0, 2.0, 2.0),
)


def test_a_page_says_slots_lent_queue_refusals_and_waits_of_each_lane() -> None:
    chat, batch = figures_of([PAGE]).lanes
    assert chat == LaneFigures(
        name="chat",
        planned_slots=6,
        slots=8,
        borrowed=2,
        lent=0,
        in_flight=7,
        queued=4,
        requests=100,
        refused={"queue_full": 6, "queue_wait": 3},
        failed=1,
        waits=95,
        wait_p95_seconds=1.0,
    )
    assert ("batch", 0, 2, 0, None) == (
        batch.name, batch.borrowed, batch.lent, batch.requests, batch.wait_p95_seconds,
    )  # fmt: skip


def test_gates_share_the_plan_and_a_worker_is_told_whole_by_each() -> None:
    both = figures_of([PAGE, PAGE])
    assert (2, 0, 4) == (both.gates, both.silent, both.commands_refused)
    assert [(12, 16, 4)] == [
        (each.planned_slots, each.slots, each.borrowed)
        for each in both.lanes
        if each.name == "chat"
    ]
    assert (
        WorkerFigures(
            name="a", promised_tokens=1800, kv_tokens=1000, promised_sequences=18, sequences=12
        ),
    ) == both.workers
    assert both.workers[0].is_over
    assert not figures_of([PAGE]).workers[0].is_over


def test_what_one_gate_lends_and_another_borrows_is_not_lent() -> None:
    gives, takes = lane("chat", 4, 2, 0), lane("chat", 4, 6, 6)
    (chat,) = figures_of([gives, takes]).lanes
    assert (8, 8, 0, 0) == (chat.planned_slots, chat.slots, chat.borrowed, chat.lent)


def test_between_two_looks_only_counters_are_taken_apart() -> None:
    later = tuple(
        sample._replace(value=sample.value + 10)
        if sample.name.endswith(("requests_total", "bucket"))
        else sample
        for sample in PAGE
    )
    chat, _ = figures_of([later], [PAGE]).lanes
    assert (40, {"queue_full": 10, "queue_wait": 10}) == (chat.requests, chat.refused)
    assert (10, 0.005) == (chat.waits, chat.wait_p95_seconds)
    assert (8, 7, 4) == (chat.slots, chat.in_flight, chat.queued)


def test_a_keeper_that_began_anew_counts_from_its_start() -> None:
    fresh = [ended("chat", "200", "", 5), of("queued", 0, lane="chat")]
    (chat,) = figures_of([fresh], [PAGE]).lanes
    assert chat.requests == 5


def test_a_silent_gate_and_no_page_claim_nothing() -> None:
    silent = figures_of([(of("answers", 0),)])
    assert (1, 1, (), ()) == (silent.gates, silent.silent, silent.lanes, silent.workers)
    assert figures_of([]).gates == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_the_wait_is_the_keepers_own(seconds: list[float]) -> None:
    """Read back from its page, it is what its tally says; above the largest bound there is none."""
    tally = Tally()
    for each in seconds:
        tally.add(Line("chat", 200, "", each, None))
    page = (*waits("chat", *seconds), of("queued", 0, lane="chat"))
    (chat,) = figures_of([page]).lanes
    known = tally.waited_p95_seconds("chat")
    assert (None if known == math.inf else known) == chat.wait_p95_seconds
    assert len(seconds) == chat.waits
