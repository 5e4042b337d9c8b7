"""How do we say, in one sentence with its numbers, what binds a paged pool and what would fit?"""

from collections.abc import Callable, Iterator
from typing import Final

from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.engines.vllm import kv, memory
from plimsoll.plan.concurrency import largest
from plimsoll.plan.offload import plan_llama_cpp
from plimsoll.plan.paged_ask import PagedAsk, Sizing
from plimsoll.plan.records import Guarantee, Offer, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import GB, counted, gib, round_down

YARDSTICK_SEQUENCES: Final = 32
"""Concurrency that people set by habit; the plan says up to which mean length it is safe."""

LENGTH_STEP: Final = 256
"""Offered lengths are whole multiples of this many tokens."""

Fit = Callable[[PlanRequest], Plan | Refusal]


def _amount(sizing: Sizing, owner: ByteOwner) -> int:
    return sum(line.bytes for line in sizing.lines if line.owner is owner)


def _per_card(ask: PagedAsk) -> str:
    return " per card" if ask.request.cards > 1 else ""


def weights_do_not_fit(ask: PagedAsk, alone: Sizing) -> str:
    """The weights and what must stand beside them are more than the card."""
    weights = _amount(alone, ByteOwner.WEIGHTS)
    beside = sum(
        _amount(alone, owner)
        for owner in (ByteOwner.ACTIVATION, ByteOwner.COLLECTIVES, ByteOwner.GRAPHS)
    )
    have = int(alone.utilization * ask.gpu.usable_bytes)
    held = ask.gpu.held_by_others_bytes
    others = f" ({gib(held)} are held by other processes)" if held else ""
    return (
        f"{ask.model.id} needs {gib(weights)} of weights{_per_card(ask)} and {gib(beside)} to run; "
        f"{ask.request.cards} x {ask.gpu.product} gives the engine {gib(have)}{_per_card(ask)}"
        f"{others}: {gib(max(0, weights + beside - have) + ask.pool.block_bytes)} too little."
    )


def one_does_not_fit(ask: PagedAsk, alone: Sizing) -> str:
    """Not one sequence of the whole length has room."""
    need = (ask.blocks_at_full_length + kv.NULL_BLOCKS) * ask.pool.block_bytes
    longest = round_down(
        kv.longest_sequence(ask.pool, alone.blocks, at_most=ask.length), LENGTH_STEP
    )
    return (
        f"one sequence of {ask.length:,} tokens needs {gib(need)} of KV cache{_per_card(ask)}; "
        f"{gib(alone.pool_bytes)} are left beside {gib(_amount(alone, ByteOwner.WEIGHTS))} of weights "
        f"on {ask.gpu.product}, enough for {longest:,} tokens."
    )


def too_many(ask: PagedAsk, sizing: Sizing, *, asked: int) -> str:
    """So many sequences do not fit under the guarantee."""
    weights = _amount(sizing, ByteOwner.WEIGHTS)
    whole = asked * ask.blocks_at_full_length * ask.pool.block_bytes
    if ask.request.guarantee is Guarantee.WORST_CASE:
        card = gib(ask.gpu.usable_bytes)
        ever = (
            f", at any gpuMemoryUtilization: the card has {card} in all"
            if whole + weights > ask.gpu.usable_bytes
            else ""
        )
        return (
            f"{asked} sequences of {ask.length:,} tokens need {gib(whole)} of KV cache"
            f"{_per_card(ask)}; beside {weights / GB:.2f} GB of weights {ask.gpu.product} has "
            f"{gib(max(0, sizing.pool_bytes))} for it. It does not fit{ever}."
        )
    return (
        f"{asked} sequences of this traffic exceed the KV pool of {gib(max(0, sizing.pool_bytes))} with "
        f"a chance above {ask.request.preemption_risk:.1%}; {ask.promised(sizing)} stay below it."
    )


def explanation(ask: PagedAsk, sizing: Sizing, in_fp8: int | None) -> str:
    """What binds, in requests: worst case, fp8, and the mean length up to which more are safe."""
    worst = ask.worst_case(sizing)
    bits = "fp8" if ask.request.kv_dtype.startswith("fp8") else "16 bit"
    fp8 = "" if in_fp8 is None else f" ({in_fp8} at fp8)"
    parts = [
        f"Beside {gib(_amount(sizing, ByteOwner.WEIGHTS))} of weights{_per_card(ask)}, "
        f"{gib(sizing.pool_bytes)} of KV cache hold {counted(worst, 'sequence')} of {ask.length:,} tokens at "
        f"{bits}{fp8}"
    ]
    many = max(YARDSTICK_SEQUENCES, ask.request.concurrency or 0, sizing.sequences)
    if worst < many:
        mean = kv.longest_sequence(ask.pool, sizing.blocks // many, at_most=ask.length)
        parts.append(
            f"{many} at once are only safe while their mean length stays below {mean:,} tokens"
        )
    if ask.pool.state_blocks:
        least = kv.blocks_of_sequence(ask.pool, 1)
        parts.append(
            f"a sequence of any length holds {ask.pool.state_blocks} of the pool's blocks as recurrent "
            f"state, so no more than {counted(sizing.blocks // least, 'sequence')} can be live"
        )
    parts.append(_pinned(ask, sizing, worst))
    return "; ".join(parts) + "."


def _pinned(ask: PagedAsk, sizing: Sizing, worst: int) -> str:
    pinned = sizing.sequences
    if ask.request.overrides.max_num_seqs is not None:
        return f"max_num_seqs {pinned} is your override"
    if pinned <= worst:
        return f"{pinned} are pinned, and each may use its whole length"
    return (
        f"{pinned} are pinned: with the traffic's lengths they take {_share(ask, sizing)} of the pool on "
        f"average, and exceed it with a chance below {ask.request.preemption_risk:.1%}"
    )


def _share(ask: PagedAsk, sizing: Sizing) -> str:
    """ "65%" """
    mean = ask.load.mean if ask.load else 0.0
    return f"{sizing.sequences * mean / sizing.blocks:.0%}"


def notes(ask: PagedAsk) -> tuple[str, ...]:
    """What else a person should know."""
    return tuple(_notes(ask))


def _notes(ask: PagedAsk) -> Iterator[str]:
    request, gpu = ask.request, ask.gpu
    if ask.release_note is not None:
        yield f"vLLM: {ask.release_note}"
    if request.kv_dtype.startswith("fp8"):
        yield "fp8 KV cache: check long-range retrieval before trusting it; halves the bytes, not the risk"
        capability = gpu.capability
        if capability is not None and capability < (8, 9):
            yield f"fp8 KV cache on {gpu.product} needs an image with FlashInfer"
    if request.ceiling is not None:
        yield (
            f"the engine reported room for {request.ceiling.tokens:,} tokens, fewer than an earlier plan "
            "had promised: no more are planned"
        )
    if ask.dtype != ask.model.dtype:
        yield f"{gpu.product} has no bfloat16: the model runs in {ask.dtype}"
    if (
        not request.lanes
        and request.max_model_len is None
        and request.overrides.max_model_len is None
    ):
        yield f"neither traffic nor limits.maxModelLen is given: planned for {ask.length:,} tokens"
    if any(kind.most_tokens for kind in ask.pool.kinds):
        steps = kv.steps_in_flight(ask.release)
        yield (
            f"sliding layers also hold {steps} step(s) of {ask.step_tokens:,} tokens in flight, "
            f"as vLLM {ask.release.text} counts"
        )
    if ask.pool.doubt:
        yield f"{gpu.product}: {ask.pool.doubt}"
    if gpu.unified_memory:
        yield (
            f"{gpu.product} shares memory with the host: utilization stays at or below "
            f"{memory.LARGEST_UNIFIED_SHARE}"
        )


def offers(request: PlanRequest, refusal: Refusal, fit: Fit) -> tuple[Offer, ...]:
    """What would fit instead, nearest first; each is planned before it is offered."""
    if refusal.reason not in (Reason.KV_BUDGET_EXCEEDED, Reason.WEIGHTS_DO_NOT_FIT):
        return ()
    makers = (_fewer, _shorter, _fp8, _more_cards, _llama_cpp)
    return tuple(offer for maker in makers if (offer := maker(request, fit)) is not None)


def _fewer(request: PlanRequest, fit: Fit) -> Offer | None:
    if request.concurrency is None or request.concurrency <= 1:
        return None
    found = fit(request._replace(concurrency=None))
    if isinstance(found, Refusal):
        return None
    count = found.concurrency.max_num_seqs
    return Offer(
        change="limits.concurrency",
        value=str(count),
        sentence=f"{counted(count, 'sequence')} of {found.max_model_len:,} tokens",
    )


def _shorter(request: PlanRequest, fit: Fit) -> Offer | None:
    asked = request.overrides.max_model_len or request.max_model_len
    if asked is None or asked <= LENGTH_STEP:
        return None

    def shortened(steps: int) -> PlanRequest:
        return request._replace(
            max_model_len=steps * LENGTH_STEP,
            overrides=request.overrides._replace(max_model_len=None),
        )

    steps = largest(
        lambda n: n == 0 or isinstance(fit(shortened(n)), Plan), at_most=(asked - 1) // LENGTH_STEP
    )
    if steps == 0:
        return None
    length = steps * LENGTH_STEP
    count = request.concurrency or 1
    return Offer(
        change="limits.maxModelLen",
        value=str(length),
        sentence=f"{counted(count, 'sequence')} of {length:,} tokens",
    )


def _fp8(request: PlanRequest, fit: Fit) -> Offer | None:
    if request.kv_dtype != "auto":
        return None
    found = fit(request._replace(kv_dtype="fp8"))
    if isinstance(found, Refusal):
        return None
    return Offer(
        change="kvCache.dtype",
        value="fp8",
        sentence=f"{found.concurrency.max_num_seqs} sequences of {found.max_model_len:,} tokens with "
        "an fp8 KV cache, once retrieval over long prompts was checked",
    )


def _more_cards(request: PlanRequest, fit: Fit) -> Offer | None:
    for cards in (2, 4, 8, 16):
        if cards <= request.cards:
            continue
        found = fit(request._replace(cards=cards))
        if isinstance(found, Plan):
            return Offer(
                change="gpu.perWorker",
                value=str(cards),
                sentence=f"{cards} x {request.gpu.product} for one worker",
            )
    return None


def _llama_cpp(request: PlanRequest, _: Fit) -> Offer | None:
    if request.gguf is None:
        return None
    found = plan_llama_cpp(
        request._replace(engine=EngineName.LLAMA_CPP, release=None, kv_dtype="auto")
    )
    if isinstance(found, Refusal) or found.gpu_layers is None:
        return None
    return Offer(
        change="engine",
        value=EngineName.LLAMA_CPP.value,
        sentence=f"llama.cpp with {found.gpu_layers} of {found.layers} layers on the card "
        f"({request.gguf.quantization})",
    )
