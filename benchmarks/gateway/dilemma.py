"""Chat by day and a nightly batch on the same weights: what does each way of serving both give?

Chat comes at random, 8 a second, about 1,000 tokens in and 140 out; the batch has 24 clients that send
30,000 tokens each, one after the other. The ways, side by side in one run:

- alone: chat without the batch
- no gate: connections spread evenly, nobody counts
- shared queue: one limit by KV, one queue for both
- lanes: KV tokens only
- paced: lanes, and the engine's side of them as the plan has it (plan/lanes.py): steps, the bound on long
  prompts, its adaptive form, priority; two long prompts on the fastest worker and fewer on slower ones, and
  weights by speed
- thin: the same with one long prompt per worker and half of the bound
- split: two deployments, so two copies of the weights and half of the KV pool
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.gateway.fleet import (
    BATCH_TOKENS,
    CHAT_TOKENS,
    MOST_SEQUENCES,
    WORKERS,
    Worker,
    engine,
    front,
    lanes,
    planned,
    rooms_of,
)

from gate_box import free_port
from gate_client import Answer, ask, chat
from plimsoll.gate.records import Slots
from plimsoll.plan.lanes import PACED_STEP_TOKENS, AtTheGate, LaneAtGate, long_prompt_tokens
from plimsoll.render.gateway_records import GateLane
from stand_ins.batching import Engine, Pinned

CHAT_PER_SECOND: Final = 8.0
BATCH_CLIENTS: Final = 24
BATCH_PROMPT: Final = 30_000
CHAT_PROMPTS: Final = (250, 2600)
CHAT_ANSWERS: Final = (60, 220)
LANES: Final = AtTheGate(
    lanes=(
        LaneAtGate("chat", CHAT_TOKENS, 50, 0, False, None, 800, is_long=False),
        LaneAtGate("batch", BATCH_TOKENS, 50, 10, False, 2, BATCH_PROMPT, is_long=True),
    )
)
"""What the plan is told of these lanes; half of chat's prompts have up to 800 tokens."""
WARM_SECONDS: Final = 8.0
HUNG_SECONDS: Final = 120.0
MODES: Final = ("alone", "no gate", "shared queue", "lanes", "paced", "thin", "split")
SHORT_MODES: Final = ("alone", "paced", "split")
"""What the targets are about."""


class Pace(NamedTuple):
    """How the batch is slowed."""

    per_worker: int
    """Long prompts at once on the fastest worker."""
    bound: int
    """Tokens of a step that a prompt may take while others are there."""
    step: int = PACED_STEP_TOKENS


PLANNED_BOUND: Final = (
    long_prompt_tokens(LANES, step=PACED_STEP_TOKENS, longest=BATCH_TOKENS) or PACED_STEP_TOKENS
)
PACED: Final = {"paced": Pace(2, PLANNED_BOUND), "thin": Pace(1, PLANNED_BOUND // 2)}


class Outcome(NamedTuple):
    """What one way gave, in seconds as if time had not been lapsed."""

    mode: str
    batch_per_minute: float
    """Of the batch's work, in whole requests."""
    over_plan: int
    """Workers that ever held more than planned."""
    chat_per_second: float
    seed: int
    asked: int = 0
    """Chat requests that began in the window."""
    served: int = 0
    refused: int = 0
    """429 and 503."""
    hung: int = 0
    """Neither served nor refused."""
    ttft_p50_seconds: float = math.nan
    ttft_p95_seconds: float = math.nan
    gap_p95_seconds: float = math.nan
    """Between chunks of eight tokens."""

    @property
    def refused_percent(self) -> float:
        return 100 * self.refused / max(1, self.asked)


class Run(NamedTuple):
    """How long, how fast, with which dice."""

    seconds: float
    """Of the measurement's own time."""
    lapse: float
    """How many times as fast everything happens."""
    seed: int = 7
    chat_per_second: float = CHAT_PER_SECOND


class Setting(NamedTuple):
    """Engines, and what stands before them; no slots for no gate."""

    engines: tuple[Engine, ...]
    slots: tuple[Slots, ...]
    weights: tuple[int, ...]
    lanes: tuple[GateLane, ...]


def setting(mode: str, lapse: float, pace: Pace | None = None) -> Setting:
    """How that way is set up; `pace` is another one than the way's own."""
    if mode == "split":
        return _split(lapse)
    pace = pace or PACED.get(mode)
    per_worker = pace.per_worker if pace else None
    rooms = rooms_of(lanes(batch_per_worker=per_worker), by_speed=pace is not None)
    slots, weights = planned(rooms)
    gate_lanes = _lanes(lapse)
    if mode in ("no gate", "shared queue"):
        slots = tuple((worker.kv_tokens // CHAT_TOKENS,) for worker in WORKERS)
        gate_lanes = (
            GateLane("all", BATCH_TOKENS, 256, queue_length=80, queue_seconds=_seconds(30, lapse)),
        )
    engines = tuple(
        engine(worker, _pinned(worker, sum(slot), pace), lapse=lapse)
        for worker, slot in zip(WORKERS, slots, strict=True)
    )
    return Setting(engines, slots, weights, gate_lanes)


def _pinned(worker: Worker, slots: int, pace: Pace | None) -> Pinned:
    pinned = Pinned(kv_tokens=worker.kv_tokens, max_num_seqs=slots, step_tokens=PACED_STEP_TOKENS)
    if pace is None:
        return pinned
    return pinned._replace(
        step_tokens=pace.step,
        long_prefill_tokens=pace.bound,
        long_prefill_adaptive=True,
        by_priority=True,
    )


def _split(lapse: float) -> Setting:
    """Two engines on each card, each with its own weights, so half of the pool is left for both."""
    engines: list[Engine] = []
    slots: list[Slots] = []
    for worker in WORKERS:
        half = worker.kv_tokens // 2
        batch = half // 2 // BATCH_TOKENS
        chats = (half - batch * BATCH_TOKENS) // CHAT_TOKENS
        first = engine(
            worker._replace(name=f"{worker.name}-chat"),
            Pinned(kv_tokens=half - batch * BATCH_TOKENS, max_num_seqs=chats),
            lapse=lapse,
        )
        engines.append(first)
        slots.append((chats, 0))
        if batch:
            second = engine(
                worker._replace(name=f"{worker.name}-batch"),
                Pinned(kv_tokens=batch * BATCH_TOKENS, max_num_seqs=batch),
                lapse=lapse,
            )
            second.turn = first.turn  # one card computes for one of them at a time
            engines.append(second)
            slots.append((0, batch))
    return Setting(tuple(engines), tuple(slots), (1,) * len(engines), _lanes(lapse))


def _lanes(lapse: float) -> tuple[GateLane, ...]:
    return (
        GateLane("chat", CHAT_TOKENS, 256, 64, _seconds(3, lapse), (1, 3), 0),
        GateLane("batch", BATCH_TOKENS, 512, 16, _seconds(60, lapse), (5, 15), 10),
    )


def _seconds(seconds: float, lapse: float) -> int:
    return max(1, round(seconds / lapse))


async def measure(mode: str, folder: Path, run: Run) -> Outcome:
    """One way, over so many seconds of its own time."""
    made = setting(mode, run.lapse)
    if mode != "no gate":
        box = front(folder, made.engines, made.slots, made.lanes, weights=made.weights)
        async with box:
            return await _load(mode, made, itertools.repeat(box.port), run)
    ports = [free_port() for _ in made.engines]
    for each, port in zip(made.engines, ports, strict=True):
        each.pinned = each.pinned._replace(max_num_seqs=MOST_SEQUENCES)
        await each.serve(port)
    try:
        return await _load(mode, made, itertools.cycle(ports), run)
    finally:
        for each in made.engines:
            await each.stop()


async def _load(
    mode: str, made: Setting, ports: itertools.repeat[int] | itertools.cycle[int], run: Run
) -> Outcome:
    dice = random.Random(run.seed)
    began = time.monotonic()
    ends = began + run.seconds / run.lapse
    chats: list[asyncio.Task[Answer]] = []

    async def one_client(number: int) -> None:
        own = random.Random(f"{run.seed}/{number}")
        while time.monotonic() < ends:
            body = chat(BATCH_PROMPT, batch_answer(own))
            answer = await ask(next(ports), body, within=300 / run.lapse)
            if answer.status in (429, 503):
                retry = float(answer.headers.get("retry-after", 1)) / run.lapse
                await asyncio.sleep(min(retry, max(0.0, ends - time.monotonic())))

    clients = range(0 if mode == "alone" else BATCH_CLIENTS)
    batch = [asyncio.create_task(one_client(number)) for number in clients]
    due = began
    while due < ends:
        due += dice.expovariate(run.chat_per_second * run.lapse)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        prompt = int(math.exp(dice.uniform(*map(math.log, CHAT_PROMPTS))))
        body = chat(prompt, dice.randint(*CHAT_ANSWERS))
        chats.append(asyncio.create_task(ask(next(ports), body, within=HUNG_SECONDS / run.lapse)))
    # peaks before clients hang up: an engine learns of that a moment later than the gate
    outcome = _batch_so_far(mode, made, run)
    answers = await asyncio.gather(*chats)
    for client in batch:
        client.cancel()
    await asyncio.gather(*batch, return_exceptions=True)
    warm = began + WARM_SECONDS / run.lapse
    return _with_chats(outcome, [each for each in answers if each.began > warm], run)


def batch_answer(dice: random.Random) -> int:
    """Tokens of one answer of the batch."""
    return dice.randint(150, 350)


def batch_per_minute(engines: Sequence[Engine], run: Run) -> float:
    """The batch's work so far, in whole requests: a window of minutes holds few that end."""
    tokens = sum(each.batch_tokens() for each in engines)
    return tokens / (BATCH_PROMPT + 250) * 60 / run.seconds


def _batch_so_far(mode: str, made: Setting, run: Run) -> Outcome:
    names = [lane.name for lane in made.lanes]
    return Outcome(
        mode=mode,
        chat_per_second=run.chat_per_second,
        seed=run.seed,
        batch_per_minute=batch_per_minute(made.engines, run),
        over_plan=0
        if mode == "no gate"
        else sum(
            any(
                each.peaks.lanes.get(name, 0) > most for name, most in zip(names, slot, strict=True)
            )
            or (len(names) > 1 and each.peaks.promised_tokens > each.pinned.kv_tokens)
            for each, slot in zip(made.engines, made.slots, strict=True)
        ),
    )


def _with_chats(outcome: Outcome, window: Sequence[Answer], run: Run) -> Outcome:
    served = [each for each in window if each.is_whole]
    statuses = Counter(each.status for each in window)
    refused = statuses[429] + statuses[503]
    gaps = [later - sooner for each in served for sooner, later in itertools.pairwise(each.chunks)]
    ttft = [each.ttft_seconds for each in served]
    return outcome._replace(
        asked=len(window),
        served=len(served),
        refused=refused,
        hung=len(window) - len(served) - refused,
        ttft_p50_seconds=run.lapse * quantile(ttft, 0.5),
        ttft_p95_seconds=run.lapse * quantile(ttft, 0.95),
        gap_p95_seconds=run.lapse * quantile(gaps, 0.95),
    )


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which that part lies; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else math.nan


def as_table(outcomes: Sequence[Outcome]) -> str:
    """The ways side by side, each beside chat alone and the split of the same dice."""
    first = {(each.mode, each.chat_per_second, each.seed): each for each in outcomes}
    lines = [
        "| chat/s | seed | way | chat TTFT p50 / p95 s | p95 to alone | refused | hung "
        "| 8-token gap p95 s | batch/min | to split |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        alone, split = (
            first.get((mode, each.chat_per_second, each.seed)) for mode in ("alone", "split")
        )
        slower = each.ttft_p95_seconds / alone.ttft_p95_seconds if alone else math.nan
        more = each.batch_per_minute / split.batch_per_minute if split else math.nan
        lines.append(
            f"| {each.chat_per_second:g} | {each.seed} | {each.mode} "
            f"| {each.ttft_p50_seconds:.2f} / {each.ttft_p95_seconds:.2f} | {slower:.1f}x "
            f"| {each.refused_percent:.0f} % | {100 * each.hung / max(1, each.asked):.0f} % "
            f"| {each.gap_p95_seconds:.2f} | {each.batch_per_minute:.1f} | {more:.2f}x |"
        )
    return "\n".join(lines)
