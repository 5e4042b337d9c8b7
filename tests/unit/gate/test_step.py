"""Are limits lowered at once, and raised only into what nobody holds?"""

from __future__ import annotations

from plimsoll.gate.allocate import part_of
from plimsoll.gate.records import GateRooms, LaneRoom, Promise, WorkerRoom, promise
from plimsoll.gate.step import Change, LaneSeen, WorkerSeen, held, retire, step


def seen(
    rooms: GateRooms,
    *lanes: tuple[int, int],
    pool: str = "large",
    elsewhere: tuple[int, ...] = (),
    is_leaving: bool = False,
) -> WorkerSeen:
    """One worker with (limit, in flight) of each lane."""
    room = rooms.of_pool(pool)
    assert room is not None
    return WorkerSeen(
        name="s1",
        part=part_of(room, rooms.lanes),
        lanes=tuple(LaneSeen(*lane) for lane in lanes),
        elsewhere=elsewhere,
        is_leaving=is_leaving,
    )


def limits(changes: tuple[Change, ...]) -> list[tuple[int, int]]:
    return [(change.lane, change.limit) for change in changes]


def after(worker: WorkerSeen, changes: tuple[Change, ...]) -> WorkerSeen:
    lanes = list(worker.lanes)
    for change in changes:
        lanes[change.lane] = lanes[change.lane]._replace(limit=change.limit)
    return worker._replace(lanes=tuple(lanes))


def test_as_planned_and_idle_nothing_changes(rooms: GateRooms) -> None:
    assert () == step([seen(rooms, (32, 0), (4, 0))], rooms.lanes)


def test_a_new_worker_gets_what_is_planned(rooms: GateRooms) -> None:
    assert [(0, 32), (1, 4)] == limits(step([seen(rooms, (0, 0), (0, 0))], rooms.lanes))


def test_a_short_lane_borrows_what_a_long_one_leaves_idle(rooms: GateRooms) -> None:
    worker = seen(rooms, (32, 32), (4, 0))
    lowered = step([worker], rooms.lanes, queued=(40, 0))
    assert [(1, 1)] == limits(lowered)
    raised = step([after(worker, lowered)], rooms.lanes, queued=(40, 0))
    assert [(0, 56)] == limits(raised)
    assert promise(worker.part, (56, 1)).is_within(worker.part)


def test_only_what_is_needed_is_lent(rooms: GateRooms) -> None:
    worker = seen(rooms, (32, 32), (4, 0))
    assert [(1, 2)] == limits(step([worker], rooms.lanes, queued=(1, 0)))


def test_what_was_lowered_in_this_look_still_counts(rooms: GateRooms) -> None:
    changes = step([seen(rooms, (32, 32), (4, 4))], rooms.lanes, queued=(40, 0))
    assert () == changes
    changes = step([seen(rooms, (32, 32), (4, 1))], rooms.lanes, queued=(40, 0))
    assert [(1, 2)] == limits(changes)


def test_a_long_lane_does_not_borrow_unless_it_says_so(rooms: GateRooms) -> None:
    assert () == step([seen(rooms, (32, 0), (4, 4))], rooms.lanes, queued=(0, 9))


def test_the_owner_finds_its_floor_and_gets_the_rest_when_the_borrower_ends(
    rooms: GateRooms,
) -> None:
    lent = seen(rooms, (56, 56), (1, 1))
    lowered = step([lent], rooms.lanes, queued=(0, 3))
    assert [(0, 32)] == limits(lowered)
    waiting = after(lent, lowered)
    assert () == step([waiting], rooms.lanes, queued=(0, 3))
    partly = waiting._replace(
        lanes=(LaneSeen(limit=32, in_flight=40), LaneSeen(limit=1, in_flight=1))
    )
    assert [(1, 3)] == limits(step([partly], rooms.lanes, queued=(0, 3)))
    done = waiting._replace(
        lanes=(LaneSeen(limit=32, in_flight=32), LaneSeen(limit=1, in_flight=1))
    )
    assert [(1, 4)] == limits(step([done], rooms.lanes, queued=(0, 3)))


def test_a_bound_per_worker_also_bounds_what_is_borrowed() -> None:
    lanes = (
        LaneRoom(name="chat", tokens=1000, share_percent=50),
        LaneRoom(name="batch", tokens=10_000, share_percent=50, borrow=True, most_per_worker=2),
    )
    rooms = GateRooms(
        lanes=lanes, pools=(WorkerRoom(pool="large", kv_tokens=100_000, max_num_seqs=256),)
    )
    assert () == step([seen(rooms, (80, 0), (2, 2))], lanes, queued=(0, 50))


def test_limits_above_the_plan_are_lowered_also_when_nothing_is_lent(rooms: GateRooms) -> None:
    worker = seen(rooms, (64, 60), (1 << 30, 0))
    assert [(0, 32), (1, 4)] == limits(step([worker], rooms.lanes, lend=False))


def test_a_worker_that_leaves_is_left_alone(rooms: GateRooms) -> None:
    worker = seen(rooms, (9, 5), (1, 0), is_leaving=True)
    assert () == step([worker], rooms.lanes, queued=(9, 9))


def test_its_part_of_the_queue_goes_to_those_who_stay(rooms: GateRooms) -> None:
    stays = seen(rooms, (32, 32), (1, 0))
    leaves = stays._replace(name="s2", is_leaving=True)
    changes = step([leaves, stays], rooms.lanes, queued=(8, 0))
    assert [("s1", 1, 2), ("s1", 0, 48)] == [change[:3] for change in changes]


def test_a_lane_that_does_not_fit_stays_closed(rooms: GateRooms) -> None:
    assert () == step([seen(rooms, (9, 9), (0, 0), pool="small")], rooms.lanes, queued=(9, 9))


def test_what_another_gate_holds_is_not_promised_again(rooms: GateRooms) -> None:
    worker = seen(rooms, (0, 0), (0, 0), elsewhere=(30, 4))
    assert [(0, 2)] == limits(step([worker], rooms.lanes, queued=(50, 9)))
    assert (32, 4) == held(after(worker, step([worker], rooms.lanes)))


def test_nor_is_what_it_may_still_raise(rooms: GateRooms) -> None:
    """Eight requests of chat and half of the tokens are not ours, whatever lane they come by."""
    worker = seen(rooms, (0, 0), (0, 0))._replace(beyond=Promise(8 * 4096 + 131_072, 8))
    assert [(0, 24)] == limits(step([worker], rooms.lanes, lend=False))
    all_but_one = seen(rooms, (0, 0), (0, 0))._replace(beyond=Promise(0, 63))
    assert [(0, 1)] == limits(step([all_but_one], rooms.lanes, lend=False))


def test_while_another_gate_is_silent_nothing_is_raised_and_nothing_given_up(
    rooms: GateRooms,
) -> None:
    worker = seen(rooms, (3, 0), (4, 0))._replace(knows_others=False)
    assert () == step([worker], rooms.lanes, queued=(9, 9))
    assert [(0, 0), (1, 0)] == limits(step([worker._replace(is_down=True)], rooms.lanes))


def test_a_gate_that_is_replaced_gives_up_what_it_does_not_use(rooms: GateRooms) -> None:
    worker = seen(rooms, (32, 5), (4, 0))
    assert [(0, 5), (1, 0)] == limits(retire([worker]))
    assert [(1, 0)] == limits(retire([worker], queued=(3, 0)))


def test_lowering_comes_first(rooms: GateRooms) -> None:
    workers = [
        seen(rooms, (0, 0), (4, 0)),
        seen(rooms, (90, 0), (4, 0))._replace(name="s2"),
    ]
    assert [True, False] == [change.is_lower for change in step(workers, rooms.lanes)]


def test_a_worker_that_is_unwell_is_closed_and_opened_when_it_is_well(rooms: GateRooms) -> None:
    worker = seen(rooms, (32, 9), (4, 0))._replace(is_down=True)
    assert [(0, 0), (1, 0)] == limits(step([worker], rooms.lanes, queued=(5, 5)))
    closed = seen(rooms, (0, 9), (0, 0))._replace(is_down=True)
    assert () == step([closed], rooms.lanes, queued=(5, 5))
    assert [(0, 32), (1, 4)] == limits(step([closed._replace(is_down=False)], rooms.lanes))
