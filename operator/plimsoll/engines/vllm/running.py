"""What did somebody set for a vLLM that runs, and what does the release choose where they did not?"""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.reading import Default, Reading, Said
from plimsoll.engines.vllm import defaults

_HUMAN: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[kKmMgGtT]?)$")
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
                 "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip
"""vLLM 0.33.0 utils/argparse_utils.py: small letters are decimal, capitals binary."""
_MOST_GIB: Final = 2.0**20
"""No host has more memory than this, in GiB."""
_FITTED: Final = frozenset({"-1", "auto"})
"""--max-model-len that the engine fits to the pool itself (vllm-project/vllm#29431)."""
_SAME_DTYPE: Final = {"half": "float16", "bfloat16": "bfloat16", "float16": "float16"}

BEYOND: Final = {
    "--cpu-offload-gb": "weights that stay in host memory",
    "--offload-backend": "weights that stay in host memory",
    "--speculative-config": "the draft's weights and cache",
    "--enable-lora": "adapters and their buffers",
    "--num-gpu-blocks-override": "a fixed number of blocks and no share",
    "--kv-transfer-config": "buffers of the KV connector",
    "--decode-context-parallel-size": "tokens of one sequence spread over ranks",
    "--prefill-context-parallel-size": "tokens of one prompt spread over ranks",
    "--hf-overrides": "other values in the model's config",
    "--rope-scaling": "other positions than the model's own",
    "--kv-cache-dtype-skip-layers": "layers whose cache stays in 16 bit",
    "--performance-mode": "steps and sequences that the mode doubles",
    "--disable-hybrid-kv-cache-manager": "windows kept at full length",
    "--enable-sleep-mode": "pages of an allocator of its own",
}
"""Flags that make the arithmetic of the settings as they are another than ours, and by what."""


class VllmRun(NamedTuple):
    """The settings of one `vllm serve`; None is what nobody wrote."""

    model: str | None = None
    """What it loads: org/name or a path."""
    served: tuple[str, ...] = ()
    """Names by which clients ask for it."""
    revision: str | None = None
    """Branch, tag or commit of the model."""
    tensor: int = 1
    """Tensor-parallel size."""
    pipeline: int = 1
    """Pipeline stages."""
    data: int = 1
    """Data-parallel size."""
    max_model_len: int | None = None
    """Tokens of one sequence."""
    is_length_fitted: bool = False
    """Whether the engine fits the length to the pool."""
    max_num_seqs: int | None = None
    """Sequences at once."""
    max_num_batched_tokens: int | None = None
    """Tokens of one step."""
    utilization: float | None = None
    """Share of the card."""
    kv_cache_bytes: int | None = None
    """The pool of one card, where it is pinned; the share does not count then."""
    block_size: int | None = None
    """Tokens of a block."""
    kv_dtype: str = "auto"
    """--kv-cache-dtype."""
    dtype: str | None = None
    """--dtype; None for auto."""
    quantization: str | None = None
    """--quantization."""
    most_graph_rows: int | None = None
    """Rows of the largest graph; 0 for none; None where nobody says."""
    prefix_caching: bool | None = None
    """Whether prefixes are cached."""
    kv_offload_bytes: int = 0
    """Host memory for KV blocks, over all cards."""
    swap_bytes: int = 0
    """Host memory for swapped blocks, over all cards; before 0.18."""
    config: str | None = None
    """A file that sets further flags."""
    beyond: tuple[str, ...] = ()
    """Flags of BEYOND that are set."""
    unreadable: tuple[Said, ...] = ()
    """Options whose value is no number."""

    @property
    def cards(self) -> int:
        """Cards of one replica of the model."""
        return self.tensor * self.pipeline


def vllm_run(reading: Reading) -> VllmRun:
    """The settings of a command line."""
    bad: list[Said] = []

    def number(flag: str) -> int | None:
        said = reading.last(flag)
        if said is None or said.value is None:
            return None
        value = human_int(said.value)
        if not value:
            bad.append(said)
        return value or None

    def amount(flag: str, most: float = _MOST_GIB) -> float | None:
        said = reading.last(flag)
        if said is None or said.value is None:
            return None
        try:
            value = float(said.value)
        except ValueError:
            value = math.nan
        if 0 <= value <= most:
            return value
        bad.append(said)
        return None

    length = reading.value("--max-model-len")
    fitted = length is not None and length.lower() in _FITTED
    served = reading.value("--served-model-name") or reading.value("--model-name")
    return VllmRun(
        model=reading.value("--model") or _model(reading),
        served=tuple((served or "").split()),
        revision=reading.value("--revision") or reading.value("--model-revision"),
        tensor=number("--tensor-parallel-size") or 1,
        pipeline=number("--pipeline-parallel-size") or 1,
        data=number("--data-parallel-size") or 1,
        max_model_len=None if fitted else number("--max-model-len") or number("--max-length"),
        is_length_fitted=fitted,
        max_num_seqs=number("--max-num-seqs"),
        max_num_batched_tokens=number("--max-num-batched-tokens"),
        utilization=amount("--gpu-memory-utilization", 1.0) or None,
        kv_cache_bytes=number("--kv-cache-memory-bytes"),
        block_size=number("--block-size"),
        kv_dtype=reading.value("--kv-cache-dtype") or "auto",
        dtype=_SAME_DTYPE.get(
            asked := reading.value("--dtype") or "auto", None if asked == "auto" else asked
        ),
        quantization=reading.value("--quantization"),
        most_graph_rows=_graphs(reading, number("--max-cudagraph-capture-size")),
        prefix_caching=reading.switch("--enable-prefix-caching"),
        kv_offload_bytes=round((amount("--kv-offloading-size") or 0) * 2**30),
        swap_bytes=round((amount("--swap-space") or 0) * 2**30),
        config=reading.value("--config"),
        beyond=tuple(flag for flag in BEYOND if _is_set(reading, flag)),
        unreadable=tuple(dict.fromkeys(bad)),
    )


def human_int(text: str) -> int | None:
    """8192, 8k (8,000) or 8K (8,192); None for what is no number."""
    found = _HUMAN.match(text.strip())
    return None if found is None else int(float(found["number"]) * _UNITS[found["unit"]])


def _model(reading: Reading) -> str | None:
    """`vllm serve MODEL`, and KServe's --model_id and --model_dir."""
    return next(
        (
            value
            for value in (
                *reading.positional[:1],
                reading.value("--model-id"),
                reading.value("--model-dir"),
            )
            if value
        ),
        None,
    )


def _graphs(reading: Reading, largest: int | None) -> int | None:
    if reading.switch("--enforce-eager"):
        return 0
    return largest


def _is_set(reading: Reading, flag: str) -> bool:
    said = reading.last(flag)
    if said is None or said.is_off:
        return False
    return said.value not in ("0", "0.0", "1" if "parallel" in flag else "0")


def choices(
    release: Release, *, total_bytes: int, product: str, longest: int | None, dtype: str = "auto"
) -> Iterator[tuple[str, Default]]:
    """The flags that matter with what `vllm serve` chooses on this card; `longest` and `dtype` are the
    model's, as far as it is known.

    Sources: engines/vllm/defaults.py, and for the rest engine/arg_utils.py and config/ of vLLM 0.33.0.
    """
    chosen = defaults.settings(total_bytes, product, release)
    share = defaults.utilization(release)
    yield "--dtype", Default(dtype, "the model's own")
    yield "--tensor-parallel-size", Default("1")
    yield "--gpu-memory-utilization", Default(f"{share:g}", "0.90 before 0.20, 0.92 since")
    yield (
        "--max-model-len",
        Default(
            "the model's" if longest is None else str(longest),
            "the longest that the model was made for",
        ),
    )
    yield "--max-num-seqs", Default(str(chosen.max_num_seqs), "by the card's size")
    yield (
        "--max-num-batched-tokens",
        Default(str(chosen.max_num_batched_tokens), "by the card's size"),
    )
    yield "--kv-cache-dtype", Default("auto", "the model's own")
    yield "--block-size", Default("auto", "the attention backend's")
    if release.is_before("0.18"):
        yield "--swap-space", Default("4", "GiB of host memory for each card")
    yield (
        "--max-cudagraph-capture-size",
        Default("auto", "from the number of sequences, at most 512 rows"),
    )
    yield "--scheduling-policy", Default("fcfs")
    if not release.is_before("0.18"):
        yield "--shutdown-timeout", Default("0", "requests in flight are cut off when it ends")
    yield "--enable-chunked-prefill", Default("on")
    yield "--enable-prefix-caching", Default("on")
    if not release.is_before("0.14"):
        yield "--async-scheduling", Default("on")
