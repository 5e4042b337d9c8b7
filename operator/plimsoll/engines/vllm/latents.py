"""Which kernels read latents (MLA), their indexes and DeepSeek-V4's compressed ones, on which card?

Source: vLLM 0.33.0 platforms/cuda.py (the lists), v1/attention/backends/mla and models/deepseek_v4.
"""

from typing import Final, NamedTuple

from plimsoll.engines.vllm import kernels
from plimsoll.engines.vllm.kernels import (
    FP8_E4M3,
    SIXTEEN_BIT,
    Kernel,
    Layer,
    Situation,
    Sizes,
    Taker,
)
from plimsoll.engines.vllm.kv_dtypes import is_quantized

_BY_16: Final = Sizes(step=16)
_NO_ROPE_WIDTH: Final = 512
"""Latents without a rotary part (GLM-5 Next)."""


class _Latent(NamedTuple):
    """A kernel for latents: on which generations, for which dtypes and widths."""

    name: str
    sizes: Sizes
    majors: tuple[int, ...]
    dtypes: tuple[str, ...]
    widths: tuple[int, ...] = (320, 512, 576)
    needs_flashinfer: bool = False
    takes_dcp: bool = True
    stride_rows: int | None = None


_EVERY: Final = (7, 8, 9, 10, 11, 12)
_HALF_OR_FP8: Final = (*SIXTEEN_BIT, *FP8_E4M3)
_BFLOAT: Final = ("auto", "bfloat16")
_BY_64: Final = Sizes(step=64)
_FLASH_ATTN_MLA: Final = _Latent("FLASH_ATTN_MLA", _BY_16, (9,), SIXTEEN_BIT)
_FLASHMLA: Final = _Latent("FLASHMLA", Sizes(fixed=(64,)), (9,), _HALF_OR_FP8)
_FLASHINFER_MLA: Final = _Latent(
    "FLASHINFER_MLA", Sizes(fixed=(32, 64)), (10,), _HALF_OR_FP8, needs_flashinfer=True
)
_CUTLASS_MLA: Final = _Latent("CUTLASS_MLA", Sizes(fixed=(128,)), (10,), _HALF_OR_FP8)
_TRITON_MLA: Final = _Latent("TRITON_MLA", _BY_16, _EVERY, _HALF_OR_FP8, widths=())

_SPARSE_WIDTHS: Final = (512, 576)
_FLASH_ATTN_MLA_SPARSE: Final = _Latent(
    "FLASH_ATTN_MLA_SPARSE", _BY_64, (9,), SIXTEEN_BIT, widths=(), takes_dcp=False, stride_rows=1
)
_FLASH_ATTN_MLA_SPARSE_FA4: Final = _Latent(
    "FLASH_ATTN_MLA_SPARSE_FA4",
    _BY_64,
    (10,),
    _BFLOAT,
    widths=(576,),
    needs_flashinfer=True,
    stride_rows=64,
)
_FLASHMLA_SPARSE: Final = _Latent(
    "FLASHMLA_SPARSE",
    _BY_64,
    (9, 10),
    (*_BFLOAT, "fp8", "fp8_ds_mla", "nvfp4_ds_mla"),
    widths=_SPARSE_WIDTHS,
    stride_rows=1,
)
_FLASHINFER_MLA_SPARSE: Final = _Latent(
    "FLASHINFER_MLA_SPARSE",
    Sizes(step=32),
    (10,),
    _HALF_OR_FP8,
    widths=_SPARSE_WIDTHS,
    stride_rows=32,
)
_FLASHINFER_MLA_SPARSE_SM90: Final = _Latent(
    "FLASHINFER_MLA_SPARSE_SM90",
    _BY_64,
    (9,),
    (*_BFLOAT, *FP8_E4M3),
    widths=_SPARSE_WIDTHS,
    needs_flashinfer=True,
    stride_rows=1,
)
_FLASHINFER_MLA_SPARSE_SM120: Final = _Latent(
    "FLASHINFER_MLA_SPARSE_SM120",
    _BY_64,
    (12,),
    ("auto", *FP8_E4M3, "fp8_ds_mla"),
    widths=_SPARSE_WIDTHS,
    needs_flashinfer=True,
    stride_rows=64,
)
_FEW_HEADS: Final = 16
"""Query heads on a card up to which FlashMLA, which pads them, comes last on compute capability 10."""


def takers(layer: Layer, at: Situation) -> tuple[Taker, ...]:
    """The card's list of kernels for latents."""
    rows = _sparse(layer, at) if at.is_sparse else _dense(at)
    return tuple(_taker(row) for row in rows)


def _dense(at: Situation) -> tuple[_Latent, ...]:
    match at.major:
        case kernels.BLACKWELL:
            return (_FLASHINFER_MLA, _CUTLASS_MLA, _TRITON_MLA)
        case kernels.BLACKWELL_RTX:
            return (_TRITON_MLA,)
        case _:
            return (_FLASH_ATTN_MLA, _FLASHMLA, _TRITON_MLA)


def _sparse(layer: Layer, at: Situation) -> tuple[_Latent, ...]:
    match at.major:
        case kernels.BLACKWELL if is_quantized(layer.kv_dtype):
            return (_FLASHINFER_MLA_SPARSE, _FLASHMLA_SPARSE)
        case kernels.BLACKWELL if at.query_heads <= _FEW_HEADS:
            return (_FLASH_ATTN_MLA_SPARSE_FA4, _FLASHINFER_MLA_SPARSE, _FLASHMLA_SPARSE)
        case kernels.BLACKWELL:
            return (_FLASHMLA_SPARSE, _FLASHINFER_MLA_SPARSE)
        case kernels.BLACKWELL_RTX:
            return (_FLASHINFER_MLA_SPARSE_SM120,)
        case _ if layer.head_dim == _NO_ROPE_WIDTH:
            return (_FLASHINFER_MLA_SPARSE_SM90, _FLASH_ATTN_MLA_SPARSE, _FLASHMLA_SPARSE)
        case _:
            return (_FLASH_ATTN_MLA_SPARSE, _FLASHMLA_SPARSE, _FLASHINFER_MLA_SPARSE_SM90)


def _taker(row: _Latent) -> Taker:
    def take(layer: Layer, at: Situation) -> Kernel | None:
        is_narrow = is_quantized(layer.kv_dtype)
        if (
            at.major not in row.majors
            or layer.kv_dtype not in row.dtypes
            or (row.widths and layer.head_dim not in row.widths)
            or (row.needs_flashinfer and not at.has_flashinfer)
            or (at.dcp > 1 and not row.takes_dcp)
            or (row.name == "TRITON_MLA" and is_narrow and at.capability < (8, 9))
        ):
            return None
        kernel = Kernel(
            name=row.name, sizes=row.sizes, general=row.sizes, stride_rows=row.stride_rows
        )
        return _flashmla(kernel, layer, at) if row is _FLASHMLA_SPARSE else kernel

    return take


def _flashmla(kernel: Kernel, layer: Layer, at: Situation) -> Kernel | None:
    """Narrow rows are read in pages of 64: on compute capability 10 those are the blocks."""
    is_narrow = is_quantized(layer.kv_dtype)
    on_blackwell = at.major == kernels.BLACKWELL
    if (
        (layer.kv_dtype == "nvfp4_ds_mla" and not on_blackwell)
        or (at.dcp > 1 and not is_narrow)
        or (layer.head_dim == _NO_ROPE_WIDTH and (on_blackwell or layer.kv_dtype == "fp8"))
    ):
        return None
    if not is_narrow:
        return kernel
    if on_blackwell:
        return kernel._replace(sizes=Sizes(fixed=(64,)))
    return kernel._replace(stride_rows=None, kernel_tokens=64)


INDEXER: Final = Kernel(
    name="DEEPSEEK_V32_INDEXER", sizes=Sizes(fixed=(64,)), general=Sizes(fixed=(64,))
)
V4_INDEXER: Final = Kernel(
    name="DEEPSEEK_V4_INDEXER",
    sizes=Sizes(fixed=(256,)),
    general=Sizes(fixed=(256,)),
    is_block_outermost=True,
)
V4_LATENT: Final = Kernel(
    name="FLASHMLA_SPARSE_DSV4", sizes=Sizes(fixed=(256,)), general=Sizes(fixed=(256,))
)
V4_WINDOW: Final = Kernel(
    name="DEEPSEEK_SPARSE_SWA", sizes=Sizes(step=32), general=Sizes(step=32), preferred=256
)
V4_COMPRESSOR: Final = Kernel(name="CompressorBackend", sizes=Sizes(step=1), general=Sizes(step=1))
V4_MAJORS: Final = (9, 10, 12)
"""Compute capabilities with a kernel for DeepSeek-V4 (0.33.0, models/deepseek_v4/nvidia)."""
