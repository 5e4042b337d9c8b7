"""What does a question to a paged pool (vLLM) come to before and after sequences are counted?"""

import math
from functools import lru_cache, partial
from typing import Final, NamedTuple

from plimsoll.catalog.engines import VLLM_RELEASES, KnownRelease, known_release
from plimsoll.engines.base import ByteOwner, LedgerLine, Release
from plimsoll.engines.vllm import kv, memory
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.plan import kv_offload
from plimsoll.plan.calibration import CalibrationKey, Measurement, believable, calibrated
from plimsoll.plan.concurrency import expected_sequences, load_of
from plimsoll.plan.crowd import Load, exceeded_with, is_rarer, sequences_about
from plimsoll.plan.lanes import step_tokens as step_for_lanes
from plimsoll.plan.lanes_pace import prompt_tokens_per_second
from plimsoll.plan.length import length_field, length_of
from plimsoll.plan.records import Guarantee, Lane, PlanRequest, Reason, Refusal
from plimsoll.plan.steps import capped, most_or_none, share_of
from plimsoll.plan.taught import on_the_card, with_found
from plimsoll.units import GIB

MOST_SEQUENCES: Final = ((70 * GIB, 1024), (0, 256))
"""max_num_seqs is never pinned above vLLM's own default: 1024 on cards of 70 GiB and more, else 256
(0.33.0, engine/arg_utils.py)."""


SELDOM: Final = 0.001
"""Chance of a moment that the shown occupancy leaves out."""
MOST_COUNTED: Final = 4096
"""Expected sequences are not searched beyond this, or beyond the worst case where that is more."""


class Sizing(NamedTuple):
    """The card with a given number of sequences in mind."""

    sequences: int
    """max_num_seqs, which sets sampler rows and graph sizes."""
    lines: tuple[LedgerLine, ...]
    """Every owner but the pool and the headroom."""
    utilization: float
    """Share of what CUDA calls total."""
    pool_bytes: int
    """What the share leaves for blocks; below zero when even the fixed lines do not fit."""
    blocks: int
    """Blocks that sequences can use."""
    overdrawn_bytes: int
    """By how much share and graphs exceed what is free at start; 0 when the engine can start."""
    is_at_ceiling: bool = False
    """Whether the blocks are what the engine once reported, which is less than the share should leave."""


class Occupancy(NamedTuple):
    """What live sequences take of the pool, in tokens as `KvBudget.pool_tokens` counts them."""

    mean_tokens: int
    """On average."""
    p999_tokens: int
    """In all but one of a thousand moments, at most."""


class PagedAsk(NamedTuple):
    """A request with everything decided that does not depend on the number of sequences."""

    request: PlanRequest
    model: ModelFacts
    release: Release
    release_note: str | None
    dtype: str
    length: int
    step_tokens: int
    pool: kv.PagedLayout
    offload: kv_offload.Agreement | None = None
    """Who says what of KV in host memory; None where none is asked for."""
    measured: Measurement | None = None
    """What engines took in this very configuration before."""

    @property
    def load(self) -> Load | None:
        """What one live sequence of the traffic takes, in blocks; None where nobody described it."""
        lanes = self.request.lanes
        return _load(lanes, self.length, self.pool) if lanes else None

    @property
    def gpu(self) -> GpuFacts:
        """The card."""
        return self.request.gpu

    @property
    def blocks_at_full_length(self) -> int:
        """Blocks of one sequence of the whole length."""
        return kv.blocks_of_sequence(self.pool, self.length)

    def worst_case(self, sizing: Sizing) -> int:
        """Sequences of the whole length that the pool holds."""
        if sizing.overdrawn_bytes:
            return 0
        return max(0, sizing.blocks) // self.blocks_at_full_length

    def expected(self, sizing: Sizing) -> int | None:
        """Sequences of this traffic that the pool holds with the accepted risk."""
        if self.load is None:
            return None
        return expected_sequences(
            self.load,
            max(0, sizing.blocks),
            risk=self.request.preemption_risk,
            near=sizing.sequences,
            at_most=max(MOST_COUNTED, self.worst_case(sizing)),
        )

    def holds(self, sizing: Sizing) -> bool:
        """Whether the guarantee that was asked for covers the sizing's sequences."""
        worst = self.worst_case(sizing)
        if self.request.guarantee is Guarantee.WORST_CASE or worst == 0 or self.load is None:
            return worst >= sizing.sequences
        return worst >= sizing.sequences or is_rarer(
            self.load, sizing.sequences, sizing.blocks, self.request.preemption_risk
        )

    def about(self, sizing: Sizing) -> int:
        """About how many sequences such a pool holds: where to begin to count."""
        worst = self.worst_case(sizing)
        if self.request.guarantee is Guarantee.WORST_CASE or worst == 0 or self.load is None:
            return worst
        return sequences_about(self.load, sizing.blocks, self.request.preemption_risk)

    def occupied(self, sizing: Sizing) -> Occupancy | None:
        """What this traffic takes of the pool; None where nobody described it."""
        if self.load is None:
            return None
        per_block = self.length / self.blocks_at_full_length
        seldom = exceeded_with(self.load, sizing.sequences, SELDOM)
        return Occupancy(
            mean_tokens=round(sizing.sequences * self.load.mean * per_block),
            p999_tokens=round(seldom * per_block),
        )

    def promised(self, sizing: Sizing) -> int:
        """Sequences under the guarantee that was asked for; one whole sequence must fit in any case."""
        worst = self.worst_case(sizing)
        if self.request.guarantee is Guarantee.WORST_CASE or worst == 0:
            return worst
        return max(worst, self.expected(sizing) or 0)


def prepare(request: PlanRequest) -> PagedAsk | Refusal:
    """Everything that can be decided before sequences are counted."""
    if request.model is None:
        return Refusal(
            reason=Reason.MODEL_UNKNOWN, message="vLLM needs facts of the model and there are none."
        )
    model = request.model
    request = on_the_card(request)
    row = _row(request)
    release = Release.of(row.text)
    problem = kv.heads_problem(model, request.cards)
    if problem is not None:
        return Refusal(reason=Reason.HEADS_NOT_DIVISIBLE, message=f"{problem.message}.")
    refusal = _dtype_refusal(request, model)
    if refusal is not None:
        return refusal
    length = capped(length_of(request, model.max_position_embeddings), request.steps.max_model_len)
    if length > model.max_position_embeddings:
        return Refusal(
            reason=Reason.LENGTH_BEYOND_MODEL,
            message=f"{length_field(request)} is {length:,} tokens, but {model.id} was made for "
            f"{model.max_position_embeddings:,}.",
        )
    step_tokens = request.overrides.max_num_batched_tokens or capped(
        _usual_step(request, model, release), request.steps.max_num_batched_tokens
    )
    dtype = _compute_dtype(model, request.gpu)
    lay_out = partial(
        _layout,
        model.model_copy(update={"dtype": dtype}),
        cards=request.cards,
        kv_dtype=request.kv_dtype,
        release=release,
        max_model_len=length,
        capability=request.gpu.capability,
        block_tokens=request.overrides.block_size,
        has_prefix_caching=kv_offload.has_prefix_caching(request, release),
        has_hybrid_manager=kv_offload.has_hybrid_manager(request, release),
    )
    pool = lay_out(max_num_batched_tokens=step_tokens)
    needs = step_that_states_need(request, pool, release)
    if needs is not None and needs > step_tokens:
        step_tokens = needs
        pool = lay_out(max_num_batched_tokens=step_tokens)
    if (refusal := kv_offload.cannot_start(request, release)) is not None:
        return refusal
    if isinstance(pool, kv.EngineRefuses):
        blamed = kv_offload.not_laid_out(request, release, pool.message)
        return blamed or _not_laid_out(request, pool)
    offload = kv_offload.agree(request, pool, release=release, length=length)
    if isinstance(offload, Refusal):
        return offload
    ask = PagedAsk(
        request=request,
        model=model,
        release=release,
        release_note=row.note,
        dtype=dtype,
        length=length,
        step_tokens=step_tokens,
        pool=pool,
        offload=offload,
    )
    if not request.calibration:
        return ask
    key = calibration_key(ask)
    alike = (one for one in request.calibration if one.key._replace(extras="") == key)
    return ask._replace(measured=next(iter(believable(alike)), None))


def _usual_step(request: PlanRequest, model: ModelFacts, release: Release) -> int:
    """Tokens of a step where nobody set them: the engine's own, or fewer for lanes at a gate."""
    usual, gate = memory.default_batched_tokens(request.gpu, release), request.gate
    if gate is None:
        return usual
    pace = prompt_tokens_per_second(
        model, request.gpu, request.cards, after_tokens=gate.depth_tokens
    )
    step = step_for_lanes(gate, usual, pace)
    asked = request.overrides.max_num_seqs or request.concurrency or 0
    return max(step, min(usual, asked))  # vLLM does not start with fewer tokens than sequences


def step_that_states_need(
    request: PlanRequest, pool: kv.PagedLayout | kv.EngineRefuses, release: Release
) -> int | None:
    """Tokens of a step that holds two blocks of recurrent state, where lanes made it smaller; None otherwise.

    A chunk of a prompt ends at a block there: vLLM 0.20.2 does not start with a smaller bound on long
    prompts (config/vllm.py).
    """
    is_ours = request.gate is not None and request.overrides.max_num_batched_tokens is None
    if not is_ours or isinstance(pool, kv.EngineRefuses) or not pool.state_blocks:
        return None
    usual = capped(
        memory.default_batched_tokens(request.gpu, release), request.steps.max_num_batched_tokens
    )
    return min(usual, 2 * pool.block_tokens)


def calibration_key(ask: PagedAsk) -> CalibrationKey:
    """Under which key a worker of this question is measured; without what the user added to its arguments."""
    model, cards = ask.model, ask.request.cards
    weights = memory.weights_bytes_per_card(model, cards)
    return CalibrationKey(
        engine=ask.request.engine.value,
        release=Release.of(ask.request.release or ask.release.text).text,
        gpu=ask.gpu.product,
        architecture=model.architecture,
        shape=f"{model.layers}x{model.hidden_size}/{weights}/{ask.pool.block_bytes}",
        cards=cards,
        flags=f"dtype={ask.dtype},kv={ask.request.kv_dtype},step={ask.step_tokens}",
    )


_layout: Final = lru_cache(maxsize=256)(kv.layout)
"""The same for every card of a compute capability and a step."""


@lru_cache(maxsize=256)
def _load(lanes: tuple[Lane, ...], longest: int, pool: kv.PagedLayout) -> Load:
    """The same for every card with this layout."""
    return load_of(lanes, longest=longest, cost=partial(kv.blocks_of_sequence, pool))


def forget() -> None:
    """Drop what is remembered between plans; only a measurement needs it."""
    _layout.cache_clear()
    _load.cache_clear()


def _not_laid_out(request: PlanRequest, why: kv.EngineRefuses) -> Refusal:
    """The engine would not start, and whose choice it is that it does not."""
    if why.is_division:
        reason = Reason.HEADS_NOT_DIVISIBLE
    elif request.overrides.block_size is not None:
        reason = Reason.OVERRIDE_CANNOT_WORK
    elif request.kv_dtype != "auto":
        reason = Reason.KV_DTYPE_UNSUPPORTED
    else:
        reason = Reason.LAYOUT_UNKNOWN
    return Refusal(reason=reason, message=f"vLLM would not start: {why.message}.")


def _row(request: PlanRequest) -> KnownRelease:
    if request.release is None:
        return known_release(VLLM_RELEASES, None, ())
    asked = Release.of(request.release)
    return known_release(VLLM_RELEASES, asked.text, asked.numbers)


def _compute_dtype(model: ModelFacts, gpu: GpuFacts) -> str:
    """bfloat16 needs compute capability 8.0 (vLLM 0.32, platforms/cuda.py); older cards get float16."""
    return "float16" if model.dtype == "bfloat16" and gpu.bf16 is False else model.dtype


def _dtype_refusal(request: PlanRequest, model: ModelFacts) -> Refusal | None:
    """fp8 in the cache needs a kernel that takes it (vLLM 0.33.0, attention backends)."""
    dtype = request.kv_dtype
    if dtype in ("auto", model.dtype):
        return None
    if not dtype.startswith("fp8"):
        return Refusal(
            reason=Reason.KV_DTYPE_UNSUPPORTED,
            message=f"kvCache.dtype {dtype} is not known to vLLM; use auto, fp8, fp8_e4m3 or fp8_e5m2.",
        )
    capability = request.gpu.capability
    plain = all(group.kind is KvKind.FULL for group in model.kv_groups)
    if capability is not None and (capability < (8, 0) or (capability < (8, 9) and not plain)):
        return Refusal(
            reason=Reason.KV_DTYPE_UNSUPPORTED,
            message=f"kvCache.dtype {dtype} has no attention kernel for {model.architecture} on "
            f"{request.gpu.product} (compute capability {request.gpu.compute_capability}); use auto.",
        )
    return None


def size(ask: PagedAsk, sequences: int) -> Sizing:
    """Who owns the card when `sequences` may run at once."""
    request, gpu = ask.request, ask.gpu
    lines = memory.fixed_lines(
        ask.model,
        gpu,
        cards=request.cards,
        max_num_batched_tokens=ask.step_tokens,
        max_num_seqs=sequences,
        release=ask.release,
        most_graph_rows=most_or_none(request.steps.largest_graph),
    )
    inside = memory.graphs_are_inside_share(ask.release)
    if ask.measured is not None:
        lines = calibrated(lines, ask.measured, inside_owners(ask.release))
    lines = with_found(lines, request.steps)
    amount = {line.owner: line.bytes for line in lines}
    graphs_outside = 0 if inside else amount[ByteOwner.GRAPHS]
    free_at_start = gpu.usable_bytes - amount[ByteOwner.OTHERS] - amount[ByteOwner.CONTEXT]
    share = request.overrides.gpu_memory_utilization
    if share is None:
        largest_share = memory.LARGEST_UNIFIED_SHARE if gpu.unified_memory else memory.LARGEST_SHARE
        share = share_of(
            request.steps,
            usable_bytes=gpu.usable_bytes,
            free_bytes=free_at_start - graphs_outside,
            largest_share=largest_share,
            step=memory.SHARE_STEP,
        )
    requested = math.ceil(gpu.usable_bytes * share)
    pool_bytes = (
        requested
        - amount[ByteOwner.WEIGHTS]
        - amount[ByteOwner.ACTIVATION]
        - amount[ByteOwner.COLLECTIVES]
        - (amount[ByteOwner.GRAPHS] if inside else 0)
    )
    blocks = pool_bytes // ask.pool.block_bytes - kv.NULL_BLOCKS
    held = _most_blocks(ask)
    is_at_ceiling = held is not None and held < blocks
    if held is not None and is_at_ceiling:
        blocks, pool_bytes = held, (held + kv.NULL_BLOCKS) * ask.pool.block_bytes
    return Sizing(
        sequences=sequences,
        lines=lines,
        utilization=share,
        pool_bytes=pool_bytes,
        blocks=blocks,
        overdrawn_bytes=max(0, requested + graphs_outside - free_at_start),
        is_at_ceiling=is_at_ceiling,
    )


def block_tokens(ask: PagedAsk) -> int | None:
    """Tokens of a block as pinned; None where the card's kernel decides."""
    own = None if ask.pool.is_forced else ask.pool.block_tokens
    return ask.request.overrides.block_size or own


def state_tokens(ask: PagedAsk) -> int:
    """Tokens of a block, at whose ends recurrent states lie; 1 where the model keeps none."""
    return ask.pool.block_tokens if ask.pool.state_blocks else 1


def pool_tokens(ask: PagedAsk, sizing: Sizing) -> int:
    """Tokens that the pool holds for sequences of the whole length."""
    return max(0, sizing.blocks) * ask.length // ask.blocks_at_full_length


def inside_owners(release: Release) -> tuple[ByteOwner, ...]:
    """Whose bytes the share pays for beside weights and pool: what a pool's size says something about."""
    graphs = (ByteOwner.GRAPHS,) if memory.graphs_are_inside_share(release) else ()
    return (ByteOwner.ACTIVATION, ByteOwner.COLLECTIVES, *graphs)


def _most_blocks(ask: PagedAsk) -> int | None:
    """Blocks of which the layout makes no more tokens than the engine once held; None without a ceiling."""
    ceiling = ask.request.ceiling
    if ceiling is None:
        return None
    each = kv.blocks_of_sequence(ask.pool, ceiling.length)
    return max(0, ceiling.tokens * each // ceiling.length)


def most_sequences(gpu: GpuFacts) -> int:
    """The highest max_num_seqs that we pin on this card."""
    return next(most for least, most in MOST_SEQUENCES if gpu.total_bytes >= least)
