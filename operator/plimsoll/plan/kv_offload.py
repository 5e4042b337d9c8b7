"""Do the three parties of KV offloading agree: what was asked for, the scheduler, the memory manager?

Asked for under kvCache.offload, checked on the layout that the plan stands on. What would stop the engine,
or keep nothing, is refused with its name and the way out; what costs more or holds less than one would
think is planned for and said.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.vllm import kv_offload
from plimsoll.engines.vllm.flags import VllmSettings
from plimsoll.engines.vllm.kv import PagedLayout
from plimsoll.engines.vllm.kv_offload import Kept, Schedule
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.plan.kv_offload_start import (
    FIELD,
    Name,
    cannot_start,
    has_hybrid_manager,
    has_prefix_caching,
    not_laid_out,
    refused,
)
from plimsoll.plan.records import KvOffloadAsk, KvOffloadPlan, PlanRequest, Refusal
from plimsoll.units import gib

__all__ = [
    "Agreement",
    "Name",
    "agree",
    "cannot_start",
    "has_hybrid_manager",
    "has_prefix_caching",
    "not_laid_out",
    "notes",
    "pinned",
    "planned",
]


class Agreement(NamedTuple):
    """The three views side by side."""

    asked: KvOffloadAsk
    """What the spec promises."""
    schedule: Schedule
    """What the scheduler takes a chunk to be."""
    kept: Kept
    """What the memory manager keeps and takes."""
    model: ModelFacts
    release: Release
    length: int
    """The longest sequence, in tokens."""

    @property
    def tokens(self) -> int:
        """Tokens that host memory holds, when every chunk of every group is stored."""
        return self.kept.tokens(self.schedule, self.length)


def agree(
    request: PlanRequest, layout: PagedLayout, *, release: Release, length: int
) -> Agreement | Refusal | None:
    """The three views, or why they cannot be one; None where no offloading is asked for."""
    asked = request.kv_offload
    if asked is None or request.model is None:
        return None
    blocks = _blocks_per_chunk(asked, layout, release)
    if isinstance(blocks, Refusal):
        return blocks
    found = Agreement(
        asked=asked,
        schedule=kv_offload.schedule(layout, release, blocks),
        kept=kv_offload.kept(
            layout,
            request.model,
            asked.host_bytes,
            cards=request.cards,
            release=release,
            vendor=request.gpu.vendor,
            blocks_per_chunk=blocks,
        ),
        model=request.model,
        release=release,
        length=length,
    )
    return next((no for check in CHECKS if (no := check(found)) is not None), found)


def _blocks_per_chunk(asked: KvOffloadAsk, layout: PagedLayout, release: Release) -> int | Refusal:
    """What was asked for, in blocks: the one unit that means the same to every group."""
    if asked.chunk_tokens is None:
        return asked.blocks_per_chunk or 1
    sizes = sorted(set(kv_offload.schedule(layout, release, 1).group_block_tokens))
    if len(sizes) > 1:
        way_out = (
            f"leave it out, or use {kv_offload.BLOCKS_PER_CHUNK_SINCE} or newer with blocksPerChunk"
            if release.is_before(kv_offload.BLOCKS_PER_CHUNK_SINCE)
            else "write blocksPerChunk instead"
        )
        return refused(
            Name.STOPS,
            f"chunkTokens {asked.chunk_tokens:,} stops vLLM {release.text} on KV groups with blocks of "
            f"{_listed(sizes)} tokens; {way_out}",
        )
    blocks, rest = divmod(asked.chunk_tokens, sizes[0])
    if rest or not blocks:
        whole = max(1, blocks + (rest > 0)) * sizes[0]
        return refused(
            Name.STOPS,
            f"chunkTokens {asked.chunk_tokens:,} is no multiple of the block of {sizes[0]} tokens; "
            f"write {whole:,}",
        )
    return blocks


# --- checks: the first that answers refuses ---------------------------------------------------------


def _chunk_cannot_be_said(found: Agreement) -> Refusal | None:
    """Before blocks_per_chunk a chunk is told in tokens, and then all groups must have one block."""
    if found.schedule.blocks_per_chunk == 1 or found.schedule.is_uniform:
        return None
    if not found.release.is_before(kv_offload.BLOCKS_PER_CHUNK_SINCE):
        return None
    return refused(
        Name.STOPS,
        f"vLLM {found.release.text} takes a chunk in tokens, which stops it on KV groups with blocks of "
        f"{_listed(sorted(set(found.schedule.group_block_tokens)))} tokens; leave blocksPerChunk out, or "
        f"use {kv_offload.BLOCKS_PER_CHUNK_SINCE} or newer",
    )


def _hash_does_not_divide(found: Agreement) -> Refusal | None:
    unit = found.schedule.hash_tokens
    odd = sorted({block for block in found.schedule.group_block_tokens if block % unit})
    if not odd:
        return None
    return refused(
        Name.STOPS,
        f"vLLM {found.release.text} hashes {unit} tokens at a time, and KV groups with blocks of "
        f"{_listed(odd)} tokens are no multiple of that; use {_release_without(found)}",
    )


def _release_without(found: Agreement) -> str:
    if found.release.is_before(kv_offload.HASH_BY_ALL_GROUPS_SINCE):
        return f"{kv_offload.HASH_BY_ALL_GROUPS_SINCE} or newer"
    return f"{kv_offload.RINGS_LEFT_OUT_SINCE} or newer"


def _keeps_nothing(found: Agreement) -> Refusal | None:
    if found.kept.chunks:
        return None
    return refused(
        Name.KEEPS_NOTHING,
        f"hostMemory of {gib(found.asked.host_bytes)} holds not one chunk, which takes "
        f"{found.kept.chunk_bytes:,} B over {found.kept.copies} card(s): the engine would run and keep "
        "nothing; give it more, or make chunks smaller",
    )


CHECKS: Final[tuple[Callable[[Agreement], Refusal | None], ...]] = (
    _chunk_cannot_be_said,
    _hash_does_not_divide,
    _keeps_nothing,
)
"""Asked in order; the first that answers refuses."""


def _listed(sizes: list[int]) -> str:
    """ "4, 8 and 64" """
    head, last = ", ".join(str(each) for each in sizes[:-1]), str(sizes[-1])
    return f"{head} and {last}" if head else last


# --- what the plan takes from it ----------------------------------------------------------------------


def planned(found: Agreement) -> KvOffloadPlan:
    """What is promised and taken, for the plan."""
    return KvOffloadPlan(
        host_bytes=found.asked.host_bytes,
        tokens=found.tokens,
        shared_memory_bytes=found.kept.shared_bytes,
    )


def pinned(
    settings: VllmSettings, request: PlanRequest, release: Release, found: Agreement | None
) -> VllmSettings:
    """The settings with what prefix caching and offloading pin."""
    assert request.model is not None
    has_states = any(group.kind is KvKind.RECURRENT for group in request.model.kv_groups)
    return settings._replace(
        prefix_caching=has_prefix_caching(request, release),
        aligned_states=has_states
        and has_prefix_caching(request, release) is True
        and kv_offload.needs_align_flag(release),
        hybrid_manager=has_hybrid_manager(request, release),
        kv_transfer=None
        if found is None
        else kv_offload.connector_config(found.asked.host_bytes, found.schedule, release),
    )


def notes(found: Agreement | None) -> Iterator[str]:
    """What costs more or holds less than one would think, each by name."""
    if found is None:
        return
    held, release = found.tokens, found.release
    yield (
        f"{FIELD}: {gib(found.asked.host_bytes)} of host memory hold at least {held:,} tokens in sequences "
        f"of {found.length:,}"
    )
    if held < found.length:
        yield (
            f"{FIELD} ({Name.SHORT.value}): that is less than one sequence of {found.length:,} tokens; chunks "
            "are evicted before they are asked for again"
        )
    groups = len(found.schedule.group_block_tokens)
    if groups > 1:
        yield (
            f"{FIELD} ({Name.DIVIDED.value}): a chunk of any of the {groups} KV groups takes "
            f"{found.kept.chunk_bytes:,} B, the room of one of each (vllm-project/vllm#56871)"
        )
    if found.kept.pinned_bytes:
        yield (
            f"{FIELD} ({Name.DOUBLED.value}): vLLM {release.text} pins memory in pieces rounded up to powers "
            f"of two; the container has {gib(found.kept.pinned_bytes)} for it (vllm-project/vllm#53042)"
        )
    has_windows = any(group.window_tokens for group in found.model.kv_groups)
    if has_windows and release.is_before(kv_offload.WITH_GROUPS_SINCE):
        yield (
            f"{FIELD} ({Name.WINDOWS_WHOLE.value}): vLLM {release.text} turns its hybrid manager off for "
            f"offloading, so windows are planned as full attention; {kv_offload.WITH_GROUPS_SINCE} does not"
        )
