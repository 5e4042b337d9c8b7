"""For which quantisations of a 70B does a 48 GB card hold 60 layers, and for which 80?

python benchmarks/offload_70b.py             the page
python benchmarks/offload_70b.py --write     docs/measured/llamacpp-70b-offload.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from plimsoll.catalog.models import find_gguf
from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import memory
from plimsoll.engines.llama_cpp.context import context_of_slots
from plimsoll.engines.llama_cpp.placement import layer_count, place
from plimsoll.units import MIB

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "measured" / "llamacpp-70b-offload.md"
FITS: Final = ROOT / "tests" / "data" / "llamacpp_offload.json"

MODEL: Final = "meta-llama/Llama-3.3-70B-Instruct"
QUANTIZATIONS: Final = ("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0", "F16")
LENGTHS: Final = (4096, 8192, 16384)
CARDS: Final = (48540, 45000)
"""MiB that a card has for processes: an A6000; an A40, an L40S, an A6000 with ECC."""
ASKED: Final = (60, 80)
RELEASE: Final = Release.of("b11669")
CONTEXT_MIB: Final = memory.CUDA_CONTEXT_BYTES // MIB
RESERVE_MIB: Final = memory.POOL_RESERVE_BYTES // MIB


class Row(NamedTuple):
    """One quantisation, length and card."""

    quantization: str
    length: int
    card_mib: int
    planned: int
    """Most layers with the CUDA context and the reserve kept."""
    loads: int
    """Most layers that load: with the CUDA context alone."""
    in_fits_terms: int
    """Most layers with the reserve alone, as --fit counts."""
    fit: int | None
    """What llama.cpp's own --fit chose; None where it was not run."""

    def says(self, layers: int) -> str:
        """Whether so many layers hold."""
        if layers <= self.planned:
            return "holds"
        return "loads, no reserve" if layers <= self.loads else "no"


def most_layers(quantization: str, length: int, room_mib: int) -> int:
    """The largest number of layers whose weights, KV and compute have room, counted down from all."""
    gguf = find_gguf(MODEL, quantization)
    assert gguf is not None
    context = context_of_slots(max_model_len=length, slots=1, cache_type="f16")
    for layers in range(layer_count(gguf), 0, -1):
        placement = place(gguf, gpu_layers=layers)
        if memory.held_bytes(gguf, context, placement)[0] > room_mib * MIB:
            continue
        if memory.fullest(gguf, context, placement, RELEASE).total_bytes <= room_mib * MIB:
            return layers
    return 0


def rows() -> Iterator[Row]:
    """Every row of the table."""
    fits = {
        (fit["quant"], fit["ctx"], fit["card"]): fit["layers"]
        for fit in json.loads(FITS.read_text())["fits"]
        if fit["margin"] == RESERVE_MIB and fit["cacheType"] == "f16"
    }
    for card in CARDS:
        for quantization in QUANTIZATIONS:
            for length in LENGTHS:
                planned, loads, alike = (
                    most_layers(quantization, length, card - less)
                    for less in (CONTEXT_MIB + RESERVE_MIB, CONTEXT_MIB, RESERVE_MIB)
                )
                fit = fits.get((quantization, length, card))
                yield Row(quantization, length, card, planned, loads, alike, fit)


def page() -> str:
    """The page as it is committed."""
    found = tuple(rows())
    compared = [row for row in found if row.fit is not None]
    equal = sum(row.fit == row.in_fits_terms for row in compared)
    off = max(abs(row.in_fits_terms - (row.fit or 0)) for row in compared)
    between = sorted(
        {
            row.quantization
            for row in found
            if row.says(ASKED[0]) == "holds" and row.says(ASKED[1]) != "holds"
        },
        key=QUANTIZATIONS.index,
    )
    lines = [
        "# Which quantisation of a 70B leaves how many layers on a 48 GB card?",
        "",
        "**Question.** For which files of a Llama 3.3 70B does one 48 GB card hold 60 of 81 layers, but not 80, with a",
        "full prompt of 4k to 16k tokens?",
        "",
        f"**Answer.** {', '.join(between)}, at the lengths and cards below that say so. Smaller files",
        "hold all; larger ones not even 60.",
        "",
        "**How.** Weights, KV cache and compute buffer of one slot, as [llamacpp-buffers.md](llamacpp-buffers.md)",
        "holds them against llama.cpp, layers counted down from 81. *Planned* keeps "
        f"{CONTEXT_MIB} MiB for the CUDA context and {RESERVE_MIB:,} MiB",
        "for what grows at run time. *Loads* keeps the context alone: such a server starts, and may die with its first",
        "long prompt. 48,540 MiB is an A6000; 45,000 an A40, an L40S or an A6000 with ECC. No card was read.",
        "",
        "**Command.** `.venv/bin/python benchmarks/offload_70b.py`",
        "",
        "| card MiB | file | prompt | planned | loads | 60 | 80 | llama.cpp's `--fit` | ours as it counts |",
        "|---:|---|---:|---:|---:|---|---|---:|---:|",
    ]
    lines += [
        f"| {row.card_mib:,} | {row.quantization} | {row.length:,} | {row.planned} | {row.loads} | "
        f"{row.says(60)} | {row.says(80)} | {'' if row.fit is None else row.fit} | "
        f"{'' if row.fit is None else row.in_fits_terms} |"
        for row in found
    ]
    lines += [
        "",
        "**Against llama.cpp's own `--fit`** (llama-fit-params b11434, stand-in card, margin "
        f"{RESERVE_MIB:,} MiB, no CUDA context):",
        f"{len(compared)} of the rows were run with it; {equal} are equal, and none differs by more than {off}.",
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print or write the page."""
    if arguments == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
