"""An engine that is nothing but a memory model, with one cost that the planner does not know of.

It reads arguments, takes memory in vLLM's order, and where there is none says what vLLM says. What it takes beside
the hidden cost is what the ledger says: the trial is of the reaction, not of the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.vllm import activation, kv, memory
from plimsoll.facts.worker import ContainerEnd
from plimsoll.plan.paged_ask import prepare
from plimsoll.plan.records import PlanRequest, Refusal
from plimsoll.units import GIB, MIB

FRAMES: Final = {
    "load": "vllm/v1/worker/gpu_worker.py, line 1, in load_model",
    "profile": "vllm/v1/worker/gpu_worker.py, line 1, in determine_available_memory",
    "capture": "vllm/v1/worker/gpu_worker.py, line 1, in compile_or_warm_up_model",
    "serving": "vllm/v1/worker/gpu_model_runner.py, line 1, in execute_model",
}


class Phase(StrEnum):
    """Where the hidden cost falls."""

    WEIGHTS = "weights"
    OTHERS = "another process"
    PROFILE = "profile run"
    CAPTURE = "graph capture"
    SERVING = "serving"
    HOST_LOAD = "host, loading"
    HOST_SERVING = "host, serving"


class Hidden(NamedTuple):
    """A cost that nobody planned for."""

    phase: Phase
    bytes: int
    pieces: int = 1
    """In so many allocations: the one that fails tells less of the whole, the more there are."""


class Runs(NamedTuple):
    """It runs."""

    pool_bytes: int
    """Its KV cache on one card."""
    sequences: int
    """Of the whole length at once."""


class Args(NamedTuple):
    """What the engine is told."""

    utilization: float
    length: int
    sequences: int
    step_tokens: int
    graph_rows: int

    @classmethod
    def of(cls, words: Sequence[str]) -> Args:
        """From a plan's arguments."""
        pairs = dict(zip(words, [*words[1:], ""], strict=False))
        sequences, tokens = int(pairs["--max-num-seqs"]), int(pairs["--max-num-batched-tokens"])
        rows = pairs.get("--max-cudagraph-capture-size")
        return cls(
            utilization=float(pairs["--gpu-memory-utilization"]),
            length=int(pairs["--max-model-len"]),
            sequences=sequences,
            step_tokens=tokens,
            graph_rows=0
            if "--enforce-eager" in words
            else int(rows or memory.largest_graph(sequences, tokens)),
        )


class Engine:
    """One worker's engine on one card of its kind."""

    def __init__(self, request: PlanRequest, hidden: Hidden) -> None:
        asked = prepare(request)
        if isinstance(asked, Refusal) or request.model is None:
            raise ValueError("the trial needs a question that has an answer")
        self.request, self.hidden, self.model = request, hidden, request.model
        self.release = Release.of(request.release or "0.22.1")
        self.usable = request.gpu.usable_bytes
        self.weights = memory.weights_bytes_per_card(self.model, request.cards)
        self.collectives = memory.collective_bytes(self.model, request.cards, request.gpu)
        self._layouts: dict[tuple[int, int], kv.PagedLayout] = {}
        self._first_tokens = asked.step_tokens
        self._first_rows = 0

    def cost(self, phase: Phase) -> int:
        """The hidden cost where it falls."""
        return self.hidden.bytes if self.hidden.phase is phase else 0

    def activation(self, args: Args) -> int:
        """The profile's peak."""
        return activation.activation_bytes(
            self.model,
            cards=self.request.cards,
            max_num_batched_tokens=args.step_tokens,
            max_num_seqs=args.sequences,
            release=self.release,
        )

    def graphs(self, args: Args) -> int:
        """What capture takes beside the hidden cost."""
        return memory.graph_bytes(
            self.model,
            max_num_batched_tokens=args.step_tokens,
            max_num_seqs=args.sequences,
            most_rows=args.graph_rows,
        )

    def layout(self, args: Args) -> kv.PagedLayout:
        """The cache's geometry."""
        key = (args.length, args.step_tokens)
        if key not in self._layouts:
            asked = prepare(
                self.request._replace(
                    max_model_len=args.length,
                    overrides=self.request.overrides._replace(
                        max_num_batched_tokens=args.step_tokens
                    ),
                )
            )
            assert not isinstance(asked, Refusal)
            self._layouts[key] = asked.pool
        return self._layouts[key]

    def start(self, args: Args, host_bytes: int) -> Runs | ContainerEnd:
        """Start, serve one largest step, and say what came of it."""
        need_host = memory.host_memory_bytes(self.request.cards)
        if need_host + self.cost(Phase.HOST_LOAD) > host_bytes:
            return _ended("", reason="OOMKilled", code=137)
        free = self.usable - self.cost(Phase.OTHERS) - memory.CONTEXT_BYTES
        requested = math.ceil(self.usable * args.utilization)
        if free < requested:
            return _ended(
                f"ValueError: Free memory on device cuda:0 ({_gib(free)}/{_gib(self.usable)} GiB) on startup is less "
                f"than desired GPU memory utilization ({args.utilization}, {_gib(requested)} GiB). Decrease GPU "
                "memory utilization or reduce GPU memory used by other processes."
            )
        weights = self.weights + self.cost(Phase.WEIGHTS)
        if weights > free:
            return self._out_of_memory("load", weights, free, 0)
        peak = self.activation(args) + self._by_step(args, Phase.PROFILE)
        held = weights + self.collectives
        inside = self.graphs(args) if memory.graphs_are_inside_share(self.release) else 0
        if held + peak > free:
            return self._out_of_memory("profile", peak, free - held, weights)
        pool = requested - held - peak - inside
        layout = self.layout(args)
        blocks = pool // layout.block_bytes
        each = kv.blocks_of_sequence(layout, args.length)
        if pool <= 0:
            return _ended(
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
            )
        if blocks - kv.NULL_BLOCKS < each:
            longest = kv.longest_sequence(layout, blocks - kv.NULL_BLOCKS, at_most=args.length)
            estimate = (
                f"Based on the available memory, the estimated maximum model length is {longest}. "
            )
            return _ended(
                f"ValueError: To serve at least one request with the model's max seq len ({args.length}), "
                f"({_gib(each * layout.block_bytes)} GiB KV cache is needed, which is larger than the "
                f"available KV cache memory ({_gib(pool)} GiB). {estimate if longest else ''}Try increasing "
                "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
            )
        taken = held + blocks * layout.block_bytes
        captured = self.graphs(args) + self._capture(args)
        if taken + captured > free:
            return self._out_of_memory("capture", captured, free - taken, taken - self.collectives)
        taken += captured
        step = self.activation(args) + self._by_step(args, Phase.SERVING)
        if taken + step > free:
            return self._out_of_memory("serving", step, free - taken, taken - self.collectives)
        if need_host + self.cost(Phase.HOST_SERVING) > host_bytes:
            return _ended("", reason="OOMKilled", code=137, served=True)
        return Runs(blocks * layout.block_bytes, (blocks - kv.NULL_BLOCKS) // each)

    def _capture(self, args: Args) -> int:
        """Half of it once, half by captured sizes; nothing without graphs."""
        cost = self.cost(Phase.CAPTURE)
        if not args.graph_rows:
            return 0
        self._first_rows = self._first_rows or args.graph_rows
        return cost // 2 + min(cost // 2, cost // 2 * args.graph_rows // self._first_rows)

    def _by_step(self, args: Args, phase: Phase) -> int:
        """Half of it once, half by the tokens of a step."""
        cost = self.cost(phase)
        return cost // 2 + min(cost // 2, cost // 2 * args.step_tokens // self._first_tokens)

    def _out_of_memory(self, phase: str, wanted: int, free: int, allocated: int) -> ContainerEnd:
        """The first of the pieces that finds no room tells what it wanted and what was left."""
        piece = max(1, wanted // self.hidden.pieces)
        fitted = min(free // piece, self.hidden.pieces - 1)
        left = free - fitted * piece
        return _ended(
            f"  File {FRAMES[phase]}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
            f"{_gib(piece)} GiB. GPU 0 has a total capacity of {_gib(self.usable)} GiB of which "
            f"{_gib(max(0, left))} GiB is free. Of the allocated memory {_gib(allocated + fitted * piece)} "
            "GiB is allocated by PyTorch, and 1.00 MiB is reserved",
            served=phase == "serving",
        )


def _ended(
    message: str, *, reason: str = "Error", code: int = 1, served: bool = False
) -> ContainerEnd:
    return ContainerEnd(
        exit_code=code,
        reason=reason,
        message=message,
        started_seconds=0.0,
        finished_seconds=600.0,
        was_ready=served,
        unready_seconds=0.0 if served else None,
        engine="vllm",
    )


def _gib(amount: int) -> str:
    return f"{amount / GIB:.2f}"


LEAST_HIDDEN_BYTES: Final = 64 * MIB
