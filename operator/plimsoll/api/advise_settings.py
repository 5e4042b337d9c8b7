"""Line by line: what counts today, and what would be pinned?"""

from collections.abc import Iterator

from plimsoll.api.advise_manifest import OURS
from plimsoll.api.advise_records import SettingRow
from plimsoll.api.advise_subject import Subject
from plimsoll.engines.base import EngineName, Release
from plimsoll.engines.llama_cpp import running as llama_cpp
from plimsoll.engines.options import ROWS
from plimsoll.engines.reading import Default
from plimsoll.engines.vllm import running as vllm
from plimsoll.engines.vllm.running import VllmRun
from plimsoll.facts.gpu import GpuFacts
from plimsoll.plan.records import Plan, PlanRequest, Refusal


def settings_of(
    subject: Subject,
    card: GpuFacts | None,
    request: PlanRequest | None,
    ours: Plan | Refusal | None,
) -> Iterator[SettingRow]:
    """Every flag that the plan pins, that is written, or whose default matters."""
    reading = subject.reading
    chosen = dict(_choices(subject, card, request))
    planned = (
        {}
        if not isinstance(ours, Plan)
        else {_row_name(reading.engine, flag.name): flag for flag in ours.flags}
    )
    tabled = [row.name for row in ROWS[reading.engine] if row.name not in OURS]
    flags = dict.fromkeys(
        [*planned, *chosen, *(said.flag for said in reading.said if said.flag in tabled)]
    )
    for flag in flags:
        said, default, pin = reading.last(flag), chosen.get(flag), planned.get(flag)
        value = None if default is None else default.value
        if said is not None:
            value = said.value if said.value is not None else ("off" if said.is_off else "on")
        shown = None
        if pin is not None:
            shown = pin.value if pin.value is not None else ("on" if pin.name == flag else "off")
        yield SettingRow(
            flag=flag,
            now=value,
            written=None if said is None else said.written,
            planned=shown,
            why=pin.reason if pin is not None and pin.reason else (default.note if default else ""),
        )


def _row_name(engine: EngineName, flag: str) -> str:
    """The table's name of a switch that is pinned turned round."""
    return next((row.name for row in ROWS[engine] if flag == row.name or flag in row.aliases), flag)


def _choices(
    subject: Subject, card: GpuFacts | None, request: PlanRequest | None
) -> Iterator[tuple[str, Default]]:
    release: Release = subject.row
    if isinstance(subject.run, VllmRun):
        if card is None:
            return
        model = request.model if request is not None else None
        longest = None if model is None else model.max_position_embeddings
        dtype = "auto" if model is None else model.dtype
        if dtype == "bfloat16" and card.bf16 is False:
            dtype = "float16"  # vLLM 0.32, platforms/cuda.py
        yield from vllm.choices(
            release,
            total_bytes=card.total_bytes,
            product=card.product,
            longest=longest,
            dtype=dtype,
        )
    else:
        yield from llama_cpp.choices(
            release,
            longest=request.gguf.context_length if request and request.gguf else None,
            has_slots=subject.run.slots is not None,
        )
