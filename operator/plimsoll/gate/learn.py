"""How many bytes of a body are one token here?

Between 1.6 (telemetry) and 5.8 (Russian), so no single number is right. Traffic tells: bytes that the gate
passed on beside prompt tokens that the engines counted. The body holds more than the prompt (names of
fields, escapes), which belongs in: the ratio is of bodies. What is learnt stays on the safe side, towards
more tokens, and moves slowly.
"""

from typing import Final, NamedTuple

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
