"""Spellings that would change a pinned flag, for both engines."""

from __future__ import annotations

import pytest

from plimsoll.engines.base import FlagRow, Release
from plimsoll.engines.llama_cpp import flags as llama_cpp
from plimsoll.engines.shadow import LLAMA_CPP_HABITS, VLLM_HABITS, shadowed


def row(name: str, *aliases: str, env: tuple[str, ...] = (), until: str | None = None) -> FlagRow:
    return FlagRow(name=name, aliases=aliases, env=env, until=until, source="for this test")


VLLM_ROWS = (
    row("--model"),
    row("--tokenizer"),
    row("--tokenizer-mode"),
    row("--max-model-len", env=("VLLM_ALLOW_LONG_MAX_MODEL_LEN",)),
    row("--max-num-seqs"),
    row("--tensor-parallel-size", "-tp"),
    row("--gpu-memory-utilization"),
    row("--kv-cache-dtype"),
    row("--kv-cache-dtype-skip-layers"),
    row("--enable-prefix-caching", "--no-enable-prefix-caching"),
    row("--async-scheduling"),
    row("--compilation-config", "-O"),
    row("--quantization", "-q"),
    row("--swap-space", until="0.18"),
    row("--config"),
)
VLLM_PINNED = {entry.name for entry in VLLM_ROWS} - {"--tokenizer", "--tokenizer-mode"}


def of_vllm(*args: str, env: tuple[str, ...] = (), release: str | None = None) -> tuple[str, ...]:
    return shadowed(
        args,
        env,
        rows=VLLM_ROWS,
        pinned=VLLM_PINNED,
        habits=VLLM_HABITS,
        release=None if release is None else Release.of(release),
    )


def of_llama_cpp(*args: str, env: tuple[str, ...] = ()) -> tuple[str, ...]:
    return shadowed(
        args,
        env,
        rows=llama_cpp.ROWS,
        pinned={row.name for row in llama_cpp.ROWS},
        habits=LLAMA_CPP_HABITS,
    )


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("--max-model-len", "--max-model-len"),
        ("--max_model_len", "--max-model-len"),
        ("--max-model_len", "--max-model-len"),
        ("--max-model-len=4096", "--max-model-len"),
        ("--max_model_len=4096", "--max-model-len"),
        ("--max-model-len 4096", "--max-model-len"),
        ("--max-mod", "--max-model-len"),
        ("--max_num_s=8", "--max-num-seqs"),
        ("-tp", "--tensor-parallel-size"),
        ("-tp=2", "--tensor-parallel-size"),
        ("-t", "--tensor-parallel-size"),
        ("--tensor", "--tensor-parallel-size"),
        ("--gpu_memory_utilization=0.95", "--gpu-memory-utilization"),
        ("--g", "--gpu-memory-utilization"),
        ("--kv-cache-dtype=fp8", "--kv-cache-dtype"),
        ("--kv-cache-dtype-skip", "--kv-cache-dtype-skip-layers"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--no_enable_prefix_caching", "--enable-prefix-caching"),
        ("--no-enable-prefix", "--enable-prefix-caching"),
        ("--no-async-scheduling", "--async-scheduling"),
        ("--no-async-sched", "--async-scheduling"),
        ("--compilation-config.cudagraph_mode=NONE", "--compilation-config"),
        ("--compilation_config.level", "--compilation-config"),
        ('--compilation-config={"level":0}', "--compilation-config"),
        ("-O3", "--compilation-config"),
        ("-O=2", "--compilation-config"),
        ("-O.level=3", "--compilation-config"),
        ("-qawq", "--quantization"),
        ("--config", "--config"),
        ("--config=/etc/vllm.yaml", "--config"),
        ("--conf", "--config"),
    ],
)
def test_vllm_spellings_are_seen(word: str, flag: str) -> None:
    assert (flag,) == of_vllm(word)


@pytest.mark.parametrize(
    "word",
    [
        "--tokenizer",
        "--tokenizer-mode",
        "--tokenizer-mode=slow",
        "--enable-auto-tool-choice",
        "--tool-call-parser=hermes",
        "--seed",
        "-1",
        "hermes",
        '{"--max-model-len": 1}',
        "-",
        "--",
    ],
)
def test_vllm_words_of_other_meaning_pass(word: str) -> None:
    assert () == of_vllm(word)


def test_vllm_variables_are_seen_and_others_pass() -> None:
    assert ("--max-model-len",) == of_vllm(env=("VLLM_ALLOW_LONG_MAX_MODEL_LEN",))
    assert () == of_vllm(env=("VLLM_LOGGING_LEVEL", "HF_HOME"))


def test_a_flag_that_the_release_has_no_more_is_not_shadowed() -> None:
    assert ("--swap-space",) == of_vllm("--swap-space=4", release="0.17.1")
    assert () == of_vllm("--swap-space=4", release="0.18.0")


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("--ctx-size", "--ctx-size"),
        ("-c", "--ctx-size"),
        ("--ctx_size", "--ctx-size"),
        ("--ctx-size=512", "--ctx-size"),
        ("--ctx-size 512", "--ctx-size"),
        ("-c=512", "--ctx-size"),
        ("-np", "--parallel"),
        ("-ngl", "--n-gpu-layers"),
        ("--gpu-layers", "--n-gpu-layers"),
        ("--gpu_layers", "--n-gpu-layers"),
        ("-ub", "--ubatch-size"),
        ("-fa", "--flash-attn"),
        ("--cache_type_k", "--cache-type-k"),
        ("-ctv", "--cache-type-v"),
        ("-cram", "--cache-ram"),
        ("--swa-checkpoints", "--ctx-checkpoints"),
        ("-fit", "--fit"),
        ("-kvu", "--no-kv-unified"),
        ("--kv_unified", "--no-kv-unified"),
        ("--context-shift", "--no-context-shift"),
        ("--no-warmup", "--warmup"),
        ("--no-slots", "--slots"),
        ("-v", "--log-verbosity"),
        ("--log-disable", "--log-verbosity"),
        ("-ot", "--override-tensor"),
        ("-ncmoe", "--n-cpu-moe"),
        ("-nkvo", "--kv-offload"),
        ("--no_kv_offload", "--kv-offload"),
        ("--swa-full", "--swa-full"),
        ("-dev", "--device"),
        ("--no-op-offload", "--op-offload"),
        ("-hf", "--hf-repo"),
        ("--models-preset", "--models-preset"),
        ("--models_preset", "--models-preset"),
        ("--gpt-oss-20b-default", "--embd-gemma-default"),
        ("-md", "--spec-draft-model"),
        ("-mm", "--mmproj"),
        ("--port", "--port"),
    ],
)
def test_llama_cpp_spellings_are_seen(word: str, flag: str) -> None:
    assert (flag,) == of_llama_cpp(word)


@pytest.mark.parametrize(
    "word",
    [
        "--ctx-si",
        "-c512",
        "-ctx-size",
        "--CTX-SIZE",
        "--threads",
        "-t",
        "--temp",
        "--jinja",
        "--api-key-file",
        "--load-mode",
        "-1",
    ],
)
def test_llama_cpp_words_that_change_nothing_pass(word: str) -> None:
    """Short starts, glued values and other cases end b11669 with exit 1: they cannot shadow."""
    assert () == of_llama_cpp(word)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("LLAMA_ARG_CTX_SIZE", "--ctx-size"),
        ("LLAMA_ARG_N_PARALLEL", "--parallel"),
        ("LLAMA_ARG_N_GPU_LAYERS", "--n-gpu-layers"),
        ("LLAMA_ARG_NO_KV_OFFLOAD", "--kv-offload"),
        ("LLAMA_ARG_KV_UNIFIED", "--no-kv-unified"),
        ("LLAMA_ARG_NO_WARMUP", "--warmup"),
        ("LLAMA_ARG_CACHE_RAM", "--cache-ram"),
        ("LLAMA_ARG_MODELS_PRESET", "--models-preset"),
        ("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "--n-gpu-layers"),
        ("CUDA_VISIBLE_DEVICES", "--device"),
    ],
)
def test_llama_cpp_variables_are_seen(name: str, flag: str) -> None:
    assert (flag,) == of_llama_cpp(env=(name,))


def test_variables_of_other_meaning_pass() -> None:
    assert () == of_llama_cpp(env=("LLAMA_ARG_THREADS", "LLAMA_API_KEY", "llama_arg_ctx_size"))


def test_several_are_named_once_each_in_the_tables_order() -> None:
    found = of_llama_cpp("-ub", "1024", "-c", "512", "--ctx_size", env=("LLAMA_ARG_CTX_SIZE",))
    assert ("--ctx-size", "--ubatch-size") == found
