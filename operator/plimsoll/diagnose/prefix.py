"""Does prefix caching find anything, as far as the engines' counters say?

Counters are of tokens: asked of the cache, and found there. llama-server has none, and an engine without
them says nothing: unknown, and no advice.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.diagnose.engine import gain
from plimsoll.facts.series import EngineSample

LITTLE_SHARE: Final = 0.02
"""Part of the asked tokens found, up to which the cache finds next to nothing."""
ENOUGH_SHARE: Final = 0.05
"""From here on it is used. Between the two nothing changes, so that no advice comes and goes."""
LEAST_TOKENS: Final = 200_000
"""Tokens asked, over the workers of a pool, before a share is believed: at 2 % found, 4,000 tokens. Below
half of it nothing is known; between the two nothing changes."""


class PrefixUse(NamedTuple):
    """What the cache was asked and found, over some time."""

    asked_tokens: float
    """Prompt tokens looked up."""
    found_tokens: float
    """Of those in the cache."""

    @property
    def share(self) -> float:
        """Part found, 0 to 1."""
        return self.found_tokens / self.asked_tokens if self.asked_tokens else 0.0


class PrefixVerdict(StrEnum):
    """What is to be said of a pool's prefix cache."""

    UNKNOWN = "Unknown"
    LITTLE = "FindsLittle"
    BETWEEN = "Between"
    USED = "Used"


def use_of(samples: Sequence[EngineSample]) -> PrefixUse | None:
    """What one engine's counters gained over these samples; None where they say nothing of it."""
    both = [each for each in samples if None not in (each.prefix_queries, each.prefix_hits)]
    asked = gain([each.prefix_queries for each in both])
    found = gain([each.prefix_hits for each in both])
    if asked is None or found is None or found > asked:
        return None
    return PrefixUse(asked, found)


def together(uses: Iterable[PrefixUse | None]) -> PrefixUse | None:
    """All workers of a pool; None where none of them says anything."""
    known = [use for use in uses if use is not None]
    if not known:
        return None
    return PrefixUse(sum(use.asked_tokens for use in known), sum(use.found_tokens for use in known))


def prefix_verdict(use: PrefixUse | None) -> PrefixVerdict:
    """Whether the cache is of use, as far as enough was asked of it to say."""
    if use is None or use.asked_tokens < LEAST_TOKENS / 2:
        return PrefixVerdict.UNKNOWN
    if use.asked_tokens < LEAST_TOKENS:
        return PrefixVerdict.BETWEEN
    if use.share <= LITTLE_SHARE:
        return PrefixVerdict.LITTLE
    return PrefixVerdict.USED if use.share >= ENOUGH_SHARE else PrefixVerdict.BETWEEN
