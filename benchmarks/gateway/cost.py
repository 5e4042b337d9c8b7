"""What does the way through the gate cost: at the first byte, and for each chunk of a stream?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.gateway.dilemma import quantile
from benchmarks.gateway.fleet import CHAT_TOKENS, front

from gate_box import free_port
from gate_client import Answer, ask, chat
from plimsoll.render.gateway_records import GateLane
from stand_ins.batching import Card, Engine, Pinned

AT_ONCE: Final = Card(1e9, 0.0005, 0.0, 0.0)
"""An engine that hardly computes."""
STREAMS: Final = 20


class Cost(NamedTuple):
    """In seconds: the same requests to an engine, and to an engine behind the gate."""

    direct_p50: float
    gate_p50: float
    direct_p99: float
    gate_p99: float
    direct_chunk_p50: float
    gate_chunk_p50: float
    direct_chunk_p99: float
    gate_chunk_p99: float


async def measure(folder: Path, *, requests: int) -> Cost:
    """One engine; requests one after the other, then streams beside each other. Direct and behind the gate
    take turns, so that a busy machine is busy for both."""
    behind, direct = (
        Engine(name, Pinned(10_000_000, 256, tokens_per_chunk=1), AT_ONCE) for name in "ab"
    )
    box = front(folder, [behind], [(200,)], [GateLane("all", CHAT_TOKENS, 64)])
    port = free_port()
    await direct.serve(port)
    try:
        async with box:
            alone: dict[int, list[float]] = {port: [], box.port: []}
            chunks: dict[int, list[float]] = {port: [], box.port: []}
            for _ in range(requests):
                for each, seconds in alone.items():
                    answer = await ask(each, chat(50, 1, stream=False))
                    seconds.append(answer.seconds)
            for _ in range(max(1, requests // 100)):
                for each, delays in chunks.items():
                    streams = [ask(each, chat(50, 60)) for _ in range(STREAMS)]
                    for answer in await asyncio.gather(*streams):
                        delays.extend(_delays(answer))
    finally:
        await direct.stop()
    first, second = alone[port], alone[box.port]
    plain, gated = chunks[port], chunks[box.port]
    return Cost(
        direct_p50=quantile(first, 0.5),
        gate_p50=quantile(second, 0.5),
        direct_p99=quantile(first, 0.99),
        gate_p99=quantile(second, 0.99),
        direct_chunk_p50=quantile(plain, 0.5),
        gate_chunk_p50=quantile(gated, 0.5),
        direct_chunk_p99=quantile(plain, 0.99),
        gate_chunk_p99=quantile(gated, 0.99),
    )


def _delays(answer: Answer) -> Iterator[float]:
    """From the engine's write to the client's read, chunk by chunk: both clocks are one."""
    for part, came in zip(answer.parts, answer.chunks, strict=True):
        for line in part.splitlines():
            if line.startswith(b"data: {") and b'"at"' in line:
                yield came - float(json.loads(line[6:])["at"])
