"""What kind of trouble is a worker in, and what would help?

Memory says whether it grows, latency gives growth its label and does not gate it: real leaks with flat
latency exist, and a step in latency may outlive the leak. Flat memory with requests that wait is pressure,
which a recycle does not cure; what would is proposed.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from plimsoll.diagnose.engine import (
    HUNG_HOURS,
    Engine,
    engine_of,
    middle,
    seconds_without_tokens,
)
from plimsoll.diagnose.latency import LEAST_BINS, Latency, latency_of
from plimsoll.diagnose.records import (
    Cause,
    Evidence,
    Finding,
    Gap,
    Rule,
    Trend,
    Verdict,
    VerdictKind,
)
from plimsoll.diagnose.settings import DEFAULT, SlopeSettings
from plimsoll.diagnose.slope import growth
from plimsoll.facts.series import WorkerHistory
from plimsoll.units import counted

QUEUE_SHARE: Final = 0.25
"""Requests that wait, as a part of those that run, from which on there is a queue: one in five arrivals."""
LEAST_WAITING: Final = 2.0
PREEMPTED_SHARE: Final = 0.05
"""Preemptions per request that explain a latency; alone they are no incident: a real trace of 19,801 requests
with 1,538 preemptions served all of them (inference-sim/inference-sim#963)."""
STORM_SHARE: Final = 0.5
"""Preemptions per request that are an incident whatever the latency says."""
KV_IS_FULL: Final = 0.95
LONGER_PROMPTS: Final = 1.5
SLOW: Final = 0.5
"""Part of the peers' speed at an occupancy alike, below which a card is slow."""
MOST_PEERS: Final = 8
"""Peers that are looked at; in a pool of a hundred they say as much."""


class Signs(NamedTuple):
    """All that a verdict rests on."""

    finding: Finding
    latency: Latency
    engine: Engine
    before: Engine
    """The engine an hour ago and more, as far as it is kept."""
    stuck_seconds: float | None
    peers: Sequence[Engine]
    peers_known: int | None = None
    peers_rising: int | None = None

    @property
    def has_queue(self) -> bool:
        """Whether requests wait in a number that matters."""
        waiting = self.engine.waiting or 0.0
        return waiting >= max(LEAST_WAITING, QUEUE_SHARE * (self.engine.running or 0.0))

    @property
    def is_preempting(self) -> bool:
        """Whether preemptions are more than now and then."""
        share = self.engine.preempted_share
        if share is not None:
            return share >= PREEMPTED_SHARE
        return (self.engine.preemptions_per_hour or 0.0) > 0 and self.kv_is_full

    @property
    def kv_is_full(self) -> bool:
        """Whether the pool is as good as full."""
        return (self.engine.kv_used or 0.0) >= KV_IS_FULL

    @property
    def is_pressed(self) -> bool:
        """Whether load explains a latency."""
        return self.has_queue or self.is_preempting

    @property
    def peers_speed(self) -> float | None:
        """Tokens a second for each request of the other workers, their median."""
        return middle([each.tokens_per_second_per_request for each in self.peers])


def verdict(
    history: WorkerHistory,
    peers: Sequence[WorkerHistory] = (),
    *,
    now_seconds: float,
    settings: SlopeSettings = DEFAULT,
) -> Verdict:
    """What one worker suffers from. `peers` are the pool's other workers, of any number."""
    signs = signs_of(history, peers, now_seconds=now_seconds, settings=settings)
    hung_seconds = HUNG_HOURS * settings.hour_seconds
    if signs.stuck_seconds is not None and signs.stuck_seconds >= hung_seconds:
        return _hung(signs, signs.stuck_seconds)
    if signs.finding.trend is Trend.RISING:
        return _growth(signs)
    if signs.finding.trend is Trend.UNKNOWN:
        return _unknown(signs)
    share = signs.engine.preempted_share or 0.0
    latency = signs.latency
    if latency.is_up or latency.rose_with_load or signs.has_queue or share >= STORM_SHARE:
        return _pressure(signs)
    return Verdict(
        kind=VerdictKind.STEADY,
        sentence=signs.finding.sentence,
        finding=signs.finding,
        evidence=_evidence(signs),
    )


def signs_of(
    history: WorkerHistory,
    peers: Sequence[WorkerHistory],
    *,
    now_seconds: float,
    settings: SlopeSettings,
) -> Signs:
    """Everything that the worker and its peers show."""
    hour = settings.hour_seconds
    recently = hour * max(1.0, LEAST_BINS * settings.bin_hours)
    finding = _finding(history, now_seconds, settings)
    near = sorted(peers, key=lambda peer: peer.pod)[:MOST_PEERS]
    known = rising = None
    if finding.trend is Trend.RISING and near:
        trends = [_finding(peer, now_seconds, settings).trend for peer in near]
        known = sum(trend is not Trend.UNKNOWN for trend in trends)
        rising = sum(trend is Trend.RISING for trend in trends)
    samples = [each for each in history.engine if each.at_seconds <= now_seconds]
    recent = [each for each in samples if each.at_seconds > now_seconds - recently]
    newest = samples[-1].at_seconds if samples else None
    is_fresh = (
        newest is not None
        and now_seconds - newest <= (settings.stale_hours + settings.bin_hours / 2) * hour
    )
    return Signs(
        finding=finding,
        latency=latency_of(
            history.latencies,
            history.bins,
            now_seconds=now_seconds,
            since_seconds=now_seconds if history.ready_seconds is None else history.ready_seconds,
            hour_seconds=recently,
        ),
        engine=engine_of(recent, hour) if is_fresh else Engine(),
        before=engine_of(
            [each for each in samples if each.at_seconds <= now_seconds - recently], hour
        ),
        stuck_seconds=seconds_without_tokens(samples) if is_fresh else None,
        peers=[
            engine_of(
                [s for s in peer.engine if now_seconds - recently < s.at_seconds <= now_seconds],
                hour,
            )
            for peer in near
        ],
        peers_known=known,
        peers_rising=rising,
    )


def _finding(history: WorkerHistory, now_seconds: float, settings: SlopeSettings) -> Finding:
    return growth(
        history.bins,
        now_seconds=now_seconds,
        ready_seconds=history.ready_seconds,
        settings=settings,
        allowance_bytes=history.cache_cap_bytes,
        limit_bytes=history.limit_bytes,
        limit_is_node=history.limit_is_node,
    )


# --- what is said ---------------------------------------------------------------------------------


def _hung(signs: Signs, seconds: float) -> Verdict:
    there = (signs.engine.running or 0.0) + (signs.engine.waiting or 0.0)
    return Verdict(
        kind=VerdictKind.HUNG,
        cause=Cause.NO_PROGRESS,
        sentence=f"The engine says that it is healthy, about {there:.0f} requests are there, and no token "
        f"has come for {seconds / 60:.0f} min.",
        finding=signs.finding,
        evidence=_evidence(signs),
    )


def _growth(signs: Signs) -> Verdict:
    finding, latency = signs.finding, signs.latency
    is_up = latency.is_up is True and not signs.is_pressed
    words = [finding.sentence]
    if is_up:
        words.append(
            f"The time to first token rose over the same hours, from {_seconds(latency.before)} to "
            f"{_seconds(latency.now)} at a load alike. A restart gives the memory back; that it brings the "
            "latency back is not certain."
        )
    elif latency.is_up:
        words.append("The time to first token rose too, which the queue explains.")
    elif latency.is_up is False:
        words.append(f"The time to first token stays near {_seconds(latency.now)}.")
    cause = Cause.OVERRUN if finding.rule is Rule.OVERRUN else None
    known, rising = signs.peers_known, signs.peers_rising
    if known and rising and 2 * (rising + 1) > known + 1:
        words.append(
            f"{rising} of {counted(known, 'other worker')} of the pool rise as well: it is the version or "
            "the load, not this worker."
        )
        cause = cause or Cause.COMMON_CAUSE
    return Verdict(
        kind=VerdictKind.GROWTH if is_up else VerdictKind.QUIET_GROWTH,
        cause=cause,
        sentence=" ".join(words),
        advice=ADVICE_ON_GROWTH,
        finding=finding,
        evidence=_evidence(signs),
    )


ADVICE_ON_GROWTH: Final = (
    "Compare with the engine's release before this one. Memory that stops rising on a host with fewer "
    "processors is held back by the allocator rather than lost: fewer arenas (MALLOC_ARENA_MAX=2) help then."
)


def _unknown(signs: Signs) -> Verdict:
    gap = signs.finding.gap
    is_young = gap in (Gap.WARMING_UP, Gap.TOO_YOUNG)
    return Verdict(
        kind=VerdictKind.WARMING_UP if is_young else VerdictKind.UNKNOWN,
        sentence=signs.finding.sentence,
        finding=signs.finding,
        evidence=_evidence(signs),
    )


def _pressure(signs: Signs) -> Verdict:
    found = (said for ask in CAUSES if (said := ask(signs)))
    cause, why, advice = next(found, _unexplained(signs))
    return Verdict(
        kind=VerdictKind.PRESSURE,
        cause=cause,
        sentence=f"{why} Memory is flat, so that a restart would not help.",
        advice=advice,
        finding=signs.finding,
        evidence=_evidence(signs),
    )


Said = tuple[Cause, str, str]


def _preemptions(signs: Signs) -> Said | None:
    if not signs.is_preempting:
        return None
    share = signs.engine.preempted_share
    often = f"{share:.0%} of requests" if share is not None else "requests"
    return (
        Cause.PREEMPTIONS,
        f"{often[0].upper()}{often[1:]} are preempted for want of KV room.",
        "Lower maxNumSeqs (spec.limits.concurrency), or add a worker.",
    )


def _kv_full(signs: Signs) -> Said | None:
    if not signs.kv_is_full and not (signs.engine.waiting_for_capacity or 0) >= LEAST_WAITING:
        return None
    used = signs.engine.kv_used
    full = f"The KV pool is {used:.0%} full" if used is not None else "The KV pool has no room"
    return (
        Cause.KV_FULL,
        f"{full} and requests wait for room in it.",
        "Lower spec.limits.maxModelLen or concurrency, use fp8 for the KV cache, or add a worker.",
    )


def _long_prompts(signs: Signs) -> Said | None:
    now, before = signs.engine.prompt_tokens_per_request, signs.before.prompt_tokens_per_request
    if now is None or before is None or now < LONGER_PROMPTS * before:
        return None
    return (
        Cause.LONG_PROMPTS,
        f"Prompts have grown from {before:,.0f} to {now:,.0f} tokens.",
        "Give spec.traffic the new lengths, or a lane of its own to long prompts.",
    )


def _slow_card(signs: Signs) -> Said | None:
    mine, theirs = signs.engine.tokens_per_second_per_request, signs.peers_speed
    if mine is None or theirs is None or mine >= SLOW * theirs:
        return None
    alike = middle([each.running for each in signs.peers])
    if alike is None or (signs.engine.running or 0.0) > 1.5 * alike:
        return None  # a fuller batch is slower for each of its requests
    return (
        Cause.SLOW_CARD,
        f"Each request gets {mine:.1f} tokens a second, on the other workers {theirs:.1f}.",
        "Look at the card's clocks, temperature and neighbours; cordon the node if they are not well.",
    )


def _queue(signs: Signs) -> Said | None:
    if not signs.has_queue:
        return None
    waiting = signs.engine.waiting or 0.0
    words = f"About {waiting:.0f} requests wait beside {signs.engine.running or 0:.0f} that run"
    crowded = [each for each in signs.peers if (each.waiting or 0.0) >= LEAST_WAITING]
    if signs.peers and 2 * len(crowded) > len(signs.peers):
        return (
            Cause.TOO_FEW_WORKERS,
            f"{words}, and most other workers have a queue as well.",
            "Add a worker.",
        )
    advice = "Spread requests by load (the gateway does)" if signs.peers else "Add a worker"
    return (Cause.QUEUE, f"{words}.", f"{advice}, or bound the queue so that clients are told 429.")


def _load(signs: Signs) -> Said | None:
    if not signs.latency.rose_with_load:
        return None
    return (
        Cause.QUEUE,
        f"The time to first token rose from {_seconds(signs.latency.at_any_load)} to "
        f"{_seconds(signs.latency.now)}, and so did the load.",
        "Add a worker, or bound the queue so that clients are told 429.",
    )


def _unexplained(signs: Signs) -> Said:
    return (
        Cause.UNEXPLAINED,
        f"The time to first token rose from {_seconds(signs.latency.before)} to "
        f"{_seconds(signs.latency.now)} at a load alike.",
        "Look for a noisy neighbour, for throttling of the card, or for longer prompts.",
    )


CAUSES: Final[tuple[Callable[[Signs], Said | None], ...]] = (
    _preemptions,
    _kv_full,
    _long_prompts,
    _slow_card,
    _queue,
    _load,
)
"""Asked in order; the first that fits is named."""


def _evidence(signs: Signs) -> Evidence:
    engine = signs.engine
    return Evidence(
        ttft_p95_seconds=signs.latency.now,
        ttft_p95_before_seconds=signs.latency.before,
        running=engine.running,
        waiting=engine.waiting,
        waiting_for_capacity=engine.waiting_for_capacity,
        kv_used=engine.kv_used,
        preemptions_per_hour=engine.preemptions_per_hour,
        preempted_share=engine.preempted_share,
        prompt_tokens_per_request=engine.prompt_tokens_per_request,
        prompt_tokens_per_request_before=signs.before.prompt_tokens_per_request,
        tokens_per_second=engine.tokens_per_second,
        tokens_per_second_per_request=engine.tokens_per_second_per_request,
        peers_tokens_per_second_per_request=signs.peers_speed,
        seconds_without_tokens=signs.stuck_seconds,
        peers=signs.peers_known,
        peers_rising=signs.peers_rising,
    )


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g} s"
