"""What does a checkpoint say of how its weights and its cache are stored?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_quantization import kv_dtype_of, quantization_of
from plimsoll.facts.model import Quantization


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3"}, Quantization(method="fp8", bits=8)),
        ({"quant_method": "mxfp4"}, Quantization(method="mxfp4", bits=4)),
        ({"quant_method": "awq", "bits": 4}, Quantization(method="awq", bits=4)),
        ({"quant_method": "gptq", "bits": 3}, Quantization(method="gptq", bits=3)),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8}}},
            },
            Quantization(method="compressed-tensors", bits=8),
        ),
        (
            {
                "quant_method": "modelopt",
                "config_groups": {
                    "a": {"weights": {"num_bits": 4}},
                    "b": {"weights": {"num_bits": 8}},
                },
            },
            Quantization(method="modelopt", bits=None),
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            Quantization(method="modelopt", bits=4),
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            Quantization(method="bitsandbytes", bits=4),
        ),
        ({"quant_method": "something-new"}, Quantization(method="something-new", bits=None)),
        ({"config_groups": {"a": None, "b": {"weights": None}}}, Quantization(method="unknown")),
    ],
)
def test_the_width_of_weights_is_said_only_where_there_is_one(
    config: dict[str, Any], expected: Quantization
) -> None:
    assert expected == quantization_of({"quantization_config": config})


def test_the_language_models_part_may_say_it_and_older_files_call_it_compression() -> None:
    inner = {"text_config": {"quantization_config": {"quant_method": "fp8"}}}
    assert Quantization(method="fp8", bits=8) == quantization_of(inner)
    older = {"compression_config": {"quant_method": "compressed-tensors"}}
    assert Quantization(method="compressed-tensors") == quantization_of(older)
    assert quantization_of({}) is None


EIGHT: dict[str, Any] = {"type": "float", "num_bits": 8, "dynamic": False}
FOUR: dict[str, Any] = {"type": "float", "num_bits": 4, "dynamic": False}


@pytest.mark.parametrize(
    ("found", "dtype"),
    [
        ({"quant_method": "modelopt", "kv_cache_scheme": EIGHT}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "kv_cache_scheme": FOUR}, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {**EIGHT, "dynamic": True}}, "auto"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {**EIGHT, "type": "int"}}, "auto"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "SOMETHING"}, "auto"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
        ({"quant_method": "modelopt"}, "auto"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": EIGHT}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, "auto"),
        ({"quant_method": "fp8"}, "auto"),
    ],
)
def test_what_a_checkpoint_wants_its_cache_in(found: dict[str, Any], dtype: str) -> None:
    assert dtype == kv_dtype_of({"quantization_config": found})


def test_a_checkpoint_that_says_nothing_follows_the_model() -> None:
    assert "auto" == kv_dtype_of({})
