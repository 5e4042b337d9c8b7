"""What does the way through the gate cost: at the first byte, and for each chunk of a stream?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.gateway.dilemma import quantile
from benchmarks.gateway.fleet import CHAT_TOKENS, front
from benchmarks.gateway.peers import CannotBeHadError, Peer, started

from gate_box import GateBox, free_port, until
from gate_client import Answer, ask, chat
from plimsoll.render.gateway_records import GateLane
from stand_ins.batching import Card, Engine, Pinned

AT_ONCE: Final = Card(1e9, 0.0005, 0.0, 0.0)
"""An engine that hardly computes."""
STREAMS: Final = 20


class Way(NamedTuple):
    """One way to the engine, in seconds."""

    name: str
    p50: float
    """Of a whole request that is answered with one token."""
    p99: float
    chunk_p50: float
    """From the engine's write to the client's read."""
    chunk_p99: float
    first_p99: float
    """Of the first chunk of a stream."""


class Cost(NamedTuple):
    """The same requests to the engine, on several ways."""

    direct: Way
    gate: Way
    peers: tuple[Way, ...]
    left_out: tuple[str, ...]
    """Why a peer is not there."""


async def measure(folder: Path, *, requests: int, peers: Sequence[Peer] = ()) -> Cost:
    """One engine; requests one after the other, then streams beside each other. All ways take turns, so that
    a busy machine is busy for all."""
    engine = Engine("engine", Pinned(10_000_000, 256, tokens_per_chunk=1), AT_ONCE)
    box = front(folder / "gate", [engine], [(200,)], [GateLane("all", CHAT_TOKENS, 64)])
    left_out: list[str] = []
    async with box:
        with ExitStack() as stack:
            ports = {"direct": engine_port(box), "gate": box.port}
            for peer in peers:
                port = free_port()
                try:
                    own = folder / f"peer{len(ports)}"
                    stack.enter_context(started(peer, own, port, ports["direct"]))
                    await until(lambda: _answers(port), f"{peer.name} answers", within=30)  # noqa: B023
                except (CannotBeHadError, AssertionError) as error:
                    left_out.append(str(error))
                else:
                    ports[peer.name] = port
            ways = {way.name: way for way in await _in_turns(ports, requests)}
    direct, gate = ways.pop("direct"), ways.pop("gate")
    return Cost(direct, gate, tuple(ways.values()), tuple(left_out))


async def _in_turns(ports: Mapping[str, int], requests: int) -> list[Way]:
    whole: dict[str, list[float]] = {name: [] for name in ports}
    chunks: dict[str, list[float]] = {name: [] for name in ports}
    firsts: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(requests):
        for name, port in ports.items():
            answer = await ask(port, chat(50, 1, stream=False))
            assert answer.is_whole, (name, answer)
            whole[name].append(answer.seconds)
    for _ in range(max(1, requests // 200)):
        for name, port in ports.items():
            for answer in await asyncio.gather(*(ask(port, chat(50, 60)) for _ in range(STREAMS))):
                first, *others = _delays(answer)
                firsts[name].append(first)
                chunks[name].extend(others)
    return [
        Way(
            name,
            quantile(whole[name], 0.5),
            quantile(whole[name], 0.99),
            quantile(chunks[name], 0.5),
            quantile(chunks[name], 0.99),
            quantile(firsts[name], 0.99),
        )
        for name in ports
    ]


def as_table(cost: Cost) -> str:
    """The ways side by side: what each adds to the direct one, in milliseconds."""
    direct = cost.direct
    lines = [
        "| way | added to a request p50 / p99 ms | to a chunk p50 / p99 ms | to the first chunk p99 ms |",
        "|---|---|---|---|",
        f"| direct (whole times) | {1000 * direct.p50:.2f} / {1000 * direct.p99:.2f} "
        f"| {1000 * direct.chunk_p50:.2f} / {1000 * direct.chunk_p99:.2f} | {1000 * direct.first_p99:.1f} |",
    ]
    for way in (cost.gate, *cost.peers):
        added = [1000 * (ours - alone) for ours, alone in zip(way[1:], direct[1:], strict=True)]
        lines.append(
            f"| {'the gate (HAProxy)' if way is cost.gate else way.name} | {added[0]:+.2f} / {added[1]:+.2f} "
            f"| {added[2]:+.2f} / {added[3]:+.2f} | {added[4]:+.1f} |"
        )
    return "\n".join([*lines, *(f"\n{why}" for why in cost.left_out)])


def engine_port(box: GateBox) -> int:
    """Where the engine behind the box listens itself."""
    address = box.haproxy.text.servers[0].address or ""
    return int(address.rpartition(":")[2])


async def _answers(port: int) -> bool:
    return (await ask(port, chat(5, 1, stream=False), within=2)).is_whole


def _delays(answer: Answer) -> Iterator[float]:
    """From the engine's write to the client's read, chunk by chunk: both clocks are one."""
    for part, came in zip(answer.parts, answer.chunks, strict=True):
        for line in part.splitlines():
            if line.startswith(b"data: {") and b'"at"' in line:
                yield came - float(json.loads(line[6:])["at"])
