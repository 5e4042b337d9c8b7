"""Element types from the bytes of a block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.catalog.models import find_gguf
from plimsoll.engines.llama_cpp import blocks, mixes

SHAPES = {
    "attn_norm.weight": (4096,),
    "attn_q.weight": (4096, 4096),
    "attn_v.weight": (4096, 1024),
    "ffn_up.weight": (4096, 14336),
    "ffn_down.weight": (14336, 4096),
}


def size_of(kinds: dict[str, str]) -> int:
    return sum(mixes.size_of(shape, kinds.get(name, "F32")) or 0 for name, shape in SHAPES.items())


@given(
    mix=st.sampled_from(
        [("Q3_K", "Q5_K"), ("Q4_K", "Q5_K"), ("Q4_K", "Q6_K"), ("Q5_K", "Q6_K"), ("Q6_K", "Q8_0")]
    ),
    down=st.booleans(),
    value=st.booleans(),
)
def test_the_bytes_tell_the_types(mix: tuple[str, str], *, down: bool, value: bool) -> None:
    base, better = mix
    kinds = {name: base for name in SHAPES if name != "attn_norm.weight"}
    kinds |= {"ffn_down.weight": better} if down else {}
    kinds |= {"attn_v.weight": better} if value else {}
    found = mixes.mixed(SHAPES, size_of(kinds))
    assert found is not None
    assert {**kinds, "attn_norm.weight": "F32"} == {tensor.name: tensor.type for tensor in found}


def test_bytes_that_no_mix_gives_tell_nothing() -> None:
    assert mixes.mixed(SHAPES, 12_345_678) is None


def test_rows_that_are_no_multiple_of_256_fall_back() -> None:
    shapes = {"attn_q.weight": (640, 1024)}
    (found,) = mixes.mixed(shapes, 640 * 1024 // 32 * 22) or ()
    assert "Q5_0" == found.type


@pytest.mark.parametrize("quantization", ["Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16"])
def test_the_catalogues_files_are_understood(quantization: str) -> None:
    gguf = find_gguf("meta-llama/Llama-3.3-70B-Instruct", quantization)
    assert gguf is not None
    assert blocks.is_typed(gguf)
    assert "rope_freqs.weight" in blocks.outside_of(gguf)
