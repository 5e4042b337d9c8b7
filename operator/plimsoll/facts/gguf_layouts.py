"""Which blocks of a GGUF model keep what, as llama.cpp reads its keys?

load_arch_hparams of src/models/<architecture>.cpp, b11434: which blocks have a sliding window or a
recurrence is fixed per architecture unless the file says otherwise.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Recurs(Enum):
    """Which blocks are recurrent."""

    NONE = 0
    ALL = 1
    WITHOUT_KV_HEADS = 2
    """Those whose attention.head_count_kv is 0."""
    WITHOUT_KV_HEADS_AND_FEED_FORWARD = 3
    """Those for which feed_forward_length is 0 as well (Nemotron-H)."""
    INTERVAL = 4
    """All but every full_attention_interval-th, or as attention.recurrent_layers lists them."""
    BESIDE_ATTENTION = 5
    """All, and each has attention too (Falcon H1)."""


class Layout(NamedTuple):
    """How one architecture's blocks keep what they have seen."""

    period: int = 0
    """Of each so many blocks all but the last have a window (set_swa_pattern); 0 for none."""
    window_tokens: int = 0
    """The window where the file names none."""
    fixed_window: bool = False
    """Whether the window is always that one, whatever the file says."""
    dense_first: bool = False
    """The block without a window is the first of the period."""
    must_list: bool = False
    """The file has to list which blocks have windows."""
    chunked: bool = False
    """Windows are chunks (Llama 4)."""
    windows_from_blocks: int = 0
    """Windows only for models of so many blocks (EXAONE 4)."""
    shares_kv: bool = False
    """Blocks at the end may read the cache of earlier ones."""
    recurs: Recurs = Recurs.NONE
    full_interval: int = 4
    """full_attention_interval where the file names none."""


_PLAIN: Final = Layout()
_LINEAR: Final = Layout(recurs=Recurs.INTERVAL)
_HYBRID: Final = Layout(recurs=Recurs.WITHOUT_KV_HEADS)
_NEMOTRON: Final = Layout(recurs=Recurs.WITHOUT_KV_HEADS_AND_FEED_FORWARD)
_RECURRENT: Final = Layout(recurs=Recurs.ALL)

LAYOUTS: Final[dict[str, Layout]] = {
    "llama": _PLAIN,
    "mistral3": _PLAIN,
    "qwen2": _PLAIN,
    "qwen2vl": _PLAIN,
    "qwen2moe": _PLAIN,
    "qwen3": _PLAIN,
    "qwen3moe": _PLAIN,
    "qwen3vl": _PLAIN,
    "qwen3vlmoe": _PLAIN,
    "qwen3next": _LINEAR,
    "qwen35": _LINEAR,
    "qwen35moe": _LINEAR,
    "phi3": _PLAIN,  # phi3.cpp switches the window off (ggml-org/llama.cpp#13676)
    "phimoe": _PLAIN,
    "gemma": _PLAIN,
    "gemma2": Layout(period=2, window_tokens=4096),
    "gemma3": Layout(period=6),
    "gemma4": Layout(must_list=True, shares_kv=True),
    "granite": _PLAIN,
    "granitemoe": _PLAIN,
    "granitehybrid": _HYBRID,
    "glm4": _PLAIN,
    "glm4moe": _PLAIN,
    "minimax-m2": _PLAIN,
    "seed_oss": _PLAIN,
    "deepseek": _PLAIN,
    "deepseek2": _PLAIN,
    "gpt-oss": Layout(period=2),
    "command-r": _PLAIN,
    "cohere2": Layout(period=4),
    "olmo2": Layout(period=4),
    "olmoe": _PLAIN,
    "exaone4": Layout(period=4, window_tokens=4096, windows_from_blocks=64),
    "smollm3": _PLAIN,
    "ernie4_5": _PLAIN,
    "ernie4_5-moe": _PLAIN,
    "hunyuan-dense": _PLAIN,
    "hunyuan-moe": _PLAIN,
    "bailingmoe2": _PLAIN,
    "dots1": _PLAIN,
    "llama4": Layout(period=4, window_tokens=8192, fixed_window=True, chunked=True),
    "internlm2": _PLAIN,
    "starcoder2": _PLAIN,
    "arcee": _PLAIN,
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "jamba": _HYBRID,
    "falcon-h1": Layout(recurs=Recurs.BESIDE_ATTENTION),
    "nemotron_h": _NEMOTRON,
    "nemotron_h_moe": _NEMOTRON,
    "lfm2": _HYBRID,
    "lfm2moe": _HYBRID,
}
"""Architecture as general.architecture names it. What is not here is refused by name."""

STRANGE: Final = {
    "wkv.": "recurrent layers of RWKV",
    "kda.": "Kimi's delta attention",
    "attention.indexer.": "sparse attention with an index",
    "hyper_connection.": "several residual streams",
    "altup.": "several residual streams",
    "moe_latent_size": "experts that work on a latent",
    "decoder_block_count": "an encoder",
    "pooling_type": "a pooled output: it embeds, and does not generate",
}
"""Keys that change what a block keeps or computes, and what they announce."""

STRANGE_WITHOUT_RECURRENCE: Final = {
    "ssm.": "recurrent layers",
    "shortconv.": "recurrent layers",
    "full_attention_interval": "recurrent layers",
}
"""The same for architectures without recurrent blocks."""

SHARED_KV: Final = "attention.shared_kv_layers"
"""How many blocks at the end read the cache of earlier ones (Gemma 4)."""
RECURRENT_BLOCKS: Final = "attention.recurrent_layers"
"""Flags by block, where the file lists them."""
