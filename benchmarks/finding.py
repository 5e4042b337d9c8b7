"""What was measured, against which target, and how does it look as a table, as JSON and as Markdown?"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from controlplane.build import KUBERNETES, version_of

MIB: Final = 1 << 20
LIBRARIES: Final = ("kopf", "kubernetes", "pydantic", "aiohttp")
MET: Final = {True: "met", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Finding:
    """One number."""

    name: str
    """What it is, for people."""
    value: float
    unit: str
    """x for a ratio, s, MiB, writes."""
    at_most: float | None = None
    """The target; None where the number is only told."""
    detail: str = ""
    """What the number is made of."""
    at_least: float | None = None
    """A target from below."""

    @property
    def is_met(self) -> bool | None:
        """None without a target."""
        if self.at_most is None and self.at_least is None:
            return None
        is_small = self.at_most is None or self.value <= self.at_most
        return is_small and (self.at_least is None or self.value >= self.at_least)

    @property
    def shown(self) -> str:
        """Number and unit."""
        return f"{self.value:.0f} {self.unit}" if self.is_whole else f"{self.value:.2f} {self.unit}"

    @property
    def is_whole(self) -> bool:
        """Whether the unit has no halves worth telling."""
        return self.unit in ("writes", "MiB")

    @property
    def target(self) -> str:
        """The target and whether it was met; empty without one."""
        bounds = (("at most", self.at_most), ("at least", self.at_least))
        asked = [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
        return f"{', '.join(asked)}: {MET[self.is_met]}" if asked else ""


def as_table(findings: Sequence[Finding]) -> str:
    """For a terminal, details below their numbers."""
    width = max(len(finding.name) for finding in findings)
    values = max(len(finding.shown) for finding in findings)
    lines = []
    for finding in findings:
        line = f"{finding.name:{width}}  {finding.shown:>{values}}  {finding.target}"
        lines += [line.rstrip(), *([f"    {finding.detail}"] if finding.detail else [])]
    return "\n".join(lines)


def as_json_lines(findings: Iterable[Finding]) -> str:
    """One object a line."""
    return "\n".join(json.dumps(asdict(each) | {"is_met": each.is_met}) for each in findings)


def as_markdown(findings: Iterable[Finding], *, command: str, day: str) -> str:
    """The block for docs/measured: machine, versions, command, result."""
    rows = [f"| {each.name} | {each.shown} | {each.target} | {each.detail} |" for each in findings]
    return "\n".join(
        [
            f"- machine: {machine()}",
            f"- versions: {versions()}",
            f"- command: `{command}`, {day}",
            "",
            "| what | value | target | made of |",
            "| --- | ---: | --- | --- |",
            *rows,
        ]
    )


def machine() -> str:
    """Processor, cores and memory."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return (
        f"{model}, {cores} cores, {memory_bytes / MIB / 1024:.0f} GiB, Linux {platform.release()}"
    )


def versions() -> str:
    """Kubernetes, Python and the libraries that matter."""
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    kubernetes = f"Kubernetes {version_of(KUBERNETES)}"
    return ", ".join([kubernetes, f"Python {platform.python_version()}", *libraries])
