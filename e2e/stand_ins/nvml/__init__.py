"""A libnvidia-ml.so.1 of our own, for machines without a card.

It is a stand-in: no driver is behind it. It answers what a file says, call by call, in nvml.h's own
structures, so that the real pynvml and everything above it run as on a GPU node. What a real driver answers
is in the file's hands, and only as true as the file.

    library = build(folder)
    answers = Answers(folder / "answers", driver="580.95.05", cards=[{"name": "NVIDIA RTX A6000", ...}])

A process loads it where LD_LIBRARY_PATH names `library`'s folder and PLIMSOLL_NVML_ANSWERS the file.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
LIBRARY: Final = "libnvidia-ml.so.1"
ANSWERS: Final = "PLIMSOLL_NVML_ANSWERS"
OLD: Final = ("-DOLD_DRIVER",)
"""Leaves out the symbols that came with R510 and later: the second memory call, addressing mode, processes
of the third version."""


def compiler() -> str | None:
    """The C compiler; None where there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path, *flags: str) -> Path:
    """Compile the library into the folder; where it lies."""
    found = compiler()
    if found is None:
        raise RuntimeError("a C compiler is needed for the stand-in of NVML")
    out = folder / LIBRARY
    soname = f"-Wl,-soname,{LIBRARY}"
    words = [found, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", soname, *flags]
    subprocess.run([*words, "-o", str(out), str(HERE / "nvml.c")], check=True)
    return out


def write_answers(path: Path, node: Mapping[str, Any], cards: Sequence[Mapping[str, Any]]) -> Path:
    """The file: a line a key, `node`'s as they are and each card's behind its number.

    `K.error` in a key's place makes the call that asks for K answer with that code of nvml.h. A card's
    `slices` are a list of the same kind.
    """
    lines = [f"{key} {value}" for key, value in node.items()]
    lines.append(f"count {node.get('count', len(cards))}")
    for number, card in enumerate(cards):
        slices = card.get("slices", ())
        lines += [f"{number}.{key} {value}" for key, value in card.items() if key != "slices"]
        for place, each in enumerate(slices):
            lines += [f"{number}.mig.{place}.{key} {value}" for key, value in each.items()]
        if "slices" in card:
            lines.append(f"{number}.slots {card.get('slots', len(slices))}")
    whole = path.with_name(f"{path.name}.new")
    whole.write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole.replace(path)  # a reader sees the old file or the new one
    return path
