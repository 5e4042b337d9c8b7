"""What did NVML answer, call by call, and where did it answer with an error?

Raw readings, without opinions. A call that failed is a `Refused` in the place of its answer, so that
nothing which was not told can pass for a zero.
"""

from enum import StrEnum
from typing import TypeVar

from plimsoll.facts.record import Record

T = TypeVar("T")


class Trouble(StrEnum):
    """Why a call gave no answer. The codes are those of nvml.h (nvidia-ml-py 13.615.71)."""

    NOT_SUPPORTED = "NotSupported"
    """3: the card or its mode has no such thing."""
    NO_PERMISSION = "NoPermission"
    """4."""
    NOT_FOUND = "NotFound"
    """6 and 28: there is no such device."""
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    """9."""
    LIBRARY_NOT_FOUND = "LibraryNotFound"
    """12: no libnvidia-ml.so.1 where the loader looks."""
    FUNCTION_NOT_FOUND = "FunctionNotFound"
    """13: the library is older than the call."""
    GPU_LOST = "GpuLost"
    """15: the card has fallen off the bus."""
    RESET_REQUIRED = "ResetRequired"
    """16: the card answers nothing until it is reset."""
    VERSION_MISMATCH = "VersionMismatch"
    """18: library and kernel module are of different releases, as after an upgrade without a reboot."""
    NO_ANSWER = "NoAnswer"
    """10, or the call did not come back at all."""
    OTHER = "Other"
    """Anything else; the words say what."""


class Refused(Record):
    """An error in the place of an answer."""

    trouble: Trouble
    """What kind."""
    says: str = ""
    """The library's own words."""


def told(answer: T | Refused) -> T | None:
    """The answer; None where there is none."""
    return None if isinstance(answer, Refused) else answer


def refusal(answer: object) -> Trouble | None:
    """Why there is no answer; None where there is one."""
    return answer.trouble if isinstance(answer, Refused) else None


class Memory(Record):
    """nvmlDeviceGetMemoryInfo, bytes."""

    total: int
    reserved: int | None = None
    """The driver's and firmware's part; None from the first version of the call, which hides it."""
    used: int | None = None
    """Allocated by processes. None from the first version: there it may hold the reserved part too."""


class Process(Record):
    """One process on a card."""

    pid: int
    """In the process namespace of who asks, or nobody's."""
    used_bytes: int | None = None
    """What it holds; None where the driver does not say."""


class SliceReading(Record):
    """One MIG device."""

    name: str | Refused
    """For example NVIDIA A100-SXM4-40GB MIG 1g.5gb."""
    uuid: str | Refused
    """For example MIG-..."""
    memory: Memory | Refused
    """Of this slice."""
    attributes: tuple[int, int, int] | Refused
    """GPU slices, compute slices, memory in MiB."""


class CardReading(Record):
    """All that was asked of one card."""

    index: int
    """Place in NVML's list, which is no name."""
    name: str | Refused
    """For example NVIDIA RTX A6000."""
    uuid: str | Refused
    """For example GPU-..."""
    memory: Memory | Refused
    """By the newest version of the call that the library has."""
    compute_capability: tuple[int, int] | Refused
    """Major and minor."""
    addressing_mode: int | Refused
    """0 none, 1 HMM, 2 ATS (nvml.h)."""
    ecc: bool | Refused
    """Whether ECC is on now."""
    mig_enabled: bool | Refused
    """Whether MIG is on now."""
    slices: tuple[SliceReading, ...] | Refused = ()
    """The MIG devices; asked where MIG is on."""
    graphics: tuple[Process, ...] | Refused = ()
    """Processes that draw."""
    compute: tuple[Process, ...] | Refused = ()
    """Processes that compute."""


class Reading(Record):
    """One look at the node."""

    driver: str | Refused
    """Version of the driver; why the library did not start, where it did not."""
    cards: tuple[CardReading | Refused, ...] | Refused
    """In NVML's order; an error in a card's place where it gave no handle, in the list's place where
    there was no list."""


class HostMemory(Record):
    """The node's own memory, from /proc/meminfo, bytes."""

    total_bytes: int
    """MemTotal: what the kernel manages. On machines with one memory CUDA calls this total."""
    available_bytes: int
    """MemAvailable: what can be had without swapping; reserved huge pages are not in it."""
    huge_bytes: int = 0
    """Huge pages set aside, used or not: no card takes them."""


def read_meminfo(text: str) -> HostMemory | None:
    """Of /proc/meminfo; None where it does not tell both figures.

    MemFree would leave out reclaimable cache (leptonai/gpud#1170: 7.4 GiB of 119.7), swap is nothing
    that a card could take, and huge pages set aside are in neither.
    """
    sizes: dict[str, int] = {}  # bytes, and plain numbers for what is counted
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit() and words[1:] in ([], ["kB"]):
            sizes[name] = int(words[0]) * (1024 if words[1:] else 1)
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if not total or available is None:
        return None
    return HostMemory(
        total_bytes=total,
        available_bytes=available,
        huge_bytes=sizes.get("HugePages_Total", 0) * sizes.get("Hugepagesize", 0),
    )
