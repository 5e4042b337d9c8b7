"""What does a diagnosis say, and on what evidence?"""

from enum import StrEnum
from typing import Final

from plimsoll.facts.record import Record


class Trend(StrEnum):
    """Where a worker's resident memory goes."""

    RISING = "Rising"
    FLAT = "Flat"
    UNKNOWN = "Unknown"


class Gap(StrEnum):
    """Why nothing can be said of a trend."""

    NO_DATA = "NoData"
    STALE = "Stale"
    CLOCK_SKEW = "ClockSkew"
    INTERRUPTED = "Interrupted"
    WARMING_UP = "WarmingUp"
    TOO_YOUNG = "TooYoung"
    TOO_FEW_BINS = "TooFewBins"


class Rule(StrEnum):
    """Which rule saw the growth."""

    SLOPE = "Slope"
    """Growth against time over one of the horizons."""
    CLEAN_LINE = "CleanLine"
    """A straight line with next to no scatter, which needs no large growth to be seen."""
    PER_WORK = "PerWork"
    """Growth against tokens or requests done; idle hours neither show nor hide it."""
    OVERRUN = "Overrun"
    """Growth far above a declared cache cap, or a limit so near that no horizon can be waited for."""


class Doubt(StrEnum):
    """Why a rise is told but not yet acted on for its own sake."""

    MAY_BE_FILLING = "MayBeFilling"
    """It has risen since the start and never been flat: a cache that fills looks the same."""
    EARLY = "Early"
    """A clean line, and not yet the growth that any horizon demands."""
    LOAD_UNKNOWN = "LoadUnknown"
    """Less than two days are seen and the load is not: a day's tide looks the same."""


class Finding(Record):
    """Where resident memory goes, and what says so."""

    trend: Trend
    gap: Gap | None = None
    """Why the trend is Unknown."""
    rule: Rule | None = None
    """Which rule saw the growth; None unless Rising."""
    sentence: str = ""
    """What was seen, in one plain sentence."""
    floor_bytes: int | None = None
    """Resident bytes now: the newest floor."""
    grown_bytes: int | None = None
    """Growth over the horizon that saw it."""
    bytes_per_hour: int | None = None
    """Slope over that horizon; while Flat, over the longest one there is data for."""
    lower_bytes_per_hour: int | None = None
    """Lower 95 % bound of the slope."""
    upper_bytes_per_hour: int | None = None
    """Upper 95 % bound of the slope."""
    horizon_hours: float | None = None
    """Hours that the slope was taken over."""
    bytes_per_work: float | None = None
    """Growth per token or request done, when that is what shows it."""
    since_start: bool = False
    """No flat stretch has been seen in this container's life: the growth may be a cache that fills."""
    doubt: Doubt | None = None
    """What else the rise could be; None when it is growth beyond that, or not Rising."""
    hours_to_limit: float | None = None
    """Until the limit is reached at the slope seen, its lower bound; None without limit or growth."""
    limit_is_node: bool = False
    """The container has no memory limit and the node's allocatable memory stands in."""


class VerdictKind(StrEnum):
    """What kind of trouble a worker is in."""

    GROWTH = "Growth"
    """Memory rises and so does the time to first token."""
    QUIET_GROWTH = "QuietGrowth"
    """Memory rises; the time to first token does not, or is not known."""
    PRESSURE = "Pressure"
    """Memory is flat and requests wait: more load than the worker can carry."""
    STEADY = "Steady"
    WARMING_UP = "WarmingUp"
    HUNG = "Hung"
    """The engine says that it is healthy, requests wait, and no token comes."""
    UNKNOWN = "Unknown"


class Cause(StrEnum):
    """What a verdict traces the trouble to."""

    PREEMPTIONS = "Preemptions"
    KV_FULL = "KvFull"
    QUEUE = "Queue"
    LONG_PROMPTS = "LongPrompts"
    SLOW_CARD = "SlowCard"
    TOO_FEW_WORKERS = "TooFewWorkers"
    UNEXPLAINED = "Unexplained"
    OVERRUN = "Overrun"
    COMMON_CAUSE = "CommonCause"
    NO_PROGRESS = "NoProgress"


class Evidence(Record):
    """Numbers behind a verdict; what is not known is left out."""

    ttft_p95_seconds: float | None = None
    """Of the last hour."""
    ttft_p95_before_seconds: float | None = None
    """Of the hours before: the level that the last hour is compared with."""
    running: float | None = None
    """Mean requests in flight."""
    waiting: float | None = None
    """Mean requests that wait."""
    waiting_for_capacity: float | None = None
    kv_used: float | None = None
    """Mean part of the KV pool in use, 0 to 1."""
    preemptions_per_hour: float | None = None
    preempted_share: float | None = None
    """Preemptions per finished request."""
    prompt_tokens_per_request: float | None = None
    prompt_tokens_per_request_before: float | None = None
    tokens_per_second: float | None = None
    """Generated tokens."""
    tokens_per_second_per_request: float | None = None
    """Generated tokens a second for each request in flight."""
    peers_tokens_per_second_per_request: float | None = None
    """The same of the pool's other workers, their median."""
    seconds_without_tokens: float | None = None
    """How long requests have been there and no token came."""
    peers: int | None = None
    """Other workers of the pool whose trend is known."""
    peers_rising: int | None = None


class Verdict(Record):
    """What is wrong with a worker, if anything, and what would help."""

    kind: VerdictKind
    cause: Cause | None = None
    sentence: str
    """One plain sentence for people."""
    advice: str = ""
    """The change of plan that would help; empty when there is none."""
    finding: Finding
    """What memory does."""
    evidence: Evidence = Evidence()

    @property
    def is_growth(self) -> bool:
        """Whether memory grows, with latency or without."""
        return self.kind in GROWING


GROWING: Final = frozenset({VerdictKind.GROWTH, VerdictKind.QUIET_GROWTH})
