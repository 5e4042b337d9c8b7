"""Do conditions keep their date while they hold?"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from plimsoll.api.conditions import (
    Condition,
    ConditionName,
    ConditionReason,
    Tristate,
    set_conditions,
)

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def ready(status: Tristate, reason: str = "WarmingUp", at: str | None = None) -> Condition:
    return Condition(
        type=ConditionName.READY, status=status, reason=reason, last_transition_time=at
    )


def test_a_new_condition_is_dated_now() -> None:
    assert tuple(
        each.last_transition_time for each in set_conditions((), (ready(Tristate.TRUE),), NOW)
    ) == (NOW,)


def test_a_condition_that_holds_keeps_its_date_when_the_reason_changes() -> None:
    before = ready(Tristate.FALSE, "WarmingUp", EARLIER)
    (after,) = set_conditions((before,), (ready(Tristate.FALSE, "RollingOut"),), NOW)
    assert (after.reason, after.last_transition_time) == ("RollingOut", EARLIER)


def test_a_condition_that_turns_is_dated_now() -> None:
    before = ready(Tristate.FALSE, at=EARLIER)
    (after,) = set_conditions((before,), (ready(Tristate.TRUE),), NOW)
    assert after.last_transition_time == NOW


def test_a_condition_without_a_date_gets_one() -> None:
    (after,) = set_conditions((ready(Tristate.TRUE),), (ready(Tristate.TRUE),), NOW)
    assert after.last_transition_time == NOW


def test_setting_twice_changes_nothing() -> None:
    once = set_conditions((), (ready(Tristate.TRUE),), EARLIER)
    assert once == set_conditions(once, (ready(Tristate.TRUE),), NOW)


def test_a_condition_that_is_not_wanted_any_more_is_gone() -> None:
    stalled = Condition(type=ConditionName.STALLED, status=Tristate.TRUE, reason="SpecInvalid")
    assert tuple(
        each.type for each in set_conditions((stalled,), (ready(Tristate.TRUE),), NOW)
    ) == ("Ready",)


def test_the_order_is_always_the_same() -> None:
    wanted = tuple(
        Condition(type=name, status=Tristate.TRUE, reason="Steady") for name in ConditionName
    )
    assert set_conditions((), wanted, NOW) == set_conditions((), wanted[::-1], NOW)
    places = [
        list(ConditionName).index(ConditionName(each.type))
        for each in set_conditions((), wanted[::-1], NOW)
    ]
    assert all(one < other for one, other in pairwise(places))


@pytest.mark.parametrize("reason", list(ConditionReason))
def test_reasons_are_facts_in_pascal_case(reason: ConditionReason) -> None:
    """The pattern of metav1.Condition, without the characters that we do not use."""
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)
