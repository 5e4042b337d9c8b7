"""What should a person try next whose record says nothing of growth yet?"""

from __future__ import annotations

import statistics
from typing import Final

from plimsoll.cli.replay import Recording, Replay
from plimsoll.diagnose.case import time_words
from plimsoll.diagnose.records import GROWING, Gap, Verdict, VerdictKind
from plimsoll.diagnose.settings import DEFAULT
from plimsoll.units import MIB, counted

MUCH_BYTES_PER_HOUR: Final = 10 * MIB
"""Memory that falls by more, hour for hour, is going somewhere."""
COLUMN: Final = (
    "The first column is seconds: minutes are multiplied by 60, hours by 3600; numbers of requests are no "
    "times and belong into --work. "
)
WARM_SECONDS: Final = DEFAULT.warm_up_hours * 3600


def too_short(recording: Recording, found: Replay) -> dict[str, str]:
    """When not a single bin was full."""
    seconds = recording.memory[-1].at_seconds - recording.memory[0].at_seconds
    if found.lives > 1:
        return {
            "verdict": VerdictKind.WARMING_UP.value,
            "sentence": f"The newest of {found.lives} lives has only begun.",
            "advice": _on_lives(found),
        }
    sentence = f"The record spans {seconds:.0f} s with {len(recording.memory)} samples"
    if seconds < found.bin_seconds:
        return {
            "verdict": VerdictKind.UNKNOWN.value,
            "sentence": f"{sentence}: less than one bin of {found.bin_seconds:.0f} s.",
            "advice": f"{COLUMN}A short load test is judged with --hour.",
        }
    return {
        "verdict": VerdictKind.UNKNOWN.value,
        "sentence": f"{sentence}: no bin of {found.bin_seconds:.0f} s has enough in it.",
        "advice": "Give a sample each 30 s or so.",
    }


def hint(said: Verdict, found: Replay) -> str:
    """What else to try where nothing is said of growth yet."""
    gap = said.finding.gap
    if found.lives > 1 and (said.kind in (VerdictKind.WARMING_UP, VerdictKind.UNKNOWN)):
        return _on_lives(found)
    if gap in (Gap.WARMING_UP, Gap.TOO_YOUNG):
        is_short = sum(found.life_seconds) < WARM_SECONDS
        return (COLUMN if is_short else "") + (
            "Give a longer record, or judge a load test that packs hours into minutes with --hour; --warm-up "
            "is for a worker that is warm sooner."
        )
    upper = said.finding.upper_bytes_per_hour
    falls = upper is not None and upper < -MUCH_BYTES_PER_HOUR
    most = max(each.floor_bytes for each in found.bins)
    if falls or (said.kind is VerdictKind.STEADY and found.bins[-1].floor_bytes < most / 2):
        return (
            "Memory that falls may have been swapped out: RSS alone does not show that. Give anonymous memory "
            "and swap together, or the swap with --swap."
        )
    return ""


def _on_lives(found: Replay) -> str:
    """Of a container that was started again and again."""
    usual = statistics.median(found.life_seconds[:-1])
    words = f"Memory fell back {counted(found.lives - 1, 'time')} as a restart does, after {time_words(usual)} "
    words += "or so."
    if found.before in GROWING:
        return f"{words} The life before came to {found.before}."
    if usual < WARM_SECONDS:
        words += (
            " It is started anew before it is warm: look at why it ends (the memory limit while weights load, "
            "a probe), for that is no growth that a recycle would cure."
        )
    return words
