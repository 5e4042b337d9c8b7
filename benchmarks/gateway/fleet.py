"""Which cards, lanes and engines stand behind the gate in these measurements?

Three cards of different memory and speed. The middle one has twice the memory of the small one and is the
slowest, so that weights by memory would mislead. Time can be lapsed: with a lapse of 3 the engines are three
times as fast and requests come three times as often, and seconds are told as if nothing had been lapsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gate_box import GateBox, free_port
from plimsoll.gate.allocate import slots_of, weights_of
from plimsoll.gate.records import GateRooms, LaneRoom, Slots, WorkerRoom
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from stand_ins.batching import Card, Engine, Pinned

CHAT_TOKENS: Final = 4096
BATCH_TOKENS: Final = 32_768
MOST_SEQUENCES: Final = 256


class Worker(NamedTuple):
    """One card, and what its engine holds."""

    name: str
    kv_tokens: int
    card: Card


WORKERS: Final = (
    Worker("small", 65_536, Card(8_000.0, 0.010, 0.00005, 0.12e-6)),
    Worker("slow", 131_072, Card(6_000.0, 0.014, 0.00005, 0.17e-6)),
    Worker("large", 262_144, Card(20_000.0, 0.008, 0.00005, 0.05e-6)),
)


def lanes(*, batch_per_worker: int | None = None, borrow: bool = False) -> tuple[LaneRoom, ...]:
    """Chat and batch, half of the memory each."""
    return (
        LaneRoom(name="chat", tokens=CHAT_TOKENS, share_percent=50, borrow=borrow),
        LaneRoom(
            name="batch",
            tokens=BATCH_TOKENS,
            share_percent=50,
            priority=10,
            most_per_worker=batch_per_worker,
        ),
    )


def rooms_of(
    planned: Sequence[LaneRoom], workers: Sequence[Worker] = WORKERS, *, by_speed: bool = True
) -> GateRooms:
    """What is promised."""
    fastest = max(worker.card.prefill_tokens_per_second for worker in workers)
    return GateRooms(
        lanes=tuple(planned),
        pools=tuple(
            WorkerRoom(
                pool=worker.name,
                kv_tokens=worker.kv_tokens,
                max_num_seqs=MOST_SEQUENCES,
                block_tokens=16,
                speed=worker.card.prefill_tokens_per_second / fastest if by_speed else None,
            )
            for worker in workers
        ),
    )


def lapsed(card: Card, lapse: float) -> Card:
    """The card, so many times as fast."""
    return card._replace(
        prefill_tokens_per_second=card.prefill_tokens_per_second * lapse,
        step_seconds=card.step_seconds / lapse,
        sequence_seconds=card.sequence_seconds / lapse,
        context_token_seconds=card.context_token_seconds / lapse,
    )


def engine(worker: Worker, pinned: Pinned, *, lapse: float = 1.0) -> Engine:
    """An engine on that card."""
    tokens = {"chat": CHAT_TOKENS, "batch": BATCH_TOKENS}
    return Engine(worker.name, pinned, lapsed(worker.card, lapse), lane_tokens=tokens)


def front(
    folder: Path,
    engines: Sequence[Engine],
    slots: Sequence[Slots],
    gate_lanes: Sequence[GateLane],
    *,
    weights: Sequence[int] | None = None,
) -> GateBox:
    """A gate before these engines."""
    servers = tuple(
        GateServer(
            name=each.name,
            address=f"127.0.0.1:{free_port()}",
            slots=slot,
            weight=weights[place] if weights else 1,
        )
        for place, (each, slot) in enumerate(zip(engines, slots, strict=True))
    )
    text = GateText(
        lanes=tuple(gate_lanes), servers=servers, port=free_port(), metrics_port=free_port()
    )
    return GateBox(folder, text, engines)


def planned(rooms: GateRooms) -> tuple[tuple[Slots, ...], tuple[int, ...]]:
    """Slots and weights of each worker."""
    return (
        tuple(slots_of(pool, rooms.lanes) for pool in rooms.pools),
        weights_of(rooms.pools, rooms.lanes),
    )
