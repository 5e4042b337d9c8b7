"""Which attention kernel does vLLM choose for a layer on a card?

The first kernel of the card's list that takes the layer is chosen; its block sizes force those of the
pool. Source: vLLM 0.33.0 platforms/cuda.py (the lists) and v1/attention/backends (what each takes).
A kernel needs its package in the image: FlashInfer is asked for, the others come with the wheel.
"""

from typing import Final

from plimsoll.engines.vllm import latents
from plimsoll.engines.vllm.kernels import (
    BLACKWELL,
    DEFAULT_BLOCK_TOKENS,
    FP8_E4M3,
    HOPPER,
    SIXTEEN_BIT,
    Kernel,
    Layer,
    Situation,
    Sizes,
    Taker,
)
from plimsoll.engines.vllm.kv_dtypes import FP8, NVFP4, PER_TOKEN_HEAD, TURBOQUANT, is_quantized

_WIDE_HEAD: Final = 256
"""FlashAttention 2 and 3 end here; FlashAttention 4 goes to 512."""
_FA4_PAGE_TOKENS: Final = 128
"""FlashAttention 4's kernel for heads of 256 on compute capability 10 reads one page per tile."""


def choose(layer: Layer, at: Situation) -> Kernel | None:
    """The first kernel of the card's list that takes the layer; None when the engine would not start."""
    if layer.is_mla:
        takers = latents.takers(layer, at)
    else:
        takers = _plain_list(at) if layer.head_dim == layer.value_dim else (_uneven,)
    for taker in takers:
        kernel = taker(layer, at)
        if kernel is not None and (
            at.block_tokens is None or kernel.general.supports(at.block_tokens)
        ):
            return kernel if _starts(kernel, layer, at) else None
    return None


def _starts(kernel: Kernel, layer: Layer, at: Situation) -> bool:
    """FlashAttention is chosen for fp8 before it is seen that the bias needs its second release."""
    return not (at.has_alibi and kernel.name == "FLASH_ATTN" and is_quantized(layer.kv_dtype))


_BY_16: Final = Sizes(step=16)


def _plain_list(at: Situation) -> tuple[Taker, ...]:
    if at.major == BLACKWELL:
        first = (_triton_flashinfer,) if at.is_prefix_lm else ()
        return (*first, _flashinfer, _flash_attention, _triton, _flex, _turboquant)
    first = (_triton_flash,) if at.is_prefix_lm and at.major == HOPPER else ()
    return (*first, _flash_attention, _flashinfer, _triton, _flex, _turboquant)


def _fa_version(head_dim: int, value_dim: int, at: Situation, *, alone: bool = False) -> int:
    """Which FlashAttention runs a head (v1/attention/backends/fa_utils.py).

    `alone`: asked for the block size, before the layer's own limits are known.
    """
    version = at.flash_attention or {HOPPER: 3, BLACKWELL: 4}.get(at.major, 2)
    if at.major == HOPPER and version == 3 and head_dim > _WIDE_HEAD:
        version = 4
    is_wide = head_dim == value_dim == _WIDE_HEAD
    if version == 4 and is_wide and at.major in (10, 11):
        odd_block = not alone and (at.block_tokens or 0) % _FA4_PAGE_TOKENS
        if (
            at.is_soft_capped
            or is_quantized(at.kv_dtype)
            or odd_block
            or at.is_prefix_lm
            or at.dcp > 1
        ):
            return 2
    if version == 4 and at.major >= 10 and head_dim > 128:
        return 4 if is_wide or (head_dim, value_dim) == (192, 128) else 2
    return version


def _fa_sizes(head_dim: int, value_dim: int, kv_dtype: str, at: Situation) -> Sizes:
    version = _fa_version(head_dim, value_dim, at, alone=True)
    if at.major == HOPPER and kv_dtype in FP8_E4M3 and head_dim == 512 and version == 4:
        return Sizes(fixed=(64,))
    if head_dim == value_dim == _WIDE_HEAD and at.major in (10, 11) and version == 4:
        return Sizes(fixed=(_FA4_PAGE_TOKENS,))
    return _BY_16


def _uneven(layer: Layer, at: Situation) -> Kernel | None:
    """MiMo-V2's values are narrower than its keys; the model itself picks one of two kernels for them.

    FlashAttention's is not asked whether it knows the dtype: every narrow one takes a byte a value.
    """
    is_flash = at.capability >= (8, 0) and _fa_version(layer.head_dim, layer.value_dim, at) > 2
    dtypes = (*SIXTEEN_BIT, *FP8_E4M3)
    if is_flash and is_quantized(layer.kv_dtype):
        starts = (
            _fa_version(layer.head_dim, layer.head_dim, at) > 2 and layer.kv_dtype != "fp8_e5m2"
        )
    elif is_flash:
        starts = True
    else:
        needs_89 = layer.kv_dtype in FP8_E4M3
        starts = layer.kv_dtype in dtypes and (not needs_89 or at.capability >= (8, 9))
    name = "FLASH_ATTN_DIFFKV" if is_flash else "TRITON_ATTN_DIFFKV"
    return Kernel(name=name, sizes=_BY_16, general=_BY_16) if starts else None


def _flash_attention(layer: Layer, at: Situation) -> Kernel | None:
    if at.capability < (8, 0) or layer.head_dim % 8:
        return None
    if layer.head_dim > (512 if at.has_fa4 else _WIDE_HEAD):
        return None
    version = _fa_version(layer.head_dim, layer.value_dim, at)
    if is_quantized(layer.kv_dtype):
        takes_fp8 = {HOPPER: version == 3 or layer.head_dim == 512, BLACKWELL: version == 4}
        if layer.kv_dtype not in FP8_E4M3 or not takes_fp8.get(at.major, False):
            return None
    if at.is_prefix_lm and (version != 4 or is_quantized(layer.kv_dtype)):
        return None
    if at.has_sinks and at.major not in (HOPPER, BLACKWELL):
        return None
    general = _fa_sizes(at.model_head_dim, at.model_head_dim, at.kv_dtype, at)
    return Kernel(
        name="FLASH_ATTN",
        sizes=_fa_sizes(layer.head_dim, layer.value_dim, layer.kv_dtype, at),
        general=general,
        preferred=max(DEFAULT_BLOCK_TOKENS, general.smallest) if general.fixed else None,
    )


def _triton_flash(layer: Layer, at: Situation) -> Kernel | None:
    """Image tokens by Triton, the rest by FlashAttention; heads of 256 and 512 on Hopper."""
    if layer.head_dim not in (256, 512) or at.dcp > 1:
        return None
    kernel = _flash_attention(layer, at._replace(is_prefix_lm=False))
    return kernel and kernel._replace(name="TRITON_FLASH_ATTN", preferred=None)


def _triton_flashinfer(layer: Layer, at: Situation) -> Kernel | None:
    if layer.head_dim not in (256, 512) or at.dcp > 1 or _flashinfer(layer, at, mixed=True) is None:
        return None
    return Kernel(name="TRITON_FLASHINFER", sizes=Sizes(fixed=(64,)), general=Sizes(fixed=(64,)))


def _flashinfer(layer: Layer, at: Situation, *, mixed: bool = False) -> Kernel | None:
    if not at.has_flashinfer or not (8, 0) <= at.capability <= (12, 1):
        return None
    if layer.head_dim not in (64, 128, 256, 512) or (at.is_prefix_lm and not mixed):
        return None
    if layer.kv_dtype not in (*SIXTEEN_BIT, *FP8, *NVFP4):
        return None
    if layer.kv_dtype in NVFP4 and layer.head_dim == 64 and at.major != BLACKWELL:
        return None
    sizes = Sizes(fixed=(16, 32, 64))
    return Kernel(name="FLASHINFER", sizes=sizes, general=sizes)


def _triton(layer: Layer, at: Situation) -> Kernel | None:
    """fp8 is refused below compute capability 8.9 when the engine starts (0.26 and later)."""
    if layer.head_dim < 32 or at.dcp > 1:
        return None
    if layer.kv_dtype not in (*SIXTEEN_BIT, *FP8, *PER_TOKEN_HEAD):
        return None
    if layer.kv_dtype in FP8 and at.capability < (8, 9):
        return None
    return Kernel(name="TRITON_ATTN", sizes=_BY_16, general=_BY_16)


def _flex(layer: Layer, at: Situation) -> Kernel | None:
    if is_quantized(layer.kv_dtype) or at.dcp > 1 or at.has_sinks:
        return None
    return Kernel(name="FLEX_ATTENTION", sizes=_BY_16, general=_BY_16)


def _turboquant(layer: Layer, at: Situation) -> Kernel | None:
    if layer.kv_dtype not in TURBOQUANT or layer.has_window:
        return None
    if at.dcp > 1 or at.is_prefix_lm or at.has_sinks:
        return None
    sizes = Sizes(fixed=(16, 32, 64, 128))
    return Kernel(name="TURBOQUANT", sizes=sizes, general=sizes)
