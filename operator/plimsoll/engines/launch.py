"""Which engine does a container start, and with which words?"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.engines.base import EngineName
from plimsoll.engines.shell import UNKNOWN, commands_of

SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"})
API_SERVER: Final = "vllm.entrypoints.openai.api_server"
KSERVE_SERVER: Final = "huggingfaceserver"
"""KServe's own server around vLLM (kserve/kserve python/huggingfaceserver)."""
KSERVE_FLAGS: Final = frozenset(
    {
        "--model-name", "--model-dir", "--model-id", "--model-revision", "--max-length", "--disable-lower-case",
        "--disable-special-tokens", "--tensor-input-names", "--task", "--backend", "--return-token-type-ids",
        "--return-probabilities", "--disable-log-requests", "--max-log-len", "--http-port", "--grpc-port",
        "--workers", "--enable-grpc", "--enable-docs-url", "--enable-latency-logging",
    }
)  # fmt: skip
"""Its own flags, beside vLLM's (python/huggingfaceserver/huggingfaceserver/__main__.py and
python/kserve/kserve/model_server.py). What it does not know it passes over without a word."""
OTHERS: Final = {
    "sglang": "SGLang",
    "sglang.launch_server": "SGLang",
    "text-generation-launcher": "TGI",
    "ollama": "Ollama",
    "tritonserver": "Triton",
    "trtllm-serve": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
    "infinity_emb": "Infinity",
    "faster-whisper-server": "faster-whisper",
    "text-embeddings-router": "TEI",
}
"""Servers that are not vLLM or llama.cpp: the program or module, and how its authors write it."""
_PYTHON: Final = re.compile(r"python[\d.]*$")
_REFERENCE: Final = re.compile(r"\$(?P<escaped>\$)?\((?P<name>[A-Za-z_][\w.-]*)\)")
"""kubelet's own expansion of command and args (Kubernetes docs, "Define dependent environment variables")."""


class Launch(NamedTuple):
    """An engine's command line, taken out of all that stands around it."""

    engine: EngineName
    """Which engine."""
    words: tuple[str, ...]
    """What follows the program's name."""
    how: str
    """How it is started, for people."""
    server: str = ""
    """Another program's name for the engine: its release is not the engine's; empty for the engine itself."""
    env: Mapping[str, str] = {}
    """Variables with a known value, as the engine sees them."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Words that are not known before they run."""
        return tuple(word for word in self.words if UNKNOWN in word and not word.startswith("{"))


class NoLaunch(NamedTuple):
    """No engine of ours is started, or none that can be seen."""

    why: str
    """A sentence."""
    is_other: bool = False
    """Whether it is known to be something else."""


def launch_of(
    *, image: str, command: Sequence[str], args: Sequence[str], env: Mapping[str, str]
) -> Launch | NoLaunch:
    """What a container with these fields starts; `env` holds the variables whose value is written."""
    words = tuple(_referred(word, env) for word in (*command, *args))
    for line in (_shell_lines(words, env) if words else ()) or (words,):
        found = _program(line, image)
        if found is not None:
            return found if isinstance(found, NoLaunch) else found._replace(env=env)
    if not command:
        return _by_image(image, words, env)
    if posixpath.basename(words[0]) in SHELLS or words[0].endswith((".sh", ".py")):
        script = next(
            (word for word in words if word.endswith((".sh", ".py"))), " ".join(words)[:60]
        )
        return NoLaunch(f"it starts through {script!r}, which the manifest does not hold")
    return NoLaunch(f"its command is {' '.join(words)[:60]!r}, which starts no engine that we know")


def _referred(word: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match["escaped"]:
            return match[0][1:]
        return env.get(match["name"], match[0])

    return _REFERENCE.sub(value, word)


def _shell_lines(words: tuple[str, ...], env: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """The commands of `sh -c SCRIPT`, wherever that stands among the words."""
    for at, word in enumerate(words):
        if posixpath.basename(word) not in SHELLS:
            continue
        rest = words[at + 1 :]
        for step, option in enumerate(rest):
            if option.startswith("-") and "c" in option.lstrip("-") and not option.startswith("--"):
                script, *arguments = rest[step + 1 :] or ("",)
                return commands_of(script, env, arguments[1:])
            if not option.startswith("-"):
                break
    return ()


def _program(words: Sequence[str], image: str) -> Launch | NoLaunch | None:
    """The engine among the words of one command, behind whatever wraps it (tini, env, numactl, nohup)."""
    for at, word in enumerate(words):
        name = posixpath.basename(word)
        after = tuple(words[at + 1 :])
        if name == "vllm" and after[:1] == ("serve",):
            return Launch(EngineName.VLLM, after[1:], "vllm serve")
        if _PYTHON.match(name):
            found = _module(after)
            if found is not None:
                return found
        if name in ("llama-server", "llama-server.exe"):
            return Launch(EngineName.LLAMA_CPP, after, "llama-server")
        if name == "server" and is_llama_image(image):
            return Launch(EngineName.LLAMA_CPP, after, "server, llama-server's older name")
        if name.startswith("llama-box"):
            return Launch(
                EngineName.LLAMA_CPP, after, "llama-box, GPUStack's build of llama.cpp", "llama-box"
            )
        if name in OTHERS and at == 0:
            return NoLaunch(
                f"it runs {OTHERS[name]}, and Plimsoll plans for vLLM and llama.cpp", True
            )
    return None


def _module(after: tuple[str, ...]) -> Launch | NoLaunch | None:
    """python [-u ...] -m MODULE."""
    for at, word in enumerate(after):
        if word == "-m" and at + 1 < len(after):
            module, words = after[at + 1], after[at + 2 :]
            if module == API_SERVER:
                return Launch(EngineName.VLLM, words, f"python -m {API_SERVER}")
            if module in (KSERVE_SERVER, f"{KSERVE_SERVER}.__main__"):
                return Launch(
                    EngineName.VLLM, words, f"python -m {KSERVE_SERVER}, KServe's", KSERVE_SERVER
                )
            if module in OTHERS:
                return NoLaunch(
                    f"it runs {OTHERS[module]}, and Plimsoll plans for vLLM and llama.cpp", True
                )
            return None
        if not word.startswith("-"):
            return None
    return None


def _by_image(image: str, words: tuple[str, ...], env: Mapping[str, str]) -> Launch | NoLaunch:
    """Nothing but arguments: the image's own entrypoint takes them."""
    path = image.partition("@")[0].lower()
    name = path.rpartition("/")[2].partition(":")[0]
    if KSERVE_SERVER in name:
        return Launch(
            EngineName.VLLM, words, f"the image's entrypoint, {KSERVE_SERVER}", KSERVE_SERVER, env
        )
    if is_llama_image(image):
        rest = words[1:] if words[:1] in (("--server",), ("-s",)) else words
        return Launch(EngineName.LLAMA_CPP, rest, "the image's entrypoint, llama-server", "", env)
    if "vllm" in name and "omni" not in name:
        return Launch(EngineName.VLLM, words, "the image's entrypoint, vllm serve", "", env)
    other = next((told for key, told in OTHERS.items() if key.partition(".")[0] in name), None)
    if other is not None:
        return NoLaunch(
            f"its image {image!r} is {other}'s, and Plimsoll plans for vLLM and llama.cpp", True
        )
    return NoLaunch(
        f"it has no command, and the image {image or 'that nobody named'!r} is not one we know"
    )


def is_llama_image(image: str) -> bool:
    """Whether an image is llama.cpp's: ggml-org/llama.cpp:server-cuda and its kin."""
    path = image.partition("@")[0].lower()
    return any(part in path for part in ("llama.cpp", "llama-cpp", "llamacpp", "llama-server"))


def names_release(image: str, launch: Launch) -> bool:
    """Whether the tag of the image is the engine's release, and not that of what is built around it."""
    name = image.partition("@")[0].lower().rpartition("/")[2].partition(":")[0]
    if launch.server:
        return False
    if launch.engine is EngineName.LLAMA_CPP:
        return is_llama_image(image)
    return "vllm" in name or "/vllm" in image.lower()
