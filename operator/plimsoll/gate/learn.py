"""How many bytes of a body are one token here?

Between 1.6 (telemetry) and 5.8 (Russian), so no single number is right. Traffic tells: bytes that the gate
passed on beside prompt tokens that the engines counted. The body holds more than the prompt (names of
fields, escapes), which belongs in: the ratio is of bodies. What is learnt stays on the safe side, towards
more tokens, and moves slowly.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from plimsoll.gate.records import LaneRoom

DEFAULT_HUNDREDTHS: Final = 300
"""Bytes per token times 100, until enough was seen."""
LOWEST_HUNDREDTHS: Final = 150
"""Less has no text that people or machines write (measured: docs/measured/gateway.md)."""
HIGHEST_HUNDREDTHS: Final = 600
ENOUGH_TOKENS: Final = 200_000
"""Fewer say little: some long prompts of one kind."""
SAFE_PERCENT: Final = 85
"""Of the ratio that was seen, for one request may be denser than the mean of many."""
SMALLEST_MOVE_PERCENT: Final = 5


class Seen(NamedTuple):
    """Totals over the same time, at the gate and at all engines behind it."""

    body_bytes: int
    """Bytes of bodies that reached a worker."""
    prompt_tokens: int
    """Prompt tokens that the engines counted, cached ones too."""


def hundredths_per_token(seen: Seen, *, now: int = DEFAULT_HUNDREDTHS) -> int:
    """Bytes per token times 100: what is to be used from now on; `now` is what is used so far."""
    if seen.prompt_tokens < ENOUGH_TOKENS or seen.body_bytes <= 0:
        return now
    safe = seen.body_bytes * SAFE_PERCENT // seen.prompt_tokens
    bounded = min(HIGHEST_HUNDREDTHS, max(LOWEST_HUNDREDTHS, safe))
    return now if abs(bounded - now) * 100 < SMALLEST_MOVE_PERCENT * now else bounded


class Look(NamedTuple):
    """Counters at one moment, all since some beginning of their own."""

    body_bytes: int
    """Of all lanes, at the gate."""
    prompt_tokens: Mapping[str, int]
    """By worker's address; every worker that serves is there."""


class Learnt(NamedTuple):
    """What is used, what was seen since it was last judged, and the last look."""

    hundredths: int = DEFAULT_HUNDREDTHS
    seen: Seen = Seen(0, 0)
    last: Look | None = None

    def after(self, look: Look | None) -> "Learnt":
        """With one more look. Between two looks something is learnt only when all engines told both times, are
        the same ones, and none began anew: what one of them counted unseen would make the ratio too large."""
        if (
            look is None
            or self.last is None
            or look.prompt_tokens.keys() != self.last.prompt_tokens.keys()
        ):
            return self._replace(last=look)
        tokens = [
            look.prompt_tokens[each] - before for each, before in self.last.prompt_tokens.items()
        ]
        body_bytes = look.body_bytes - self.last.body_bytes
        if min(tokens, default=-1) < 0 or body_bytes < 0:
            return self._replace(last=look)
        seen = Seen(self.seen.body_bytes + body_bytes, self.seen.prompt_tokens + sum(tokens))
        if seen.prompt_tokens < ENOUGH_TOKENS:
            return self._replace(seen=seen, last=look)
        half = Seen(seen.body_bytes // 2, seen.prompt_tokens // 2)
        return Learnt(hundredths_per_token(seen, now=self.hundredths), half, look)


def ratios(lanes: Iterable[LaneRoom], learnt_hundredths: int) -> dict[str, int]:
    """By lane, bytes per token times 100: the user's word, else what traffic told."""
    return {lane.name: lane.bytes_per_token_hundredths or learnt_hundredths for lane in lanes}


_PROMPT_TOKENS: Final = re.compile(
    r"^vllm:prompt_tokens_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE
)
"""All releases (vLLM 0.8 to 0.33: vllm/v1/metrics/loggers.py). llama-server counts only tokens that it had not
kept (tools/server/README.md, "GET /metrics"), which would make the ratio too large; so of it nothing is learnt."""


def prompt_tokens(page: str) -> int | None:
    """What an engine's page of metrics counts; None where it does not say."""
    found = _PROMPT_TOKENS.findall(page)
    return int(sum(map(float, found))) if found else None
