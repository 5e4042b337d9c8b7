"""Waiting on the driver: events where it has them, time where it has not."""

from __future__ import annotations

import threading
import time

from nvml_box import A6000, Box
from plimsoll.agent import events

WITH_EVENTS = {**A6000, "events": 8}


class Patient:
    """Says how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return False


def test_an_event_ends_the_wait(box: Box) -> None:
    box.say(WITH_EVENTS, event=0)
    told = threading.Timer(0.1, lambda: box.say(WITH_EVENTS, event=79))
    told.start()
    started = time.monotonic()
    assert events.wait(60.0, is_over=Patient())
    assert time.monotonic() - started < 30.0
    told.join()


def test_without_an_event_it_waits_as_long_as_it_was_told(box: Box) -> None:
    box.say(WITH_EVENTS)
    patient = Patient()
    assert not events.wait(0.2, is_over=patient, slice_seconds=0.1)
    assert [0.0, 0.0] == patient.waited


def test_the_end_is_heard_between_two_slices(box: Box) -> None:
    box.say(WITH_EVENTS)
    assert not events.wait(3600.0, is_over=lambda _: True, slice_seconds=0.05)


def test_a_card_that_is_added_ends_the_wait(box: Box) -> None:
    """With events of cards beside it or without."""
    for card in (WITH_EVENTS, A6000):
        box.say(card, system_events=1, bound=0)
        plugged = threading.Timer(0.1, lambda c=card: box.say(c, system_events=1, bound=1))
        plugged.start()
        started = time.monotonic()
        assert events.wait(60.0, is_over=Patient(), slice_seconds=0.2)
        assert time.monotonic() - started < 30.0
        plugged.join()


def test_a_driver_that_goes_away_meanwhile_calls_for_a_look(box: Box) -> None:
    box.say(WITH_EVENTS)

    def ends(seconds: float) -> bool:
        box.say(WITH_EVENTS, **{"event.error": 15})
        return False

    assert events.wait(60.0, is_over=ends, slice_seconds=0.05)


def test_an_older_driver_has_events_of_cards_only(old_box: Box) -> None:
    old_box.say(WITH_EVENTS, event=0, system_events=1)
    told = threading.Timer(0.1, lambda: old_box.say(WITH_EVENTS, event=79))
    told.start()
    assert events.wait(60.0, is_over=Patient())
    told.join()


def test_a_driver_without_events_is_waited_for_by_the_clock(box: Box) -> None:
    for said in ({}, {"event_set.error": 13}, {"event.error": 15}, {"init.error": 9}):
        patient = Patient()
        box.say(WITH_EVENTS if said else A6000, **said)
        assert not events.wait(120.0, is_over=patient)
        assert [120.0] == patient.waited
