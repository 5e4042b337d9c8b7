"""What does the decision to replace a worker rest on, and what can it be?"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.diagnose.records import Cause, Verdict, VerdictKind
from plimsoll.facts.record import Record

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY


class Mode(StrEnum):
    """What may be done about a growing worker; the words of spec.recycling.mode."""

    AUTO = "Auto"
    OBSERVE = "Observe"
    OFF = "Off"


class Window(NamedTuple):
    """A time of the week in which workers may be recycled, UTC."""

    start_minute: int
    """Minutes after midnight."""
    end_minute: int
    """Minutes after midnight; at or before the start means the next day."""
    days: tuple[int, ...] = ()
    """0 is Monday; every day when empty."""


class Policy(NamedTuple):
    """What spec.recycling asks for, with what holds when it says nothing."""

    mode: Mode = Mode.AUTO
    urgent_seconds: float = 24 * HOUR
    """spec.recycling.timeToLimit: nearer than this to the limit, the next free slot is taken."""
    report_seconds: float = 72 * HOUR
    """Farther than this from the limit, quiet growth is only told."""
    cooldown_seconds: float = 6 * HOUR
    """spec.recycling.cooldown: between two recycles of one worker or its successor."""
    max_per_day: int | None = None
    """spec.recycling.maxPerDay; None: two for each replica, at most 6."""
    windows: tuple[Window, ...] = ()
    """spec.recycling.windows; any time when empty."""
    may_surge: bool = True
    """spec.recycling.surge is WhenSpare."""
    recycle_hung: bool = True
    settle_seconds: float = 120.0
    """After the operator's start: twice the time in which it looks at everyone once."""
    stale_seconds: float = 120.0
    """Memory that was last seen longer ago than this says nothing."""
    warm_up_seconds: float = HOUR
    """After Ready."""
    relapse_seconds: float = DAY
    """A successor that is as bad within this time shows that the recycle did not help."""
    stall_seconds: float = WEEK
    """How long recycles that did not help are held against the next one."""
    useless_recycles: int = 2
    """Recycles in a row that did not help before it stops."""
    canaries: int = 1
    """Recycles that are tried while most workers of the pool rise together."""
    jitter: float = 0.2
    """Longest lengthening of the cooldown, as a part of it."""


class Worker(NamedTuple):
    """The worker in question, or a peer of it."""

    pod: str
    uid: str
    pool: str
    verdict: Verdict
    is_ready: bool = True
    ready_seconds: float | None = None
    """Since when it is Ready."""
    newest_seconds: float | None = None
    """When its memory was last seen."""
    is_leaving: bool = False
    """Drained, evicted or deleted already, by whomever."""


class Past(NamedTuple):
    """A recycle that was intended or done, as recorded."""

    at_seconds: float
    """When the intent was recorded."""
    pod: str
    uid: str
    pool: str
    verdict: VerdictKind
    floor_bytes: int | None = None
    """Resident bytes when it was chosen."""
    successor_uid: str | None = None
    ended_seconds: float | None = None
    """When the successor was Ready and warm, or the attempt was given up; None: still in flight."""
    helped: bool | None = None
    """What `outcome` said of it; None while it is too early to say."""


class Situation(NamedTuple):
    """How things stand around the worker."""

    replicas_wanted: int
    """Of the worker's pool."""
    operator_started_seconds: float
    peers: tuple[Worker, ...] = ()
    """Other workers of the same pool and template."""
    is_rolling_out: bool = False
    """A new template, plan or scale is on its way."""
    node_is_draining: bool = False
    """The worker's node is cordoned or being emptied."""
    in_flight: str | None = None
    """What else keeps the one slot: "pod chat-a-7 is being recycled"; None when it is free."""
    blocked: str | None = None
    """Why the last eviction of this worker was refused (a disruption budget), while that holds."""
    blocked_until_seconds: float | None = None
    is_autoscaled: bool = False
    """An autoscaler owns the number of replicas: no surge by us."""
    has_spare_card: bool = False
    """A fitting card is free for a successor."""


class Case(NamedTuple):
    """All that the decision rests on."""

    now_seconds: float
    worker: Worker
    policy: Policy
    situation: Situation
    past: tuple[Past, ...] = ()
    """Recorded recycles of the deployment, any order; older than `stall_seconds` do not matter."""
    draw: float = 0.0
    """A number in [0, 1) that is the same for the same worker, for the jitter."""


class HoldReason(StrEnum):
    """Why a worker is left alone."""

    OFF = "Off"
    NO_DATA = "NoData"
    STALE_DATA = "StaleData"
    WARMING_UP = "WarmingUp"
    STEADY = "Steady"
    PRESSURE = "Pressure"
    HUNG_IS_LEFT = "HungIsLeft"
    OPERATOR_JUST_STARTED = "OperatorJustStarted"
    LEAVING = "Leaving"
    MAY_BE_FILLING = "MayBeFilling"
    EARLY = "Early"
    LOAD_UNKNOWN = "LoadUnknown"
    LIMIT_IS_FAR = "LimitIsFar"
    NO_LIMIT = "NoLimit"
    STALLED = "Stalled"
    CANARY_AWAITED = "CanaryAwaited"
    COMMON_CAUSE = "CommonCause"
    ROLLING_OUT = "RollingOut"
    NODE_IS_DRAINING = "NodeIsDraining"
    RECYCLE_IN_FLIGHT = "RecycleInFlight"
    PEER_IS_DOWN = "PeerIsDown"
    COOLING_DOWN = "CoolingDown"
    BUDGET_IS_SPENT = "BudgetIsSpent"
    BLOCKED = "RecycleBlocked"
    LAST_REPLICA = "LastReplica"
    OUTSIDE_WINDOW = "OutsideWindow"
    OBSERVING = "Observing"


class Hold(Record):
    """The worker is left alone, for this reason."""

    reason: HoldReason
    sentence: str
    until_seconds: float | None = None
    """When it is worth asking again, where that is known (epoch seconds)."""


class Recycle(Record):
    """The worker is to be replaced."""

    pod: str
    uid: str
    reason: VerdictKind
    """The verdict that it is replaced for."""
    sentence: str
    surge: bool = False
    """Start the successor before this one leaves."""
    hours_to_limit: float | None = None
    floor_bytes: int | None = None


def next_open(windows: Sequence[Window], now_seconds: float) -> float:
    """When a window is open next: now, if one is open or there are none."""
    if not windows:
        return now_seconds
    midnight = now_seconds - now_seconds % DAY
    opens = []
    for window in windows:
        lasts = (window.end_minute - window.start_minute) % 1440 or 1440
        for day in range(-1, 8):
            start = midnight + day * DAY + window.start_minute * 60
            weekday = int((midnight + day * DAY) // DAY + 3) % 7  # 1 January 1970 was a Thursday
            if (not window.days or weekday in window.days) and now_seconds < start + lasts * 60:
                opens.append(max(now_seconds, start))
                break
    return min(opens)


def is_overrun(worker: Worker) -> bool:
    """Whether it grows so far beyond its declared caps that no window can be waited for."""
    return worker.verdict.cause is Cause.OVERRUN


def can_surge(case: Case) -> bool:
    """Whether the successor may and can start before this one leaves."""
    situation = case.situation
    return case.policy.may_surge and situation.has_spare_card and not situation.is_autoscaled


def recent(case: Case, seconds: float) -> list[Past]:
    """Newest first. What is stamped ahead of our clock counts as recent: a budget errs downwards."""
    since = case.now_seconds - seconds
    return sorted((p for p in case.past if p.at_seconds > since), key=lambda p: -p.at_seconds)


def time_words(seconds: float) -> str:
    """For people: "40 s", "25 min", "6 h", "3 days"."""
    for size, unit, most in ((1, "s", 120), (60, "min", 120), (HOUR, "h", 72)):
        if seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / DAY:.0f} days"
