"""What have engines been seen to say before they died?

Short error texts are facts; each row says where it was read. A row that is not there is a death that we do
not know, and then nothing is changed.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple


class DeathKind(StrEnum):
    """Why a worker died or does not start."""

    NO_ROOM_FOR_BLOCKS = "NoRoomForBlocks"
    """The engine's share of the card is used up before one block of KV cache."""
    LENGTH_TOO_LONG = "LengthTooLong"
    """One sequence of the whole length does not fit the KV cache."""
    TOO_MANY_SEQUENCES = "TooManySequences"
    """More sequences than the cache has blocks for their recurrent states."""
    MEMORY_HELD_BY_OTHERS = "MemoryHeldByOthers"
    """Less of the card is free at start than the engine's share."""
    CUDA_OOM_AT_LOAD = "CudaOutOfMemoryAtLoad"
    CUDA_OOM_IN_PROFILE = "CudaOutOfMemoryInProfile"
    """In the run that measures the largest step."""
    CUDA_OOM_AT_CAPTURE = "CudaOutOfMemoryAtCapture"
    """After the KV cache was taken: in its allocation, in graph capture, in warm-up."""
    CUDA_OOM_AT_START = "CudaOutOfMemoryAtStart"
    """Before it was Ready, and the text does not say in which phase."""
    CUDA_OOM_SERVING = "CudaOutOfMemoryServing"
    HOST_OOM_BEFORE_READY = "HostOutOfMemoryBeforeReady"
    """The kernel killed it while it loaded."""
    HOST_OOM_SERVING = "HostOutOfMemoryServing"
    """The kernel killed it later."""
    EVICTED = "Evicted"
    """The node was short of something and the kubelet chose this pod."""
    LIVENESS_KILL = "LivenessKill"
    """It answered no probe any more and the kubelet restarted it."""
    START_TIMED_OUT = "StartTimedOut"
    """It never answered its startup probe and the kubelet restarted it."""
    BAD_FLAG = "BadFlag"
    """The engine's parser does not take an argument."""
    ENGINE_DIED_WITH_ZERO = "EngineDiedWithZero"
    """The engine was gone and its server ended as if all were well."""
    IMAGE_UNUSABLE = "ImageUnusable"
    """The image cannot be had, or does not start."""
    MODEL_UNREADABLE = "ModelUnreadable"
    """The model's files are missing or broken."""
    STOPPED = "Stopped"
    """It was asked to stop, and did."""
    UNKNOWN = "Unknown"


class Text(NamedTuple):
    """One thing that engines say."""

    kind: DeathKind
    """What it means."""
    pattern: re.Pattern[str]
    """Its words; named groups are numbers: `_gib`, `_mib` and so on say the unit."""
    source: str
    """Where it was read."""


def _text(kind: DeathKind, pattern: str, source: str) -> Text:
    return Text(kind, re.compile(pattern, re.IGNORECASE | re.DOTALL), source)


_K = DeathKind
REFUSALS: Final = (
    _text(_K.NO_ROOM_FOR_BLOCKS, r"No available memory for the cache blocks",
          "vLLM 0.33.0 v1/core/kv_cache_planning.py; the same words in 0.4.0 worker/worker.py"),
    _text(_K.NO_ROOM_FOR_BLOCKS, r"No available memory for the cache\b", "vLLM 0.3 worker/worker.py"),
    # "models's" up to 0.16, "model's" later; the opening bracket before the amount is never closed
    _text(_K.LENGTH_TOO_LONG,
          r"max seq len \((?P<max_model_len>\d+)\),\s*\(?(?P<needed_gib>[\d.]+)\s*GiB\s+KV\s+cac\s*h\s*e\s+is\s+needed"
          r",\s+which\s+is\s+larger\s+than\s+the\s+available\s+KV\s+cache\s+memory\s+"
          r"\((?P<available_gib>-?[\d.]+)\s*GiB\)"
          r"(?:.{0,80}?estimated\s+maximum\s+model\s+length\s+is\s+(?P<estimated_max_model_len>\d+))?",
          "vllm-project/vllm#16118, #34076; vLLM 0.33.0 v1/core/kv_cache_planning.py"),
    _text(_K.LENGTH_TOO_LONG,
          r"max seq len \((?P<max_model_len>\d+)\) is larger than the maximum number of tokens that can be "
          r"stored in KV cache \((?P<estimated_max_model_len>\d+)\)",
          "vllm-project/vllm#2418, #10517: up to 0.8 and engine v0"),
    _text(_K.LENGTH_TOO_LONG, r"estimated\s+maximum\s+model\s+length\s+is\s+(?P<estimated_max_model_len>\d+)",
          "the same, its beginning cut off by the 2048 bytes of a termination message"),
    _text(_K.LENGTH_TOO_LONG, r"decreasing `max_model_len`\s+when\s+initializing", "the same, cut off later"),
    _text(_K.TOO_MANY_SEQUENCES,
          r"max_num_seqs \((?P<max_num_seqs>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
          "vLLM 0.33.0 config/compilation.py; vllm-project/recipes#831"),
    _text(_K.MEMORY_HELD_BY_OTHERS,
          r"Free memory on device\s+\S*\s*\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup is less "
          r"than desired GPU memory utilization \((?P<utilization_fraction>[\d.]+), (?P<desired_gib>[\d.]+) GiB\)",
          "vLLM 0.33.0 v1/worker/utils.py; vllm-project/vllm#20305 (0.9.1)"),
    _text(_K.MEMORY_HELD_BY_OTHERS, r"less than desired GPU memory utilization", "the same, cut off"),
    _text(_K.MEMORY_HELD_BY_OTHERS, r"less than the engine's budget after excluding external",
          "vLLM 0.33.0 v1/worker/utils.py, weights held by another process"),
)  # fmt: skip
"""An engine that looked and would not start."""

OUT_OF_CARD_MEMORY: Final = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP) out of memory|(?:CUDA|HIP|ROCm) error: out of memory"
    r"|(?:cuda|hip)Malloc(?:Async)? failed: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|unable to allocate (?:CUDA|ROCm|Vulkan)\d+ buffer|failed to allocate (?:CUDA|ROCm|Vulkan)\d+ buffer"
    r"|not enough GPU memory",
    re.IGNORECASE,
)
"""torch 2.x; llama.cpp: ggml-org/llama.cpp#20431, ollama/ollama#6860, #9782; vLLM 0.33.0 gpu_model_runner.py.
The advice of old vLLM, "If out-of-memory error occurs during cudagraph capture", is none of them."""

PHASES: Final = (
    _text(_K.CUDA_OOM_AT_LOAD,
          r"Failed to load model - not enough GPU memory|\bin load_model\b|\bin load_weights\b"
          r"|process_weights_after_loading|initialize_model\b|error loading model"
          r"|failed to (?:create|initialize the) context|failed to allocate compute buffers"
          r"|failed to create_context with model|failed to load model|alloc_tensor_range",
          "vLLM 0.33.0 v1/worker/gpu_model_runner.py, model_executor/model_loader; ggml-org/llama.cpp#20431"),
    _text(_K.CUDA_OOM_IN_PROFILE,
          r"\bprofile_run\b|determine_available_memory|determine_num_available_blocks|profile_cudagraph_memory"
          r"|memory_profiling",
          "vLLM 0.33.0 v1/worker/gpu_worker.py; 0.6 worker/worker.py"),
    _text(_K.CUDA_OOM_AT_CAPTURE,
          r"warming up (?:sampler|pooler)|\bcapture_model\b|compile_or_warm_up_model"
          r"|allocate_kv_cache|initialize_kv_cache_tensors|in initialize_from_config|in initialize_kv_cache\b",
          "vLLM 0.33.0 v1/worker/gpu_worker.py, gpu_model_runner.py; vllm-project/vllm#18446"),
)  # fmt: skip
"""In which phase of the start a card ran out; the first that is told counts. A graph in the making is no sign:
from 0.18 on the profile run captures some for a trial, when there is no cache yet that could be smaller."""

SHORTAGE: Final = (
    re.compile(
        r"Tried to allocate (?P<tried>[\d.]+ [KMG]?i?B)(?:.{0,120}?total capacity of (?P<total>[\d.]+ [KMG]iB))?"
        r"(?:\s+of which (?P<free>[\d.]+ [KMG]?i?B|\d+ bytes) is free)?",
        re.DOTALL,
    ),
    re.compile(
        r"Tried to allocate (?P<tried>[\d.]+ [KMG]iB) \(GPU \d+; (?P<total>[\d.]+ [KMG]iB) total capacity; "
        r"(?P<allocated>[\d.]+ [KMG]iB) already allocated; (?P<free>[\d.]+ [KMG]iB|0 bytes) free"
    ),
    re.compile(r"(?P<allocated>[\d.]+ [KMG]iB) is allocated by PyTorch"),
    re.compile(r"(?P<graphs>[\d.]+ [KMG]iB) allocated in private pools"),
    re.compile(r"allocating (?P<tried>[\d.]+ MiB) on device \d+: (?:cuda|hip)Malloc failed"),
)  # fmt: skip
"""How much was wanted and how much there was: torch 1.13, torch 2.x, ggml-cuda."""

FLAGS: Final = (
    _text(_K.BAD_FLAG, r"error: unrecognized arguments: (?P<argument>[^\n]+)",
          "Python's argparse, which ends with exit code 2"),
    _text(_K.BAD_FLAG, r"error: argument (?P<argument>[^\n]+)", "the same, for a value"),
    _text(_K.BAD_FLAG, r"error: the following arguments are required: (?P<argument>[^\n]+)", "the same"),
    _text(_K.BAD_FLAG, r"error: invalid argument: (?P<argument>\S+)", "llama-server b11669, exit code 1"),
    _text(_K.BAD_FLAG, r"error while handling argument \"(?P<argument>[^\"]+)\"", "the same, for a value"),
)  # fmt: skip

FILES: Final = (
    _text(_K.MODEL_UNREADABLE, r"failed to open GGUF file '(?P<argument>[^']+)'", "llama-server b11669"),
    _text(_K.MODEL_UNREADABLE, r"invalid magic characters", "llama-server b11669"),
    _text(_K.MODEL_UNREADABLE, r"Cannot find any model weights with `(?P<argument>[^`]+)`",
          "vLLM 0.33.0 model_executor/model_loader/default_loader.py"),
    _text(_K.MODEL_UNREADABLE, r"is not a local folder and is not a valid model identifier|"
          r"Can't load the configuration of|Repo id must (?:be|use)|"
          r"Invalid repository ID or local directory specified|does not appear to have a file named",
          "transformers 4 and 5, huggingface_hub; vLLM 0.33.0 transformers_utils/config.py"),
    _text(_K.MODEL_UNREADABLE, r"Error while deserializing header|HeaderTooLarge|MetadataIncompleteBuffer",
          "safetensors 0.4 and later"),
    _text(_K.MODEL_UNREADABLE, r"We couldn't connect to|LocalEntryNotFoundError|GatedRepoError|RepositoryNotFoundError",
          "huggingface_hub"),
)  # fmt: skip

CHILD_KILLED: Final = re.compile(
    r"Failed core proc\(s\): \{[^}]*:\s*-9\b|died unexpectedly[^\n]{0,40}exit code: -9\b"
)
"""A child of the server was killed with SIGKILL: so does the kernel when the container is out of memory
(vLLM 0.33.0 v1/engine/utils.py, v1/executor/multiproc_executor.py)."""

ROOT_CAUSE_CUT_OFF: Final = re.compile(
    r"See (?:the )?(?:root cause|stack trace) \(?above|Engine core initialization failed"
)
"""vLLM's server speaks last and of its own; what the engine said stands further up in the log than a
termination message goes (vLLM 0.33.0 v1/engine/utils.py, v1/engine/exceptions.py)."""
