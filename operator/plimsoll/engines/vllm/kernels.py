"""What is an attention kernel, as far as blocks go, and what does its choice depend on?

Source: vLLM 0.33.0 v1/attention/backend.py and selector.py, platforms/interface.py.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

DEFAULT_BLOCK_TOKENS: Final = 16
"""vLLM's block where the kernels take it (CacheConfig.DEFAULT_BLOCK_SIZE, 0.8.5 to 0.33.0)."""
SIXTEEN_BIT: Final = ("auto", "bfloat16", "float16")
FP8_E4M3: Final = ("fp8", "fp8_e4m3")
HOPPER, BLACKWELL, BLACKWELL_RTX = 9, 10, 12
"""Generations by the first number of the compute capability."""


class Sizes(NamedTuple):
    """Blocks that a kernel reads: some fixed ones, or every multiple of a step."""

    fixed: tuple[int, ...] = ()
    step: int | None = None

    def supports(self, block_tokens: int) -> bool:
        """Whether a block of the pool can be read, whole or as several of the kernel's."""
        return any(block_tokens % size == 0 for size in self.all)

    @property
    def all(self) -> tuple[int, ...]:
        """The smallest block of each kind."""
        return self.fixed if self.step is None else (self.step,)

    @property
    def smallest(self) -> int:
        """The smallest block."""
        return min(self.all)

    def largest_within(self, tokens: int) -> int:
        """The largest block of at most `tokens`, or the smallest where none is."""
        if self.step is not None:
            return max(self.step, tokens // self.step * self.step)
        fitting = [size for size in self.fixed if size <= tokens]
        return max(fitting) if fitting else self.smallest


class Kernel(NamedTuple):
    """The chosen kernel, as far as the pool's geometry goes."""

    name: str
    """As vLLM logs it."""
    sizes: Sizes
    """Blocks for the layer in question."""
    general: Sizes
    """Blocks as asked before layers are known, from the model's head width and cache dtype."""
    stride_rows: int | None = None
    """Blocks lie a multiple of so many rows apart."""
    kernel_tokens: int | None = None
    """Blocks hold whole kernel pages of this many tokens."""
    is_block_outermost: bool = False
    """Pages of all layers lie side by side within a block (DeepSeek-V4)."""
    preferred: int | None = None
    """The block it asks for where the default would do as well."""


class Layer(NamedTuple):
    """What a layer asks of a kernel."""

    head_dim: int
    value_dim: int
    kv_dtype: str
    is_mla: bool = False
    has_window: bool = False
    """Whether it attends within a window or a chunk."""


class Situation(NamedTuple):
    """Everything else that a choice depends on."""

    capability: tuple[int, int]
    """The card's compute capability."""
    model_head_dim: int
    """The model's widest head, which answers for it before layers are known."""
    kv_dtype: str
    """The cache's dtype for the whole model."""
    block_tokens: int | None = None
    """`--block-size`, where given."""
    has_flashinfer: bool = False
    """Whether the image has FlashInfer."""
    is_soft_capped: bool = False
    """Attention logits are capped (Gemma 2)."""
    is_prefix_lm: bool = False
    """Image tokens see each other both ways (Gemma 3)."""
    dcp: int = 1
    """Decode context parallelism."""
    flash_attention: int | None = None
    """The release of FlashAttention that the model forces."""
    query_heads: int = 128
    """Query heads on one card."""
    is_sparse: bool = False
    """An index picks some of the latents (DeepSeek-V3.2, GLM-5)."""
    has_sinks: bool = False
    """Attention has a learned sink (gpt-oss)."""
    has_alibi: bool = False
    """Attention is biased by distance (Bloom)."""

    @property
    def major(self) -> int:
        """The card's generation."""
        return self.capability[0]

    @property
    def has_fa4(self) -> bool:
        """FlashAttention 4 runs on 9.x, 10.x and 11.x."""
        return self.major in (9, 10, 11)


Taker = Callable[[Layer, Situation], Kernel | None]
"""A kernel's answer to a layer: itself, or None where it does not take it."""


def preferred_block(kernels: Sequence[Kernel]) -> int | None:
    """The smallest block that all kernels of a model read: 16, unless they force another.

    None when they share none.
    """
    if len(kernels) == 1:
        (kernel,) = kernels
        if kernel.preferred is not None:
            return kernel.preferred
        fits = kernel.general.supports(DEFAULT_BLOCK_TOKENS)
        return DEFAULT_BLOCK_TOKENS if fits else kernel.general.smallest
    shared = sorted(
        {math.lcm(*sizes) for sizes in itertools.product(*(k.general.all for k in kernels))}
    )
    candidates = (DEFAULT_BLOCK_TOKENS, *shared)
    return next((n for n in candidates if all(k.general.supports(n) for k in kernels)), None)
