"""What stands against KV offloading in a release, whatever the layout, and what is it called?"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from plimsoll.engines.base import Release
from plimsoll.engines.vllm import kv_offload
from plimsoll.engines.vllm.split import PLAIN_KINDS
from plimsoll.facts.gpu import GpuVendor
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.plan.records import PlanRequest, Reason, Refusal

FIELD: Final = "kvCache.offload"


class Name(StrEnum):
    """What may come of an offload configuration; each is told by this name."""

    STOPS = "EngineStops"
    """The engine ends at start."""
    KEEPS_NOTHING = "KeepsNothing"
    """The engine runs, and not one chunk has room."""
    SHORT = "ShorterThanOneSequence"
    """Chunks are evicted before the sequence they belong to is whole: stored, and never found."""
    DIVIDED = "CapacityDivided"
    """A chunk of one group takes the room of a chunk of all groups."""
    DOUBLED = "HostMemoryDoubled"
    """The engine may take twice the memory that was asked for."""
    WINDOWS_WHOLE = "WindowsKeptWhole"
    """Offloading turns the hybrid manager off, and windows cost as much as full attention."""


def refused(name: Name, why: str) -> Refusal:
    """By its name and why, without a full stop."""
    return Refusal(reason=Reason.KV_OFFLOAD_CANNOT_WORK, message=f"{FIELD} ({name.value}): {why}.")


def has_hybrid_manager(request: PlanRequest, release: Release) -> bool:
    """Whether the engine keeps windows as windows: not where offloading turns its manager off."""
    return request.kv_offload is None or not release.is_before(kv_offload.WITH_GROUPS_SINCE)


def has_prefix_caching(request: PlanRequest, release: Release) -> bool | None:
    """What the layout is asked with: the cache that the flags turn on, and with it states at the ends of
    blocks. Offloading is a prefix cache too. None: the release's own choice."""
    if request.prefix_caching is not None:
        return request.prefix_caching
    is_turned_on = not release.is_before(kv_offload.ALIGN_FLAG_SINCE)
    return True if is_turned_on or request.kv_offload is not None else None


def cannot_start(request: PlanRequest, release: Release) -> Refusal | None:
    """What stands against it whatever the layout; the first reason answers."""
    assert request.model is not None
    has_states = any(group.kind is KvKind.RECURRENT for group in request.model.kv_groups)
    caching = has_prefix_caching(request, release)
    if request.kv_offload is not None:
        for reason, why in _against(request, release, has_states=has_states):
            return refused(reason, why)
    if has_states and caching and release.is_before(kv_offload.ALIGN_FLAG_SINCE):
        return Refusal(
            reason=Reason.OVERRIDE_CANNOT_WORK,
            message=f"kvCache.prefixCaching: vLLM {release.text} cannot keep recurrent states at the ends "
            f"of blocks; turn it off, or use {kv_offload.ALIGN_FLAG_SINCE} or newer.",
        )
    return None


def _against(
    request: PlanRequest, release: Release, *, has_states: bool
) -> Iterator[tuple[Name, str]]:
    assert request.model is not None
    if request.gpu.unified_memory:
        yield (
            Name.KEEPS_NOTHING,
            f"{request.gpu.product} and its host share one memory, so that nothing is gained by moving KV "
            "from one to the other; take it out",
        )
    if release.is_before(kv_offload.BY_BYTES_SINCE):
        yield (
            Name.STOPS,
            f"vLLM {release.text} cannot be told how much host memory to use; "
            f"use {kv_offload.BY_BYTES_SINCE} or newer",
        )
    if request.gpu.vendor is GpuVendor.INTEL and release.is_before(kv_offload.ON_INTEL_SINCE):
        yield (
            Name.STOPS,
            f"vLLM {release.text} does not offload on {request.gpu.product}; "
            f"use {kv_offload.ON_INTEL_SINCE} or newer",
        )
    if has_states and release.is_before(kv_offload.WITH_GROUPS_SINCE):
        yield (
            Name.STOPS,
            f"vLLM {release.text} turns its hybrid manager off for offloading, without which a model with "
            f"recurrent layers does not start; use {kv_offload.WITH_GROUPS_SINCE} or newer",
        )
    if has_states and request.prefix_caching is False:
        yield (
            Name.STOPS,
            "recurrent states lie at the ends of blocks only with prefix caching, and offloading needs "
            "them there; turn kvCache.prefixCaching on, or take kvCache.offload out",
        )
    if release.is_before(kv_offload.BY_POOL_SINCE) and not _has_one_page(request.model):
        yield (
            Name.STOPS,
            f"vLLM {release.text} takes the KV of all layers to be of one size, which in this model it is "
            f"not; use {kv_offload.WITH_GROUPS_SINCE} or newer",
        )


def _has_one_page(model: ModelFacts) -> bool:
    """Whether all layers keep the same, windows aside: those are kept whole in such releases."""
    kinds = {group.kind for group in model.kv_groups}
    widths = {(group.kv_heads, group.key_dim, group.value_dim) for group in model.kv_groups}
    return len(widths) == 1 and (kinds <= set(PLAIN_KINDS) or len(kinds) == 1)


def not_laid_out(request: PlanRequest, release: Release, why: str) -> Refusal | None:
    """The layout's own refusal, where it is offloading that turns the hybrid manager off."""
    if has_hybrid_manager(request, release):
        return None
    return refused(
        Name.STOPS,
        f"vLLM {release.text} turns its hybrid manager off for offloading, and {why}; "
        f"use {kv_offload.WITH_GROUPS_SINCE} or newer",
    )
