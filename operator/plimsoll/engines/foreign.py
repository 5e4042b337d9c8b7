"""Which arguments and variables bring code into an engine that is not in its image?

An image is chosen by a site, a model by whoever writes the object. Code that comes with a model, or lies on a
volume beside it, is neither: it runs with all that the worker has. Sources: the argument parser and envs.py
of vLLM 0.33.0, llama-server b11669 --help, ld.so(8), python(1), NCCL and CUDA manuals for their plugins.
"""

from typing import Final

from plimsoll.engines.base import EngineName, FlagRow


def _row(name: str, *aliases: str, env: tuple[str, ...] = (), source: str) -> FlagRow:
    return FlagRow(name=name, aliases=aliases, env=env, source=source)


_LOADERS: Final = (
    _row("LD_*", env=("LD_*",), source="ld.so(8): LD_PRELOAD, LD_AUDIT, LD_LIBRARY_PATH"),
    _row("GCONV_PATH", env=("GCONV_PATH",), source="iconv(3) loads modules from there"),
    _row("PATH", env=("PATH",), source="where a program of a name is found"),
    _row("BASH_ENV", env=("BASH_ENV", "ENV"), source="bash(1): read before a script"),
    _row(
        "PYTHONPATH",
        env=(
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "PYTHONUSERBASE",
            "PYTHONEXECUTABLE",
            "PYTHONPLATLIBDIR",
            "PYTHONPYCACHEPREFIX",
            "PYTHONBREAKPOINT",
            "PYTHONINSPECT",
            "PYTHONWARNINGS",
        ),
        source="python(1); PYTHONWARNINGS imports the module of a category",
    ),
    _row(
        "OPENSSL_CONF",
        env=("OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES"),
        source="openssl-env(7): a configuration names engines to load",
    ),
    _row(
        "CUDA_INJECTION64_PATH",
        env=("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "CUDA_HOME", "CUDA_PATH"),
        source="libraries that CUDA and NVTX load; where compilers are found",
    ),
    _row(
        "NCCL_NET_PLUGIN",
        env=(
            "NCCL_NET_PLUGIN",
            "NCCL_TUNER_PLUGIN",
            "NCCL_PROFILER_PLUGIN",
            "NCCL_ENV_PLUGIN",
            "NCCL_CONF_FILE",
        ),
        source="NCCL user guide, Environment Variables",
    ),
)
"""Of any program."""

_BY_NAME: Final = (
    _row("HOME", env=("HOME", "XDG_*"), source="site.py: user site-packages; caches of compiled code"),
    _row("*_CACHE_DIR", env=("TRITON_*", "TORCHINDUCTOR_*", "VLLM_CACHE_ROOT", "VLLM_XLA_CACHE_PATH",
         "TORCH_EXTENSIONS_DIR", "HF_MODULES_CACHE", "FLASHINFER_WORKSPACE_BASE"),
         source="compiled code is loaded from there"),
    _row("--logging-config", "--log-config-file", env=("VLLM_LOGGING_CONFIG_PATH",),
         source="logging.config: a factory is any callable"),
)  # fmt: skip
"""What may lead an image's own code to files beside it: refused as well where a site lists its images."""

_VLLM: Final = (
    _row("--trust-remote-code", "--no-trust-remote-code", source="runs Python from the model's folder"),
    _row("--tool-parser-plugin", source="imports a file"),
    _row("--reasoning-parser-plugin", source="imports a file"),
    _row("--io-processor-plugin", source="imports a module"),
    _row("--middleware", source="imports a module"),
    _row("--logits-processors", source="imports a class"),
    _row("--worker-cls", source="imports a class"),
    _row("--worker-extension-cls", source="imports a class"),
    _row("--scheduler-cls", source="imports a class"),
    _row("--model-class-overrides", source="imports a class"),
    _row("--omni", source="another program takes over (vllm/entrypoints/cli/main.py)"),
    _row("VLLM_*_SO_PATH", env=("VLLM_CUDART_SO_PATH", "VLLM_NCCL_SO_PATH", "VLLM_CUDA_COMPATIBILITY_PATH",
         "VLLM_RUST_FRONTEND_PATH"), source="libraries and a program by their path"),
    _row("VLLM_ALLOW_INSECURE_SERIALIZATION", env=("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_SERVER_DEV_MODE"),
         source="pickles, and calls of any method, from whoever reaches the port"),
)  # fmt: skip

_LLAMA_CPP: Final = (
    _row("--tools", env=("LLAMA_ARG_TOOLS",), source="clients may run a shell in the worker"),
    _row("--tools-runtime", env=("LLAMA_ARG_TOOLS_RUNTIME",), source="the same, elsewhere"),
    _row("--agent", "-ag", env=("LLAMA_ARG_AGENT",), source="turns --tools on"),
    _row("--mcp-servers-config", env=("LLAMA_ARG_MCP_SERVERS_CONFIG",), source="starts programs"),
    _row("--mcp-servers-json", env=("LLAMA_ARG_MCP_SERVERS_JSON",), source="starts programs"),
    _row("--ui-mcp-proxy", "--webui-mcp-proxy", env=("LLAMA_ARG_UI_MCP_PROXY",),
         source="clients reach whatever the worker reaches"),
    _row("--video-ffmpeg-dir", env=("LLAMA_ARG_VIDEO_FFMPEG_DIR",), source="runs a program from there"),
    _row("GGML_BACKEND_PATH", env=("GGML_BACKEND_PATH",), source="a library by its path"),
)  # fmt: skip

PARSERS_BY_NAME: Final = (
    _row(
        "--reasoning-parser",
        source="an option of its own, not the start of --reasoning-parser-plugin",
    ),
)
"""Options that are the start of one above, and bring no code."""

FOREIGN: Final = {
    EngineName.VLLM: (*_VLLM, *_LOADERS),
    EngineName.LLAMA_CPP: (*_LLAMA_CPP, *_LOADERS),
}
"""By engine."""
FOREIGN_BY_NAME: Final = _BY_NAME
"""Refused besides where a site lists its images."""
