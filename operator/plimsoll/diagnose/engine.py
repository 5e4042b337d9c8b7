"""What does an engine say of itself: is it hung, does it queue, does it preempt?"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from plimsoll.diagnose.robust import median
from plimsoll.facts.series import EngineSample

HUNG_HOURS: Final = 0.25
"""Without a token for so long while requests are there, an engine that says it is healthy is hung. A prompt
of a million tokens takes minutes to read, and its tokens count as progress."""


class Engine(NamedTuple):
    """Means and gains over the samples at hand; None where the engine says nothing."""

    running: float | None = None
    waiting: float | None = None
    waiting_for_capacity: float | None = None
    kv_used: float | None = None
    preemptions_per_hour: float | None = None
    preempted_share: float | None = None
    """Preemptions per finished request."""
    prompt_tokens_per_request: float | None = None
    tokens_per_second: float | None = None
    """Generated."""

    @property
    def tokens_per_second_per_request(self) -> float | None:
        """Speed of one request in flight."""
        if self.tokens_per_second is None or not self.running:
            return None
        return self.tokens_per_second / self.running


def engine_of(samples: Sequence[EngineSample], hour_seconds: float = 3600.0) -> Engine:
    """What these samples say together."""
    if not samples:
        return Engine()
    seconds = samples[-1].at_seconds - samples[0].at_seconds
    hours = seconds / hour_seconds
    preemptions = gain([each.preemptions for each in samples])
    requests = gain([each.requests for each in samples])
    prompts = gain([each.prompt_tokens for each in samples])
    generated = gain([each.generated_tokens for each in samples])
    return Engine(
        running=_mean([each.running for each in samples]),
        waiting=_mean([each.waiting for each in samples]),
        waiting_for_capacity=_mean([each.waiting_for_capacity for each in samples]),
        kv_used=_mean([each.kv_used for each in samples]),
        preemptions_per_hour=preemptions / hours if preemptions is not None and hours else None,
        preempted_share=preemptions / requests if preemptions is not None and requests else None,
        prompt_tokens_per_request=prompts / requests if prompts is not None and requests else None,
        tokens_per_second=generated / seconds if generated is not None and seconds else None,
    )


def seconds_without_tokens(samples: Sequence[EngineSample]) -> float | None:
    """How long requests have been there, up to the newest sample, while nothing moved; None unless the
    engine counts tokens and says that it is healthy."""
    if not samples or samples[-1].healthy is not True:
        return None
    newest, since = samples[-1], None
    if _progress(newest) is None:
        return None
    for each in reversed(samples):
        if _progress(each) != _progress(newest) or not _has_requests(each):
            break
        since = each.at_seconds
    return None if since is None else newest.at_seconds - since


def gain(counter: Sequence[float | None]) -> float | None:
    """What a counter gained; a fall is a reset, after which it began at 0. None with fewer than two."""
    known = [value for value in counter if value is not None]
    if len(known) < 2:
        return None
    return sum(b - a if b >= a else b for a, b in pairwise(known))


def middle(values: Sequence[float | None]) -> float | None:
    """Median of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _progress(sample: EngineSample) -> tuple[float | None, ...] | None:
    moved = (sample.generated_tokens, sample.prompt_tokens, sample.requests)
    return moved if sample.generated_tokens is not None else None


def _has_requests(sample: EngineSample) -> bool:
    return (sample.running or 0) + (sample.waiting or 0) > 0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
