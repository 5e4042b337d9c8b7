"""What does it cost to choose for 60 GPU types among 6 layouts each, beside one plan?

python benchmarks/choosing.py             a table
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.finding import Finding, as_table

from plimsoll.catalog.gpus import find_gpu, gpu_types
from plimsoll.catalog.models import find_gguf, find_model
from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import ModelFacts
from plimsoll.plan import concurrency, paged_ask
from plimsoll.plan.choose import Choice, choose
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Guarantee, Lane, PlanRequest, TokenQuantiles
from plimsoll.units import GIB

MODEL: Final = "meta-llama/Llama-3.3-70B-Instruct"
TYPES: Final = 60
LAYOUTS: Final = ((EngineName.VLLM, (1, 2, 4, 8)), (EngineName.LLAMA_CPP, (1, 2)))
LANE: Final = Lane(
    name="all",
    prompt_tokens=TokenQuantiles(p50=1800, p99=11000),
    output_tokens=TokenQuantiles(p50=350, p99=1500),
)
MOST_PLANS: Final = 150.0
"""360 layouts may cost as much as so many plans that share nothing."""


def choosing(rounds: int = 5) -> list[Finding]:
    """The median of some rounds, nothing kept from one to the next."""
    types = gpus()
    usual = next(gpu for gpu in types if gpu.product == "NVIDIA-RTX-A6000")
    whole = statistics.median(_seconds(lambda: _all(types)) for _ in range(rounds))
    one = statistics.median(_seconds(lambda: plan(_layouts(usual)[2])) for _ in range(10 * rounds))
    layouts = sum(len(cards) for _, cards in LAYOUTS)
    return [
        Finding(
            f"choosing for {TYPES} GPU types among {layouts} layouts / one plan",
            whole / one,
            "x",
            at_most=MOST_PLANS,
            detail=f"{whole * 1000:.0f} ms of CPU time against {one * 1000:.1f} ms, each with "
            "nothing remembered; 70B with traffic",
        )
    ]


def gpus() -> list[GpuFacts]:
    """Every card of the catalogue, and some that grew by a GiB, 60 in all."""
    known = {card.product: card for row in gpu_types() if (card := find_gpu(row.key))}
    found = list(known.values())
    grown = [
        card.model_copy(
            update={"product": f"{card.product}-grown", "total_bytes": card.total_bytes + GIB}
        )
        for card in found
    ]
    return [*found, *grown][:TYPES]


def _all(types: list[GpuFacts]) -> None:
    fits = sum(isinstance(choose(_layouts(gpu)), Choice) for gpu in types)
    if not fits:
        raise RuntimeError(f"{MODEL} fits nowhere; then nothing was measured")


def _layouts(gpu: GpuFacts) -> list[PlanRequest]:
    model = find_model(MODEL)
    assert isinstance(model, ModelFacts)
    return [
        PlanRequest(
            engine=engine,
            release=None,
            gpu=gpu,
            cards=cards,
            model=model,
            gguf=find_gguf(MODEL, "Q4_K_M"),
            lanes=(LANE,),
            guarantee=Guarantee.EXPECTED,
        )
        for engine, counts in LAYOUTS
        for cards in counts
    ]


def _seconds(work: Callable[[], object]) -> float:
    """CPU time, with nothing remembered from before."""
    concurrency.forget()
    paged_ask.forget()
    before = time.process_time()
    work()
    return time.process_time() - before


if __name__ == "__main__":
    print(as_table(choosing()))
