"""How do spec and status read to the one who decides about recycles?"""

from __future__ import annotations

from growing import HOUR, NOON
from plimsoll.api.judged import Watched
from plimsoll.api.recycling import budget_left, drain_seconds, pasts, policy_of, seconds_of, text_of
from plimsoll.api.status_types import RecycleEntry, read_status
from plimsoll.api.traffic import RecyclingSpec
from plimsoll.diagnose.records import VerdictKind
from plimsoll.diagnose.recycle import Mode, Past, Policy, Window


def spec(**written: object) -> RecyclingSpec:
    return RecyclingSpec.model_validate(written)


def entry(at: str = "2026-11-28T12:00:00Z", **more: object) -> RecycleEntry:
    return RecycleEntry.model_validate({"pod": "a", "at": at, "reason": "Growth"} | more)


def test_nothing_written_is_the_policy_as_measured() -> None:
    assert Policy() == policy_of(spec(), Watched())


def test_what_is_written_holds_as_it_is() -> None:
    policy = policy_of(
        spec(
            mode="Observe",
            timeToLimit="12h",
            cooldown="2h",
            maxPerDay=1,
            surge="Never",
            recycleHung=False,
            windows=[{"days": ["Sat", "Sun"], "start": "22:30", "end": "04:00"}],
        ),
        Watched(hour_seconds=36.0),
    )
    assert (Mode.OBSERVE, 12 * HOUR, 2 * HOUR, 1, False, False) == (
        policy.mode,
        policy.urgent_seconds,
        policy.cooldown_seconds,
        policy.max_per_day,
        policy.may_surge,
        policy.recycle_hung,
    )
    assert (Window(22 * 60 + 30, 4 * 60, (5, 6)),) == policy.windows


def test_shorter_hours_shorten_what_is_not_written() -> None:
    policy = policy_of(spec(), Watched(hour_seconds=36.0))
    assert (36.0, 6 * 36.0, 24 * 36.0) == (
        policy.warm_up_seconds,
        policy.cooldown_seconds,
        policy.relapse_seconds,
    )


def test_a_drain_has_ten_minutes_unless_written() -> None:
    assert (600.0, 90.0) == (drain_seconds(spec()), drain_seconds(spec(drainTimeout="90s")))


def test_a_date_that_cannot_be_read_counts_as_now_and_a_reason_as_growth() -> None:
    (past,) = pasts([entry(at="yesterday", reason="TooOld")], NOON)
    assert (NOON, VerdictKind.GROWTH) == (past.at_seconds, past.verdict)


def test_the_budget_counts_what_was_intended_in_a_day() -> None:
    past = [Past(NOON - hours * HOUR, "a", "u", "p", VerdictKind.GROWTH) for hours in (1, 23, 25)]
    assert 2 == budget_left(Policy(), past, 2, NOON)
    assert 0 == budget_left(Policy(max_per_day=1), past, 2, NOON)
    assert 4 == budget_left(Policy(), past, 100, NOON)


def test_times_are_read_as_they_are_written() -> None:
    assert NOON == seconds_of(text_of(NOON))
    assert (None, None) == (seconds_of(None), seconds_of("soon"))


def test_an_entry_that_cannot_be_read_loses_itself_and_not_the_record() -> None:
    raw = {
        "recycling": {"total": 3, "history": [{"pod": "a"}, {"pod": "b", "at": "x", "reason": "y"}]}
    }
    recycling = read_status(raw).recycling
    assert recycling is not None
    assert (3, ["b"]) == (recycling.total, [each.pod for each in recycling.history])
