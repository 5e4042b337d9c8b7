"""Which kernels read plain heads through an index that picks whole blocks of them (MiniMax-M3)?

Source: vLLM 0.33.0 models/minimax_m3: common/{sparse_attention,indexer}.py, nvidia/model.py.
"""

from typing import Final

from plimsoll.engines.vllm.kernels import (
    BLACKWELL,
    FP8_E4M3,
    SIXTEEN_BIT,
    Kernel,
    Layer,
    Situation,
    Sizes,
)

_WIDTH: Final = 128
"""Heads and index keys are this wide."""
_PAGE: Final = Sizes(fixed=(128,))
"""The index picks blocks of 128 tokens, and each is one page."""
_DTYPES: Final = (*SIXTEEN_BIT, *FP8_E4M3, "fp8_e5m2")
INDEX_DTYPE: Final = "bfloat16"
"""Index keys stay so, whatever the cache's dtype."""
INDEX: Final = Kernel(name="MINIMAX_M3_SPARSE_INDEXER", sizes=_PAGE, general=_PAGE)


def heads(layer: Layer, at: Situation) -> Kernel | None:
    """The kernel of a layer whose blocks an index picks; None when the engine would not start."""
    dtypes = (*_DTYPES, "nvfp4") if at.major == BLACKWELL else _DTYPES
    is_taken = layer.kv_dtype in dtypes and layer.head_dim == layer.value_dim == _WIDTH
    if not is_taken or at.dcp > 1:
        return None
    return Kernel(name="MINIMAX_M3_SPARSE", sizes=_PAGE, general=_PAGE)
