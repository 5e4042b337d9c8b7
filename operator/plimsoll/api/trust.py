"""Of several sources, which is believed for each fact of a card, and where do they differ?

Fact by fact the first that says it: the user's table, the agent, the ResourceSlice, the labels, the
node's own memory where it is shared, the catalogue. A difference is told, never settled in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.catalog.gpus import (
    find_gpu,
    find_type,
    fp8_of,
    known_totals_mib,
    reserved_bytes,
    split_slice,
)
from plimsoll.facts.gpu import Fp8, GpuFacts, GpuVendor, Sighting
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import MIB, gib

ORDER: Final = (
    FactSource.PROFILE,
    FactSource.AGENT,
    FactSource.DRA,
    FactSource.LABELS,
    FactSource.NODE,
    FactSource.CATALOGUE,
)
"""Whom to believe first."""
SAME_TOTAL: Final = 0.011
"""Two totals that differ by no more are the same. Detectors show one RTX 4090 with 24,564, 24,576 and
24,810 MiB (gpustack/gpustack: tests/fixtures/workers): 1.002 %. ECC takes 6.25 %."""
LEAST_OF_SHARED: Final = 0.5
"""A card that shares the host's memory and tells less than this part of it tells a carve-out: an N1X
answers 8,128 MiB (unslothai/unsloth#10283). The least honest one is 0.95 (Jetson AGX Orin 32 GB)."""

_WORDS: Final = {
    FactSource.PROFILE: "your table (gpuTypes)",
    FactSource.AGENT: "the agent",
    FactSource.DRA: "its ResourceSlice",
    FactSource.LABELS: "its labels",
    FactSource.NODE: "the node's own memory",
    FactSource.CATALOGUE: "the catalogue",
}


class HostMemory(NamedTuple):
    """Memory of a node, as its kubelet tells it."""

    capacity_bytes: int
    """All of it (MemTotal)."""
    allocatable_bytes: int
    """What is left for pods."""


class Agreed(NamedTuple):
    """What is believed of a card."""

    gpu: GpuFacts
    """The facts."""
    total_from: FactSource
    """Who told its memory."""
    seen: tuple[Sighting, ...]
    """All that was said, most trusted first."""
    notes: tuple[str, ...]
    """Where sources differ."""


def agree(
    product: str, resource: str, seen: Sequence[Sighting], host: HostMemory | None = None
) -> Agreed | None:
    """The facts of one kind of card from all that was said of it; None when nobody tells its memory.

    `resource` is what a pod asks for. `host` counts where card and host share one memory.
    """
    voices = sorted((*seen, *_of_catalogue(product)), key=lambda each: ORDER.index(each.source))
    is_unified = next((v.unified_memory for v in voices if v.unified_memory is not None), False)
    notes: list[str] = []
    if is_unified and host is not None:
        voices, notes = _against_host(product, voices, host)
    teller = next((voice for voice in voices if voice.total_bytes is not None), None)
    if teller is None or teller.total_bytes is None:
        return None
    total_bytes = teller.total_bytes
    reserved, reserved_confidence, why = _reserved(product, teller, total_bytes, voices)
    if reserved >= total_bytes:
        return None
    capability = next((v.compute_capability for v in voices if v.compute_capability), None)
    fp8, bf16 = _abilities(voices, capability)
    confidence = max(teller.confidence, reserved_confidence, key=list(Confidence).index)
    gpu = GpuFacts(
        product=product,
        vendor=_vendor(resource),
        total_bytes=total_bytes,
        reserved_bytes=reserved,
        held_by_others_bytes=next(
            (v.held_by_others_bytes for v in voices if v.held_by_others_bytes is not None), 0
        ),
        compute_capability=capability,
        fp8=fp8,
        bf16=bf16,
        unified_memory=is_unified,
        resource=resource,
        provenance=Provenance(
            source=teller.source,
            confidence=confidence,
            detail=f"{teller.detail}: {total_bytes // MIB} MiB; driver {reserved // MIB} MiB ({why})",
        ),
    )
    notes += differences(product, total_bytes, teller, voices)
    return Agreed(gpu, teller.source, tuple(voices), tuple(notes))


def differences(
    product: str, total_bytes: int, teller: Sighting, voices: Sequence[Sighting]
) -> Iterator[str]:
    """Sentences about facts on which sources do not agree."""
    chosen = _WORDS[teller.source]
    for voice in voices:
        other = voice.total_bytes
        if voice is teller or other is None or voice.source is FactSource.CATALOGUE:
            continue
        if voice.source is not FactSource.NODE and not is_same(total_bytes, other):
            yield (
                f"{chosen} gives {product} {_size(total_bytes)}, {_WORDS[voice.source]} "
                f"{_size(other)}; {chosen} counts"
            )
    known = find_type(product)
    totals = () if known is not None and known.unified_memory else known_totals_mib(product)
    if totals and not any(is_same(total_bytes, mib * MIB) for mib in totals):
        shown = " or ".join(_size(mib * MIB) for mib in totals)
        yield f"{chosen} gives {product} {_size(total_bytes)}, the catalogue knows it with {shown}"
    yield from _unlike(product, voices, "compute capability", lambda v: v.compute_capability)
    yield from _unlike(product, voices, "unified memory", lambda v: v.unified_memory)


def is_same(one_bytes: int, other_bytes: int) -> bool:
    """Whether two totals are the same but for how they were read."""
    return abs(one_bytes - other_bytes) <= SAME_TOTAL * min(one_bytes, other_bytes)


def _unlike(
    product: str,
    voices: Sequence[Sighting],
    name: str,
    fact: Callable[[Sighting], str | bool | None],
) -> Iterator[str]:
    said = [(voice, fact(voice)) for voice in voices if fact(voice) is not None]
    for voice, value in said[1:]:
        first, believed = said[0]
        if value != believed:
            yield (
                f"{_WORDS[first.source]} gives {product} {name} {_plain(believed)}, "
                f"{_WORDS[voice.source]} {_plain(value)}; {_WORDS[first.source]} counts"
            )


def _against_host(
    product: str, voices: Sequence[Sighting], host: HostMemory
) -> tuple[list[Sighting], list[str]]:
    """With a shared memory, no card has more than the host, or only a small part of it: such a figure
    is put aside, and the host's own memory speaks after the labels."""
    kept, notes = [], []
    least, most = LEAST_OF_SHARED * host.capacity_bytes, (1 + SAME_TOTAL) * host.capacity_bytes
    for voice in voices:
        total = voice.total_bytes
        if total is None or voice.source is FactSource.PROFILE or least <= total <= most:
            kept.append(voice)
            continue
        kept.append(voice._replace(total_bytes=None, reserved_bytes=None))
        if voice.source is not FactSource.CATALOGUE:
            notes.append(
                f"{_WORDS[voice.source]} gives {product} {_size(total)}, which cannot be: it shares the "
                f"node's {_size(host.capacity_bytes)}, so the figure is put aside"
            )
    kept.append(
        Sighting(
            source=FactSource.NODE,
            detail="memory of the node, shared with the card",
            confidence=Confidence.BOUND,
            product=product,
            total_bytes=host.capacity_bytes,
            reserved_bytes=max(0, host.capacity_bytes - host.allocatable_bytes),
        )
    )
    return sorted(kept, key=lambda each: ORDER.index(each.source)), notes


def _reserved(
    product: str, teller: Sighting, total_bytes: int, voices: Sequence[Sighting]
) -> tuple[int, Confidence, str]:
    """The driver's part: from the source of the total, or from one that saw the same total; a table row
    that tells nothing else goes with any."""
    for voice in (teller, *voices):
        if voice.reserved_bytes is None:
            continue
        own = voice.total_bytes
        if voice is teller or (own is None and voice.source is FactSource.PROFILE):
            return voice.reserved_bytes, voice.confidence, voice.detail
        if own is not None and is_same(own, total_bytes):
            return voice.reserved_bytes, voice.confidence, voice.detail
    if teller.source is FactSource.NODE:
        return 0, Confidence.BOUND, "the node's"
    return reserved_bytes(product, total_bytes)


def _abilities(voices: Sequence[Sighting], capability: str | None) -> tuple[Fp8, bool | None]:
    """fp8 and bfloat16: as said, else by the compute capability."""
    told = (v.fp8 for v in voices if v.fp8 is not None and v.fp8 is not Fp8.UNKNOWN)
    fp8: Fp8 = next(told, Fp8.UNKNOWN)
    bf16 = next((v.bf16 for v in voices if v.bf16 is not None), None)
    if capability is None:
        return fp8, bf16
    major, _, minor = capability.partition(".")
    numbers = int(major), int(minor or 0)
    return (
        fp8_of(numbers) if fp8 is Fp8.UNKNOWN else fp8,
        numbers >= (8, 0) if bf16 is None else bf16,
    )


def _of_catalogue(product: str) -> tuple[Sighting, ...]:
    """What the table knows; its total only where a name means one size of memory of its own."""
    known = find_type(product)
    if known is None:
        return ()
    listed = None if known.unified_memory or known.sizes_share_name else find_gpu(product)
    return (
        Sighting(
            source=FactSource.CATALOGUE,
            detail=f"catalogue, {known.key}",
            confidence=Confidence.BOUND,
            product=product,
            total_bytes=None if listed is None else listed.total_bytes,
            compute_capability=known.compute_capability,
            fp8=known.fp8,
            bf16=known.bf16,
            unified_memory=known.unified_memory and split_slice(product) is None,
        ),
    )


def _vendor(resource: str) -> GpuVendor:
    domain = resource.partition("/")[0]
    return next(
        (vendor for vendor in GpuVendor if f"{vendor.value}.com" in domain), GpuVendor.NVIDIA
    )


def _size(size_bytes: int) -> str:
    return f"{gib(size_bytes)} ({size_bytes // MIB:,} MiB)"


def _plain(value: str | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
