"""The engine's words among all that a container's fields hold."""

from __future__ import annotations

import pytest

from plimsoll.engines.base import EngineName
from plimsoll.engines.launch import Launch, NoLaunch, launch_of, names_release

VLLM, LLAMA_CPP = EngineName.VLLM, EngineName.LLAMA_CPP


def launched(
    image: str = "", command: str = "", args: str = "", env: dict[str, str] | None = None
) -> Launch:
    found = launch_of(image=image, command=command.split(), args=args.split(), env=env or {})
    assert isinstance(found, Launch), found
    return found


@pytest.mark.parametrize(
    ("image", "command", "args", "engine", "words"),
    [
        ("x", "vllm serve a/b", "--port 1", VLLM, "a/b --port 1"),
        ("x", "/opt/venv/bin/vllm serve a/b", "", VLLM, "a/b"),
        ("x", "tini -- vllm serve a/b", "", VLLM, "a/b"),
        ("x", "env A=1 numactl -N0 vllm serve a/b", "", VLLM, "a/b"),
        ("x", "python3 -m vllm.entrypoints.openai.api_server", "--model a/b", VLLM, "--model a/b"),
        ("x", "/usr/bin/python3.12 -u -m vllm.entrypoints.openai.api_server", "", VLLM, ""),
        ("vllm/vllm-openai:v0.22.1", "", "--model a/b", VLLM, "--model a/b"),
        ("public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.11.2", "", "a/b", VLLM, "a/b"),
        ("x", "python -m huggingfaceserver", "--model_id=a/b", VLLM, "--model_id=a/b"),
        ("kserve/huggingfaceserver:v0.16.0-gpu", "", "--model_id=a/b", VLLM, "--model_id=a/b"),
        ("x", "/app/llama-server", "-m a.gguf", LLAMA_CPP, "-m a.gguf"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", "", "-m a.gguf", LLAMA_CPP, "-m a.gguf"),
        ("ghcr.io/ggml-org/llama.cpp:full", "", "--server -m a.gguf", LLAMA_CPP, "-m a.gguf"),
        ("ghcr.io/ggerganov/llama.cpp:server", "/server", "-m a.gguf", LLAMA_CPP, "-m a.gguf"),
        ("gpustack/gpustack:v0.7", "/bin/llama-box-cuda", "-m a.gguf", LLAMA_CPP, "-m a.gguf"),
    ],
)  # fmt: skip
def test_an_engine_is_found_behind_whatever_starts_it(
    image: str, command: str, args: str, engine: EngineName, words: str
) -> None:
    found = launched(image, command, args)
    assert (engine, tuple(words.split())) == (found.engine, found.words)


@pytest.mark.parametrize("shell", ["sh -c", "/bin/bash -lc", "bash -e -c", "tini -- /bin/sh -c"])
def test_a_shell_line_is_read(shell: str) -> None:
    found = launch_of(
        image="", command=shell.split(), args=["sleep 1; exec vllm serve $M"], env={"M": "a/b"}
    )
    assert isinstance(found, Launch)
    assert ("a/b",) == found.words


def test_the_kubelets_own_references_are_replaced() -> None:
    found = launched(command="vllm serve $(MODEL)", args="--x $$(MODEL) --y $(GONE)", env={"MODEL": "a/b"})  # fmt: skip
    assert ("a/b", "--x", "$(MODEL)", "--y", "$(GONE)") == found.words


@pytest.mark.parametrize(
    ("image", "command", "why"),
    [
        ("x", "python -m sglang.launch_server --model a/b", "SGLang"),
        ("x", "text-generation-launcher", "TGI"),
        ("ollama/ollama:0.11", "", "Ollama"),
        ("x", "ollama serve", "Ollama"),
        ("x", "bash /scripts/start.sh", "/scripts/start.sh"),
        ("nginx:1", "", "not one we know"),
        ("x", "nginx -g daemon", "starts no engine"),
    ],
)
def test_what_is_no_engine_of_ours_is_said_by_name(image: str, command: str, why: str) -> None:
    found = launch_of(image=image, command=command.split(), args=[], env={})
    assert isinstance(found, NoLaunch)
    assert why in found.why


@pytest.mark.parametrize(
    ("image", "command", "is_told"),
    [
        ("vllm/vllm-openai:v0.22.1", "", True),
        ("rocm/vllm:rocm6.2_vllm_0.6.4", "vllm serve a", True),
        ("ghcr.io/llm-d/llm-d-cuda:v0.4.0", "vllm serve a", False),
        ("kserve/huggingfaceserver:v0.16.0", "", False),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b11434", "", True),
        ("gpustack/gpustack:v0.7.1", "llama-box", False),
    ],
)
def test_a_tag_is_the_engines_release_only_on_the_engines_own_image(
    image: str, command: str, is_told: bool
) -> None:
    assert is_told == names_release(image, launched(image, command))
