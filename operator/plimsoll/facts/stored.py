"""How many bytes does a checkpoint take for one matrix, by its quantization_config?

Packed weights, their scales and zeros, and the modules that stay as they were. Sizes are those of vLLM
0.33.0's parameters (model_executor/layers/quantization), which are the checkpoint's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from plimsoll.units import ceil_div

DTYPE_BYTES: Final = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4}

Size = Callable[[int, int], int]
"""Bytes of a matrix of so many rows (outputs) and columns (inputs)."""


class Stored(NamedTuple):
    """What a checkpoint does with its matrices."""

    plain_bytes: int
    """Bytes of a value that is not quantised."""
    packed: Size | None = None
    """Bytes of a quantised matrix; None when nothing is."""
    kept: tuple[re.Pattern[str], ...] = ()
    """Modules that stay as they were."""
    only_experts: bool = False
    """Whether routed experts alone are quantised (MXFP4 of gpt-oss)."""

    def matrix(self, module: str, rows: int, columns: int, *, is_expert: bool = False) -> int:
        """Bytes of one matrix of this module, scales and zeros included, bias not."""
        kept = self.packed is None or (self.only_experts and not is_expert)
        if kept or any(pattern.search(module) for pattern in self.kept):
            return rows * columns * self.plain_bytes
        assert self.packed is not None
        return self.packed(rows, columns)


def stored(quantization: Mapping[str, Any] | None, dtype: str) -> Stored | None:
    """From a quantization_config and the model's dtype; None for a method whose sizes we do not know."""
    plain = DTYPE_BYTES.get(dtype)
    if plain is None:
        return None
    if not quantization:
        return Stored(plain_bytes=plain)
    method = str(quantization.get("quant_method", ""))
    packed = _size(method, quantization)
    if packed is None:
        return None
    return Stored(
        plain_bytes=plain,
        packed=packed,
        kept=tuple(_pattern(name) for name in _kept_names(quantization)),
        only_experts=method == "mxfp4",
    )


def _size(method: str, quantization: Mapping[str, Any]) -> Size | None:
    if method == "fp8":
        block = quantization.get("weight_block_size")
        return _blocks(int(block[0]), int(block[1])) if block else _per_row_scale(8)
    if method == "mxfp4":
        return lambda rows, columns: rows * ceil_div(columns, 2) + rows * ceil_div(columns, 32)
    if method in ("awq", "gptq"):
        group = int(quantization.get("group_size") or 128)
        return _groups(int(quantization.get("bits") or 4), group)
    if method == "modelopt":
        algorithm = str(quantization.get("quant_algo", "")).upper()
        return {"FP8": _per_tensor_scale, "NVFP4": _nvfp4}.get(algorithm)
    if method == "compressed-tensors":
        return _compressed(quantization)
    return None


def _compressed(quantization: Mapping[str, Any]) -> Size | None:
    """One scheme for all, as llm-compressor writes it; several are not guessed at."""
    groups = quantization.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        return None
    weights = next(iter(groups.values())).get("weights") or {}
    bits, group = int(weights.get("num_bits") or 0), weights.get("group_size")
    match weights.get("strategy"):
        case "channel":
            return _per_row_scale(bits)
        case "tensor":
            return _per_tensor_scale if bits == 8 else None
        case "block":
            rows, columns = weights.get("block_structure") or (128, 128)
            return _blocks(int(rows), int(columns))
        case "group" | "tensor_group" if weights.get("type") == "float":
            return _nvfp4
        case "group" if group:
            return _groups(bits, int(group), zeros=not weights.get("symmetric", True))
    return None


def _blocks(block_rows: int, block_columns: int) -> Size:
    def size(rows: int, columns: int) -> int:
        return rows * columns + 4 * ceil_div(rows, block_rows) * ceil_div(columns, block_columns)

    return size


def _per_row_scale(bits: int) -> Size:
    return lambda rows, columns: rows * columns * bits // 8 + 4 * rows


def _per_tensor_scale(rows: int, columns: int) -> int:
    return rows * columns + 8


def _nvfp4(rows: int, columns: int) -> int:
    return rows * columns // 2 + rows * columns // 16 + 8


def _groups(bits: int, group: int, *, zeros: bool = True) -> Size:
    def size(rows: int, columns: int) -> int:
        groups = ceil_div(columns, group)
        zeros_bytes = ceil_div(rows * groups * bits, 8) if zeros else 0
        return rows * columns * bits // 8 + 2 * rows * groups + zeros_bytes

    return size


def _kept_names(quantization: Mapping[str, Any]) -> list[str]:
    for key in ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"):
        if names := quantization.get(key):
            return [str(name) for name in names]
    return []


_BEFORE_LAYERS: Final = re.compile(r"^.*?(?=layers\\?\.)")


def _pattern(name: str) -> re.Pattern[str]:
    """A name, a shell pattern or `re:` and an expression, without what leads up to `layers.`"""
    if name.startswith("re:"):
        return re.compile(name[3:])
    short = _BEFORE_LAYERS.sub("", name)
    if "*" in short:
        translated = re.escape(short).replace(r"\*", ".*")
        return re.compile(f"(?:^|\\.){translated}")
    return re.compile(f"(?:^|\\.){re.escape(short)}(?:\\.|$)")
