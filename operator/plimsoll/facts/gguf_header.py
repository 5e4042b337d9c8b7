"""What stands in the header of a GGUF file?

Metadata and the list of tensors, read forward from any stream; the weights behind them are never read.
The format is that of ggml-org/llama.cpp docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, BinaryIO, Final

from plimsoll.facts.record import Record
from plimsoll.units import round_up

MetadataValue = int | float | bool | str | tuple[int | float | bool, ...] | None
"""A value; arrays of numbers come as tuples, None stands for an array that was passed over."""


class GgufError(ValueError):
    """The stream is not a whole GGUF header; the sentence says where it stopped making sense."""


class GgufTensor(Record):
    """One line of the tensor list."""

    name: str
    """For example blk.0.ffn_down.weight."""
    shape: tuple[int, ...]
    """Elements along each axis, innermost first as in the file."""
    type: str
    """ggml's name of the element type: F32, Q6_K, MXFP4."""
    bytes: int
    """Bytes of its data."""


class GgufHeader(Record):
    """Everything before the weights."""

    version: int
    """Version of the format."""
    metadata: dict[str, MetadataValue]
    """Keys as in the file, e.g. llama.block_count."""
    tensors: tuple[GgufTensor, ...]
    """In the file's order."""
    data_offset: int
    """Where the weights begin, in bytes."""
    alignment: int
    """Each tensor begins at a multiple of this, in bytes."""

    @property
    def file_bytes(self) -> int:
        """How long the file has to be for all its tensors; a shorter one was cut off."""
        return self.data_offset + sum(round_up(t.bytes, self.alignment) for t in self.tensors)

    @property
    def architecture(self) -> str:
        """general.architecture, or words that stand for its absence."""
        return str(self.metadata.get("general.architecture") or "none named")


def read_gguf(stream: BinaryIO) -> GgufHeader:
    """Read the header. Raises GgufError that names the file and the place where it ends or errs."""
    reader = _Reader(stream)
    if (magic := reader.take(4, "the magic")) != b"GGUF":
        raise reader.error(f"it begins with {magic!r} and not with b'GGUF'")
    version = reader.number("<I", "the version")
    if version not in (2, 3):
        raise reader.error(f"it has version {version:#x}; little-endian versions 2 and 3 are read")
    tensor_count = reader.count("the number of tensors")
    metadata_count = reader.count("the number of metadata keys")
    metadata: dict[str, MetadataValue] = {}
    for index in range(metadata_count):
        key = reader.text(f"metadata key {index + 1} of {metadata_count}")
        metadata[key] = reader.value(reader.number("<I", key), key)
    alignment = metadata.get("general.alignment", 32)  # ggml/include/gguf.h GGUF_DEFAULT_ALIGNMENT
    if not isinstance(alignment, int) or alignment < 1:
        raise reader.error(f"general.alignment is {alignment!r}; it must be a whole number")
    tensors = tuple(
        _tensor(reader, f"tensor {index + 1} of {tensor_count}") for index in range(tensor_count)
    )
    return GgufHeader(
        version=version,
        metadata=metadata,
        tensors=tensors,
        data_offset=round_up(reader.position, alignment),
        alignment=alignment,
    )


def joined(parts: Sequence[GgufHeader]) -> GgufHeader:
    """The headers of all files of a split model as one. Raises GgufError when a part is missing.

    The first part has the model's metadata; each has split.no and split.count
    (ggml-org/llama.cpp tools/gguf-split).
    """
    if not parts:
        raise GgufError("no GGUF file was given.")
    numbered = sorted(parts, key=lambda part: _number(part, "split.no"))
    expected = _number(numbered[0], "split.count") or 1
    present = {_number(part, "split.no") for part in numbered}
    if missing := sorted(set(range(expected)) - present):
        names = ", ".join(str(number + 1) for number in missing)
        raise GgufError(f"the model is split in {expected} files; part {names} is missing.")
    tensors = tuple(tensor for part in numbered for tensor in part.tensors)
    return numbered[0].model_copy(update={"tensors": tensors})


def _number(header: GgufHeader, key: str) -> int:
    value = header.metadata.get(key)
    return value if isinstance(value, int) else 0


def _tensor(reader: _Reader, place: str) -> GgufTensor:
    name = reader.text(place)
    dimensions = reader.number("<I", name)
    if dimensions > _MOST_DIMENSIONS:
        raise reader.error(f"{name} has {dimensions} dimensions, more than {_MOST_DIMENSIONS}")
    shape = tuple(reader.number("<Q", name) for _ in range(dimensions))
    number = reader.number("<I", name)
    if number not in TYPES:
        raise reader.error(f"{name} has element type {number}, which is not in our table")
    reader.take(8, name)  # its offset: sizes follow from shape and type
    type_name, block, block_bytes = TYPES[number]
    row = shape[0] if shape else 1
    if row % block:
        raise reader.error(f"{name} has rows of {row} elements, not whole {type_name} blocks")
    return GgufTensor(
        name=name, shape=shape, type=type_name, bytes=prod(shape) // block * block_bytes
    )


# Bounds that no real file comes near; they stop a broken one from being read as gigabytes of nothing.
_MOST_DIMENSIONS: Final = 4  # ggml/include/ggml.h GGML_MAX_DIMS
_MOST_ITEMS: Final = 2**20
_LONGEST_ARRAY: Final = 2**28
_LONGEST_TEXT: Final = 2**26
_DEEPEST_ARRAY: Final = 8
_KEPT_ARRAY: Final = 4096  # per-layer lists are kept, vocabularies are passed over
_STEP: Final = 2**20

_TEXT: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""ggml/include/gguf.h gguf_type: number in the file to struct format."""


class _Reader:
    """Reads forward and knows where it is."""

    def __init__(self, stream: BinaryIO) -> None:
        self._read = stream.read
        self._name = str(getattr(stream, "name", "the GGUF stream"))
        self.position = 0

    def error(self, what: str) -> GgufError:
        return GgufError(f"{self._name}: {what} (at byte {self.position}).")

    def take(self, size: int, place: str) -> bytes:
        found = self._read(size)
        self.position += len(found)
        if len(found) < size:
            raise self.error(f"the file ends inside {place}; it was cut off while being copied")
        return found

    def number(self, form: str, place: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form), place))[0]

    def count(self, place: str) -> int:
        found: int = self.number("<Q", place)
        if found > _MOST_ITEMS:
            raise self.error(f"{place} is {found}, which no model has")
        return found

    def text(self, place: str) -> str:
        length: int = self.number("<Q", place)
        if length > _LONGEST_TEXT:
            raise self.error(f"{place} is a text of {length} bytes, which no model has")
        return self.take(length, place).decode("utf-8", errors="replace")

    def skip(self, size: int, place: str) -> None:
        while size > 0:
            size -= len(self.take(min(size, _STEP), place))

    def value(self, kind: int, key: str) -> MetadataValue:
        if kind == _TEXT:
            return self.text(key)
        if kind == _ARRAY:
            return self._array(key)
        scalar: int | float | bool = self.number(self._form(kind, key), key)
        return scalar

    def _form(self, kind: int, key: str) -> str:
        if kind not in _SCALARS:
            raise self.error(f"{key} has value type {kind}, which the format does not have")
        return _SCALARS[kind]

    def _array(self, key: str, depth: int = 1) -> MetadataValue:
        kind: int = self.number("<I", key)
        length: int = self.number("<Q", key)
        if length > _LONGEST_ARRAY:
            raise self.error(f"{key} has {length} items, which no model has")
        if kind == _TEXT:
            for _ in range(length):
                self.skip(self.number("<Q", key), key)
            return None
        if kind == _ARRAY:
            if depth == _DEEPEST_ARRAY:
                raise self.error(f"{key} has lists in lists, deeper than any model has")
            for _ in range(length):
                self._array(key, depth + 1)
            return None
        form = self._form(kind, key)
        if length > _KEPT_ARRAY:
            self.skip(length * struct.calcsize(form), key)
            return None
        numbers: tuple[int | float | bool, ...] = struct.unpack(
            f"<{length}{form[1]}", self.take(length * struct.calcsize(form), key)
        )
        return numbers


TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}
"""Number in the file: name, elements in a block, bytes of a block. GGML_QUANT_SIZES of
ggml-org/llama.cpp gguf-py/gguf/constants.py (b10451); gaps are types that were removed."""

FILE_TYPES: Final = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
}
"""general.file_type: LlamaFileType of gguf-py/gguf/constants.py (b10451)."""
