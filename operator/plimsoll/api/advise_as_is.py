"""What would the planner say to the very settings that run today?

Where a flag makes the engine's arithmetic another than ours, that is said and nothing is judged.
"""

from typing import Final, NamedTuple

from plimsoll.catalog.engines import VLLM_RELEASES, known_release
from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import running as llama_cpp
from plimsoll.engines.llama_cpp.flags import release_row
from plimsoll.engines.llama_cpp.host import DEFAULT_CACHE_RAM_BYTES
from plimsoll.engines.llama_cpp.running import LlamaCppRun
from plimsoll.engines.vllm import defaults
from plimsoll.engines.vllm import running as vllm
from plimsoll.engines.vllm.running import VllmRun
from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.plan.offload_ask import FEWEST_LAYERS
from plimsoll.plan.records import Overrides, PlanRequest, Reason, Refusal
from plimsoll.plan.steps import Steps
from plimsoll.units import GIB, MIB

ADDS: Final = frozenset({"--speculative-config", "--enable-lora", "--kv-transfer-config",
                         "--disable-hybrid-kv-cache-manager", "--mmproj", "--mmproj-url", "--lora", "--lora-scaled",
                         "--control-vector", "--spec-draft-model", "--spec-draft-hf", "--swa-full", "--embedding",
                         "--rerank", "--performance-mode", "--enable-sleep-mode"})  # fmt: skip
"""Flags of BEYOND that only add: what does not fit without them does not fit with them."""
NO_CACHE_END_BYTES: Final = 1024 * GIB
"""Stands for a prompt cache without an end."""


class AsIs(NamedTuple):
    """The question that the settings of today put, as far as it can be put."""

    request: PlanRequest | None = None
    """None where it cannot be put."""
    unknown: tuple[tuple[str, str], ...] = ()
    """Flags that keep it from being judged, each with a sentence."""
    is_least: bool = False
    """Whether the engine takes more than the answer says: then only a refusal counts."""
    extra_host_bytes: int = 0
    """Host memory that the settings ask for beside the plan's."""


_NOT_PLANNED: Final = frozenset({Reason.LAYOUT_UNKNOWN, Reason.MODEL_UNKNOWN})
_FLAGS: Final = (
    ("the pool's maxModelLen", "--max-model-len", "--ctx-size of one slot"),
    ("limits.maxModelLen", "--max-model-len", "--ctx-size of one slot"),
    ("gpuMemoryUtilization", "--gpu-memory-utilization", "--gpu-memory-utilization"),
    ("maxNumSeqs", "--max-num-seqs", "--parallel"),
    ("kvCache.dtype", "--kv-cache-dtype", "--cache-type-k"),
    ("gpuLayers", "--n-gpu-layers", "--n-gpu-layers"),
)
"""The planner's words for a setting, and vLLM's and llama.cpp's."""


def is_ours_alone(
    refusal: Refusal, run: VllmRun | LlamaCppRun, *, allows_long: bool = False
) -> bool:
    """Whether the planner refuses what the engine may run all the same: a layout or a dtype that is not planned,
    a length that the engine lets pass (`allows_long`: VLLM_ALLOW_LONG_MAX_MODEL_LEN)."""
    match refusal.reason:
        case Reason.LENGTH_BEYOND_MODEL:
            return allows_long or isinstance(run, LlamaCppRun)
        case Reason.KV_DTYPE_UNSUPPORTED:
            return isinstance(run, LlamaCppRun) or not run.kv_dtype.startswith("fp8")
        case reason:
            return reason in _NOT_PLANNED


def in_flags(sentence: str, run: VllmRun | LlamaCppRun) -> str:
    """A sentence of the planner in the engine's own words."""
    for ours, vllm_flag, llama_flag in _FLAGS:
        sentence = sentence.replace(ours, vllm_flag if isinstance(run, VllmRun) else llama_flag)
    return sentence


def release_of_vllm(release: str | None) -> Release:
    """The row of the table that answers for a release."""
    if release is None:
        return Release.of(known_release(VLLM_RELEASES, None, ()).text)
    asked = Release.of(release)
    return Release.of(known_release(VLLM_RELEASES, asked.text, asked.numbers).text)


def release_of_llama_cpp(release: str | None) -> Release:
    """The same for a build of llama.cpp."""
    return Release.of(release_row(release).text)


def _beyond(flag: str, what: str) -> str:
    if flag in ADDS:
        return f"{what} come on top of the ledger and are not counted"
    return f"not judged: {what} change the arithmetic"


def vllm_unknown(run: VllmRun, *, is_stored_small: bool = True) -> tuple[tuple[str, str], ...]:
    """What keeps the settings from being judged whatever the model; `is_stored_small` says whether its files
    are quantised already."""
    found = [(flag, _beyond(flag, vllm.BEYOND[flag])) for flag in run.beyond]
    found += [
        (said.flag, f"not judged: {said.written!r} is no value that can be counted with")
        for said in run.unreadable
    ]
    if run.config is not None:
        found.append(
            (
                "--config",
                f"not judged: {run.config} sets further flags and is not at hand; write them as arguments",
            )
        )
    if run.pipeline > 1:
        found.append(
            (
                "--pipeline-parallel-size",
                "not judged: ledgers of pipeline stages are not planned; Plimsoll spreads over cards by tensor "
                "parallelism alone",
            )
        )
    if run.quantization is not None and not is_stored_small:
        found.append(
            (
                "--quantization",
                f"not judged: {run.quantization} makes the weights smaller while they load, and the files' size does "
                "not tell by how much",
            )
        )
    if run.dtype is not None and run.dtype not in ("float16", "bfloat16"):
        found.append(("--dtype", f"not judged: {run.dtype} is not the width that the files have"))
    if run.kv_cache_bytes is not None:
        found.append(
            (
                "--kv-cache-memory-bytes",
                "not judged: the pool is pinned in bytes, and the share does not count",
            )
        )
    return tuple(found)


def vllm_as_is(run: VllmRun, model: ModelFacts, ours: PlanRequest, env_v1: str = "") -> AsIs:
    """`ours` has the card, the traffic and the release; `env_v1` is VLLM_USE_V1."""
    unknown = vllm_unknown(run, is_stored_small=model.quantization is not None)
    is_only_more = all(flag in ADDS for flag, _ in unknown)
    release = release_of_vllm(ours.release)
    swap = run.swap_bytes * run.cards if release.is_before("0.18") else 0
    extra = run.kv_offload_bytes + swap
    if unknown and not is_only_more:
        return AsIs(None, unknown, extra_host_bytes=extra)
    length = run.max_model_len or model.max_position_embeddings
    chosen = (
        defaults.settings_before_v1(length)
        if env_v1 == "0" or defaults.is_before_v1(release, ours.gpu.capability)
        else defaults.settings(ours.gpu.total_bytes, ours.gpu.product, release)
    )
    step = run.max_num_batched_tokens or chosen.max_num_batched_tokens
    sequences = min(run.max_num_seqs or chosen.max_num_seqs, step)
    steps = Steps() if run.most_graph_rows is None else Steps(largest_graph=run.most_graph_rows)
    request = ours._replace(
        cards=run.tensor,
        kv_dtype="auto" if run.kv_dtype in ("bfloat16", "float16") else run.kv_dtype,
        max_model_len=None,
        concurrency=None,
        overrides=Overrides(
            max_model_len=None if run.is_length_fitted else length,
            max_num_seqs=sequences,
            max_num_batched_tokens=step,
            gpu_memory_utilization=run.utilization or defaults.utilization(release),
            block_size=run.block_size,
        ),
        steps=steps,
        prefix_caching=run.prefix_caching,
        notes=(),
    )
    return AsIs(request, unknown, is_least=bool(unknown), extra_host_bytes=extra)


def llama_cpp_as_is(run: LlamaCppRun, gguf: GgufFacts, ours: PlanRequest) -> AsIs:
    """The same for llama-server."""
    release = release_of_llama_cpp(ours.release)
    fits = not release.is_before(llama_cpp.FITS_ITSELF) and run.fits_itself is not False
    unknown = [(flag, _beyond(flag, llama_cpp.BEYOND[flag])) for flag in run.beyond]
    unknown += [
        (said.flag, f"not judged: {said.written!r} is no value that can be counted with")
        for said in run.unreadable
    ]
    if run.key_type != run.value_type:
        unknown.append(
            (
                "--cache-type-v",
                f"not judged: keys as {run.key_type} and values as {run.value_type} are not planned",
            )
        )
    if run.flash in ("off", "0", "false"):
        unknown.append(
            (
                "--flash-attn",
                "not judged: without it the compute buffer grows with the context; Plimsoll always pins it",
            )
        )
    if not run.kv_on_card:
        unknown.append(
            (
                "--kv-offload",
                "not judged: the cache lies in host memory; Plimsoll keeps it on the card",
            )
        )
    if ours.cards > 1 and (run.split_mode != "layer" or run.tensor_split is not None):
        unknown.append(
            (
                "--split-mode",
                "not judged: the cards are shared by hand; Plimsoll splits whole layers",
            )
        )
    if run.gpu_layers is None and not fits:
        unknown.append(
            ("--n-gpu-layers", f"{release.text} puts nothing on the card unless it is told to")
        )
    if run.gpu_layers is not None and 0 <= run.gpu_layers < FEWEST_LAYERS:
        unknown.append(
            (
                "--n-gpu-layers",
                f"with {run.gpu_layers} the model stays in host memory and the card idles",
            )
        )
    is_only_more = all(flag in ADDS for flag, _ in unknown)
    if unknown and not is_only_more:
        return AsIs(None, tuple(unknown))
    slots = run.slots or (llama_cpp.AUTO_SLOTS if fits else 1)
    total = run.ctx_size or gguf.context_length
    cache = run.cache_ram_mib
    request = ours._replace(
        kv_dtype="auto" if run.key_type == "f16" else run.key_type,
        max_model_len=None,
        concurrency=None,
        overrides=Overrides(
            max_model_len=max(1, total // slots),
            max_num_seqs=slots,
            max_num_batched_tokens=run.batch_tokens,
            gpu_layers=run.gpu_layers
            if run.gpu_layers is None or run.gpu_layers > 0
            else llama_cpp.ALL_LAYERS,
            ubatch_size=run.ubatch_tokens,
            cache_ram_bytes=DEFAULT_CACHE_RAM_BYTES
            if cache is None
            else NO_CACHE_END_BYTES
            if cache < 0
            else cache * MIB,
        ),
        notes=(),
    )
    return AsIs(request, tuple(unknown), is_least=bool(unknown))
