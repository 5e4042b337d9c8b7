"""Who is visited next, without waiting for anybody."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.controller.queue import Schedule, WorkQueue, delay_seconds
from plimsoll.decide import Key


def key(name: str) -> Key:
    """A key."""
    return Key(namespace="n", name=name)


A, B, C = key("a"), key("b"), key("c")


def test_a_key_put_twice_is_visited_once() -> None:
    schedule = Schedule()
    schedule.put(A, 1.0)
    schedule.put(A, 0.5)
    schedule.put(A, 2.0)
    assert schedule.take(0.4) is None
    assert A == schedule.take(0.5)
    schedule.done(A)
    assert schedule.take(9.0) is None


def test_a_key_put_during_its_visit_is_visited_once_more_and_never_twice_at_once() -> None:
    schedule = Schedule()
    schedule.put(A, 0.0)
    assert A == schedule.take(0.0)
    schedule.put(A, 0.0)
    schedule.put(A, 0.0)
    assert schedule.take(1.0) is None
    schedule.done(A)
    assert A == schedule.take(1.0)
    schedule.done(A)
    assert schedule.take(1.0) is None


def test_a_key_under_visit_holds_nobody_up() -> None:
    schedule = Schedule()
    schedule.put(A, 0.0)
    assert A == schedule.take(0.0)
    schedule.put(A, 0.0)
    schedule.put(B, 1.0)
    assert B == schedule.take(1.0)


def test_those_due_longest_come_first_but_urgent_ones_before_them() -> None:
    schedule = Schedule()
    schedule.put(B, 2.0)
    schedule.put(A, 1.0)
    schedule.put(C, 3.0, is_urgent=True)
    assert A == schedule.take(2.5)
    assert C == schedule.take(3.0)
    assert B == schedule.take(3.0)


def test_a_lazy_key_becomes_urgent_when_asked() -> None:
    schedule = Schedule()
    schedule.put(A, 0.0)
    schedule.put(B, 5.0)
    schedule.put(B, 1.0, is_urgent=True)
    assert B == schedule.take(1.0)
    assert A == schedule.take(1.0)
    assert schedule.take(9.0) is None


def test_an_urgent_wish_for_later_does_not_put_off_an_earlier_one() -> None:
    schedule = Schedule()
    schedule.put(A, 1.0)
    schedule.put(A, 5.0, is_urgent=True)
    assert A == schedule.take(1.0)
    schedule.done(A)
    assert schedule.take(9.0) is None


def test_what_is_gone_is_not_due_and_starts_anew() -> None:
    schedule = Schedule()
    schedule.put(A, 0.0)
    assert A == schedule.take(0.0)
    assert 1 == schedule.failed(A)
    schedule.put(A, 0.0)
    schedule.forget(A)
    assert schedule.take(9.0) is None
    assert 1 == schedule.failed(A)


def test_when_the_next_one_is_due_leaves_out_those_under_visit() -> None:
    schedule = Schedule()
    assert schedule.next_due_seconds() is None
    schedule.put(A, 0.0)
    schedule.take(0.0)
    schedule.put(A, 1.0)
    schedule.put(B, 7.0)
    assert 7.0 == schedule.next_due_seconds()
    assert 2 == schedule.waiting()
    assert 1 == schedule.running()


@pytest.mark.parametrize(
    ("failures", "chance", "seconds"),
    [
        (1, 0.5, 1.0),
        (2, 0.5, 2.0),
        (5, 0.5, 16.0),
        (5, 0.0, 12.8),
        (5, 1.0, 19.2),
        (99, 0.5, 300.0),
    ],
)
def test_the_more_failures_the_longer_the_wait(
    failures: int, chance: float, seconds: float
) -> None:
    assert seconds == pytest.approx(delay_seconds(failures, chance))


def test_in_an_outage_nobody_waits_longer_than_asked() -> None:
    assert 30.0 == delay_seconds(99, 0.5, longest_seconds=30.0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "urgent", "take", "done", "fail"]), st.sampled_from("abc")),
    max_size=60,
)


@given(STEPS)
def test_no_key_is_lost_and_none_is_visited_twice_at_once(steps: list[tuple[str, str]]) -> None:
    schedule = Schedule()
    wanted: set[Key] = set()
    running: set[Key] = set()
    for now, (step, name) in enumerate(steps):
        each = key(name)
        match step:
            case "put" | "urgent":
                schedule.put(each, now, is_urgent=step == "urgent")
                wanted.add(each)
            case "take":
                taken = schedule.take(now)
                assert (taken is None) == (not wanted - running)
                if taken is not None:
                    assert taken not in running
                    running.add(taken)
                    wanted.discard(taken)
            case "done" | "fail" if each in running:
                schedule.done(each) if step == "done" else schedule.failed(each)
                running.discard(each)
    assert len(wanted) == schedule.waiting()
    assert len(running) == schedule.running()


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def queue(clock: Clock) -> WorkQueue:
    """A queue without chance."""
    return WorkQueue(clock=clock, chance=lambda: 0.5)


def test_a_worker_gets_what_is_put_and_nothing_after_the_end() -> None:
    async def run() -> list[Key | None]:
        work = queue(Clock())
        waiting = [asyncio.create_task(work.take()) for _ in range(2)]
        await asyncio.sleep(0)
        work.put(A)
        first = await waiting[0]
        work.close()
        return [first, await waiting[1], await work.take()]

    assert [A, None, None] == asyncio.run(run())


def test_a_failed_key_comes_back_by_itself() -> None:
    async def run() -> None:
        clock = Clock()
        work = queue(clock)
        work.put(A)
        assert A == await work.take()
        assert 1.0 == work.failed(A)
        clock.now = 1.0
        assert A == await work.take()
        assert 2.0 == work.failed(A)
        clock.now = 3.0
        assert A == await work.take()
        work.done(A)
        work.put(A)
        assert A == await work.take()
        assert 1.0 == work.failed(A), "a success in between starts the count anew"
        clock.now = 4.0
        assert A == await work.take()
        assert 60.0 == work.failed(A, at_least_seconds=60.0)

    asyncio.run(run())


def test_a_visit_can_ask_for_the_next() -> None:
    async def run() -> None:
        clock = Clock()
        work = queue(clock)
        work.put(A)
        await work.take()
        work.done(A, again_after_seconds=30.0)
        clock.now = 29.0
        assert 0.0 == work.lateness().overdue_seconds
        clock.now = 31.5
        assert 1.5 == work.lateness().overdue_seconds
        assert A == await work.take()

    asyncio.run(run())


def test_keys_that_wait_and_run_are_counted() -> None:
    async def run() -> None:
        work = queue(Clock())
        work.put(A)
        work.put(B)
        await work.take()
        assert 2 == len(work)
        assert 1 == work.lateness().running
        assert work.is_running(A)
        work.forget(A)
        assert 1 == len(work)

    asyncio.run(run())


@given(
    st.lists(
        st.tuples(st.sampled_from(("put", "urgent", "take", "done", "forget")), st.integers(0, 4)),
        max_size=40,
    )
)
def test_the_next_that_is_due_is_the_earliest_that_nobody_visits(
    steps: list[tuple[str, int]],
) -> None:
    schedule, due, running = Schedule(), dict[Key, float](), set[Key]()
    for now, (what, number) in enumerate(steps):
        one = key(f"k{number}")
        if what in ("put", "urgent"):
            at = float(now + number)
            schedule.put(one, at, is_urgent=what == "urgent")
            due[one] = min(due.get(one, at), at)
        elif what == "take" and (taken := schedule.take(float(now))) is not None:
            del due[taken]
            running.add(taken)
        elif what == "done":
            schedule.done(one)
            running.discard(one)
        elif what == "forget":
            schedule.forget(one)
            due.pop(one, None)
        free = [seconds for each, seconds in due.items() if each not in running]
        assert min(free, default=None) == schedule.next_due_seconds()
