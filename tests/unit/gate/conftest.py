"""Three workers of different size and two lanes, as the gate's tests need them."""

from __future__ import annotations

from typing import Final

import pytest

from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom

CHAT: Final = LaneRoom(name="chat", tokens=4096, share_percent=50, borrow=True)
BATCH: Final = LaneRoom(name="batch", tokens=32_768, share_percent=50, priority=10)


@pytest.fixture
def rooms() -> GateRooms:
    """A small, a middle and a large card, with chat and batch half and half."""
    return GateRooms(
        lanes=(CHAT, BATCH),
        pools=(
            WorkerRoom(pool="small", kv_tokens=40_000, max_num_seqs=64, block_tokens=16),
            WorkerRoom(pool="middle", kv_tokens=131_072, max_num_seqs=64, block_tokens=16),
            WorkerRoom(pool="large", kv_tokens=262_144, max_num_seqs=64, block_tokens=16),
        ),
    )
