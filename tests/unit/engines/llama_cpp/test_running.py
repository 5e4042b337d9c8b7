"""Settings of a llama-server that runs."""

from __future__ import annotations

import pytest

from plimsoll.engines.base import EngineName, Release
from plimsoll.engines.llama_cpp.running import (
    LlamaCppRun,
    choices,
    llama_cpp_run,
    model_name_in,
    quantization_in,
)
from plimsoll.engines.reading import read_words


def run(line: str, **env: str) -> LlamaCppRun:
    return llama_cpp_run(read_words(EngineName.LLAMA_CPP, line.split(), env))


@pytest.mark.parametrize(
    ("file", "name", "quantization"),
    [
        ("/m/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Meta-Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("Llama-3.3-70B-Instruct-Q6_K-00001-of-00002.gguf", "Llama-3.3-70B-Instruct", "Q6_K"),
        ("gemma-3-27b-it.Q8_0.gguf", "gemma-3-27b-it", "Q8_0"),
        ("Qwen3-8B-UD-IQ2_XXS.gguf", "Qwen3-8B", "IQ2_XXS"),
        ("Qwen3-8B-BF16.gguf", "Qwen3-8B", "BF16"),
        ("bartowski/Qwen3-8B-GGUF", "Qwen3-8B", None),
        ("phi-4.gguf", "phi-4", None),
    ],
)
def test_a_files_name_tells_model_and_type(file: str, name: str, quantization: str | None) -> None:
    assert (name, quantization) == (model_name_in(file), quantization_in(file))


def test_a_repository_may_name_its_type() -> None:
    found = run("-hf bartowski/Qwen3-8B-GGUF:Q5_K_M")
    assert ("bartowski/Qwen3-8B-GGUF", "Q5_K_M") == (found.repository, found.quantization)


def test_auto_is_nobodys_number() -> None:
    assert (None, None) == (run("-np -1 -ngl auto").slots, run("-ngl auto").gpu_layers)
    found = run("-ngl all").gpu_layers
    assert found is not None
    assert found > 200


def test_variables_say_what_arguments_do_not() -> None:
    found = run(
        "-c 8192", LLAMA_ARG_CTX_SIZE="1", LLAMA_ARG_N_PARALLEL="2", LLAMA_ARG_KV_UNIFIED="1"
    )
    assert (8192, 2, True) == (found.ctx_size, found.slots, found.is_unified)


@pytest.mark.parametrize("written", ["-np 0", "-np x", "--cache-ram -2", "-ub 0"])
def test_what_is_no_value_is_kept_apart(written: str) -> None:
    assert [written] == [said.written for said in run(written).unreadable]


def test_a_build_that_fits_itself_chooses_at_load() -> None:
    new, old = (dict(choices(Release.of(build), longest=8192)) for build in ("b11434", "b7000"))
    assert ("on", "auto (4)") == (new["--fit"].value, new["--parallel"].value)
    assert ("1", False) == (old["--parallel"].value, "--fit" in old)
