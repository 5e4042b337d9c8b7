"""How do we make a GGUF file that is all header, with the shapes of a real one?"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

NUMBERS = {"F32": 0, "F16": 1, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "I8": 24}
Value = bool | int | float | str | Sequence[int] | Sequence[bool] | Sequence[str]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def typed(value: Value) -> bytes:
    """A metadata value with its type in front, as llama.cpp's converter would choose it."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value) if value < 2**32 else struct.pack("<IQ", 10, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + text(value)
    return struct.pack("<I", 9) + array(value)


def array(values: Sequence[int] | Sequence[bool] | Sequence[str]) -> bytes:
    first = values[0] if values else 0
    if isinstance(first, str):
        items = b"".join(text(str(item)) for item in values)
        return struct.pack("<IQ", 8, len(values)) + items
    kind, form = (7, "?") if isinstance(first, bool) else (5, "i")
    return struct.pack("<IQ", kind, len(values)) + struct.pack(f"<{len(values)}{form}", *values)


def gguf(
    metadata: Mapping[str, Value],
    tensors: Sequence[tuple[str, Sequence[int], str]],
    *,
    version: int = 3,
) -> bytes:
    """The header of a file with these keys and (name, shape, type) tensors."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    keys = b"".join(text(key) + typed(value) for key, value in metadata.items())
    infos = b"".join(
        text(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", NUMBERS[kind], 0)
        for name, shape, kind in tensors
    )
    return head + keys + infos
