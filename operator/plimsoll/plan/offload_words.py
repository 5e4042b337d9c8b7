"""How do we say, in one sentence with its numbers, what binds a llama-server and what would fit?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from plimsoll.engines.llama_cpp.host import HostMemory
from plimsoll.plan.concurrency import largest
from plimsoll.plan.offload_ask import FEWEST_LAYERS, Offload, OffloadAsk
from plimsoll.plan.records import Guarantee, Offer, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import gib

LENGTH_STEP: Final = 256
"""Offered lengths are whole multiples of this many tokens: a slot's cells are, too."""

WORTH_SAYING: Final = 4
"""A shorter length that would keep every layer on the card is named down to this part of the asked."""

Fit = Callable[[PlanRequest], Plan | Refusal]


def _slots(count: int, length: int) -> str:
    return f"{count} slot{'s' if count > 1 else ''} of {length:,} tokens"


def _of(ask: OffloadAsk, slots: int, offload: Offload) -> str:
    need = ask.need(slots, offload)
    return (
        f"{gib(need.weights_bytes)} of weights, {gib(need.kv_bytes)} of KV cache for "
        f"{_slots(slots, ask.length)} and {gib(need.compute_bytes)} to compute"
    )


def _cards(ask: OffloadAsk) -> str:
    return "the card" if ask.request.cards == 1 else f"{ask.request.cards} cards"


def _room(ask: OffloadAsk) -> str:
    each = "" if ask.request.cards == 1 else " per card"
    return f"the {gib(ask.room_bytes)}{each} that {ask.request.gpu.product} has for them"


def layers_do_not_fit(ask: OffloadAsk, *, slots: int, asked: int, most: int) -> str:
    """The user's number of layers is too much."""
    over = ask.need(slots, Offload(asked)).total_bytes - ask.room_bytes
    at_most = f"at most {most} fit" if most else "not even one block fits"
    return (
        f"{asked} of {ask.layers} layers of {ask.gguf.id} ({ask.gguf.quantization}) need "
        f"{_of(ask, slots, Offload(asked))}: {gib(over)} more than {_room(ask)}; {at_most}."
    )


def nothing_fits(ask: OffloadAsk, slots: int) -> str:
    """Not even the output and one block have room."""
    least = Offload(FEWEST_LAYERS, ask.layers - 1 if ask.has_experts else 0)
    over = ask.need(slots, least).total_bytes - ask.room_bytes
    return (
        f"{ask.gguf.id} ({ask.gguf.quantization}) needs, for one block on {_cards(ask)}, "
        f"{_of(ask, slots, least)}: {gib(over)} more than {_room(ask)}."
    )


def explanation(ask: OffloadAsk, *, slots: int, offload: Offload, hosts: HostMemory) -> str:
    """What binds."""
    here = _of(ask, slots, offload)
    if ask.request.cards > 1:
        here += " per card"
    if offload.host_experts:
        return _experts_explained(ask, slots, offload, hosts, here)
    layers = offload.gpu_layers
    if layers < ask.layers:
        held = gib(hosts.weights_bytes + hosts.kv_bytes)
        start = f"{layers} of {ask.layers} layers stay on {_cards(ask)}"
        more = Offload(layers + 1)
        if ask.fits(slots, more):
            return f"{start}, as the pool sets: {here}; {held} stay with the host."
        over = ask.need(slots, more).total_bytes - ask.room_bytes
        return (
            f"{start}: {layers + 1} would need {gib(over)} more than {_room(ask)}. "
            f"{layers} take {here}; {held} stay with the host."
        )
    start = f"All {ask.layers} layers stay on {_cards(ask)}: {here}"
    if ask.fits(slots + 1, offload):
        left = ask.room_bytes - ask.need(slots, offload).total_bytes
        return f"{start}; {gib(left)} are left, and more slots were not asked for."
    over = ask.need(slots + 1, offload).total_bytes - ask.room_bytes
    return f"{start}; one slot more would need {gib(over)} more than {_room(ask)}."


def _experts_explained(
    ask: OffloadAsk, slots: int, offload: Offload, hosts: HostMemory, here: str
) -> str:
    """Experts in host memory: few of them compute for a token, attention does for every one."""
    blocks = ask.layers - 1
    over = ask.need(slots, ask.whole).total_bytes - ask.room_bytes
    on_cards = "All" if offload.gpu_layers == ask.layers else f"{offload.gpu_layers} of"
    return (
        f"{on_cards} {ask.layers} layers stay on {_cards(ask)}, the experts of {offload.host_experts} "
        f"of {blocks} blocks do not: with them {gib(over)} more would be needed than {_room(ask)}. "
        f"What stays takes {here}; {gib(hosts.weights_bytes + hosts.kv_bytes)} stay with the host."
    )


def notes(ask: OffloadAsk, *, slots: int, offload: Offload, hosts: HostMemory) -> tuple[str, ...]:
    """What else a person should know."""
    return tuple(_notes(ask, slots=slots, offload=offload, hosts=hosts))


def _notes(ask: OffloadAsk, *, slots: int, offload: Offload, hosts: HostMemory) -> Iterator[str]:
    request, gpu, layers = ask.request, ask.request.gpu, offload.gpu_layers
    if ask.release_note:
        yield ask.release_note
    asked = request.overrides.gpu_layers
    if asked is not None and asked > ask.layers:
        yield f"gpuLayers {asked} means all: the model has {ask.layers}"
    if asked is not None and layers < ask.layers and ask.fits(slots, Offload(layers + 1)):
        most = ask.most_layers(slots) or offload
        yield f"gpuLayers is set to {layers}; {most.gpu_layers} of {ask.layers} would fit"
    if request.guarantee is Guarantee.EXPECTED:
        yield "each slot of llama.cpp owns its cells, so every request may use its whole length"
    if offload.host_experts:
        yield (
            f"the experts of {offload.host_experts} blocks are computed by the host: slower than on the "
            "card, and faster than whole layers there would be"
        )
    if offload != ask.whole:
        length = _length_for_all_layers(ask, slots)
        if length >= ask.length // WORTH_SAYING:
            yield f"all {ask.layers} layers would fit with {_slots(slots, length)}"
    if layers < ask.layers:
        yield (
            "layers on the host run at the speed of host memory: expect a fraction of the card's tokens"
        )
    if ask.cache_type != "f16":
        yield f"a {ask.cache_type} KV cache saves bytes and costs quality over long prompts: check yours"
    if not request.lanes and not (request.max_model_len or request.overrides.max_model_len):
        yield f"neither traffic nor limits.maxModelLen is given: planned for {ask.length:,} tokens"
    yield (
        f"host memory rises to {gib(hosts.cache_ram_bytes + hosts.checkpoint_bytes)} above the start "
        "while the prompt cache fills; that is no leak"
    )
    if gpu.unified_memory:
        yield (
            f"{gpu.product} shares memory with the host: the container's {gib(hosts.total_bytes)} come "
            "out of the same memory as this ledger"
        )


def _length_for_all_layers(ask: OffloadAsk, slots: int) -> int:
    """The longest shorter length at which every layer fits; 0 when none does."""
    steps = largest(
        lambda n: n == 0 or ask._replace(length=n * LENGTH_STEP).fits(slots, ask.whole),
        at_most=(ask.length - 1) // LENGTH_STEP,
    )
    return steps * LENGTH_STEP


def offers(request: PlanRequest, refusal: Refusal, fit: Fit) -> tuple[Offer, ...]:
    """What would fit instead, nearest first; each is planned before it is offered."""
    makers = _OFFERS.get(refusal.reason, ())
    return tuple(offer for maker in makers if (offer := maker(request, fit)) is not None)


def _fewer_layers(request: PlanRequest, fit: Fit) -> Offer | None:
    found = fit(_changed(request, gpu_layers=None))
    if isinstance(found, Refusal):
        return None
    return Offer(
        change="pools[].gpuLayers",
        value=str(found.gpu_layers),
        sentence=f"{found.gpu_layers} of {found.layers} layers on the card with "
        f"{_slots(found.concurrency.max_num_seqs, found.max_model_len)}",
    )


def _fewer_slots(request: PlanRequest, fit: Fit) -> Offer | None:
    asked = request.overrides.max_num_seqs or request.concurrency or 1

    def with_slots(count: int) -> Plan | Refusal:
        fewer = request._replace(concurrency=count)
        return fit(_changed(fewer, max_num_seqs=None))

    count = largest(lambda n: n == 0 or isinstance(with_slots(n), Plan), at_most=asked - 1)
    found = with_slots(max(count, 1))
    if count == 0 or isinstance(found, Refusal):
        return None
    return Offer(
        change="limits.concurrency",
        value=str(count),
        sentence=f"{_slots(count, found.max_model_len)} with {found.gpu_layers} of {found.layers} "
        "layers on the card",
    )


def _shorter(request: PlanRequest, fit: Fit) -> Offer | None:
    asked = request.overrides.max_model_len or request.max_model_len
    if asked is None:
        return None

    def with_length(steps: int) -> Plan | Refusal:
        shorter = request._replace(max_model_len=steps * LENGTH_STEP)
        return fit(_changed(shorter, max_model_len=None))

    steps = largest(
        lambda n: n == 0 or isinstance(with_length(n), Plan), at_most=(asked - 1) // LENGTH_STEP
    )
    found = with_length(max(steps, 1))
    if steps == 0 or isinstance(found, Refusal):
        return None
    return Offer(
        change="limits.maxModelLen",
        value=str(found.max_model_len),
        sentence=f"{_slots(found.concurrency.max_num_seqs, found.max_model_len)} with "
        f"{found.gpu_layers} of {found.layers} layers",
    )


def _q8_0(request: PlanRequest, fit: Fit) -> Offer | None:
    found = fit(request._replace(kv_dtype="q8_0"))
    if request.kv_dtype == "q8_0" or isinstance(found, Refusal):
        return None
    return Offer(
        change="kvCache.dtype",
        value="q8_0",
        sentence=f"{_slots(found.concurrency.max_num_seqs, found.max_model_len)} with "
        f"{found.gpu_layers} of {found.layers} layers and a q8_0 KV cache",
    )


def _more_cards(request: PlanRequest, fit: Fit) -> Offer | None:
    for cards in (2, 4, 8):
        found = fit(request._replace(cards=cards)) if cards > request.cards else None
        if isinstance(found, Plan):
            return Offer(
                change="gpu.perWorker",
                value=str(cards),
                sentence=f"{cards} x {request.gpu.product} for one worker",
            )
    return None


def _changed(request: PlanRequest, **values: int | None) -> PlanRequest:
    return request._replace(overrides=request.overrides._replace(**values))


_OFFERS: Final = {
    Reason.LAYERS_DO_NOT_FIT: (_fewer_layers, _shorter, _q8_0, _more_cards),
    Reason.KV_BUDGET_EXCEEDED: (_fewer_slots, _shorter, _q8_0, _more_cards),
    Reason.WEIGHTS_DO_NOT_FIT: (_more_cards,),
    Reason.KV_DTYPE_UNSUPPORTED: (_q8_0,),
}
