"""What do the raw answers say of each card?

Pure. What no answer told stays out; nothing is guessed, and nothing of a worker is counted as somebody
else's.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from plimsoll.agent.reading import (
    CardReading,
    HostMemory,
    Refused,
    SliceReading,
    Trouble,
    refusal,
    told,
)
from plimsoll.api.gpunode import AddressingMode, Card, MigProfile
from plimsoll.catalog.gpus import find_type, fp8_of, label_form
from plimsoll.units import GIB, MIB, round_up

K = TypeVar("K")

INTEGRATED: Final = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Compute capabilities of chips whose GPU has no memory of its own: TX1, TX2, Xavier, Orin, Thor (10.1
before CUDA 13, 11.0 since), GB10. Source: NVIDIA's list of compute capabilities by product."""
INTEGRATED_NAMES: Final = re.compile(r"\b(?:Tegra|Xavier|Orin|Thor|GB10|N1X?)\b|\(nvgpu\)")
"""The same by NVML's name, for libraries that tell no capability: "Orin (nvgpu)", "NVIDIA GB10"."""
BF16_SINCE: Final = (8, 0)
"""vLLM 0.32.0 vllm/platforms/cuda.py: bfloat16 from compute capability 8.0."""
IDLE_BYTES: Final = 32 * MIB
"""Below this nobody computes on a card: a CUDA context alone takes more, and idle cards show up to 18 MiB
for driver and console (nvidia-smi listings behind data/gpus.json)."""
OTHERS_STEP_BYTES: Final = 16 * MIB
"""What others hold is told in these steps, upwards, and anew only when it has moved by two of them: what
trembles must not make plans anew."""

_ADDRESSING: Final = {0: AddressingMode.NONE, 1: AddressingMode.HMM, 2: AddressingMode.ATS}
_ATS: Final = 2
_PROFILE: Final = re.compile(r"\bMIG (?P<profile>(?:\d+c\.)?\d+g\.\d+gb\S*)$")
_NEVER: Final = (None, Trouble.NOT_SUPPORTED, Trouble.FUNCTION_NOT_FOUND)
LOST: Final = (Trouble.GPU_LOST, Trouble.RESET_REQUIRED)
"""Answers of a card on which nothing runs until somebody resets it or the node."""


def card_of(reading: CardReading, host: HostMemory | None, before: Card | None) -> Card:
    """One card. What this look could not tell is as in `before`, the same card when it was seen last."""
    old = before or Card(uuid="", product="")
    name, capability = told(reading.name), told(reading.compute_capability)
    product = old.product if name is None else label_form(name)
    total, reserved, used = _memory(reading, host, product)
    if total is None and (_may_come_back(reading.memory) or is_unified(reading, product)):
        total, reserved = old.total_bytes, old.reserved_bytes
    slices = told(reading.slices)
    return Card(
        uuid=told(reading.uuid) or old.uuid,
        product=product,
        total_bytes=total,
        reserved_bytes=reserved,
        usable_bytes=None if total is None or reserved is None else total - reserved,
        used_bytes=used,
        held_by_others_bytes=_held_by_others(
            reading,
            used,
            old.held_by_others_bytes,
            host.huge_bytes if host is not None and is_unified(reading, product) else 0,
        ),
        compute_capability=_dotted(capability) or old.compute_capability,
        fp8=old.fp8 if capability is None else fp8_of(capability),
        bf16=old.bf16 if capability is None else capability >= BF16_SINCE,
        unified_memory=is_unified(reading, product) or (name is None and old.unified_memory),
        addressing_mode=_kept(
            reading.addressing_mode,
            _ADDRESSING.get(told(reading.addressing_mode) or 0),
            old.addressing_mode,
        ),
        ecc=_kept(reading.ecc, told(reading.ecc), old.ecc),
        lost=is_lost(reading),
        mig_enabled=bool(_kept(reading.mig_enabled, told(reading.mig_enabled), old.mig_enabled)),
        mig_profiles=old.mig_profiles if slices is None else profiles_of(slices, total),
    )


def is_lost(reading: CardReading) -> bool:
    """Whether the card answers nothing any more."""
    return any(refusal(each) in LOST for each in (reading.name, reading.uuid, reading.memory))


def is_unified(reading: CardReading, product: str) -> bool:
    """Whether card and host share one memory: by what the chip is, or because the driver has no memory
    to tell of and addresses the host's.

    ATS alone says nothing: GH200 and GB200 have it, and memory of their own.
    """
    if told(reading.compute_capability) in INTEGRATED:
        return True
    if INTEGRATED_NAMES.search(told(reading.name) or ""):
        return True
    if (listed := find_type(product) if product else None) is not None and listed.unified_memory:
        return True
    is_hidden = refusal(reading.memory) is Trouble.NOT_SUPPORTED
    return is_hidden and told(reading.addressing_mode) == _ATS


def profiles_of(slices: Sequence[SliceReading], card_bytes: int | None) -> tuple[MigProfile, ...]:
    """The MIG devices by size, each size with the least that one of its slices has."""
    sizes: dict[str, list[SliceReading]] = {}
    for each in slices:
        if (name := profile_name(each, card_bytes)) is not None:
            sizes.setdefault(name, []).append(each)
    return tuple(_profile(name, sizes[name]) for name in sorted(sizes))


def profile_name(reading: SliceReading, card_bytes: int | None) -> str | None:
    """The size of a slice in the resource's spelling: 1g.10gb, 1c.2g.20gb, 1g.10gb.me; None where neither
    name nor attributes tell it.

    From the name, else (drivers before R470) from the attributes by the rule of NVIDIA/go-nvlib
    pkg/nvlib/device/mig_profile.go: the part of the card in eighths, rounded up, of its whole GiB.
    """
    if (name := told(reading.name)) and (match := _PROFILE.search(name)):
        return match["profile"].lower().replace("+", ".")
    attributes = told(reading.attributes)
    if attributes is None or not card_bytes:
        return None
    slices, compute_slices, memory_mib = attributes
    eighths = -(-memory_mib * MIB * 8 // card_bytes)
    gigabytes = round(eighths * -(-card_bytes // GIB) / 8)
    compute = "" if compute_slices == slices else f"{compute_slices}c."
    return f"{compute}{slices}g.{gigabytes}gb"


def _profile(name: str, slices: Sequence[SliceReading]) -> MigProfile:
    totals = [_slice_memory(each) for each in slices]
    known = [each for each in totals if each is not None]
    total, reserved = (
        min(known, key=lambda each: each[0] - (each[1] or 0))
        if len(known) == len(totals)
        else (None, None)
    )
    return MigProfile(
        profile=name,
        total_bytes=total,
        reserved_bytes=reserved,
        count=len(slices),
        resource=f"nvidia.com/mig-{name}",
    )


def _slice_memory(reading: SliceReading) -> tuple[int, int | None] | None:
    """Total and the driver's part; a part of nothing is one that was not told."""
    memory, attributes = told(reading.memory), told(reading.attributes)
    if memory is not None and memory.total:
        return memory.total, memory.reserved or None
    return None if attributes is None or not attributes[2] else (attributes[2] * MIB, None)


def _memory(
    reading: CardReading, host: HostMemory | None, product: str
) -> tuple[int | None, int | None, int | None]:
    """Total, the driver's part, and what anybody holds, bytes.

    Where host and card share one memory, CUDA's total is the kernel's MemTotal (AGX Orin 32 GB: 30622 MiB,
    both), whatever NVML answers: nothing on GB10, 8128 MiB of a larger pool on N1X (unslothai/unsloth#10283).
    """
    if is_unified(reading, product):
        if host is None:
            return None, None, None
        return host.total_bytes, 0, host.total_bytes - host.available_bytes
    memory = told(reading.memory)
    if memory is None or not memory.total:
        return None, None, None
    return memory.total, memory.reserved or None, memory.used


def _held_by_others(
    reading: CardReading, used: int | None, before: int | None, huge_bytes: int
) -> int | None:
    """Bytes that are certainly not a worker's; what was known before, where nothing is certain now.

    Without the host's process table nobody can tell whose a computing process is: lists of processes are in
    the asker's own namespace, where a worker may be missing (NVIDIA/open-gpu-kernel-modules, _gpuConvertPid).
    Certain are three things: on a card where nobody computes, all that is held is others'; a process that
    draws and does not compute is no worker, so that what such hold is the least that others hold; and so are
    huge pages of a memory that card and host share.
    """
    if used is not None and used < IDLE_BYTES:
        return _steadied(used, before)
    graphics, compute = told(reading.graphics), told(reading.compute)
    least = huge_bytes
    if graphics and compute is not None:
        computing = {each.pid for each in compute} | {0}
        least += sum(each.used_bytes or 0 for each in graphics if each.pid not in computing)
    return _steadied(least, before) if least > (before or 0) else before


def _steadied(size_bytes: int, before: int | None) -> int:
    new = round_up(size_bytes, OTHERS_STEP_BYTES)
    is_near = before is not None and abs(new - before) < 2 * OTHERS_STEP_BYTES
    return before if is_near and before is not None else new


def _may_come_back(answer: object) -> bool:
    """Whether an answer is missing for now only; then what was known stays."""
    return refusal(answer) not in _NEVER


def _kept(answer: object, now: K | None, before: K | None) -> K | None:
    if isinstance(answer, Refused):
        return before if _may_come_back(answer) else None
    return now


def _dotted(capability: tuple[int, int] | None) -> str | None:
    return None if capability is None else f"{capability[0]}.{capability[1]}"
