"""What fits a paged KV pool (vLLM): which share of the card, how many sequences of which length?"""

import math
from typing import Final, NamedTuple

from plimsoll.engines.base import ByteOwner, EngineName, LedgerLine
from plimsoll.engines.vllm import flags, kv, memory
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence
from plimsoll.plan import kv_offload, lanes_words, ledger, paged_words, taught
from plimsoll.plan.concurrency import largest
from plimsoll.plan.lanes import lane_settings, sequences_at_the_gate
from plimsoll.plan.paged_ask import (
    PagedAsk,
    Sizing,
    block_tokens,
    most_sequences,
    pool_tokens,
    prepare,
    size,
    state_tokens,
)
from plimsoll.plan.records import (
    Concurrency,
    Guarantee,
    KvBudget,
    Plan,
    PlanRequest,
    Reason,
    Refusal,
)
from plimsoll.plan.steps import capped, most_or_none
from plimsoll.units import gib


def plan_vllm(request: PlanRequest) -> Plan | Refusal:
    """The plan for one worker on `request.cards` cards of one type."""
    outcome = _fit(request)
    if isinstance(outcome, Refusal):
        return outcome.model_copy(update={"offers": paged_words.offers(request, outcome, _fit)})
    return outcome


def _fit(request: PlanRequest) -> Plan | Refusal:
    ask = prepare(request)
    if isinstance(ask, Refusal):
        return ask
    sizing = _sized(ask)
    return sizing if isinstance(sizing, Refusal) else _written_down(ask, sizing)


def _sized(ask: PagedAsk) -> Sizing | Refusal:
    alone = size(ask, 1)
    for check in _CHECKS:
        if (refusal := check(ask, alone)) is not None:
            return refusal
    sequences = _sequences(ask)
    return sequences if isinstance(sequences, Refusal) else size(ask, sequences)


class Gauge(NamedTuple):
    """What a worker holds, without the plan that says how."""

    tokens: int
    """Tokens of concurrency: what the pool holds, as far as the engine's most sequences can use it."""
    sequences: int
    """Sequences of the whole length at once."""


def gauge_vllm(request: PlanRequest) -> Gauge | Refusal:
    """The worst case of a question, a fraction of the work of its plan.

    A question for a number of sequences is gauged under the guarantee that it asks for.
    """
    if request.concurrency is None:
        request = request._replace(guarantee=Guarantee.WORST_CASE)
    ask = prepare(request)
    if isinstance(ask, Refusal):
        return ask
    sizing = _sized(ask)
    if isinstance(sizing, Refusal):
        return sizing
    tokens = sizing.blocks * ask.length // ask.blocks_at_full_length
    return Gauge(
        tokens=min(tokens, most_sequences(ask.gpu) * ask.length), sequences=ask.worst_case(sizing)
    )


def _weights_do_not_fit(ask: PagedAsk, alone: Sizing) -> Refusal | None:
    if alone.blocks > 0:
        return None
    return Refusal(
        reason=Reason.WEIGHTS_DO_NOT_FIT, message=paged_words.weights_do_not_fit(ask, alone)
    )


def _share_cannot_work(ask: PagedAsk, alone: Sizing) -> Refusal | None:
    """Only a share that the user pinned can be overdrawn: ours is what is free."""
    if not alone.overdrawn_bytes:
        return None
    asked = math.ceil(alone.utilization * ask.gpu.usable_bytes)
    there = asked - alone.overdrawn_bytes
    most = math.floor(there / ask.gpu.usable_bytes * memory.SHARE_STEP) / memory.SHARE_STEP
    return Refusal(
        reason=Reason.OVERRIDE_CANNOT_WORK,
        message=f"gpuMemoryUtilization {alone.utilization} asks for {gib(asked)}, but {gib(there)} of "
        f"{ask.gpu.product} are there for it at start; at most {most:.3f} passes.",
    )


def _one_does_not_fit(ask: PagedAsk, alone: Sizing) -> Refusal | None:
    if ask.worst_case(alone) > 0:
        return None
    return Refusal(
        reason=Reason.KV_BUDGET_EXCEEDED, message=paged_words.one_does_not_fit(ask, alone)
    )


_CHECKS: Final = (_weights_do_not_fit, _share_cannot_work, _one_does_not_fit)
"""What may stand against even one sequence; the first that does answers."""


def _sequences(ask: PagedAsk) -> int | Refusal:
    """max_num_seqs: what was asked for if it holds, else the most that hold."""
    override = ask.request.overrides.max_num_seqs
    if override is not None:
        sizing = size(ask, override)
        if (refusal := _too_few_states(ask, sizing)) is not None:
            return refusal
        if sizing.blocks > 0 and ask.worst_case(sizing) > 0:
            return override
        return Refusal(
            reason=Reason.OVERRIDE_CANNOT_WORK,
            message=f"maxNumSeqs {override} needs so much for sampling and graphs that not one "
            f"sequence of {ask.length:,} tokens fits beside it.",
        )
    most = capped(most_sequences(ask.gpu), ask.request.steps.max_num_seqs)
    if ask.request.gate is not None:
        most = min(most, ask.step_tokens)  # vLLM does not start with fewer tokens in a step
    asked = ask.request.concurrency
    if asked is None:
        held = largest(lambda n: _holds(ask, n), at_most=most, near=ask.about(size(ask, most // 4)))
        return sequences_at_the_gate(
            ask.request.gate,
            held,
            block_tokens=block_tokens(ask) or 1,
            pool_tokens=lambda n: pool_tokens(ask, size(ask, n)),
        )
    if asked <= most and _holds(ask, asked):
        return asked
    return Refusal(
        reason=Reason.KV_BUDGET_EXCEEDED,
        message=paged_words.too_many(ask, size(ask, asked), asked=asked),
    )


def _too_few_states(ask: PagedAsk, sizing: Sizing) -> Refusal | None:
    """vLLM does not start with fewer blocks than sequences when each needs one for its state.

    0.33.0, config/compilation.py.
    """
    blocks = sizing.blocks + kv.NULL_BLOCKS
    if not ask.pool.state_blocks or not 0 < blocks < sizing.sequences:
        return None
    return Refusal(
        reason=Reason.OVERRIDE_CANNOT_WORK,
        message=f"maxNumSeqs {sizing.sequences:,} is more than the pool's {blocks:,} blocks, and every "
        f"sequence needs one for its recurrent state: vLLM does not start. At most {blocks:,} pass.",
    )


def _holds(ask: PagedAsk, sequences: int) -> bool:
    return ask.holds(size(ask, sequences))


def _written_down(ask: PagedAsk, sizing: Sizing) -> Plan:
    request = ask.request
    blocks = sizing.blocks + kv.NULL_BLOCKS
    pool = LedgerLine(
        owner=ByteOwner.KV_CACHE,
        bytes=blocks * ask.pool.block_bytes,
        confidence=Confidence.MEASURED if sizing.is_at_ceiling else Confidence.BOUND,
        source=f"{blocks:,} blocks of {ask.pool.block_bytes:,} B; "
        + ("as the engine reported" if sizing.is_at_ceiling else "the engine may find more"),
    )
    worst, occupied = ask.worst_case(sizing), ask.occupied(sizing)
    settings = flags.VllmSettings(
        dtype=ask.dtype,
        tensor_parallel_size=request.cards,
        gpu_memory_utilization=sizing.utilization,
        max_model_len=ask.length,
        max_num_seqs=sizing.sequences,
        max_num_batched_tokens=ask.step_tokens,
        kv_cache_dtype=request.kv_dtype,
        block_size=block_tokens(ask),
        largest_graph=memory.largest_graph(
            sizing.sequences, ask.step_tokens, most_or_none(request.steps.largest_graph)
        ),
        kv_cache_bytes=pool.bytes if ask.gpu.unified_memory else None,
        kv_cache_blocks=blocks if ask.gpu.unified_memory else None,
        lanes=lane_settings(
            request.gate,
            ask.release,
            step=ask.step_tokens,
            sequences=sizing.sequences,
            longest=ask.length,
            state_tokens=state_tokens(ask),
        ),
    )
    settings = kv_offload.pinned(settings, request, ask.release, ask.offload)
    per_card = ask.pool.bytes_per_token_per_card
    return Plan(
        engine=EngineName.VLLM,
        release=ask.release.text,
        gpu_product=ask.gpu.product,
        cards=request.cards,
        card_bytes=ask.gpu.total_bytes,
        ledger=ledger.close(
            (*sizing.lines, pool),
            card_bytes=ask.gpu.total_bytes,
            why="outside the engine's share: attention scratch, fragmentation, the last part block",
        ),
        kv=KvBudget(
            bytes_per_token_per_card=per_card,
            bytes_per_token_per_replica=per_card * request.cards,
            pool_bytes_per_card=pool.bytes,
            pool_tokens=pool_tokens(ask, sizing),
            block_tokens=block_tokens(ask),
            dtype=request.kv_dtype,
        ),
        concurrency=Concurrency(
            max_num_seqs=sizing.sequences,
            worst_case=worst,
            expected=ask.expected(sizing),
            guarantee=request.guarantee,
            safe_mean_tokens=safe_mean_tokens(ask, sizing, sizing.sequences),
            mean_occupied_tokens=None if occupied is None else occupied.mean_tokens,
            p999_occupied_tokens=None if occupied is None else occupied.p999_tokens,
        ),
        max_model_len=ask.length,
        gpu_memory_utilization=sizing.utilization,
        host_memory_bytes=memory.host_memory_bytes(request.cards)
        + (ask.offload.kept.pinned_bytes if ask.offload else 0)
        + request.steps.host_bytes,
        flags=flags.pinned_flags(settings, ask.release, overrides=_overridden(request)),
        env=(Named(name="VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", value="1"),)
        if memory.graphs_are_inside_share(ask.release)
        else (),
        explanation=paged_words.explanation(ask, sizing, _in_fp8(ask, sizing)),
        notes=(
            *paged_words.notes(ask),
            *kv_offload.notes(ask.offload),
            *taught.notes(request.steps),
            *lanes_words.notes(ask, sizing),
        ),
        provenance=(ask.model.provenance, ask.gpu.provenance),
        kv_offload=kv_offload.planned(ask.offload) if ask.offload else None,
    )


def safe_mean_tokens(ask: PagedAsk, sizing: Sizing, sequences: int) -> int:
    """The longest length that `sequences` sequences may all have at once."""
    return kv.longest_sequence(ask.pool, max(0, sizing.blocks) // sequences, at_most=ask.length)


def _in_fp8(ask: PagedAsk, sizing: Sizing) -> int | None:
    """Whole sequences of the same pool in fp8; None when it is fp8 already or cannot be."""
    if ask.request.kv_dtype.startswith("fp8"):
        return None
    other = prepare(ask.request._replace(kv_dtype="fp8", max_model_len=ask.length, lanes=()))
    return None if isinstance(other, Refusal) else other.worst_case(size(other, sizing.sequences))


_OVERRIDE_FLAGS: Final = (
    ("max_model_len", "--max-model-len"),
    ("max_num_seqs", "--max-num-seqs"),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("block_size", "--block-size"),
)


def _overridden(request: PlanRequest) -> frozenset[str]:
    return frozenset(
        flag for field, flag in _OVERRIDE_FLAGS if getattr(request.overrides, field) is not None
    )
