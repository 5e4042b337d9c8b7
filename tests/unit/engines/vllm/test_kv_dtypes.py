"""Does a token take as many bytes in each dtype as vLLM gives it?"""

from __future__ import annotations

import pytest

from plimsoll.engines.vllm import kv_dtypes
from plimsoll.engines.vllm.kv_dtypes import Cell


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [
        ("auto", Cell(1, 512)),
        ("bfloat16", Cell(1, 512)),
        ("fp8", Cell(1, 256)),
        ("fp8_e5m2", Cell(1, 256)),
        ("int8_per_token_head", Cell(1, 264)),
        ("fp8_per_token_head", Cell(1, 264)),
        ("int4_per_token_head", Cell(1, 136)),
        ("nvfp4", Cell(2, 72)),
        ("turboquant_k8v4", Cell(1, 196)),
        ("turboquant_4bit_nc", Cell(1, 134)),
        ("turboquant_k3v4_nc", Cell(1, 118)),
        ("turboquant_3bit_nc", Cell(1, 102)),
    ],
)
def test_a_head_of_128(dtype: str, cell: Cell) -> None:
    assert cell == kv_dtypes.packed_cell(dtype, "bfloat16", 128, 128)


def test_a_latent_with_its_scales_in_one_piece() -> None:
    assert [656, 352] == [
        kv_dtypes.packed_cell(dtype, "bfloat16", 576, 0).bytes
        for dtype in ("fp8_ds_mla", "nvfp4_ds_mla")
    ]
    assert 1152 == kv_dtypes.packed_cell("auto", "bfloat16", 576, 0).bytes


def test_auto_follows_the_model_and_everything_narrow_is_stored_in_bytes() -> None:
    assert ["float16", "float16", "uint8", "int8"] == [
        kv_dtypes.stored_as(dtype, "float16")
        for dtype in ("auto", "float16", "fp8", "int8_per_token_head")
    ]
    assert [2, 4, 1] == [
        kv_dtypes.bytes_per_value(dtype, model)
        for dtype, model in (("auto", "bfloat16"), ("auto", "float32"), ("fp8", "bfloat16"))
    ]


def test_every_known_dtype_has_a_size() -> None:
    for dtype in kv_dtypes.KNOWN:
        assert kv_dtypes.packed_cell(dtype, "bfloat16", 128, 128).bytes > 0
