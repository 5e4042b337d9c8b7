"""How fast does a worker read prompts, so that a step can be as long as somebody wants to wait?

An estimate, good to a factor of about two: a step's length is a matter of comfort, and no memory hangs on it.
"""

from collections.abc import Iterable
from typing import Final

from plimsoll.catalog.gpus import find_gpu
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts

TERAOPS: Final = {
    # T4 data sheet 951643; V100 data sheet 1165301-r5 (SXM2)
    "t4": 65, "v100-16gb": 125, "v100-32gb": 125,
    # A10 data sheet; A10G on AWS, data sheet of 2022-02-17 (70 dense, 140 sparse); A30 data sheet
    "a10": 125, "a10g": 70, "a30": 165,
    # A100 data sheet 1758950-r4, both forms alike
    "a100-40gb-pcie": 312, "a100-40gb-sxm": 312, "a100-80gb-pcie": 312, "a100-80gb-sxm": 312,
    # GA102 white paper v2 (RTX 3090 with 32-bit sums), A40 data sheet (149.7)
    "rtx-3090": 71, "rtx-a6000": 155, "a40": 150,
    # Ada white paper v2.02 (RTX 4090 with 32-bit sums: 165.2); L4 (242 sparse), L40 (362), L40S (733), RTX 6000 Ada
    "l4": 121, "l40": 181, "l40s": 362, "rtx-4090": 165, "rtx-6000-ada": 364,
    # H100 data sheet, half of the sparse figures 1,513, 1,979 and 1,671; H200 and GH200 as H100 SXM
    "h100-pcie": 756, "h100-sxm": 989, "h100-nvl": 835, "h200": 989, "gh200": 989,
    # no data sheet of the vendor is public; resellers print this one
    "h20": 148,
    # NVIDIA's own tables for planning (aiconfigurator-core 0.12.0, systems/*.yaml), which the rows of A30, A100,
    # H100, H200, L4 and L40S agree with
    "b200": 2250, "b300": 2250, "gb200": 2500, "gb300": 2500, "rtx-pro-6000-blackwell-server": 467,
    # MI300X data sheet (1,307.4)
    "mi300x": 1307,
}  # fmt: skip
"""16-bit tensor operations a second without sparsity, in 10^12, by row of the catalogue. Slices and cards
that are not here have no pace."""
PART_REACHED: Final = 0.4
"""Of those, what reading prompts reaches; also in plan/concurrency.py."""
ATTENTION_PER_SQUARE: Final = 2.5
"""Weights of a layer's attention beside hidden_size squared: queries and output, and grouped keys and values."""
FEED_FORWARD: Final = 3
"""Gate, up and down."""
OPERATIONS_PER_WEIGHT: Final = 2


MLA_WIDTHS: Final = 192 + 128
"""Of one head's key and value while prompts are read (DeepSeek-V3, config.json: 128 + 64, and 128)."""


def prompt_tokens_per_second(
    model: ModelFacts, gpu: GpuFacts, cards: int, *, after_tokens: int = 0
) -> float | None:
    """Prompt tokens a second of one worker; None where the card's speed is not known.

    `after_tokens` stand before them in the prompt: layers that attend to all of them take longer, those
    with a window up to it, recurrent ones do not.
    """
    teraops = teraops_of(gpu.product)
    if teraops is None:
        return None
    weights = model.layers * (
        ATTENTION_PER_SQUARE * model.hidden_size**2
        + FEED_FORWARD * model.hidden_size * model.intermediate_size
    )
    operations = OPERATIONS_PER_WEIGHT * (weights + _attended(model, after_tokens))
    return cards * teraops * 1e12 * PART_REACHED / operations


def teraops_of(product: str) -> int | None:
    """Of one card of that type; None where nobody published it."""
    row = find_gpu(product)
    if row is None:
        return None
    return next((ops for key, ops in TERAOPS.items() if _is(key, row.product)), None)


def relative_speeds(workers: Iterable[tuple[str, int]]) -> tuple[float | None, ...]:
    """Of workers that serve the same model, by card and number of cards: the fastest has 1. Nothing is known of
    any where one card's speed is not."""
    speeds = [(teraops_of(product), cards) for product, cards in workers]
    known = [ops * cards for ops, cards in speeds if ops is not None]
    if len(known) < len(speeds):
        return (None,) * len(speeds)
    return tuple(speed / max(known) for speed in known)


def _attended(model: ModelFacts, after_tokens: int) -> float:
    """Products of one token with those before it, for keys and for values."""
    return sum(
        group.layers * model.attention_heads * _widths(group) * _seen(group, after_tokens)
        for group in model.kv_groups
        if group.kind not in (KvKind.RECURRENT, KvKind.CROSS, KvKind.INDEXER)
    )


def _widths(group: KvGroup) -> int:
    return group.key_dim + group.value_dim if group.value_dim else MLA_WIDTHS


def _seen(group: KvGroup, after_tokens: int) -> float:
    """Tokens that a layer looks at: no more than its window, or whole ones of it and one for several before."""
    window = group.window_tokens
    if group.compress_ratio is not None:
        return min(after_tokens, window or 0) + after_tokens / group.compress_ratio
    return min(after_tokens, window) if window is not None else after_tokens


def _is(key: str, product: str) -> bool:
    found = find_gpu(key)
    return found is not None and found.product == product
