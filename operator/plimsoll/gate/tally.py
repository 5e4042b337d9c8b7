"""What do HAProxy's lines, one per request, add up to?

Counters by lane: requests by status and reason, how long they waited for a slot, how large their bodies
were. The lines hold neither keys nor prompts, and nothing of them is kept but sums.
"""

import json
from bisect import bisect_left
from collections import Counter
from typing import Final, NamedTuple

WAIT_BOUNDS_SECONDS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""Upper bounds of the waits that are counted together."""
NO_LANE: Final = "-"
TAKEN: Final = 200
"""Status of a request whose prompt the engine has counted; others it may have refused unread."""


class Line(NamedTuple):
    """One request, as HAProxy tells of it at its end."""

    lane: str
    """Its lane; "-" for what is of none."""
    status: int
    reason: str
    """Why the gate answered itself; empty where a worker did."""
    waited_seconds: float | None
    """In the queue; None for what never came to it."""
    body_bytes: int | None
    """Size of its body; None where it has none."""


def read_line(text: str) -> Line | None:
    """A line of the log; None for HAProxy's own messages."""
    begin = text.find("{")
    try:
        row = json.loads(text[begin:]) if begin >= 0 else None
        if not isinstance(row, dict):
            return None
        waited, body, reason = int(row["waited_ms"]), str(row["body_bytes"]), str(row["reason"])
        return Line(
            lane=str(row["lane"]),
            status=int(row["status"]),
            reason="" if reason == "-" else reason,
            waited_seconds=waited / 1000 if waited >= 0 else None,
            body_bytes=int(body) if body.isdecimal() else None,
        )
    except (ValueError, KeyError):
        return None


class Tally:
    """Sums since the start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int, str]] = Counter()
        """By lane, status and reason."""
        self.waits: dict[str, list[int]] = {}
        """By lane: how many waited no longer than each bound, and longer than the last."""
        self.wait_seconds: Counter[str] = Counter()
        """By lane: the sum, in milliseconds."""
        self.body_bytes: Counter[str] = Counter()
        """By lane: bytes of bodies that a worker took."""

    def add(self, line: Line) -> None:
        """One more request."""
        self.requests[line.lane, line.status, line.reason] += 1
        if line.waited_seconds is not None:
            counts = self.waits.setdefault(line.lane, [0] * (len(WAIT_BOUNDS_SECONDS) + 1))
            counts[bisect_left(WAIT_BOUNDS_SECONDS, line.waited_seconds)] += 1
            self.wait_seconds[line.lane] += round(1000 * line.waited_seconds)
        if line.body_bytes is not None and line.status == TAKEN:
            self.body_bytes[line.lane] += line.body_bytes

    def waited_p95_seconds(self, lane: str) -> float | None:
        """The bound below which 95 of 100 waits lie; None before the first, inf above the last bound."""
        counts = self.waits.get(lane)
        if not counts:
            return None
        needed, seen = 0.95 * sum(counts), 0
        for bound, count in zip(WAIT_BOUNDS_SECONDS, counts, strict=False):
            seen += count
            if seen >= needed:
                return bound
        return float("inf")
