"""How does a checkpoint store its weights, and in what does it want its KV cache?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.facts.hf_families import text_config
from plimsoll.facts.hf_fields import Config
from plimsoll.facts.model import Quantization


def quantization_of(config: Config) -> Quantization | None:
    """How the checkpoint stores its weights, from quantization_config; None for the model's dtype."""
    found = _quantization(config)
    if found is None:
        return None
    method = str(found.get("quant_method") or "unknown")
    return Quantization(method=method, bits=_bits(method, found))


def kv_dtype_of(config: Config) -> str:
    """What the checkpoint makes of `--kv-cache-dtype auto`.

    vLLM 0.33.0 vllm/utils/torch_utils.py (modelopt) and layers/attention/attention.py
    (compressed-tensors); what it does not know it takes for auto.
    """
    found = _quantization(config)
    if found is None:
        return "auto"
    method = str(found.get("quant_method") or "")
    inner = found.get("quantization")
    parts = (inner, found) if isinstance(inner, Mapping) else (found,)
    if not method.startswith("modelopt"):
        return "fp8" if isinstance(found.get("kv_cache_scheme"), Mapping) else "auto"
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    wanted = next((part[name] for name in names for part in parts if part.get(name)), None)
    if isinstance(wanted, Mapping):
        if wanted.get("type") != "float":
            return "auto"
        if wanted.get("num_bits") == 8 and wanted.get("dynamic") is False:
            return "fp8_e4m3"
        return "nvfp4" if wanted.get("num_bits") == 4 else "auto"
    return _MODELOPT_KV.get(str(wanted).lower(), "auto")


def _quantization(config: Config) -> Mapping[str, Any] | None:
    for part in (config, text_config(config)):
        for name in ("quantization_config", "compression_config"):
            if isinstance(found := part.get(name), Mapping):
                return found
    return None


_MODELOPT_KV: Final = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
"""vLLM 0.33.0 vllm/utils/torch_utils.py."""


_ALGORITHM_BITS: Final = {"FP8": 8, "INT8_SQ": 8, "NVFP4": 4, "W4A8_AWQ": 4, "W4A16_AWQ": 4}
"""modelopt's quant_algo (nvidia-modelopt 0.37)."""


_METHOD_BITS: Final = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4}
"""Methods with one width (vLLM 0.33.0 vllm/model_executor/layers/quantization)."""


def _bits(method: str, found: Mapping[str, Any]) -> int | None:
    """The width of a weight where the checkpoint has only one."""
    if isinstance(bits := found.get("bits"), int):
        return bits
    if isinstance(groups := found.get("config_groups"), Mapping):
        inner = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        widths = {entry.get("num_bits") for entry in inner if isinstance(entry, Mapping)}
        only = widths.pop() if len(widths) == 1 else None
        return only if isinstance(only, int) else None
    if found.get("quant_algo"):
        return _ALGORITHM_BITS.get(str(found["quant_algo"]).upper())
    if method == "bitsandbytes":
        return 4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else None
    return _METHOD_BITS.get(method)
