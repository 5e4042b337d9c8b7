"""What is the pool's geometry, and how many sequences of which length does some memory hold?

The engine's own pipeline from a model's KV groups to the figures it logs, as pure functions. Source:
vLLM 0.33.0 v1/core/kv_cache_planning.py and kv_cache_utils.py; judged by vLLM's own answers in
tests/data/vllm_kv.json.
"""

import math
import sys
from collections import Counter
from typing import Final, NamedTuple

from plimsoll.engines.vllm import groups, layers, specs
from plimsoll.engines.vllm.alike import EngineRefusesError, Group
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.kernels import Kernel
from plimsoll.engines.vllm.recurrent import StateDoesNotDivideError
from plimsoll.engines.vllm.specs import Demand, SpecKind
from plimsoll.engines.vllm.split import partition, split_problem
from plimsoll.facts.model import ModelFacts
from plimsoll.units import ceil_div

NULL_BLOCKS: Final = 1
"""One block of the pool is never given out (BlockPool.null_block)."""
CONCURRENCY_BY_BLOCKS: Final = "0.27"
"""First release whose concurrency counts blocks of each group, not pages of the first one
(vllm-project/vllm#48317; 0.26.0 does not, #50456). Equal unless pages lie side by side."""
TOKENS_BY_CONCURRENCY: Final = "0.21"
"""First release whose "KV cache size" is concurrency x length; before, the pool's blocks were parted
evenly among groups (0.21.0 v1/core/kv_cache_utils.py)."""
_BEHIND_ALL: Final = sys.maxsize


class EngineRefuses(NamedTuple):
    """The engine would not start so."""

    message: str
    """Why, in one sentence without a full stop."""
    is_division: bool = False
    """Whether a width cannot be split over the cards."""


class PoolGroup(NamedTuple):
    """Layers that draw blocks together, on one pipeline stage."""

    kinds: tuple[SpecKind, ...]
    """Kinds of their caches, each once."""
    layers: int
    """How many caches."""
    block_tokens: int
    """Tokens in one block; the least where they differ."""
    page_bytes: int
    """Pages of all of them."""
    demands: tuple[Demand, ...]
    """What a sequence draws; the largest counts."""

    def blocks(self, tokens: int) -> int:
        """Blocks of one sequence of `tokens` tokens."""
        return max(each.blocks(tokens) for each in self.demands)


class Stage(NamedTuple):
    """The pool on one pipeline stage."""

    block_bytes: int
    """Bytes of one block of the pool, on one card."""
    groups: tuple[PoolGroup, ...]
    """What a sequence draws from."""

    def blocks(self, tokens: int) -> int:
        """Blocks of one sequence over all groups."""
        return sum(group.blocks(tokens) for group in self.groups)


class Pool(NamedTuple):
    """The geometry of a model's pool."""

    ask: KvAsk
    stages: tuple[Stage, ...]
    """One for each pipeline stage; the one that was asked for, where it is planned alone."""
    kernels: tuple[Kernel, ...]
    """The attention kernels behind it."""
    kv_dtype: str
    """The cache's dtype as the engine resolves it."""
    block_tokens: int
    """Tokens in a block of the attention layers."""
    token_bytes: int
    """Bytes of one more token of a long sequence over all layers, on one card; states are not counted."""

    @property
    def has_states(self) -> bool:
        """Whether sequences keep recurrent states."""
        return any(SpecKind.RECURRENT in group.kinds for group in self.stages[0].groups)

    @property
    def is_block_outermost(self) -> bool:
        """Whether pages of all layers lie side by side within a block, so that groups differ in theirs."""
        return any(kernel.is_block_outermost for kernel in self.kernels)

    @property
    def fullest(self) -> Stage:
        """The stage with the widest block, which decides how many there are."""
        return max(self.stages, key=lambda stage: stage.block_bytes)


class Fits(NamedTuple):
    """What the engine logs for some memory."""

    blocks: int
    """Blocks of the pool, the null block among them."""
    concurrency: float
    """Sequences of max_model_len."""
    tokens: int
    """What it calls the size of the KV cache."""


class TooLong(NamedTuple):
    """Not one sequence of max_model_len has room."""

    needed_bytes: int
    """Bytes of that sequence."""
    there_bytes: int
    """Bytes without the null block; none or fewer when there is no room at all."""
    estimated_max_model_len: int
    """The longest that would fit, as the engine searches it; 0 for none."""


def pool_of(model: ModelFacts, ask: KvAsk) -> Pool | EngineRefuses:
    """The pool that the engine would lay out, or why it would not start."""
    if (problem := split_problem(model, ask)) is not None:
        return EngineRefuses(problem, is_division=True)
    stages = partition(model.layers, ask.pp)
    # drafts stand behind the model, on the last stage
    stages = (*stages[:-1], range(stages[-1].start, _BEHIND_ALL))
    if ask.pp_rank is not None:
        stages = (stages[ask.pp_rank],)
    try:
        built = layers.build(model, ask)
        here = tuple(p for p in built.placed if any(p.layer in stage for stage in stages))
        grouped = groups.grouped(
            [placed.spec for placed in here],
            has_hybrid_manager=ask.has_hybrid_manager,
            is_block_outermost=built.is_block_outermost,
        )
    except StateDoesNotDivideError as reason:
        return EngineRefuses(str(reason), is_division=True)
    except EngineRefusesError as reason:
        return EngineRefuses(str(reason))
    if not grouped:
        return EngineRefuses("no layer keeps anything in the pool")
    owners = [placed.layer for placed in here]
    laid = tuple(
        _stage(grouped, owners, stage, ask, is_block_outermost=built.is_block_outermost)
        for stage in stages
    )
    if not all(stage.block_bytes for stage in laid):
        return EngineRefuses(f"of {ask.pp} pipeline stages one has no layer with KV of its own")
    return Pool(
        ask=ask,
        stages=laid,
        kernels=built.kernels,
        kv_dtype=built.kv_dtype,
        block_tokens=built.block_tokens,
        token_bytes=math.ceil(sum(placed.spec.token_bytes for placed in here)),
    )


def _stage(
    grouped: tuple[Group, ...],
    owners: list[int],
    stage: range,
    ask: KvAsk,
    *,
    is_block_outermost: bool,
) -> Stage:
    held = groups.held(grouped, {at for at, owner in enumerate(owners) if owner in stage})
    return Stage(
        block_bytes=groups.block_bytes(held, is_block_outermost=is_block_outermost),
        # a group without layers on this stage still draws blocks: the tables are the same everywhere
        groups=tuple(
            _pool_group(here, here.specs or whole.specs, ask)
            for here, whole in zip(held, grouped, strict=True)
        ),
    )


def _pool_group(group: Group, counted: tuple[specs.LayerSpec, ...], ask: KvAsk) -> PoolGroup:
    return PoolGroup(
        kinds=tuple(dict.fromkeys(spec.kind for spec in counted)),
        layers=len(group.layers),
        block_tokens=min(spec.block_tokens for spec in counted),
        page_bytes=group.page_bytes,
        demands=tuple(
            dict.fromkeys(
                specs.demand(
                    spec,
                    in_flight_tokens=ask.in_flight_tokens,
                    # the encoder's budget is that of a step (config/scheduler.py)
                    encoder_tokens=ask.max_num_batched_tokens,
                    dcp=ask.dcp,
                )
                for spec in dict.fromkeys(counted)
            )
        ),
    )


def capacity(pool: Pool, stage: Stage, available_bytes: int) -> Fits | TooLong:
    """What the engine answers to so much KV memory on the cards of this stage."""
    length = pool.ask.max_model_len
    there = available_bytes - NULL_BLOCKS * stage.block_bytes
    needed = stage.block_bytes * stage.blocks(length)
    if there <= 0 or needed > there:
        return TooLong(needed, there, _longest(stage, there, at_most=length))
    blocks = available_bytes // stage.block_bytes
    return fits(pool, stage, blocks)


def fits(pool: Pool, stage: Stage, blocks: int) -> Fits:
    """The figures of a pool with so many blocks."""
    release, length = pool.ask.release, pool.ask.max_model_len
    if release.is_before(CONCURRENCY_BY_BLOCKS) and pool.is_block_outermost:
        need = sum(group.blocks(length) * group.page_bytes for group in stage.groups)
        per_sequence = ceil_div(need, stage.groups[0].page_bytes)
    else:
        per_sequence = stage.blocks(length)
    concurrency = blocks / per_sequence
    if release.is_before(TOKENS_BY_CONCURRENCY):
        least = min(group.block_tokens for group in stage.groups)
        tokens = blocks // len(stage.groups) * least * pool.ask.dcp
    else:
        tokens = int(concurrency * length)
    return Fits(blocks, concurrency, tokens)


def _longest(stage: Stage, there_bytes: int, *, at_most: int) -> int:
    """The engine's own search, halving between 1 and the length that was asked for."""

    def has_room(tokens: int) -> bool:
        return stage.block_bytes * stage.blocks(tokens) <= there_bytes

    if not has_room(1):
        return 0
    found, left, right = 1, 1, at_most
    while left <= right:
        middle = (left + right) // 2
        if has_room(middle):
            found, left = middle, middle + 1
        else:
            right = middle - 1
    return found


def whole(pool: Pool, available_bytes: int) -> Fits | TooLong:
    """The answer of all stages together: the smallest number of blocks, or the first refusal."""
    answers = [(stage, capacity(pool, stage, available_bytes)) for stage in pool.stages]
    for _, answer in answers:
        if isinstance(answer, TooLong):
            return answer
    blocks = min(answer.blocks for _, answer in answers if isinstance(answer, Fits))
    return fits(pool, pool.stages[0], blocks)


def alike(stage: Stage) -> Counter[PoolGroup]:
    """Groups that draw the same, counted."""
    return Counter(group._replace(layers=0, page_bytes=0) for group in stage.groups)
