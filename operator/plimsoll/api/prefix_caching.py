"""Is prefix caching worth its room in a pool, and what is told or done where it is not?

It costs no card memory, except where recurrent states are kept at the ends of blocks for it: there the
same question planned without it shows what it takes. Advice needs both, little found for hours and room
to gain; with kvCache.prefixCaching Auto it is then turned off, until the spec says something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.api.judged import Judged, Watched
from plimsoll.api.news import Announcement
from plimsoll.api.prefix_ask import OFF
from plimsoll.api.recycling import seconds_of, text_of
from plimsoll.api.settle import Settled
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.api.status_types import (
    InferenceDeploymentStatus,
    PoolStatus,
    PrefixCachingStatus,
)
from plimsoll.api.traffic import PrefixCaching
from plimsoll.diagnose.prefix import PrefixUse, PrefixVerdict, prefix_verdict, together
from plimsoll.engines.base import EngineName
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan

WATCHING: Final = "Watching"
"""Little is found, not yet for long enough."""
NOTHING_TO_GAIN: Final = "NothingToGain"
"""Little is found, and without it no more would fit."""
ADVISED: Final = "Advised"
"""Little is found, and without it more would fit."""

ADVICE_HOURS: Final = 6.0
"""Little must have been found for so long: a working day's busy half."""
OFF_HOURS: Final = 24.0
"""And for so long before anything is done about it: a whole day's traffic."""
LEAST_GAIN: Final = 0.05
"""Part of the pool's tokens that must be gained: less is within what a plan may be off."""


class PrefixStep(NamedTuple):
    """What the status holds from now on, and what is news."""

    status: PrefixCachingStatus | None = None
    told: tuple[Announcement, ...] = ()


def prefix_steps(
    spec: InferenceDeploymentSpec,
    settled: Sequence[Settled],
    watched: Watched | None,
    workers: Sequence[WorkerFacts],
    held: InferenceDeploymentStatus,
    *,
    now_seconds: float,
) -> dict[str, PrefixStep]:
    """The next step of each pool, by its name. Where nobody watches, what was told stays."""
    steps = {}
    pool_of = {worker.uid: worker.pool for worker in workers}
    for each in settled:
        pool = each.ask.pool
        judged = (
            [one for one in watched.judged if pool_of.get(one.uid) == pool] if watched else None
        )
        hour_seconds = watched.hour_seconds if watched else 3600.0
        steps[pool] = prefix_step(
            spec,
            each,
            judged,
            held.pool(pool),
            now_seconds=now_seconds,
            hour_seconds=hour_seconds,
        )
    return steps


def with_prefixes(
    status: InferenceDeploymentStatus, steps: Mapping[str, PrefixStep]
) -> InferenceDeploymentStatus:
    """The status with each pool's step in it; the same where there is none."""
    if all(step.status is None for step in steps.values()):
        return status
    pools = tuple(
        pool.model_copy(update={"prefix_caching": steps[pool.name].status})
        if pool.name in steps
        else pool
        for pool in status.pools
    )
    return status.model_copy(update={"pools": pools})


class Gain(NamedTuple):
    """The pool's tokens with prefix caching and without."""

    cached_tokens: int
    plain_tokens: int

    @property
    def share(self) -> float:
        """Part that would be gained."""
        return self.plain_tokens / self.cached_tokens - 1


def prefix_step(
    spec: InferenceDeploymentSpec,
    settled: Settled,
    judged: Iterable[Judged] | None,
    before: PoolStatus | None,
    *,
    now_seconds: float,
    hour_seconds: float = 3600.0,
) -> PrefixStep:
    """One pool's next step; `judged` are its own workers, None where nobody watches. What was told
    stays while nothing changes."""
    mode = spec.kv_cache.prefix_caching
    if settled.ask.engine is not EngineName.VLLM or mode in (PrefixCaching.ON, PrefixCaching.OFF):
        return PrefixStep()
    if spec.kv_offload_of(settled.ask.spec) is not None:
        return PrefixStep()  # host memory is found through it
    held = _held(settled, before)
    if judged is None:
        return PrefixStep(held)
    if held is not None and held.state == OFF:
        return PrefixStep(held if mode is PrefixCaching.AUTO else None)
    use = together(each.prefix for each in judged)
    match prefix_verdict(use):
        case PrefixVerdict.USED:
            return PrefixStep()
        case PrefixVerdict.UNKNOWN if held is not None and held.state == WATCHING:
            return PrefixStep()  # hours without evidence count for nothing
        case PrefixVerdict.LITTLE if use is not None and settled.is_planned:
            since = (held and seconds_of(held.since)) or now_seconds
            hours = (now_seconds - since) / hour_seconds
            return _little(settled, use, held, hours=hours, now_seconds=now_seconds, mode=mode)
        case _:
            return PrefixStep(held)


def _held(settled: Settled, before: PoolStatus | None) -> PrefixCachingStatus | None:
    """What the status says of this very question."""
    held = before.prefix_caching if before is not None else None
    return held if held is not None and held.digest == settled.ask.said else None


def _little(
    settled: Settled,
    use: PrefixUse,
    held: PrefixCachingStatus | None,
    *,
    hours: float,
    now_seconds: float,
    mode: PrefixCaching | None,
) -> PrefixStep:
    """Little is found now, as it has been for so many hours."""
    if held is None:
        return PrefixStep(
            PrefixCachingStatus(state=WATCHING, since=text_of(now_seconds), digest=settled.ask.said)
        )
    if held.state == WATCHING and hours >= ADVICE_HOURS:
        return _weighed(settled, use, held)
    if held.state == ADVISED and mode is PrefixCaching.AUTO and hours >= OFF_HOURS:
        message = f"{held.message.partition(' Set ')[0]} It is turned off."
        return _told(held.model_copy(update={"state": OFF, "message": message}), settled)
    return PrefixStep(held)


def _weighed(settled: Settled, use: PrefixUse, held: PrefixCachingStatus) -> PrefixStep:
    """Long enough little: is there room to gain?"""
    found = gain_without(settled)
    words = f"Prefix caching finds {use.share:.1%} of the prompt tokens"
    if found is None or found.share < LEAST_GAIN or found.share <= use.share:
        message = f"{words}, and without it no more would fit: it is left on."
        return PrefixStep(held.model_copy(update={"state": NOTHING_TO_GAIN, "message": message}))
    message = (
        f"{words}, and keeps states for that: without it the pool holds {found.plain_tokens:,} tokens rather "
        f"than {found.cached_tokens:,}. Set kvCache.prefixCaching to Off, or to Auto to have it done."
    )
    return _told(held.model_copy(update={"state": ADVISED, "message": message}), settled)


def _told(status: PrefixCachingStatus, settled: Settled) -> PrefixStep:
    reason = "PrefixCachingTurnedOff" if status.state == OFF else "PrefixCachingFindsLittle"
    event = Announcement(
        type="Normal", reason=reason, message=f"{settled.ask.pool}: {status.message}"
    )
    return PrefixStep(status, (event,))


def gain_without(settled: Settled) -> Gain | None:
    """The same question planned both ways; None where one of them cannot be."""
    request = settled.ask.request
    if request is None:
        return None
    cached = plan(request._replace(prefix_caching=True))
    plain = plan(request._replace(prefix_caching=False))
    if not isinstance(cached, Plan) or not isinstance(plain, Plan) or not cached.kv.pool_tokens:
        return None
    return Gain(cached.kv.pool_tokens, plain.kv.pool_tokens)


def prefix_news(steps: Mapping[str, PrefixStep]) -> tuple[Announcement, ...]:
    """What the steps have to tell."""
    return tuple(told for step in steps.values() for told in step.told)
