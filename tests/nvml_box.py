"""A node whose cards answer what a test wants: the stand-in of NVML below, the real pynvml above."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from plimsoll.agent import nvml
from plimsoll.agent.reading import CardReading, HostMemory, Reading, Refused
from plimsoll.agent.status import status_of
from plimsoll.api.gpunode import Card, GPUNodeStatus
from plimsoll.api.inventory import inventory
from plimsoll.facts.gpu import Inventory
from stand_ins.nvml import ANSWERS, build, compiler, write_answers

MIB = 1 << 20
NOW = "2026-11-30T12:00:00Z"
LATER = "2026-11-30T12:02:00Z"
NOTHING = GPUNodeStatus()
NEEDS_COMPILER = pytest.mark.skipif(
    compiler() is None, reason="the stand-in of NVML is a C library, and there is no C compiler"
)
"""CI has one: requirements of the control plane's build are checked there."""
A6000: Mapping[str, Any] = {
    "name": "NVIDIA RTX A6000",
    "uuid": "GPU-a",
    "memory": 49140 * MIB,
    "reserved": 464 * MIB,
    "used": 0,
    "capability": "8.6",
    "ecc": 0,
    "addressing": 0,
}


class Box:
    """The library, loaded, and the file that it answers from."""

    def __init__(self, library: Path, answers: Path) -> None:
        self.library = library
        self.answers = answers

    def say(self, *cards: Mapping[str, Any], **node: Any) -> None:
        """From now on these cards answer this."""
        write_answers(self.answers, {"driver": "580.95.05", **node}, cards)

    def first(self, *cards: Mapping[str, Any]) -> CardReading:
        """The raw answers of the first card."""
        told = self.read(*cards).cards
        assert not isinstance(told, Refused)
        assert isinstance(told[0], CardReading)
        return told[0]

    def read(self, *cards: Mapping[str, Any], **node: Any) -> Reading:
        """What the agent's room makes of it."""
        self.say(*cards, **node)
        return nvml.read()

    def status(
        self,
        *cards: Mapping[str, Any],
        host: HostMemory | None = None,
        before: GPUNodeStatus = NOTHING,
        now: str = NOW,
        said: Mapping[str, Any] | None = None,
    ) -> GPUNodeStatus:
        """What would be published; `said` is of the whole node."""
        return status_of(self.read(*cards, **(said or {})), host, before, now)

    def card(self, *cards: Mapping[str, Any], **rest: Any) -> Card:
        """The only card of that."""
        (card,) = self.status(*cards, **rest).cards
        return card


@contextmanager
def loaded(folder: Path, *flags: str) -> Iterator[Box]:
    """Build it and put it where pynvml keeps what it has loaded."""
    answers = folder / "answers"
    library = build(folder, *flags)
    kept = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), os.environ.get(ANSWERS)
    os.environ[ANSWERS] = str(answers)
    pynvml.nvmlLib = ctypes.CDLL(str(library))
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield Box(library, answers)
    finally:
        pynvml.nvmlLib = kept[0]
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(kept[1])
        os.environ.pop(ANSWERS, None)
        if kept[2] is not None:
            os.environ[ANSWERS] = kept[2]


def reason(status: GPUNodeStatus, condition: str) -> tuple[str, str]:
    """Status and reason of one condition."""
    found = next(each for each in status.conditions if each.type == condition)
    return found.status.value, found.reason


def message(status: GPUNodeStatus, condition: str) -> str:
    """Its sentence."""
    return next(each for each in status.conditions if each.type == condition).message


def in_reach(status: GPUNodeStatus, **allocatable: str) -> Inventory:
    """What the operator makes of that status, on a node without labels."""
    offered = {name.replace("__", "/"): count for name, count in allocatable.items()}
    node = {
        "metadata": {"name": "n", "labels": {}},
        "status": {"allocatable": offered or {"nvidia.com/gpu": str(len(status.cards))}},
    }
    return inventory([node], [{"metadata": {"name": "n"}, "status": status.to_json()}], {})
