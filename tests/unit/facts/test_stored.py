"""Does a matrix take the bytes that the quantisation says?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.stored import stored

COMPRESSED = {"quant_method": "compressed-tensors"}


def _scheme(**weights: Any) -> dict[str, Any]:
    return {**COMPRESSED, "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (None, 2 * 256 * 512),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 256 * 512 + 4 * 2 * 4),
        ({"quant_method": "fp8"}, 256 * 512 + 4 * 256),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 65536 + 2 * 1024 + 512),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 65536 + 8192 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 256 * 512 + 8),
        (_scheme(num_bits=8, strategy="channel"), 256 * 512 + 4 * 256),
        (_scheme(num_bits=4, strategy="group", group_size=128, type="int"), 65536 + 2048),
        (_scheme(num_bits=4, strategy="tensor_group", type="float"), 65536 + 8192 + 8),
    ],
)
def test_a_matrix_takes_its_values_scales_and_zeros(
    quantization: dict[str, Any] | None, expected: int
) -> None:
    store = stored(quantization, "bfloat16")
    assert store is not None
    assert expected == store.matrix("layers.0.mlp.up_proj", 256, 512)


@pytest.mark.parametrize(
    ("kept", "module"),
    [
        ("lm_head", "lm_head"),
        ("model.layers.0.self_attn.q_proj", "layers.0.self_attn.q_proj"),
        ("model.language_model.layers.*.self_attn*", "layers.7.self_attn.k_proj"),
        ("re:.*self_attn.*", "layers.7.self_attn.k_proj"),
    ],
)
def test_a_module_that_is_left_as_it_was_takes_two_bytes(kept: str, module: str) -> None:
    store = stored({"quant_method": "fp8", "ignore": [kept]}, "bfloat16")
    assert store is not None
    assert 2 * 64 * 64 == store.matrix(module, 64, 64)
    assert 2 * 64 * 64 > store.matrix("layers.11.mlp.up_proj", 64, 64)


def test_mxfp4_packs_experts_alone() -> None:
    store = stored({"quant_method": "mxfp4"}, "bfloat16")
    assert store is not None
    assert 64 * 32 + 64 * 2 == store.matrix("layers.0.mlp.experts.0", 64, 64, is_expert=True)
    assert 2 * 64 * 64 == store.matrix("layers.0.self_attn.q_proj", 64, 64)


def test_a_method_whose_sizes_we_do_not_know_is_not_guessed_at() -> None:
    assert stored({"quant_method": "exl3"}, "bfloat16") is None
    assert stored(None, "float8") is None
