"""Which one thing is changed after a death, so that the next worker lives?

A table from the kind of death to moves, each the right way round: what is short is given more, what took too
much is made smaller. A move is made only where the plan that follows fits and differs, and never against a
value that the user pinned.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.diagnose.death import Death
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.plan.planner import plan as plan_of
from plimsoll.plan.records import Plan, PlanRequest, Refusal
from plimsoll.plan.steps import HEADROOMS, NO_CAP, Steps
from plimsoll.units import GIB, MIB, gib, round_down

MOST_STEPS: Final = 4
"""Steps for one pool and one spec; then a person decides."""
RESERVE_SHARES: Final = (0.1, 0.2, 0.2, 0.2)
"""Part of the KV cache that each reserve takes. Never more than a fifth: what would have fitted lies between
this step and the one before, so four fifths of it are kept at least."""
LEAST_RESERVE_BYTES: Final = 256 * MIB
ROUNDING_BYTES: Final = 64 * MIB
"""On top of what was wanted and not there: allocators take whole segments."""
LEAST_STEP_TOKENS: Final = 512
LEAST_UBATCH_TOKENS: Final = 64
LEAST_LENGTH_TOKENS: Final = 2048
"""A length that nobody asked for is not shortened below this; as in plan/choose.py."""
LENGTH_STEP: Final = 256
_TOLD_BYTES: Final = GIB // 100
"""The engine rounds to a hundredth of a GiB, either way."""
POOL_RESERVE_BYTES: Final = GIB
"""What plan/offload_ask.py keeps free for CUDA's pools (engines/llama_cpp/memory.py)."""


class MoveName(StrEnum):
    """What is changed."""

    MORE_RESERVE = "MoreReserve"
    """More of each card stays free: a smaller share with vLLM, fewer slots or layers with llama.cpp."""
    LESS_RESERVE = "LessReserve"
    """Half of an earlier reserve is given back."""
    MORE_BUDGET = "MoreBudget"
    """The share goes further into the headroom."""
    SMALLER_STEPS = "SmallerSteps"
    """Fewer tokens in one step, so that activations take less."""
    FEWER_GRAPHS = "FewerGraphs"
    NO_GRAPHS = "NoGraphs"
    FEWER_SEQUENCES = "FewerSequences"
    SHORTER_LENGTH = "ShorterLength"
    LEAVE_TO_OTHERS = "LeaveToOthers"
    """What something else holds of the card is planned around."""
    MORE_HOST_MEMORY = "MoreHostMemory"
    SMALLER_CACHE = "SmallerCache"
    """A smaller prompt cache in the same container."""
    SMALLER_BATCH = "SmallerBatch"
    """A smaller physical batch."""


class Situation(NamedTuple):
    """What a move starts from."""

    request: PlanRequest
    """The question, with the steps made so far."""
    plan: Plan
    """What the worker ran."""
    death: Death
    """Why it died."""
    reserves: int = 0
    """How often a reserve was made already."""

    @property
    def steps(self) -> Steps:
        """Steps made so far."""
        return self.request.steps

    def flag(self, name: str) -> int | None:
        """A pinned number; None where the release does not have the flag."""
        found = next((flag.value for flag in self.plan.flags if flag.name == name), None)
        return int(found) if found is not None and found.lstrip("-").isdigit() else None


class Made(NamedTuple):
    """A move that was made."""

    name: MoveName
    """What was changed."""
    steps: Steps
    """All that was learned, this included."""
    plan: Plan
    """The plan that follows."""
    sentence: str
    """From what to what."""


class NotMade(NamedTuple):
    """No move, and why."""

    sentence: str
    """For the person who decides."""


Attempts = Callable[[Situation], Iterator[Steps]]
"""What a move might set, the smallest change first."""


class Move(NamedTuple):
    """One row of moves."""

    name: MoveName
    attempts: Attempts
    overrides: tuple[str, ...] = ()
    """Values of the pool that the user may have pinned, which the move would change."""


# ---- moves -----------------------------------------------------------------------------------------


def _more_reserve(now: Situation) -> Iterator[Steps]:
    numbers = now.death.numbers
    tried, free = numbers.get("triedBytes"), numbers.get("freeBytes")
    short = max(0, tried - free) + ROUNDING_BYTES if tried is not None and free is not None else 0
    if now.request.engine is EngineName.LLAMA_CPP:
        yield from _fewer_layers(now, short)
        return
    pool = now.plan.kv.pool_bytes_per_card
    share = RESERVE_SHARES[min(now.reserves, len(RESERVE_SHARES) - 1)]
    least = max(round(pool * share), LEAST_RESERVE_BYTES)
    # what the card itself said is missing is missing, however much of the cache it is
    wanted = max(min(least, pool // 5), short, now.request.gpu.usable_bytes // 1000 + 1)
    yield now.steps._replace(reserve_bytes=now.steps.reserve_bytes + wanted)


def _fewer_layers(now: Situation, short: int) -> Iterator[Steps]:
    """As much more reserve as one layer takes, then two, four and eight: the planner drops slots first
    where all layers are on the cards, and layers where not."""
    held = now.plan.line(ByteOwner.WEIGHTS) + now.plan.line(ByteOwner.KV_CACHE)
    layer = held // max(1, now.plan.gpu_layers or 1)
    free = max(0, now.plan.line(ByteOwner.HEADROOM) - POOL_RESERVE_BYTES)
    wanted = layer * (2**now.reserves - 1)
    base = free + max(min(wanted, held // 5), short) + 1
    yield now.steps._replace(reserve_bytes=base)
    yield now.steps._replace(reserve_bytes=base + layer)


def _more_room(now: Situation) -> Iterator[Steps]:
    """For an engine that found too little for its cache: what it found is known from now on, and the
    smallest change with which a sequence fits beside it."""
    found = now.steps._replace(found_bytes=now.steps.found_bytes + _found(now))
    pinned = now.request.overrides
    rows: tuple[Steps, ...] = (found,)
    if pinned.gpu_memory_utilization is None:
        if found.reserve_bytes:
            rows = (
                found._replace(reserve_bytes=found.reserve_bytes // 2),
                found._replace(reserve_bytes=0),
            )
        low = rows[-1]
        rows += tuple(
            low._replace(budget_notches=notch)
            for notch in range(low.budget_notches + 1, len(HEADROOMS))
        )
    yield from (row for row in rows if row != found)
    if pinned.max_num_batched_tokens is None:
        for tokens in _halves(now.flag("--max-num-batched-tokens"), _least_step(now)):
            row = rows[-1]._replace(max_num_batched_tokens=tokens)
            rows += (row,)
            yield row
    if _has_graphs(now):
        yield rows[-1]._replace(largest_graph=0)
        rows += (rows[-1]._replace(largest_graph=0),)
    yield from _shorter(now, rows[-1])
    if pinned.max_num_batched_tokens is None:  # a smaller step may free more than the ledger counts
        for tokens in _halves(now.flag("--max-num-batched-tokens"), _least_step(now)):
            yield rows[-1]._replace(
                found_bytes=now.steps.found_bytes, max_num_batched_tokens=tokens
            )


def _found(now: Situation) -> int:
    """Bytes inside the share that the engine found taken beyond the plan; 0 where it gave no number."""
    planned, numbers = now.plan.kv.pool_bytes_per_card, now.death.numbers
    if now.death.kind is DeathKind.NO_ROOM_FOR_BLOCKS:
        return planned
    there = numbers.get("availableBytes")
    stored = numbers.get("estimatedMaxModelLen")
    if there is None and stored is not None and now.plan.kv.pool_tokens:
        there = planned * stored // now.plan.kv.pool_tokens
    return 0 if there is None else max(0, planned - there + _TOLD_BYTES)


def _shorter(now: Situation, steps: Steps) -> Iterator[Steps]:
    """Only a length that nobody asked for: what users need is no lever of ours."""
    request = now.request
    if request.max_model_len is not None or request.overrides.max_model_len is not None:
        return
    least = max(
        (lane.prompt_tokens.p99 + lane.output_tokens.p99 for lane in request.lanes),
        default=LEAST_LENGTH_TOKENS,
    )
    told = now.death.numbers.get("estimatedMaxModelLen", now.plan.max_model_len)
    length = round_down(min(told, now.plan.max_model_len - 1), LENGTH_STEP)
    while length >= least:
        yield steps._replace(max_model_len=length)
        length = round_down(length * 3 // 4, LENGTH_STEP)


def _smaller_steps(now: Situation) -> Iterator[Steps]:
    """Half a step; where the run that measures it did not fit the card, a quarter at once: its peak is all
    that there is to change, and a smaller step costs no cache."""
    sizes = tuple(_halves(now.flag("--max-num-batched-tokens"), _least_step(now)))
    if now.death.kind is DeathKind.CUDA_OOM_IN_PROFILE:
        sizes = sizes[::-1]
    for tokens in sizes:
        yield now.steps._replace(max_num_batched_tokens=tokens)


def _least_step(now: Situation) -> int:
    """A step must take one token of every sequence (vLLM 0.33.0, config/scheduler.py)."""
    return max(LEAST_STEP_TOKENS, now.plan.concurrency.max_num_seqs)


def _fewer_graphs(now: Situation) -> Iterator[Steps]:
    rows = now.flag("--max-cudagraph-capture-size")
    if rows is not None and rows >= 32:
        yield now.steps._replace(largest_graph=rows // 4)


def _no_graphs(now: Situation) -> Iterator[Steps]:
    if _has_graphs(now):
        yield now.steps._replace(largest_graph=0)


def _has_graphs(now: Situation) -> bool:
    return now.request.engine is EngineName.VLLM and now.steps.largest_graph != 0


def _fewer_sequences(now: Situation) -> Iterator[Steps]:
    blocks = now.death.numbers.get("blocks")
    most = now.plan.concurrency.max_num_seqs
    fewer = blocks if blocks is not None else most // 2
    if 0 < fewer < most:
        yield now.steps._replace(max_num_seqs=fewer)


def _leave_to_others(now: Situation) -> Iterator[Steps]:
    """The engine looked after its own context was there, so that is not what others hold."""
    numbers = now.death.numbers
    total, free = numbers.get("totalBytes"), numbers.get("freeBytes")
    if total is not None and free is not None:
        held = total - free - now.plan.line(ByteOwner.CONTEXT) + _TOLD_BYTES
        yield now.steps._replace(held_bytes=max(0, held))


def _more_host_memory(now: Situation) -> Iterator[Steps]:
    """Half as much again; a quarter the first time that one is killed while it serves, where the plan was
    nearly right."""
    is_first = now.death.kind is DeathKind.HOST_OOM_SERVING and not now.steps.host_bytes
    parts = 4 if is_first else 2
    more = now.plan.host_memory_bytes // parts // MIB * MIB
    yield now.steps._replace(host_bytes=now.steps.host_bytes + more)


def _smaller_cache(now: Situation) -> Iterator[Steps]:
    cache = now.flag("--cache-ram")
    if cache:
        yield now.steps._replace(cache_ram_bytes=cache // 2 * MIB)


def _smaller_batch(now: Situation) -> Iterator[Steps]:
    for tokens in _halves(now.flag("--ubatch-size"), LEAST_UBATCH_TOKENS):
        yield now.steps._replace(ubatch_size=tokens)


def _halves(value: int | None, least: int) -> Iterator[int]:
    """A half and a quarter, where they are enough."""
    for parts in (2, 4):
        if value is not None and value // parts >= least:
            yield value // parts


RESERVE: Final = Move(MoveName.MORE_RESERVE, _more_reserve, ("gpu_memory_utilization",))
LAYERS: Final = Move(MoveName.MORE_RESERVE, _more_reserve, ("gpu_layers",))
ROOM: Final = Move(MoveName.MORE_BUDGET, _more_room)
STEPS: Final = Move(MoveName.SMALLER_STEPS, _smaller_steps, ("max_num_batched_tokens",))
GRAPHS: Final = Move(MoveName.FEWER_GRAPHS, _fewer_graphs)
EAGER: Final = Move(MoveName.NO_GRAPHS, _no_graphs)
SEQUENCES: Final = Move(MoveName.FEWER_SEQUENCES, _fewer_sequences, ("max_num_seqs",))
OTHERS: Final = Move(MoveName.LEAVE_TO_OTHERS, _leave_to_others, ("gpu_memory_utilization",))
HOST: Final = Move(MoveName.MORE_HOST_MEMORY, _more_host_memory)
CACHE: Final = Move(MoveName.SMALLER_CACHE, _smaller_cache, ("cache_ram_bytes",))
BATCH: Final = Move(MoveName.SMALLER_BATCH, _smaller_batch, ("ubatch_size",))

_K, _V, _L = DeathKind, EngineName.VLLM, EngineName.LLAMA_CPP
MOVES: Final[dict[tuple[DeathKind, EngineName], tuple[Move, ...]]] = {
    # too little for the cache: more budget, or less beside it; a smaller share would make it worse
    (_K.NO_ROOM_FOR_BLOCKS, _V): (ROOM,),
    (_K.LENGTH_TOO_LONG, _V): (ROOM,),
    (_K.TOO_MANY_SEQUENCES, _V): (SEQUENCES,),
    # the share is larger than what is free: a smaller share
    (_K.MEMORY_HELD_BY_OTHERS, _V): (OTHERS,),
    # before there is a cache: the share is no lever, only what the run itself takes
    (_K.CUDA_OOM_IN_PROFILE, _V): (STEPS, STEPS, SEQUENCES, EAGER),
    # beside the cache: a smaller share or fewer graphs
    (_K.CUDA_OOM_AT_CAPTURE, _V): (RESERVE, RESERVE, GRAPHS, EAGER),
    # what the profile did not see: more reserve, smaller steps
    (_K.CUDA_OOM_SERVING, _V): (RESERVE, RESERVE, STEPS, RESERVE),
    (_K.HOST_OOM_BEFORE_READY, _V): (HOST, HOST, HOST, HOST),
    (_K.HOST_OOM_SERVING, _V): (HOST, HOST, HOST, HOST),
    # llama.cpp takes all at load; what grows later are pools, by the batch
    (_K.CUDA_OOM_AT_LOAD, _L): (LAYERS, LAYERS, LAYERS, LAYERS),
    (_K.CUDA_OOM_AT_START, _L): (LAYERS, BATCH, LAYERS, LAYERS),
    (_K.CUDA_OOM_SERVING, _L): (BATCH, LAYERS, LAYERS, LAYERS),
    (_K.HOST_OOM_BEFORE_READY, _L): (HOST, HOST, HOST, HOST),
    (_K.HOST_OOM_SERVING, _L): (CACHE, HOST, HOST, HOST),
}
"""By kind and engine: the first time, the second time and so on. What is not here is not moved for."""


def move_for(now: Situation, *, times: int) -> Made | NotMade:
    """The move after a death of this kind that was moved for `times` before: the row's next one that is
    possible, else why there is none."""
    ladder = MOVES.get((now.death.kind, now.request.engine), ())
    why: list[str] = []
    for move in dict.fromkeys((*ladder[times:], *ladder)):
        pinned = [
            name for name in move.overrides if getattr(now.request.overrides, name) is not None
        ]
        if pinned:
            why.append(f"{move.name.value} would change {_spelled(pinned[0])}, which you pinned")
            continue
        outcome = _first_that_fits(now, move)
        if isinstance(outcome, Made):
            return outcome
        if outcome is not None:
            why.append(f"{move.name.value} does not fit: {outcome.message.rstrip('.')}")
    return NotMade("; ".join(dict.fromkeys(why)) or "there is nothing left to change")


def _first_that_fits(now: Situation, move: Move) -> Made | Refusal | None:
    """The smallest change that fits; of several budgets the first that gives four fifths of the largest."""
    refused: Refusal | None = None
    made: list[Made] = []
    for steps in move.attempts(now):
        if made and (move is not ROOM or not _is_budget_alone(now.steps, steps)):
            break
        kept = _same_length(now, steps)
        outcome = plan_of(now.request._replace(steps=kept))
        if isinstance(outcome, Refusal):
            refused = outcome
        elif _differs(outcome, now.plan):
            name = _name_of(move, now, kept, outcome)
            made.append(Made(name, kept, outcome, _changed(now.plan, outcome)))
    if not made:
        return refused
    most = max(each.plan.kv.pool_bytes_per_card for each in made)
    return next(each for each in made if each.plan.kv.pool_bytes_per_card * 5 >= most * 4)


def _is_budget_alone(before: Steps, after: Steps) -> bool:
    """Whether nothing but the share differs."""
    return (
        after._replace(
            reserve_bytes=before.reserve_bytes,
            budget_notches=before.budget_notches,
            found_bytes=before.found_bytes,
        )
        == before
    )


def _same_length(now: Situation, steps: Steps) -> Steps:
    """A length that the plan chose by itself stays what it was."""
    request = now.request
    if request.max_model_len or request.overrides.max_model_len or request.lanes:
        return steps
    if steps.max_model_len != NO_CAP:
        return steps
    return steps._replace(max_model_len=now.plan.max_model_len)


def _differs(new: Plan, old: Plan) -> bool:
    return (new.args(), new.host_memory_bytes) != (old.args(), old.host_memory_bytes)


_NAMES: Final = (
    ("largest_graph", MoveName.NO_GRAPHS),
    ("max_num_batched_tokens", MoveName.SMALLER_STEPS),
    ("budget_notches", MoveName.MORE_BUDGET),
    ("reserve_bytes", MoveName.LESS_RESERVE),
)
"""What makes room, by what it sets; the last resort first."""


def _name_of(move: Move, now: Situation, after: Steps, new: Plan) -> MoveName:
    """Of several things that make room, the last that was needed gives the name."""
    if move is not ROOM:
        return move.name
    if new.max_model_len < now.plan.max_model_len:
        return MoveName.SHORTER_LENGTH
    changed = (name for field, name in _NAMES if getattr(now.steps, field) != getattr(after, field))
    return next(changed, move.name)


def _changed(old: Plan, new: Plan) -> str:
    """The arguments that differ, from what to what."""
    before = {flag.name: flag.value for flag in old.flags}
    after = {flag.name: flag.value for flag in new.flags}
    parts = [
        f"{name} {before.get(name) or 'off'} -> {after[name] or 'on' if name in after else 'off'}"
        for name in dict.fromkeys((*after, *before))
        if before.get(name, "") != after.get(name, "")
    ]
    if old.host_memory_bytes != new.host_memory_bytes:
        parts.append(f"memory {gib(old.host_memory_bytes)} -> {gib(new.host_memory_bytes)}")
    return ", ".join(parts)


def _spelled(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.title() for part in rest)
