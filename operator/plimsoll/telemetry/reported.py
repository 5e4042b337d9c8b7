"""What does an engine say of its own pool and slots, whichever release it is?

vLLM: one line, `vllm:cache_config_info`, with every field of its CacheConfig as a label. The set of labels
differs by release (0.8.5 to 0.33.0: vllm/config/cache.py, before 0.10 vllm/config.py), so each is read by its
name and a missing one is unknown. llama-server: /props, and /slots for what /props leaves out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.engines.base import EngineName
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.reported import EngineReport
from plimsoll.telemetry.engines import LLAMA_CPP, VLLM
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.source import Reason, ScrapeError

CACHE_CONFIG: Final = "vllm:cache_config_info"
SIZED_BY: Final = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
"""Settings that size the pool in place of the share of the card."""


class ReportReader:
    """Asks one engine."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def read(self, worker: WorkerFacts) -> EngineReport:
        """What it says of itself. Raises ScrapeError when that cannot be read."""
        root = f"http://{worker.address}"
        if worker.engine == VLLM:
            return report_of_vllm(await self._fetcher.get(f"{root}/metrics"))
        if worker.engine == LLAMA_CPP:
            props = await self._fetcher.get(f"{root}/props")
            return report_of_llama_server(props, await self._slots(root))
        raise ScrapeError(Reason.ABSENT, f"{worker.engine or 'an unnamed engine'} is not known")

    async def _slots(self, root: str) -> bytes:
        """Nothing where the endpoint is switched off."""
        try:
            return await self._fetcher.get(f"{root}/slots")
        except ScrapeError:
            return b""


def report_of_vllm(page: bytes) -> EngineReport:
    """The report in a page of metrics. Raises ScrapeError when the page is none, or has no such line."""
    lines = [line for line in page.split(b"\n") if line.startswith(CACHE_CONFIG.encode())]
    try:
        found = [
            sample.labels
            for family in text_string_to_metric_families(b"\n".join([*lines, b""]).decode())
            for sample in family.samples
            if sample.name == CACHE_CONFIG and sample.value == 1
        ]
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(Reason.MALFORMED, f"no page of metrics: {error}") from error
    if not found:
        raise ScrapeError(Reason.ABSENT, f"no {CACHE_CONFIG} on the page")
    labels = found[0]
    return EngineReport(
        engine=EngineName.VLLM,
        blocks=_whole(labels.get("num_gpu_blocks")),
        block_tokens=_whole(labels.get("block_size")),
        tokens=_whole(labels.get("kv_cache_size_tokens")),
        concurrency=_number(labels.get("kv_cache_max_concurrency")),
        utilization=_number(labels.get("gpu_memory_utilization")),
        sized_by=next((name for name in SIZED_BY if labels.get(name, "None") != "None"), ""),
        engines=len({each.get("engine", "") for each in found}),
    )


def report_of_llama_server(props: bytes, slots: bytes = b"") -> EngineReport:
    """The report in /props and /slots; their smaller figure where they differ. Raises ScrapeError when
    /props is no JSON object."""
    try:
        told = json.loads(props)
    except (ValueError, RecursionError) as error:
        raise ScrapeError(Reason.MALFORMED, f"/props is no JSON: {error}") from error
    if not isinstance(told, dict):
        raise ScrapeError(Reason.MALFORMED, "/props is no JSON object")
    settings = told.get("default_generation_settings")
    length = settings.get("n_ctx") if isinstance(settings, dict) else None
    lengths = _lengths_of(slots)
    return EngineReport(
        engine=EngineName.LLAMA_CPP,
        slots=_least(_positive(told.get("total_slots")), len(lengths) or None),
        slot_tokens=_least(_positive(length), min(lengths, default=None)),
    )


def _lengths_of(slots: bytes) -> list[int]:
    """The slots' lengths; none where that cannot be told of every one."""
    try:
        told = json.loads(slots)
    except (ValueError, RecursionError):
        return []
    found = [
        _positive(slot.get("n_ctx")) if isinstance(slot, Mapping) else None
        for slot in (told if isinstance(told, list) else ())
    ]
    return [] if None in found else [length for length in found if length is not None]


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _positive(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and value > 0 else None


def _whole(text: str | None) -> int | None:
    """A whole number as Python prints it; None for "None", for zero and for whatever else."""
    value = _number(text)
    return int(value) if value is not None and value == int(value) else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
