"""What do the ways of `dilemma` give when nothing but arithmetic decides, with other dice and other cards?

The same engines, lanes, clients and targets in a time that is counted and does not pass: no HAProxy, no
network, no other work on the machine, and the same figures each time. HAProxy is a few lines here: the least
loaded worker by weight, one bounded queue per lane. So it shows which figure is the machine's and which is the
way's, and how far the answer hangs on how a card is imagined:

- sum: a step takes its own time, then that of its prompts, as the measurement with HAProxy has it
- overlap: weights are read while prompts are computed, as cards do
- overlap, attention: and a token costs more the more there is before it, twice as much after 30,000 tokens

    python -m benchmarks.gateway.counted                the ways that have targets
    python -m benchmarks.gateway.counted --settings     other paces than the plan's
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e"))
from benchmarks.gateway.dilemma import (
    BATCH_CLIENTS,
    BATCH_PROMPT,
    CHAT_ANSWERS,
    CHAT_PROMPTS,
    HUNG_SECONDS,
    SHORT_MODES,
    WARM_SECONDS,
    Outcome,
    Pace,
    Run,
    Setting,
    batch_answer,
    batch_per_minute,
    quantile,
    setting,
)

from stand_ins.batching import Card, Engine, Seq

EVEN_TOKENS: Final = 30_000
"""Of a model of 8B parameters: 16e9 operations per token for weights, 4 x 4,096 x 32 for each token before it."""
PHYSICS: Final[dict[str, Callable[[Card], Card]]] = {
    "sum": lambda card: card,
    "overlap": lambda card: card._replace(overlaps=True),
    "overlap, attention": lambda card: card._replace(overlaps=True, even_tokens=EVEN_TOKENS),
}
SEEDS: Final = (7, 11, 23, 31, 47, 59)
RATES: Final = (8.0, 4.0)
SETTINGS: Final = (
    *(Pace(count, bound) for count in (1, 2, 3, 5) for bound in (256, 384, 512, 768)),
    *(Pace(count, 1024, 4096) for count in (2, 3)),
)


@dataclass(eq=False)
class Asked:
    """One request on its way."""

    prompt: int
    answer: int
    began: float
    client: int | None = None
    """Of the batch; None for chat."""
    status: int = 0
    first: float = math.nan
    chunks: list[float] = field(default_factory=list)


@dataclass(eq=False)
class Line:
    """A lane at the gate."""

    place: int
    slots: tuple[int, ...]
    length: int
    seconds: float
    running: list[int]
    queue: deque[Asked] = field(default_factory=deque)


class Counted:
    """A world whose time is a number."""

    def __init__(self, made: Setting, run: Run) -> None:
        self.made, self.run, self.now = made, run, 0.0
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.computing: dict[int, deque[Engine]] = {id(each.turn): deque() for each in made.engines}
        self.chats: list[Asked] = []
        self.of: dict[Seq, tuple[Asked, Line, int]] = {}
        self.lines = [
            Line(
                place,
                tuple(slots[place] for slots in made.slots),
                lane.queue_length,
                lane.queue_seconds,
                [0] * len(made.engines),
            )
            for place, lane in enumerate(made.lanes)
        ]
        self.clients = [random.Random(f"{run.seed}/{number}") for number in range(BATCH_CLIENTS)]

    def at(self, when: float, then: Callable[[], None]) -> None:
        heapq.heappush(self.due, (when, next(self.numbers), then))

    def until(self, end: float) -> None:
        while self.due and self.due[0][0] <= end:
            self.now, _, then = heapq.heappop(self.due)
            then()

    # -- clients

    def chat_comes(self, dice: random.Random) -> None:
        if self.now >= self.run.seconds:
            return
        prompt = int(math.exp(dice.uniform(*map(math.log, CHAT_PROMPTS))))
        asked = Asked(prompt, dice.randint(*CHAT_ANSWERS), self.now)
        self.chats.append(asked)
        self.comes(asked, self.lines[0])
        self.at(
            self.now + dice.expovariate(self.run.chat_per_second), lambda: self.chat_comes(dice)
        )

    def batch_comes(self, client: int) -> None:
        if self.now < self.run.seconds:
            answer = batch_answer(self.clients[client])
            self.comes(Asked(BATCH_PROMPT, answer, self.now, client), self.lines[1])

    # -- the gate

    def comes(self, asked: Asked, line: Line) -> None:
        free = [
            (256 * line.running[worker] / self.made.weights[worker], worker)
            for worker, slots in enumerate(line.slots)
            if line.running[worker] < slots
        ]
        if free:
            self.starts(asked, line, min(free)[1])
        elif len(line.queue) < line.length:
            line.queue.append(asked)
            self.at(self.now + line.seconds, lambda: self.waited(asked, line))
        else:
            self.ends(asked, 429)

    def waited(self, asked: Asked, line: Line) -> None:
        if asked in line.queue:
            line.queue.remove(asked)
            self.ends(asked, 429)

    def starts(self, asked: Asked, line: Line, worker: int) -> None:
        line.running[worker] += 1
        engine = self.made.engines[worker]
        priority = self.made.lanes[line.place].priority or 0
        sequence = engine.submit(asked.prompt, asked.answer, priority)
        self.of[sequence] = asked, line, worker
        self.wants(engine)

    def ends(self, asked: Asked, status: int) -> None:
        asked.status = status
        if asked.client is not None:
            client = asked.client
            pause = 0.0 if status == 200 else self.clients[client].uniform(5, 15)
            self.at(self.now + pause, lambda: self.batch_comes(client))

    # -- engines

    def wants(self, engine: Engine) -> None:
        """Its turn on the card comes after that of the others; the first in the row computes."""
        row = self.computing[id(engine.turn)]
        if engine in row or not (engine.running or engine.waiting):
            return
        row.append(engine)
        if len(row) == 1:
            self.computes(row)

    def computes(self, row: deque[Engine]) -> None:
        work = row[0].schedule()
        self.at(
            self.now + (row[0].seconds_of(work) if work else 0.001),
            lambda: self.computed(row, work),
        )

    def computed(self, row: deque[Engine], work: Sequence[Seq]) -> None:
        engine = row[0]  # stays there meanwhile, so that nobody begins its next step
        for sequence in work:
            engine.advance(sequence)
            self.hears(sequence)
        row.popleft()
        others_wait = bool(row)
        self.wants(engine)
        if others_wait:
            self.computes(row)

    def hears(self, sequence: Seq) -> None:
        asked, line, worker = self.of[sequence]
        while not sequence.told.empty():
            if math.isnan(asked.first):
                asked.first = self.now
            if sequence.told.get_nowait() is not None:
                asked.chunks.append(self.now)
                continue
            del self.of[sequence]
            line.running[worker] -= 1
            if line.queue:
                self.starts(line.queue.popleft(), line, worker)
            self.ends(asked, 200)


class Question(NamedTuple):
    """What is run once."""

    mode: str
    physics: str
    run: Run
    pace: Pace | None = None
    """Another one than the way's own."""


def measure(question: Question) -> Outcome:
    """One way, with one kind of card."""
    run = question.run
    made = setting(question.mode, run.lapse, question.pace)
    for engine in made.engines:
        engine.card = PHYSICS[question.physics](engine.card)
    world, dice = Counted(made, run), random.Random(run.seed)
    world.at(dice.expovariate(run.chat_per_second), lambda: world.chat_comes(dice))
    for client in range(0 if question.mode == "alone" else BATCH_CLIENTS):
        world.batch_comes(client)
    world.until(run.seconds)
    done = batch_per_minute(made.engines, run)
    world.until(run.seconds + HUNG_SECONDS)
    window = [asked for asked in world.chats if asked.began > WARM_SECONDS]
    served = [asked for asked in window if asked.status == 200]
    refused = sum(asked.status == 429 for asked in window)
    ttft = [asked.first - asked.began for asked in served]
    gaps = [later - sooner for each in served for sooner, later in itertools.pairwise(each.chunks)]
    return Outcome(
        question.mode,
        done,
        0,
        run.chat_per_second,
        run.seed,
        len(window),
        len(served),
        refused,
        len(window) - len(served) - refused,
        quantile(ttft, 0.5),
        quantile(ttft, 0.95),
        quantile(gaps, 0.95),
    )


def study(seeds: Sequence[int] = SEEDS) -> str:
    """All kinds of card and both loads with several dice, as a table of medians and ranges."""
    kinds = [(physics, rate) for rate in RATES for physics in PHYSICS]
    asked = [
        Question(mode, physics, Run(120, 1, seed, rate))
        for physics, rate in kinds
        for seed in seeds
        for mode in SHORT_MODES
    ]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(asked, pool.map(measure, asked, chunksize=3), strict=True))
    lines = [
        "| counted: card | chat/s | chat alone p95 TTFT s | paced to alone | refused "
        "| batch to split | the split refuses |",
        "|---|---|---|---|---|---|---|",
    ]
    for physics, rate in kinds:
        alone, paced, split = (
            [found[Question(mode, physics, Run(120, 1, seed, rate))] for seed in seeds]
            for mode in SHORT_MODES
        )
        pairs = list(zip(paced, alone, split, strict=True))
        slower = [ours.ttft_p95_seconds / one.ttft_p95_seconds for ours, one, _ in pairs]
        more = [ours.batch_per_minute / half.batch_per_minute for ours, _, half in pairs]
        lines.append(
            f"| {physics} | {rate:g} | {statistics.median(each.ttft_p95_seconds for each in alone):.2f} "
            f"| {_ranged(slower)} | {max(each.refused_percent for each in paced):.0f} % | {_ranged(more)} "
            f"| {statistics.median(each.refused_percent for each in split):.0f} % |"
        )
    return "\n".join(lines)


def _ranged(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}x ({min(values):.2f} to {max(values):.2f})"


def settings(seeds: Sequence[int] = SEEDS[:3]) -> str:
    """Other paces on two kinds of card: what chat pays, and what the batch gets."""
    kinds = ("sum", "overlap, attention")
    runs = [Run(120, 1, seed) for seed in seeds]
    asked = [
        *(
            Question(mode, kind, run)
            for mode in ("alone", "split")
            for kind in kinds
            for run in runs
        ),
        *(
            Question("paced", kind, run, pace)
            for pace in SETTINGS
            for kind in kinds
            for run in runs
        ),
    ]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(asked, pool.map(measure, asked, chunksize=3), strict=True))
    lines = [
        "| step | bound | long at once | card | paced to alone | refused | batch to split |",
        "|---|---|---|---|---|---|---|",
    ]
    for pace in SETTINGS:
        for kind in kinds:
            trios = [
                (
                    found[Question("paced", kind, run, pace)],
                    found[Question("alone", kind, run)],
                    found[Question("split", kind, run)],
                )
                for run in runs
            ]
            slower = [ours.ttft_p95_seconds / one.ttft_p95_seconds for ours, one, _ in trios]
            more = [ours.batch_per_minute / half.batch_per_minute for ours, _, half in trios]
            lines.append(
                f"| {pace.step} | {pace.bound} | {pace.per_worker} | {kind} | {_ranged(slower)} "
                f"| {max(ours.refused_percent for ours, _, _ in trios):.0f} % | {_ranged(more)} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(settings() if "--settings" in sys.argv else study())
