"""What do all engines answer, and in which words?"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.facts.record import Record
from plimsoll.facts.source import Confidence


class EngineName(StrEnum):
    """The engines we plan for."""

    VLLM = "vllm"
    LLAMA_CPP = "llamaCpp"


class ByteOwner(StrEnum):
    """Who owns a part of the card; the ledger keeps this order and always sums to the card."""

    DRIVER = "Driver"
    OTHERS = "OtherProcesses"
    CONTEXT = "Context"
    """CUDA context, cuBLAS handles, loaded kernels."""
    WEIGHTS = "Weights"
    ACTIVATION = "ActivationPeak"
    """vLLM: the profile's peak. llama.cpp: the compute buffer."""
    COLLECTIVES = "Collectives"
    """NCCL and custom all-reduce buffers."""
    GRAPHS = "CudaGraphs"
    KV_CACHE = "KvCache"
    HEADROOM = "Headroom"


class LedgerLine(Record):
    """Some bytes of one card, their owner and where the number is from."""

    owner: ByteOwner
    """Whose bytes these are."""
    bytes: int
    """How many, on one card."""
    confidence: Confidence
    """How the number was come by."""
    source: str
    """The formula, table or public reference behind it."""


class Flag(Record):
    """One argument of the engine as we pin it."""

    name: str
    """The flag's full name, e.g. --max-model-len."""
    value: str | None = None
    """Its value; None for a switch."""
    reason: str = ""
    """Why it has this value, for `plimsoll plan`."""
    override: bool = False
    """Whether the user set it."""

    def as_args(self) -> tuple[str, ...]:
        """As the container's args list."""
        return (self.name,) if self.value is None else (self.name, self.value)


class FlagRow(NamedTuple):
    """One flag in an engine's table: from which release to which."""

    name: str
    """Full name."""
    source: str
    """Where this row is from."""
    aliases: tuple[str, ...] = ()
    """Other spellings the parser takes."""
    env: tuple[str, ...] = ()
    """Environment variables that say the same; one that ends with * stands for all that begin so."""
    since: str | None = None
    """First release that has it; None when older than our table."""
    until: str | None = None
    """First release that does not have it any more."""


HANDED_CARDS: Final = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MPS_*",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
)
"""Variables that say which cards a container has. The first is how NVIDIA's device plugin hands them out, and
its runtime gives whatever a pod writes there: `all` takes the cards of others (NVIDIA/k8s-device-plugin,
README, deviceListStrategy)."""

_NUMBERS: Final = re.compile(r"\d+")


class Release(NamedTuple):
    """An engine's release, comparable: vLLM 0.22.1 is (0, 22, 1), llama.cpp b11434 is (11434,)."""

    text: str
    """As written: 0.22.1, b11434."""
    numbers: tuple[int, ...]
    """For comparison."""

    @classmethod
    def of(cls, text: str) -> "Release":
        """Read "v0.22.1", "0.22.1" or "b11434". Raises ValueError when there is no number in it."""
        numbers = tuple(int(number) for number in _NUMBERS.findall(text.split("+", maxsplit=1)[0]))[
            :3
        ]
        if not numbers:
            raise ValueError(f"{text!r} has no release number in it")
        return cls(text=text.removeprefix("v"), numbers=numbers)

    def is_before(self, other: str) -> bool:
        """Whether this release is older than `other`."""
        return self.numbers < Release.of(other).numbers


def has_flag(row: FlagRow, release: Release) -> bool:
    """Whether the release's parser knows the flag."""
    born = row.since is None or not release.is_before(row.since)
    gone = row.until is not None and not release.is_before(row.until)
    return born and not gone
