"""How fast does a worker read prompts, so that a step can be as long as somebody wants to wait?

An estimate, good to a factor of about two: a step's length is a matter of comfort, and no memory hangs on it.
"""

from typing import Final

from plimsoll.catalog.gpus import find_gpu
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import ModelFacts

TERAOPS: Final = {
    "t4": 65, "v100-16gb": 125, "v100-32gb": 125, "a10": 125, "a10g": 70, "a30": 165, "a40": 150,
    "a100-40gb-pcie": 312, "a100-40gb-sxm": 312, "a100-80gb-pcie": 312, "a100-80gb-sxm": 312,
    "l4": 121, "l40": 181, "l40s": 362, "rtx-3090": 71, "rtx-4090": 165, "rtx-a6000": 155, "rtx-6000-ada": 364,
    "h100-pcie": 756, "h100-sxm": 989, "h100-nvl": 835, "h20": 148, "h200": 989, "gh200": 989,
    "b200": 2250, "mi300x": 1307,
}  # fmt: skip
"""16-bit tensor operations a second without sparsity, in 10^12, by row of the catalogue: the vendors' data
sheets. Slices and cards that are not here have no pace."""
PART_REACHED: Final = 0.4
"""Of those, what reading prompts reaches; also in plan/concurrency.py."""
ATTENTION_PER_SQUARE: Final = 2.5
"""Weights of a layer's attention beside hidden_size squared: queries and output, and grouped keys and values."""
FEED_FORWARD: Final = 3
"""Gate, up and down."""
OPERATIONS_PER_WEIGHT: Final = 2


def prompt_tokens_per_second(model: ModelFacts, gpu: GpuFacts, cards: int) -> float | None:
    """Prompt tokens a second of one worker; None where the card's speed is not known."""
    row = find_gpu(gpu.product)
    teraops = next(
        (ops for key, ops in TERAOPS.items() if row is not None and _is(key, row.product)), None
    )
    if teraops is None:
        return None
    weights = model.layers * (
        ATTENTION_PER_SQUARE * model.hidden_size**2
        + FEED_FORWARD * model.hidden_size * model.intermediate_size
    )
    return cards * teraops * 1e12 * PART_REACHED / (OPERATIONS_PER_WEIGHT * weights)


def _is(key: str, product: str) -> bool:
    found = find_gpu(key)
    return found is not None and found.product == product
