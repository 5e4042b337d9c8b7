"""Does a pool come to run after a cost that nobody planned for, and what is kept of its cache?

python benchmarks/back_off.py             a table: Plimsoll beside three reflexes of other tools
python benchmarks/back_off.py --write     docs/measured/back-off.md
"""

from __future__ import annotations

import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.back_off_engine import LEAST_HIDDEN_BYTES, Args, Engine, Hidden, Phase, Runs

from plimsoll.api.deaths_moves import MOST_STEPS, Made, MoveName, Situation, move_for
from plimsoll.catalog.gpus import find_gpu
from plimsoll.catalog.models import find_model
from plimsoll.diagnose.death import Books, classify
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.engines.vllm import memory
from plimsoll.facts.model import ModelFacts
from plimsoll.facts.worker import ContainerEnd
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, PlanRequest
from plimsoll.plan.steps import SHARE_NOTCHES

ROOT: Final = Path(__file__).resolve().parents[1]
SEEDS: Final = range(1, 201)
KEPT: Final = 0.8
"""Of what would have fitted, at least."""
LARGEST_PART: Final = 0.45
"""Of the planned cache that a hidden cost takes at most, beyond what is free anyway."""
PAGE: Final = ROOT / "docs" / "measured" / "back-off.md"

WORLDS: Final = (
    ("meta-llama/Meta-Llama-3-8B-Instruct", "rtx-4090", 1, "0.22.1", 8192),
    ("meta-llama/Meta-Llama-3-8B-Instruct", "h100-sxm", 1, "0.33.0", 8192),
    ("meta-llama/Llama-3.3-70B-Instruct", "rtx-a6000", 4, "0.22.1", 16384),
    ("meta-llama/Llama-3.3-70B-Instruct", "h100-sxm", 2, "0.17.1", 8192),
    ("google/gemma-3-27b-it", "a100-80gb-sxm", 1, "0.26.0", 16384),
    ("openai/gpt-oss-20b", "l40s", 1, "0.33.0", 32768),
)
"""Model, card, cards, release, length: small and large caches, with graphs inside the share and outside."""


class Trial(NamedTuple):
    """One hidden cost in one world."""

    request: PlanRequest
    plan: Plan
    engine: Engine


class Ended(NamedTuple):
    """How a trial ended."""

    steps: int
    runs: Runs | None
    moves: tuple[str, ...] = ()


@lru_cache(maxsize=32)
def world(at: int) -> tuple[PlanRequest, Plan]:
    """A question and its plan."""
    name, card, cards, release, length = WORLDS[at]
    model, gpu = find_model(name), find_gpu(card)
    assert isinstance(model, ModelFacts)
    assert gpu is not None
    request = PlanRequest(
        engine=EngineName.VLLM,
        release=release,
        gpu=gpu,
        cards=cards,
        model=model,
        max_model_len=length,
    )
    outcome = plan(request)
    assert isinstance(outcome, Plan), outcome
    return request, outcome


def trial(at: int, phase: Phase, part: float, pieces: int) -> Trial:
    """A hidden cost of this part of the planned cache, on top of what the card has free beside the share."""
    request, first = world(at)
    free = first.line(ByteOwner.HEADROOM)
    amount = round(part * first.kv.pool_bytes_per_card)
    if phase in (Phase.HOST_LOAD, Phase.HOST_SERVING):
        amount = round(part * 4 * first.host_memory_bytes)
    elif phase in (Phase.WEIGHTS, Phase.PROFILE):
        # what is profiled only makes the cache smaller; it is missed when less than one sequence is left
        one = first.kv.pool_bytes_per_card // first.concurrency.worst_case
        amount = round(first.kv.pool_bytes_per_card - one * part / LARGEST_PART)
        if phase is Phase.PROFILE and pieces == 1:  # or when it is more than the whole card
            amount = round(first.kv.pool_bytes_per_card * (1 + part)) + free
    elif phase in (Phase.CAPTURE, Phase.SERVING, Phase.OTHERS):
        amount += free
    engine = Engine(request, Hidden(phase, max(amount, LEAST_HIDDEN_BYTES), pieces))
    return Trial(request, first, engine)


def drawn(seed: int) -> Trial:
    """The trial of a seed."""
    rolls = random.Random(seed)
    return trial(
        rolls.randrange(len(WORLDS)),
        rolls.choice(list(Phase)),
        rolls.uniform(0.01, LARGEST_PART),
        rolls.choice((1, 4, 16, 64)),
    )


def would_have_fitted(given: Trial) -> Runs | None:
    """The largest cache with which this engine runs, whatever its share up to the highest that is pinned,
    the rest as planned; with a higher share, fewer sequences, smaller steps or no graphs where it does not
    run otherwise."""
    args = Args.of(given.plan.args())
    host = 10 * given.plan.host_memory_bytes
    for changed, most in _ways(args):
        for thousandths in range(round(most * memory.SHARE_STEP), 9, -1):
            outcome = given.engine.start(
                changed._replace(utilization=thousandths / memory.SHARE_STEP), host
            )
            if isinstance(outcome, Runs):
                return outcome
    return None


def _ways(args: Args) -> Iterator[tuple[Args, float]]:
    usual = memory.LARGEST_SHARE
    highest = usual + SHARE_NOTCHES[-1]
    smaller = [args._replace(step_tokens=args.step_tokens // part) for part in (2, 4)]
    yield args, usual
    yield args, highest
    yield args._replace(sequences=1), highest
    for most in (usual, highest):
        yield from ((each, most) for each in (*smaller, args._replace(graph_rows=0)))


def ours(given: Trial) -> Ended:
    """Plimsoll's steps, until it runs, four were made, or a person is asked."""
    request, now = given.request, given.plan
    moves: list[str] = []
    seen: Counter[str] = Counter()
    for count in range(MOST_STEPS + 1):
        outcome = given.engine.start(Args.of(now.args()), now.host_memory_bytes)
        if isinstance(outcome, Runs):
            return Ended(count, outcome, tuple(moves))
        if count == MOST_STEPS:
            break
        books = Books(
            now.line(ByteOwner.WEIGHTS), now.line(ByteOwner.ACTIVATION), now.kv.pool_bytes_per_card
        )
        death = classify(outcome, books)
        found = move_for(
            Situation(request, now, death, moves.count(MoveName.MORE_RESERVE)),
            times=seen[death.kind],
        )
        if not isinstance(found, Made):
            return Ended(count, None, (*moves, f"{death.kind}: {found.sentence}"))
        seen[death.kind] += 1
        moves.append(found.name)
        request, now = request._replace(steps=found.steps), found.plan
    return Ended(MOST_STEPS, None, tuple(moves))


def same_again(args: Args, _: ContainerEnd) -> Args:
    """What a kubelet does, and GPUStack's worker (worker/serve_manager.py)."""
    return args


def fifteen_percent_less(args: Args, _: ContainerEnd) -> Args:
    """ml-memguard (memory_guard/deployment/watchdog.py): sequences and utilization, not below 0.5."""
    return args._replace(
        utilization=max(0.5, round(args.utilization * 0.85, 3)),
        sequences=max(1, int(args.sequences * 0.85)),
    )


def lower_utilization(args: Args, _: ContainerEnd) -> Args:
    """The usual advice, whatever the cause: a twentieth less each time."""
    return args._replace(utilization=round(args.utilization - 0.05, 3))


Reflex = Callable[[Args, ContainerEnd], Args]
REFLEXES: Final[tuple[tuple[str, Reflex], ...]] = (
    ("the same arguments again", same_again),
    ("15 % less utilization and sequences", fifteen_percent_less),
    ("utilization 0.05 lower, always", lower_utilization),
)


def by_reflex(given: Trial, reflex: Reflex) -> Ended:
    """The same number of tries, with the same host memory each time."""
    args = Args.of(given.plan.args())
    for count in range(MOST_STEPS + 1):
        outcome = given.engine.start(args, given.plan.host_memory_bytes)
        if isinstance(outcome, Runs):
            return Ended(count, outcome)
        args = reflex(args, outcome)
    return Ended(MOST_STEPS, None)


class Tally(NamedTuple):
    """One way to react, over all trials."""

    name: str
    runs: int
    of: int
    mean_kept: float
    least_kept: float
    below: int
    steps: float


def tally(
    name: str, react: Callable[[Trial], Ended], trials: Sequence[tuple[Trial, Runs]]
) -> Tally:
    """How many run, and how much of what would have fitted they keep."""
    ended = [(react(given), best) for given, best in trials]
    kept = [each.runs.pool_bytes / best.pool_bytes for each, best in ended if each.runs]
    return Tally(
        name,
        runs=len(kept),
        of=len(ended),
        mean_kept=statistics.fmean(kept) if kept else 0.0,
        least_kept=min(kept, default=0.0),
        below=sum(each < KEPT for each in kept),
        steps=statistics.fmean(each.steps for each, _ in ended if each.runs) if kept else 0.0,
    )


def solvable(seeds: Sequence[int] = SEEDS) -> list[tuple[Trial, Runs]]:
    """Trials in which the planned arguments do not run, and some others would."""
    found = []
    for seed in seeds:
        given = drawn(seed)
        first = given.engine.start(Args.of(given.plan.args()), given.plan.host_memory_bytes)
        if isinstance(first, ContainerEnd) and (best := would_have_fitted(given)) is not None:
            found.append((given, best))
    return found


def tallies(trials: Sequence[tuple[Trial, Runs]]) -> list[Tally]:
    """Ours, then the reflexes."""
    return [
        tally("Plimsoll", ours, trials),
        *(tally(name, partial(by_reflex, reflex=reflex), trials) for name, reflex in REFLEXES),
    ]


def page(trials: Sequence[tuple[Trial, Runs]]) -> str:
    """The measured page."""
    rows = "\n".join(
        f"| {each.name} | {each.runs} of {each.of} | {each.steps:.1f} | {each.mean_kept:.0%} | "
        f"{each.least_kept:.0%} | {each.below} |"
        for each in tallies(trials)
    )
    phases = "\n".join(_phase_row(phase, trials) for phase in Phase)
    return PAGE_TEXT.format(
        trials=len(trials), drawn=len(SEEDS), rows=rows, phases=phases, part=LARGEST_PART
    )


def _phase_row(phase: Phase, trials: Sequence[tuple[Trial, Runs]]) -> str:
    mine = [each for each in trials if each[0].engine.hidden.phase is phase]
    if not mine:
        return f"| {phase} | 0 | - | - | - | - |"
    return (
        f"| {phase} | {len(mine)} | " + " | ".join(f"{each.runs}" for each in tallies(mine)) + " |"
    )


PAGE_TEXT: Final = """# Back-off after a death

**Question.** A worker dies of a cost that the plan does not know. How many changes until one runs, and how much of
its KV cache is kept?

**Against what.** A simulated engine (`benchmarks/back_off_engine.py`): it reads vLLM's arguments, takes memory in
vLLM's order and says what vLLM says when there is none. One cost is hidden: in the weights, in another process, in
the profile run, in graph capture, while serving, or in host memory; up to {part:.0%} of the planned cache beyond what
is free anyway (in weights and profile run: so much that less than one sequence is left, or more than the card), in 1
to 64 allocations, of which only the one that fails is told. Half of a cost of capture, profile run and serving grows
with graphs or tokens of a step. Six models, cards and releases. `tests/laws/test_back_off.py` holds it to the same
for 200 more costs.

**Beside it** three reflexes of other tools: a kubelet's and GPUStack's, ml-memguard's
(`memory_guard/deployment/watchdog.py`), and the usual advice. Each has four changes.

**Machine.** Any: nothing is timed.

**Command.** `.venv/bin/python benchmarks/back_off.py --write`

**Result.** {drawn} drawn costs; in {trials} the planned arguments die and some others would run. Kept: the cache
beside the largest with which that engine runs at any utilization up to 0.95, the highest that Plimsoll pins by itself,
or up to 0.98 where it does not run below, the other arguments as planned; only where none runs with fewer sequences,
smaller steps, or without graphs.

| reaction | runs within four changes | changes | kept, mean | kept, least | below 80 % |
|---|---:|---:|---:|---:|---:|
{rows}

How many run, by where the cost is hidden:

| hidden in | trials | Plimsoll | same again | 15 % less | 0.05 lower |
|---|---:|---:|---:|---:|---:|
{phases}

The engine that runs at once with less than was planned is not among them: that is what `PlanVerified` tells.
"""


def main(words: Sequence[str]) -> int:
    trials = solvable()
    text = page(trials)
    if "--write" in words:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
