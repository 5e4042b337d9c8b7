"""What is decided for a llama-server before slots and layers are counted?"""

from bisect import bisect_left
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import flags, memory
from plimsoll.engines.llama_cpp.blocks import is_listed, weights_bytes
from plimsoll.engines.llama_cpp.context import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_UBATCH_TOKENS,
    VALUES_PER_BLOCK,
    ServerContext,
    context_of_slots,
)
from plimsoll.engines.llama_cpp.placement import OUTPUT_FIRST_SINCE, Placement, layer_count, place
from plimsoll.facts.model import GgufFacts
from plimsoll.plan.concurrency import largest
from plimsoll.plan.length import length_field, length_of
from plimsoll.plan.records import PlanRequest, Reason, Refusal
from plimsoll.plan.reported import Ceiling
from plimsoll.plan.steps import capped
from plimsoll.plan.taught import on_the_card

CACHE_TYPES: Final = {"auto": "f16", "f16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"}
"""kvCache.dtype to --cache-type-k and -v; llama.cpp's CUDA kernels are built for equal pairs of these
(GGML_CUDA_FA_ALL_QUANTS is off by default)."""
FEWEST_LAYERS: Final = 2
"""The output and one block; with less the card would only multiply for the host."""
NEIGHBOURS: Final = 2
"""Counts beside the one that was found by halving that are tried, too."""
MOST_MOVES: Final = 64
"""Layers that are moved from the fullest card to the emptiest before that is given up."""


class Offload(NamedTuple):
    """What of the model lies on the cards."""

    gpu_layers: int
    """Blocks and the output, from the last (-ngl)."""
    host_experts: int = 0
    """Blocks from the first whose experts stay in host memory (--n-cpu-moe)."""


class OffloadAsk(NamedTuple):
    """A request with everything decided that does not depend on slots and layers."""

    request: PlanRequest
    gguf: GgufFacts
    release: Release
    release_note: str | None
    cache_type: str
    length: int
    batch_tokens: int
    ubatch_tokens: int

    @property
    def layers(self) -> int:
        """Blocks and the output."""
        return layer_count(self.gguf)

    @property
    def whole(self) -> Offload:
        """Everything on the cards."""
        return Offload(self.layers)

    @property
    def room_bytes(self) -> int:
        """What one card has for weights, KV and compute, with the reserve kept."""
        gpu = self.request.gpu
        fixed = memory.CUDA_CONTEXT_BYTES + memory.POOL_RESERVE_BYTES
        fixed += self.request.steps.reserve_bytes
        return gpu.usable_bytes - gpu.held_by_others_bytes - fixed

    def context(self, slots: int) -> ServerContext:
        """The cells of so many slots."""
        return context_of_slots(
            max_model_len=self.length,
            slots=slots,
            cache_type=self.cache_type,
            batch_tokens=self.batch_tokens,
            ubatch_tokens=self.ubatch_tokens,
        )

    def shares(self, slots: int, offload: Offload) -> tuple[int, ...]:
        """The layers' shares of the cards (-ts): equal ones where they fit, else as many as each holds."""
        equal = (1,) * self.request.cards
        if self.request.cards == 1:
            return equal
        return _shares(self, slots, offload)

    def placement(self, slots: int, offload: Offload) -> Placement:
        """Where everything lies."""
        return self.placed(offload, self.shares(slots, offload))

    def placed(self, offload: Offload, shares: tuple[int, ...]) -> Placement:
        """Where everything lies with these shares."""
        first = place(
            self.gguf,
            gpu_layers=offload.gpu_layers,
            shares=shares,
            host_experts=offload.host_experts,
        )
        if first.is_full() or not self.release.is_before(OUTPUT_FIRST_SINCE):
            return first
        last = place(
            self.gguf,
            gpu_layers=offload.gpu_layers,
            shares=shares,
            host_experts=offload.host_experts,
            output_first=False,
        )
        return max(
            first, last, key=self._weights_bytes
        )  # which of the two a build does is not sure

    def _weights_bytes(self, placement: Placement) -> int:
        return max(weights_bytes(self.gguf, placement, card) for card in range(self.request.cards))

    def needs(self, slots: int, placement: Placement) -> tuple[memory.CardNeed, ...]:
        """Bytes of each card."""
        return memory.needs(self.gguf, self.context(slots), placement, self.release)

    def need(self, slots: int, offload: Offload) -> memory.CardNeed:
        """Bytes of the fullest card."""
        every = self.needs(slots, self.placement(slots, offload))
        return max(every, key=lambda need: need.total_bytes)

    def held(self, slots: int, placement: Placement) -> tuple[int, ...]:
        """Weights and caches of each card."""
        return memory.held_bytes(self.gguf, self.context(slots), placement)

    def fits(self, slots: int, offload: Offload) -> bool:
        """Whether the fullest card holds it; what all of them cannot hold is not looked at closely."""
        equal = self.placed(offload, (1,) * self.request.cards)
        if sum(self.held(slots, equal)) > self.room_bytes * self.request.cards:
            return False
        return self.need(slots, offload).total_bytes <= self.room_bytes

    def best(self, slots: int) -> Offload | None:
        """The most that fits on the cards; None when not even one block does.

        Everything, else all but the experts of as few blocks as it takes, else as many layers as fit.
        """
        if self.fits(slots, self.whole):
            return self.whole
        if self.has_experts:
            return self.fewest_host_experts(slots) or self.most_layers(
                slots, host_experts=self.layers - 1
            )
        return self.most_layers(slots)

    @property
    def has_experts(self) -> bool:
        """Whether experts can be told from the rest of each block."""
        return self.gguf.expert_count > 0 and is_listed(self.gguf)

    def fewest_host_experts(self, slots: int) -> Offload | None:
        """All layers on the cards with the experts of as few blocks as fit in host memory."""
        counts = range(1, self.layers)
        found = bisect_left(counts, True, key=lambda n: self.fits(slots, Offload(self.layers, n)))
        tries = (Offload(self.layers, n) for n in counts[found : found + NEIGHBOURS])
        return next((offload for offload in tries if self.fits(slots, offload)), None)

    def most_layers(self, slots: int, host_experts: int = 0) -> Offload | None:
        """The layers that fit; None when not even one block does.

        Found by halving, since a layer more needs more; what the graph computes in may differ by a little
        from one layer to the next, so the neighbours above are tried from the last downwards.
        """

        def fits(layers: int) -> bool:
            return self.fits(slots, Offload(layers, host_experts))

        if fits(self.layers):  # the whole needs no room for what would be brought from the host
            return Offload(self.layers, host_experts)
        most = largest(lambda n: n < FEWEST_LAYERS or fits(n), at_most=self.layers - 1)
        above = range(min(most + NEIGHBOURS, self.layers - 1), most, -1)
        most = next((layers for layers in above if fits(layers)), most)
        return Offload(most, host_experts) if most >= FEWEST_LAYERS else None


def _shares(ask: OffloadAsk, slots: int, offload: Offload) -> tuple[int, ...]:
    """Whole layers for each card: equal numbers, or those that leave the fullest card the most room."""
    cards = ask.request.cards
    equal = (1,) * cards
    needs = ask.needs(slots, ask.placed(offload, equal))
    totals = [need.total_bytes for need in needs]
    if max(totals) <= ask.room_bytes or sum(totals) > ask.room_bytes * cards:
        return equal
    counts = tuple(len(need.blocks) + need.has_output for need in needs)
    beside = [need.compute_bytes for need in needs]
    for _ in range(MOST_MOVES):
        moved = _moved(counts, totals)
        if moved is None:
            break
        held = ask.held(slots, ask.placed(offload, moved))
        after = [sum(pair) for pair in zip(held, beside, strict=True)]
        if max(after) >= max(totals):
            break
        counts, totals = moved, after
    needs = ask.needs(slots, ask.placed(offload, counts))
    return counts if max(need.total_bytes for need in needs) <= ask.room_bytes else equal


def _moved(counts: tuple[int, ...], totals: list[int]) -> tuple[int, ...] | None:
    """One layer from the fullest card to the emptiest; None when the fullest has but one."""
    fullest = totals.index(max(totals))
    emptiest = totals.index(min(totals))
    if counts[fullest] <= 1 or fullest == emptiest:
        return None
    return tuple(
        count - (card == fullest) + (card == emptiest) for card, count in enumerate(counts)
    )


def prepare(request: PlanRequest) -> OffloadAsk | Refusal:
    """Everything that can be decided before slots and layers are counted."""
    if request.gguf is None:
        return Refusal(
            reason=Reason.MODEL_UNKNOWN,
            message="llama.cpp needs facts of a GGUF file and there are none; "
            "set model.gguf, or give its facts in model.facts.",
        )
    gguf = request.gguf
    request = on_the_card(request)
    refusal = _dtype_refusal(request, gguf)
    if refusal is not None:
        return refusal
    ceiling = request.ceiling
    length = length_of(
        request, min(gguf.context_length, ceiling.length if ceiling else gguf.context_length)
    )
    length = capped(length, request.steps.max_model_len)
    if length > gguf.context_length:
        return Refusal(
            reason=Reason.LENGTH_BEYOND_MODEL,
            message=f"{length_field(request)} is {length:,} tokens, but {gguf.id} was made for "
            f"{gguf.context_length:,}.",
        )
    if ceiling is not None and (refusal := _above(ceiling, request, length)) is not None:
        return refusal
    row = flags.release_row(request.release)
    overrides = request.overrides
    batch = overrides.max_num_batched_tokens or DEFAULT_BATCH_TOKENS
    ubatch = capped(DEFAULT_UBATCH_TOKENS, request.steps.ubatch_size)
    return OffloadAsk(
        request=request,
        gguf=gguf,
        release=Release.of(row.text),
        release_note=row.note,
        cache_type=CACHE_TYPES[request.kv_dtype],
        length=length,
        batch_tokens=batch,
        ubatch_tokens=min(batch, overrides.ubatch_size or ubatch),
    )


def _above(ceiling: Ceiling, request: PlanRequest, length: int) -> Refusal | None:
    """More was asked for than llama-server gave when it was last asked for it."""
    if length > ceiling.length:
        return Refusal(
            reason=Reason.LENGTH_BEYOND_MODEL,
            message=f"{length_field(request)} is {length:,} tokens, but llama-server gave its slots "
            f"{ceiling.length:,}; ask for no more, or check the facts of the file.",
        )
    asked = request.overrides.max_num_seqs or request.concurrency
    if asked is not None and ceiling.sequences is not None and asked > ceiling.sequences:
        return Refusal(
            reason=Reason.KV_BUDGET_EXCEEDED,
            message=f"{asked} sequences are asked for, but llama-server gave {ceiling.sequences} slots.",
        )
    return None


def _dtype_refusal(request: PlanRequest, gguf: GgufFacts) -> Refusal | None:
    dtype = request.kv_dtype
    if dtype not in CACHE_TYPES:
        return Refusal(
            reason=Reason.KV_DTYPE_UNSUPPORTED,
            message=f"kvCache.dtype {dtype} has no attention kernel in llama.cpp's CUDA images; "
            "use auto (f16), q8_0 (about half the bytes) or q4_0 (about a quarter).",
        )
    widths = {width for group in gguf.kv_groups for width in (group.key_dim, group.value_dim)}
    uneven = sorted(width for width in widths if width % VALUES_PER_BLOCK)
    if CACHE_TYPES[dtype] != "f16" and uneven:
        return Refusal(
            reason=Reason.KV_DTYPE_UNSUPPORTED,
            message=f"kvCache.dtype {dtype} packs {VALUES_PER_BLOCK} values, and a head of {gguf.id} "
            f"is {uneven[0]} wide; use auto.",
        )
    return None
