"""A stand-in for an engine: a continuous-batching scheduler over simulated compute, and just enough HTTP.

It loads no model and computes nothing: a step takes as long as a card of the given speed would need for
its prefill and decode tokens, and the answer is the same word over and over. What is kept, for admission
depends on it: sequences at once, KV blocks, chunked prefill within a step's budget, a bound on long prompts'
chunks, preemption when the pool is full, first come or priority, abort when the client hangs up. It shows
mechanism and direction, not what a product would do.

It counts requests in flight by the lane that the gate writes on them, with their peaks, so that a test can
compare what ran with what was planned.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

BLOCK_TOKENS: Final = 16
CHARACTERS_PER_TOKEN: Final = 4
LONG_PROMPT_TOKENS: Final = 8192
ANSWER_TOKENS: Final = 16
"""Without max_tokens."""
END_OF_HEADERS: Final = b"\r\n\r\n"


class Card(NamedTuple):
    """How fast a card computes."""

    prefill_tokens_per_second: float = 8000.0
    step_seconds: float = 0.010
    sequence_seconds: float = 0.00005
    context_token_seconds: float = 0.12e-6
    overlaps: bool = False
    """Whether a step's own time, which is mostly reading weights, passes while prompts are computed."""
    even_tokens: float = math.inf
    """Context beside which attention costs a token of a prompt as much as the weights do."""


CARD: Final = Card()


class Pinned(NamedTuple):
    """What an engine is started with."""

    kv_tokens: int
    max_num_seqs: int
    step_tokens: int = 2048
    long_prefill_tokens: int = 0
    """Bound on one prompt's chunk in a step; 0 is none."""
    long_prefill_adaptive: bool = False
    """Whether that bound never falls below an equal part of the step for each request that is there."""
    by_priority: bool = False
    max_model_len: int = 32_768
    most_waiting: int = 1 << 30
    """Requests that may wait inside; more are told 503, as vLLM's --max-num-queued-reqs does."""
    tokens_per_chunk: int = 8
    chunk_bytes: int = 4
    """Bytes of text in each chunk."""


@dataclass(eq=False)
class Seq:
    """One request's sequence."""

    prompt: int
    wanted: int
    priority: int
    number: int
    made: int = 0
    computed: int = 0
    blocks: int = 0
    scheduled: int = 0
    is_gone: bool = False
    told: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)

    @property
    def to_compute(self) -> int:
        return self.prompt + self.made - self.computed


class Peaks(NamedTuple):
    """The most that was seen at once since the last question."""

    in_flight: int
    lanes: dict[str, int]
    promised_tokens: int
    waiting: int
    blocks_percent: float


class Engine:
    """The scheduler; `serve` puts HTTP before it."""

    def __init__(
        self,
        name: str,
        pinned: Pinned,
        card: Card = CARD,
        *,
        lane_tokens: Mapping[str, int] | None = None,
    ) -> None:
        self.name, self.pinned, self.card = name, pinned, card
        self.turn = asyncio.Lock()
        self.lane_tokens = dict(lane_tokens or {})
        self.free = pinned.kv_tokens // BLOCK_TOKENS
        self.waiting: deque[Seq] = deque()
        self.running: list[Seq] = []
        self.lanes: Counter[str] = Counter()
        self.in_flight = self.answered = self.aborted = self.preempted = self.refused = (
            self.tokens
        ) = 0
        self.prompt_tokens = 0
        self.priorities: Counter[int] = Counter()
        self.computed: Counter[str] = Counter()
        """Tokens computed for long and for short prompts; those of a preempted sequence are taken back."""
        self.is_well = True
        self._woken = asyncio.Event()
        self._number = 0
        self._server: asyncio.Server | None = None
        self._loop: asyncio.Task[None] | None = None
        self._connections: set[_Http] = set()
        self.forget_peaks()

    # -- life

    async def serve(self, port: int, host: str = "127.0.0.1") -> None:
        """Listen and compute until `stop`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Http(self), host, port, backlog=1024)
        self._loop = asyncio.create_task(self._compute())

    async def stop(self) -> None:
        """Like a kill: connections are cut."""
        if self._server is not None:
            self._server.close()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        for connection in list(self._connections):
            connection.cut()

    # -- what was seen

    def forget_peaks(self) -> None:
        self._peak = Peaks(
            self.in_flight, dict(self.lanes), self._promised(), len(self.waiting), 0.0
        )

    @property
    def peaks(self) -> Peaks:
        return self._peak

    def _promised(self) -> int:
        return sum(self.lane_tokens.get(lane, 0) * count for lane, count in self.lanes.items())

    def batch_tokens(self) -> int:
        """Tokens computed for long prompts, whatever lane they came by; lost work is taken back."""
        return self.computed["long"]

    def arrives(self, lane: str) -> None:
        self.in_flight += 1
        self.lanes[lane] += 1
        was = self._peak
        self._peak = was._replace(
            in_flight=max(was.in_flight, self.in_flight),
            lanes={**was.lanes, lane: max(was.lanes.get(lane, 0), self.lanes[lane])},
            promised_tokens=max(was.promised_tokens, self._promised()),
        )

    def leaves(self, lane: str) -> None:
        self.in_flight -= 1
        self.lanes[lane] -= 1

    # -- scheduling

    def submit(self, prompt: int, wanted: int, priority: int) -> Seq:
        self._number += 1
        sequence = Seq(prompt, wanted, priority, self._number)
        self.prompt_tokens += prompt
        self.waiting.append(sequence)
        self._woken.set()
        return sequence

    def abort(self, sequence: Seq) -> None:
        if not sequence.is_gone:
            sequence.is_gone = True
            self.aborted += 1
            sequence.told.put_nowait(None)
            self._woken.set()

    def _order(self, sequence: Seq) -> tuple[int, int]:
        return (sequence.priority if self.pinned.by_priority else 0, sequence.number)

    def _grows(self, sequence: Seq, tokens: int) -> bool:
        needed = -(-tokens // BLOCK_TOKENS) - sequence.blocks
        if needed > self.free:
            return False
        if needed > 0:
            self.free -= needed
            sequence.blocks += needed
        return True

    def _release(self, sequence: Seq) -> None:
        self.free += sequence.blocks
        sequence.blocks = 0

    def _bound(self) -> int:
        """Most tokens of one sequence in this step; it counts only beside others (vLLM 0.33.0,
        v1/core/sched/scheduler.py, as is the adaptive form)."""
        pinned, there = self.pinned, len(self.running) + len(self.waiting)
        if not pinned.long_prefill_tokens or there <= 1:
            return pinned.step_tokens
        fair = pinned.step_tokens // there if pinned.long_prefill_adaptive else 0
        return max(pinned.long_prefill_tokens, fair)

    def _forget_gone(self) -> None:
        for sequence in [each for each in self.running if each.is_gone]:
            self.running.remove(sequence)
            self._release(sequence)
        if any(each.is_gone for each in self.waiting):
            self.waiting = deque(each for each in self.waiting if not each.is_gone)

    def schedule(self) -> list[Seq]:
        """One step: running sequences first, then waiting ones as far as they fit."""
        self._forget_gone()
        left, is_full, bound = self.pinned.step_tokens, False, self._bound()
        for sequence in list(self.running):
            sequence.scheduled = 0
            chunk = min(sequence.to_compute, bound, left)
            if sequence not in self.running or chunk <= 0:
                continue
            while not self._grows(sequence, sequence.computed + chunk):
                is_full = True
                last = self._least()
                left += last.scheduled
                self._preempt(last)
                if last is sequence:
                    break
            if sequence in self.running:
                sequence.scheduled = chunk
                left -= chunk
        while (
            not is_full
            and self.waiting
            and left > 0
            and len(self.running) < self.pinned.max_num_seqs
        ):
            sequence = min(self.waiting, key=self._order)
            whole = -(-(sequence.prompt + sequence.made) // BLOCK_TOKENS)
            chunk = min(sequence.to_compute, bound, left)
            if whole > self.free or not self._grows(sequence, chunk):
                break
            self.waiting.remove(sequence)
            sequence.scheduled = chunk
            left -= chunk
            self.running.append(sequence)
        return [sequence for sequence in self.running if sequence.scheduled]

    def _least(self) -> Seq:
        """Who is put back when the pool is full: the least urgent, else who was let in last."""
        if self.pinned.by_priority:
            return max(self.running, key=self._order)
        return self.running[-1]

    def _preempt(self, sequence: Seq) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        self.preempted += 1
        self.computed[_length(sequence)] -= sequence.computed
        sequence.computed = sequence.scheduled = 0
        self.waiting.appendleft(sequence)

    def seconds_of(self, work: list[Seq]) -> float:
        """How long a step takes."""
        card = self.card
        prompts = [sequence for sequence in work if sequence.scheduled > 1]
        prefill = sum(
            sequence.scheduled * (1 + sequence.computed / card.even_tokens) for sequence in prompts
        )
        computing = prefill / card.prefill_tokens_per_second
        context = sum(sequence.computed for sequence in work)
        together = max if card.overlaps else sum
        return (
            together((card.step_seconds, computing))
            + card.sequence_seconds * len(work)
            + context * card.context_token_seconds
        )

    async def _compute(self) -> None:
        while True:
            if not self.running and not self.waiting:
                self._woken.clear()
                await self._woken.wait()
            async with self.turn:
                work = self.schedule()
                total = self.pinned.kv_tokens // BLOCK_TOKENS or 1
                self._peak = self._peak._replace(
                    waiting=max(self._peak.waiting, len(self.waiting)),
                    blocks_percent=max(self._peak.blocks_percent, 100 * (1 - self.free / total)),
                )
                await asyncio.sleep(self.seconds_of(work) if work else 0.001)
            for sequence in work:
                self.advance(sequence)

    def advance(self, sequence: Seq) -> None:
        """After the step: its tokens are computed, and told."""
        if sequence.is_gone or not sequence.scheduled:
            return
        sequence.computed += sequence.scheduled
        self.computed[_length(sequence)] += sequence.scheduled
        sequence.scheduled = 0
        if sequence.to_compute:
            return
        sequence.made += 1
        self.tokens += 1
        if sequence.made >= sequence.wanted:
            self.running.remove(sequence)
            self._release(sequence)
            self.answered += 1
            sequence.told.put_nowait(None)
        elif sequence.made == 1 or sequence.made % self.pinned.tokens_per_chunk == 0:
            sequence.told.put_nowait(sequence.made)


class _Http(asyncio.Protocol):
    """HTTP/1.1 with Content-Length, one request after the other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.sequence: Seq | None = None
        self.may_write = asyncio.Event()
        self.may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.engine._connections.add(self)

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine._connections.discard(self)
        self.may_write.set()
        if self.sequence is not None:
            self.engine.abort(self.sequence)

    def eof_received(self) -> None:
        """A client that closes its side has hung up."""

    def cut(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.task is None:
            self._next()

    def _next(self) -> None:
        end = self.buffer.find(END_OF_HEADERS)
        if end < 0:
            return
        lines = bytes(self.buffer[:end]).decode("latin1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        begin = end + len(END_OF_HEADERS)
        size = int(headers.get("content-length", 0))
        if len(self.buffer) < begin + size:
            return
        body = bytes(self.buffer[begin : begin + size])
        del self.buffer[: begin + size]
        method, path, _ = lines[0].split(" ", 2)
        self.task = asyncio.create_task(self._answer(method, path.partition("?")[0], headers, body))
        self.task.add_done_callback(lambda _: self._done(headers.get("connection", "")))

    def _done(self, connection: str) -> None:
        self.task = None
        if connection.lower() == "close":
            self.transport.close()
        elif not self.transport.is_closing():
            self._next()

    def _send(self, status: int, body: Any, kind: str = "application/json") -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n\r\n"
        self.transport.write(head.encode() + text)

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        engine = self.engine
        if path == "/health":
            return self._send(200 if engine.is_well else 503, b"")
        if path == "/v1/models":
            return self._send(200, {"object": "list", "data": [{"id": "stand-in"}]})
        if path == "/metrics":
            return self._send(200, _metrics(engine), "text/plain")
        if path == "/headers":
            return self._send(200, headers)
        lane = headers.get("x-plimsoll-lane", "-")
        engine.arrives(lane)
        try:
            await self._generate(headers, body)
        finally:
            engine.leaves(lane)
            self.sequence = None
        return None

    async def _generate(self, headers: dict[str, str], body: bytes) -> None:
        engine = self.engine
        try:
            asked = json.loads(body)
            text = asked.get("prompt") or "".join(each["content"] for each in asked["messages"])
            prompt = max(1, len(text) // CHARACTERS_PER_TOKEN)
            wanted = int(asked.get("max_tokens") or ANSWER_TOKENS)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return self._send(400, _error("the body cannot be read"))
        if prompt + wanted > engine.pinned.max_model_len:
            return self._send(400, _error("longer than the model's length"))
        if len(engine.waiting) >= engine.pinned.most_waiting:
            engine.refused += 1
            return self._send(503, _error("too many wait"))
        priority = int(headers.get("x-vllm-priority", 0))
        engine.priorities[priority] += 1
        self.sequence = sequence = engine.submit(prompt, wanted, priority)
        streams = bool(asked.get("stream"))
        if streams:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                b"X-Worker: " + engine.name.encode() + b"\r\n\r\n"
            )
        while (made := await sequence.told.get()) is not None:
            if streams:
                await self.may_write.wait()
                self._event(
                    {
                        "choices": [
                            {
                                "index": 0,
                                "delta": {"content": "tok ".ljust(engine.pinned.chunk_bytes)},
                            }
                        ],
                        "made": made,
                        "at": time.monotonic(),
                    }
                )
        if sequence.is_gone:
            return None
        usage = {"prompt_tokens": prompt, "completion_tokens": sequence.made}
        if not streams:
            return self._send(
                200,
                {
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "tok " * sequence.made},
                        }
                    ],
                    "usage": usage,
                    "worker": engine.name,
                },
            )
        ended = {"index": 0, "delta": {}, "finish_reason": "length"}
        self._event({"choices": [ended], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self.transport.write(b"0\r\n\r\n")
        return None

    def _event(self, event: Any) -> None:
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.transport.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _length(sequence: Seq) -> str:
    return "long" if sequence.prompt > LONG_PROMPT_TOKENS else "short"


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError"}}


def _metrics(engine: Engine) -> bytes:
    return (
        f"vllm:num_requests_running {len(engine.running)}\n"
        f"vllm:num_requests_waiting {len(engine.waiting)}\n"
        f"vllm:num_preemptions_total {engine.preempted}\n"
        f"vllm:prompt_tokens_total {engine.prompt_tokens}\n"
    ).encode()
