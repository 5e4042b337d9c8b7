"""Does every worker get whole requests of each lane, within its tokens and its sequences?"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plimsoll.gate.allocate import (
    closed_everywhere,
    part_of,
    request_tokens,
    slots_of,
    weights_of,
)
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom, promise


def room(
    kv_tokens: int, *, max_num_seqs: int = 256, block: int = 1, speed: float | None = None
) -> WorkerRoom:
    return WorkerRoom(
        pool="a", kv_tokens=kv_tokens, max_num_seqs=max_num_seqs, block_tokens=block, speed=speed
    )


def test_each_lane_gets_whole_requests_out_of_its_share(rooms: GateRooms) -> None:
    assert [(9, 0), (16, 2), (32, 4)] == [slots_of(pool, rooms.lanes) for pool in rooms.pools]


def test_a_lane_that_does_not_fit_a_card_is_closed_there_and_its_share_is_used() -> None:
    lanes = (
        LaneRoom(name="chat", tokens=4096, share_percent=30),
        LaneRoom(name="batch", tokens=32_768, share_percent=70),
    )
    assert (4, 0) == slots_of(room(20_000), lanes)


def test_a_lane_without_a_request_goes_before_more_of_another() -> None:
    lanes = (
        LaneRoom(name="chat", tokens=1000, share_percent=90),
        LaneRoom(name="batch", tokens=9000, share_percent=10),
    )
    assert (90, 1) == slots_of(room(99_900), lanes)


def test_a_request_takes_whole_blocks() -> None:
    lane = LaneRoom(name="chat", tokens=3900)
    assert 3904 == request_tokens(lane, room(8000, block=16))
    assert (2,) == slots_of(room(7808, block=16), (lane,))
    assert (1,) == slots_of(room(7807, block=16), (lane,))


def test_few_sequences_are_shared_in_proportion_and_every_lane_keeps_one() -> None:
    lanes = (
        LaneRoom(name="chat", tokens=1000, share_percent=70),
        LaneRoom(name="batch", tokens=10_000, share_percent=30),
    )
    assert (70, 3) == slots_of(room(100_000), lanes)
    assert (29, 1) == slots_of(room(100_000, max_num_seqs=30), lanes)
    assert (1, 1) == slots_of(room(100_000, max_num_seqs=2), lanes)
    assert (1, 0) == slots_of(room(100_000, max_num_seqs=1), lanes)


def test_a_bound_per_worker_leaves_the_rest_to_others() -> None:
    lanes = (
        LaneRoom(name="chat", tokens=1000, share_percent=50),
        LaneRoom(name="batch", tokens=10_000, share_percent=50, most_per_worker=2),
    )
    assert (80, 2) == slots_of(room(100_000), lanes)


def test_a_slower_worker_computes_fewer_long_requests_and_at_least_one() -> None:
    lane = LaneRoom(name="batch", tokens=10_000, most_per_worker=4)
    speeds = (1.0, 0.6, 0.1, None)
    assert [(4,), (2,), (1,), (4,)] == [
        slots_of(room(100_000, speed=speed), (lane,)) for speed in speeds
    ]


def test_a_worker_that_holds_nothing_gets_nothing() -> None:
    assert (0,) == slots_of(room(0), (LaneRoom(name="all", tokens=100),))
    assert (0,) == slots_of(room(1000, max_num_seqs=0), (LaneRoom(name="all", tokens=100),))


def test_lanes_that_no_worker_holds_are_named(rooms: GateRooms) -> None:
    assert () == closed_everywhere(rooms.pools, rooms.lanes)
    assert ("batch",) == closed_everywhere(rooms.pools[:1], rooms.lanes)


@pytest.mark.parametrize("gates", [2, 3])
def test_the_parts_of_several_gates_add_up_to_the_plan(rooms: GateRooms, gates: int) -> None:
    for pool in rooms.pools:
        parts = [part_of(pool, rooms.lanes, gates=gates, index=index) for index in range(gates)]
        whole = part_of(pool, rooms.lanes)
        assert whole.planned == tuple(map(sum, zip(*(part.planned for part in parts), strict=True)))
        assert sum(part.kv_tokens for part in parts) <= whole.kv_tokens
        assert sum(part.sequences for part in parts) <= whole.sequences
        assert all(promise(part, part.planned).is_within(part) for part in parts)


def test_remainders_are_dealt_to_different_gates() -> None:
    lanes = (
        LaneRoom(name="chat", tokens=1000, share_percent=50),
        LaneRoom(name="batch", tokens=10_000, share_percent=50),
    )
    worker = room(23_000)
    assert (13, 1) == slots_of(worker, lanes)
    parts = [part_of(worker, lanes, gates=2, index=index).planned for index in range(2)]
    assert [(7, 0), (6, 1)] == parts


def test_weights_follow_speed_and_not_memory() -> None:
    lanes = (LaneRoom(name="chat", tokens=1000),)
    workers = (room(100_000, speed=1.0), room(400_000, speed=0.5))
    assert (256, 128) == weights_of(workers, lanes)


def test_weights_follow_slots_where_a_speed_is_unknown() -> None:
    lanes = (LaneRoom(name="chat", tokens=1000),)
    workers = (room(100_000, speed=1.0), room(200_000))
    assert (128, 256) == weights_of(workers, lanes)
    assert (1,) == weights_of((room(0),), lanes)


def test_rooms_refuse_a_lane_twice_and_more_than_everything() -> None:
    lane = LaneRoom(name="chat", tokens=10, share_percent=60)
    with pytest.raises(ValidationError, match="a name twice"):
        GateRooms(lanes=(lane, lane))
    with pytest.raises(ValidationError, match="120%"):
        GateRooms(lanes=(lane, lane.model_copy(update={"name": "other"})))


def test_rooms_are_read_back_as_they_were_written(rooms: GateRooms) -> None:
    assert rooms == GateRooms.model_validate(rooms.to_json())


def test_where_slots_are_divided_beforehand_every_request_takes_one() -> None:
    worker = WorkerRoom(pool="a", kv_tokens=40_960, max_num_seqs=5, slot_tokens=8192)
    lanes = (
        LaneRoom(name="chat", tokens=1000, share_percent=60),
        LaneRoom(name="long", tokens=8192, share_percent=40),
        LaneRoom(name="longer", tokens=8193, share_percent=0),
    )
    assert (3, 2, 0) == slots_of(worker, lanes)
