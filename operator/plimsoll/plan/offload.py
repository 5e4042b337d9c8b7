"""How many layers of a GGUF stay on the card, with how many slots, and where did every byte go?

llama.cpp gives each slot cells of its own, so every slot may use its whole length: the worst case is
the only promise. Layers are a cap: as many as fit with the prefill of a full prompt counted, and what
grows at run time kept free.
"""

from __future__ import annotations

from typing import Final

from plimsoll.engines.base import ByteOwner, EngineName, LedgerLine
from plimsoll.engines.llama_cpp import caches, flags, host, memory
from plimsoll.facts.source import Confidence
from plimsoll.plan import ledger, offload_words, taught
from plimsoll.plan.offload_ask import Offload, OffloadAsk, prepare
from plimsoll.plan.records import Concurrency, KvBudget, Plan, PlanRequest, Reason, Refusal
from plimsoll.plan.steps import capped
from plimsoll.units import MIB, gib

MOST_SLOTS_UNASKED: Final = 8
"""Slots when nobody set a number: each more costs cells, and decoding shares one card."""


def plan_llama_cpp(request: PlanRequest) -> Plan | Refusal:
    """The plan for one llama-server on `request.cards` cards of one type.

    `Plan.flags` has everything but --model, --alias, --host and --port, which the renderer adds.
    """
    outcome = fit(request)
    if isinstance(outcome, Refusal):
        return outcome.model_copy(update={"offers": offload_words.offers(request, outcome, fit)})
    return outcome


def fit(request: PlanRequest) -> Plan | Refusal:
    """The plan, or the reason why not and no offers yet."""
    ask = prepare(request)
    if isinstance(ask, Refusal):
        return ask
    if request.overrides.gpu_layers is not None:
        return _with_layers(ask, request.overrides.gpu_layers)
    slots = _slots(ask, ask.layers)
    offload = ask.best(slots)
    if offload is None:
        return _nothing_fits(ask, slots)
    return _written_down(ask, slots, offload)


def _slots(ask: OffloadAsk, gpu_layers: int) -> int:
    """What was asked for, else as many as fit with every layer on the card, at least one."""
    asked = ask.request.overrides.max_num_seqs or ask.request.concurrency
    if asked is not None:
        return asked
    if gpu_layers < ask.layers:
        return 1
    ceiling = ask.request.ceiling
    given = ceiling.sequences if ceiling is not None else None
    counts = range(min(MOST_SLOTS_UNASKED, given or MOST_SLOTS_UNASKED), 1, -1)
    return next((slots for slots in counts if ask.fits(slots, ask.whole)), 1)


def _with_layers(ask: OffloadAsk, asked: int) -> Plan | Refusal:
    """The user's number of layers, honoured or refused; more than there are means all."""
    offload = Offload(min(asked, ask.layers))
    slots = _slots(ask, offload.gpu_layers)
    if ask.fits(slots, offload):
        return _written_down(ask, slots, offload)
    most = ask.most_layers(slots)
    return Refusal(
        reason=Reason.LAYERS_DO_NOT_FIT,
        message=offload_words.layers_do_not_fit(
            ask,
            slots=slots,
            asked=offload.gpu_layers,
            most=0 if most is None else most.gpu_layers,
        ),
    )


def _nothing_fits(ask: OffloadAsk, slots: int) -> Refusal:
    shortest = ask._replace(length=offload_words.LENGTH_STEP)
    weights_alone_fit = shortest.best(1) is not None
    return Refusal(
        reason=Reason.KV_BUDGET_EXCEEDED if weights_alone_fit else Reason.WEIGHTS_DO_NOT_FIT,
        message=offload_words.nothing_fits(ask, slots),
    )


def _lines(ask: OffloadAsk, need: memory.CardNeed, offload: Offload) -> tuple[LedgerLine, ...]:
    gpu = ask.request.gpu
    exact, bound = Confidence.EXACT, Confidence.BOUND
    blocks = f"{len(need.blocks)} blocks"
    experts = f", without the experts of {offload.host_experts}" if offload.host_experts else ""
    parts: tuple[tuple[ByteOwner, int, Confidence, str], ...] = (
        (
            ByteOwner.DRIVER,
            gpu.reserved_bytes,
            gpu.provenance.confidence,
            "reserved by the driver (NVML)",
        ),
        (
            ByteOwner.OTHERS,
            gpu.held_by_others_bytes,
            gpu.provenance.confidence,
            "held by other processes",
        ),
        (
            ByteOwner.CONTEXT,
            memory.CUDA_CONTEXT_BYTES,
            bound,
            "CUDA context and kernels: 368 to 506 MiB seen (ggml-org/llama.cpp#23281, #25465, #15860)",
        ),
        (
            ByteOwner.WEIGHTS,
            need.weights_bytes,
            ask.gguf.provenance.confidence,
            f"tensors of {blocks}{' and the output' if need.has_output else ''}{experts}",
        ),
        (
            ByteOwner.ACTIVATION,
            need.compute_bytes,
            exact if memory.is_exact(ask.gguf) else bound,
            f"compute buffer for {ask.ubatch_tokens} tokens against full slots"
            + (", and copies of what stays with the host" if offload != ask.whole else ""),
        ),
        (
            ByteOwner.KV_CACHE,
            need.kv_bytes,
            exact,
            f"cells of {blocks}, allocated at load, never grows",
        ),
    )
    return tuple(
        LedgerLine(owner=owner, bytes=size, confidence=confidence, source=source)
        for owner, size, confidence, source in parts
    )


def _written_down(ask: OffloadAsk, slots: int, offload: Offload) -> Plan:
    request, gguf, gpu = ask.request, ask.gguf, ask.request.gpu
    need, context = ask.need(slots, offload), ask.context(slots)
    shares = ask.shares(slots, offload)
    cache_ram = request.overrides.cache_ram_bytes
    if cache_ram is None:
        cache_ram = host.default_cache_ram_bytes(gguf, context)
    # what a smaller cache gives up stays in the container's memory, or nothing would be gained
    counted_cache, cache_ram = cache_ram, capped(cache_ram, request.steps.cache_ram_bytes)
    checkpoints = host.checkpoints(gguf, ask.length)
    settings = flags.LlamaCppSettings(
        ctx_size=context.ctx_size,
        slots=slots,
        gpu_layers=offload.gpu_layers,
        host_experts=offload.host_experts,
        shares=shares,
        batch_tokens=ask.batch_tokens,
        ubatch_tokens=ask.ubatch_tokens,
        cache_type=ask.cache_type,
        cache_ram_bytes=cache_ram,
        checkpoints_per_slot=checkpoints,
    )
    hosts = host.host_memory(
        gguf,
        context,
        ask.placed(offload, shares),
        ask.release,
        cache_ram_bytes=counted_cache // MIB * MIB,
        checkpoints_per_slot=checkpoints,
    )
    return Plan(
        engine=EngineName.LLAMA_CPP,
        release=ask.release.text,
        gpu_product=gpu.product,
        cards=request.cards,
        card_bytes=gpu.total_bytes,
        ledger=ledger.close(
            _lines(ask, need, offload),
            card_bytes=gpu.total_bytes,
            why=f"{gib(memory.POOL_RESERVE_BYTES)} stay free for CUDA's pools, which grow at run time "
            "(llama.cpp's own margin, --fit-target); the rest is left over",
        ),
        kv=KvBudget(
            bytes_per_token_per_card=caches.kv_bytes_per_token(gguf, need.blocks, ask.cache_type),
            bytes_per_token_per_replica=caches.kv_bytes_per_token(
                gguf, range(len(gguf.block_bytes)), ask.cache_type
            ),
            pool_bytes_per_card=need.kv_bytes,
            pool_tokens=slots * context.cells_per_slot,
            dtype=ask.cache_type,
        ),
        concurrency=Concurrency(
            max_num_seqs=slots,
            worst_case=slots,
            guarantee=request.guarantee,
            safe_mean_tokens=ask.length,
        ),
        max_model_len=ask.length,
        gpu_layers=offload.gpu_layers,
        layers=ask.layers,
        host_memory_bytes=hosts.total_bytes + request.steps.host_bytes,
        flags=flags.pinned_flags(settings, ask.release, overrides=_overridden(request)),
        explanation=offload_words.explanation(ask, slots=slots, offload=offload, hosts=hosts),
        notes=(
            *offload_words.notes(ask, slots=slots, offload=offload, hosts=hosts),
            *taught.notes(request.steps),
        ),
        provenance=(gguf.provenance, gpu.provenance),
    )


_OVERRIDE_FLAGS: Final = (
    ("max_model_len", "--ctx-size"),
    ("max_num_seqs", "--parallel"),
    ("max_num_batched_tokens", "--batch-size"),
    ("gpu_layers", "--n-gpu-layers"),
    ("ubatch_size", "--ubatch-size"),
    ("cache_ram_bytes", "--cache-ram"),
)


def _overridden(request: PlanRequest) -> frozenset[str]:
    return frozenset(
        flag for field, flag in _OVERRIDE_FLAGS if getattr(request.overrides, field) is not None
    )
