"""How many bytes does one token's key and value take in each KV dtype?

Source: vLLM 0.33.0 config/cache.py (the names), v1/kv_cache_interface.py (plain layouts),
v1/attention/backends (triton_attn, flashinfer, turboquant_attn: layouts that a kernel packs itself)
and model_executor/layers/attention/mla_attention.py (latents with their scales in one piece).
"""

from typing import Final, NamedTuple

from plimsoll.units import ceil_div, round_up

_BYTES_OF_DTYPE: Final = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4}
FP8: Final = ("fp8", "fp8_e4m3", "fp8_e5m2")
"""One byte a value and a scale per tensor, which is a few floats per layer."""
PER_TOKEN_HEAD: Final = ("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head")
"""One fp32 scale per token and head stands behind the keys, another behind the values."""
SCALE_BYTES: Final = 4
NVFP4: Final = ("nvfp4", "nvfp4_4over6")
"""Two values in a byte and an fp8 scale for each 16 of them."""
TURBOQUANT: Final = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
"""Bits of a key and of a value (vLLM 0.33.0 layers/quantization/turboquant/config.py)."""
DS_MLA_BYTES: Final = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""One token's latent of DeepSeek-V3.2: 512 fp8, four fp32 scales and 64 bf16 rotary values, or the
same in fp4."""
DS_V4_BYTES: Final = 584
"""One latent of DeepSeek-V4: 448 fp8, 64 bf16 rotary values, 8 bytes of scales."""

KNOWN: Final = (
    "auto",
    "bfloat16",
    "float16",
    *FP8,
    *DS_MLA_BYTES,
    *TURBOQUANT,
    *PER_TOKEN_HEAD,
    *NVFP4,
)
"""What `--kv-cache-dtype` takes on NVIDIA cards (0.33.0); octave_*, ultraquant_4bit and fp8_inc are
other makers'."""


class Cell(NamedTuple):
    """What one token keeps of one KV head."""

    slots: int
    """Rows of a page per KV head: two where keys and values lie apart."""
    bytes: int
    """Bytes of one row."""


def is_quantized(kv_dtype: str) -> bool:
    """Whether the cache is narrower than the model."""
    return kv_dtype not in ("auto", "bfloat16", "float16")


def stored_as(kv_dtype: str, model_dtype: str) -> str:
    """The name of the dtype that pages are made of; pages of two dtypes are two layouts."""
    if is_quantized(kv_dtype):
        return "int8" if kv_dtype == "int8_per_token_head" else "uint8"
    return model_dtype if kv_dtype == "auto" else kv_dtype


def bytes_per_value(kv_dtype: str, model_dtype: str) -> int:
    """Bytes of one value in the cache before a kernel packs it: auto follows the model, all else is one."""
    return _BYTES_OF_DTYPE.get(stored_as(kv_dtype, model_dtype), 1)


def dtype_bytes(dtype: str) -> int:
    """Bytes of one value of a plain dtype: bfloat16, float16, float32."""
    return _BYTES_OF_DTYPE[dtype]


def plain_cell(kv_dtype: str, model_dtype: str, key_dim: int, value_dim: int) -> Cell:
    """A head's row as the engine sizes it when no kernel packs it."""
    return Cell(slots=1, bytes=(key_dim + value_dim) * bytes_per_value(kv_dtype, model_dtype))


def packed_cell(kv_dtype: str, model_dtype: str, key_dim: int, value_dim: int) -> Cell:
    """A head's row as the kernel for that dtype packs it; `value_dim` is 0 for a latent.

    128 wide at int4_per_token_head: 64 + 64 + two scales of 4 are 136 B.
    """
    if kv_dtype in PER_TOKEN_HEAD:
        part = 2 if kv_dtype.startswith("int4") else 1
        return Cell(slots=1, bytes=key_dim // part + value_dim // part + 2 * SCALE_BYTES)
    if kv_dtype in NVFP4:
        return Cell(slots=2, bytes=key_dim // 2 + key_dim // 16)
    if (bits := TURBOQUANT.get(kv_dtype)) is not None:
        return Cell(slots=1, bytes=_turboquant_bytes(*bits, head_dim=key_dim))
    if (latent := DS_MLA_BYTES.get(kv_dtype)) is not None:
        return Cell(slots=1, bytes=latent)
    return plain_cell(kv_dtype, model_dtype, key_dim, value_dim)


def _turboquant_bytes(key_bits: int, value_bits: int, *, head_dim: int) -> int:
    """Key indices with a 2-byte norm (none at 8 bits), value indices with 4 bytes of scale; even."""
    key = head_dim if key_bits == 8 else ceil_div(head_dim * key_bits, 8) + 2
    return round_up(key + ceil_div(head_dim * value_bits, 8) + 4, 2)
