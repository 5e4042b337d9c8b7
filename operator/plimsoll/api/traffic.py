"""What must the workers carry, how much may be promised, and what happens at the door and over time?"""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from plimsoll.api.forms import (
    Bytes,
    Count,
    DnsLabel,
    Duration,
    Flagged,
    Image,
    ManifestError,
    ObjectName,
    Percent,
    TimeOfDay,
)
from plimsoll.api.names import repeated
from plimsoll.facts.record import Record
from plimsoll.plan.records import Guarantee
from plimsoll.units import parse_bytes, parse_seconds

MOST_TOKENS: Final = 10_000_000
"""No model reads longer: Llama 4 Scout's 10,485,760 positions are the longest published."""
Tokens = Annotated[Count, Field(ge=1, le=MOST_TOKENS)]


class Lengths(Record):
    """Lengths of prompts or answers, as two quantiles."""

    p50: Tokens
    """Half of the requests are no longer than this, in tokens."""
    p99: Tokens
    """All but one in a hundred are no longer than this, in tokens."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.p50 > self.p99:
            raise ManifestError(
                f"{self.p50} is above p99, which is {self.p99}; "
                "write the median as p50 and the long end as p99",
                field=".p50",
            )
        return self


class Queue(Record):
    """Where requests wait when every slot is taken."""

    length: Annotated[Count, Field(ge=0, le=100_000)] | None = None
    """Requests that may wait; 64 when left out. More are told 429 with Retry-After."""
    timeout: Duration | None = None
    """How long one may wait, e.g. 5s; 10s when left out."""

    @property
    def timeout_seconds(self) -> int | None:
        """The timeout in seconds, None when left out."""
        return None if self.timeout is None else parse_seconds(self.timeout)


class LaneSpec(Record):
    """One class of traffic, with its part of the KV pool."""

    name: DnsLabel
    """Name of the lane."""
    prompt_tokens: Lengths
    """Lengths of prompts."""
    output_tokens: Lengths
    """Lengths of answers."""
    priority: Annotated[Count, Field(ge=0, le=1000)] = 0
    """Lower is served sooner, as in vLLM; 0 when left out."""
    share: Percent
    """Part of the KV pool that is this lane's, e.g. 70%; all lanes together have 100%."""
    borrow: Flagged | None = None
    """Whether it may use what other lanes leave idle; only the shortest lane does when left out."""
    tokens_per_request: Tokens | None = None
    """Prompt and answer of one request at most; the two p99 together when left out."""
    max_per_worker: Annotated[Count, Field(ge=1, le=65536)] | None = None
    """Requests on the fastest worker at once; 2 when left out, for prompts far longer than other lanes'."""
    bytes_per_token: Annotated[float, Field(strict=True, ge=1, le=16)] | None = None
    """Bytes of a body that are one token; learnt from vLLM's traffic when left out, 3 until then."""
    queue: Queue | None = None
    """Where its requests wait; the gateway's queue when left out."""
    keys: Annotated[tuple[DnsLabel, ...], Field(max_length=64)] = ()
    """Names of API keys whose requests are of this lane."""

    @property
    def share_percent(self) -> int:
        """70 for "70%"."""
        return int(self.share.removesuffix("%"))


class Traffic(Record):
    """Lengths of requests: of all together (promptTokens and outputTokens) or by lane (lanes)."""

    prompt_tokens: Lengths | None = None
    """Lengths of prompts, when the traffic is not split into lanes."""
    output_tokens: Lengths | None = None
    """Lengths of answers, when the traffic is not split into lanes."""
    lanes: Annotated[tuple[LaneSpec, ...], Field(max_length=8)] = ()
    """Classes of traffic, each with lengths and a share."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        together = (self.prompt_tokens, self.output_tokens)
        if self.lanes and together != (None, None):
            raise ManifestError(
                "has lanes beside promptTokens or outputTokens; keep the lanes, "
                "or the two lengths for all traffic together"
            )
        if not self.lanes and None in together:
            raise ManifestError(
                "says too little; write both promptTokens and outputTokens, or lanes that have both"
            )
        return self

    @model_validator(mode="after")
    def _lanes_add_up(self) -> Self:
        if twice := repeated(lane.name for lane in self.lanes):
            index, name = twice
            raise ManifestError(
                f"{name!r} is there twice; give each lane its own name", field=f".lanes[{index}]"
            )
        total = sum(lane.share_percent for lane in self.lanes)
        if self.lanes and total != 100:
            each = " + ".join(lane.share for lane in self.lanes)
            raise ManifestError(
                f"{each} is {total}%; change the shares so that they add up to 100%", field=".lanes"
            )
        return self


class Limits(Record):
    """What may be asked of one worker, and what an admitted request may count on."""

    max_model_len: Tokens | None = None
    """Longest prompt and answer together, in tokens; the traffic's p99 decides when left out."""
    concurrency: Annotated[Count, Field(ge=1, le=65536)] | None = None
    """Sequences that one worker must hold at once; the plan decides when left out."""
    guarantee: Guarantee | None = None
    """WorstCase: every admitted request may use its whole length, no request is preempted for want
    of KV. Expected: the chance that live tokens exceed the pool stays below preemptionRisk.
    When left out: Expected where traffic is given, else WorstCase."""
    preemption_risk: Annotated[float, Field(strict=True, gt=0, lt=0.5)] | None = None
    """For Expected: the accepted chance that live tokens exceed the pool; 0.001 when left out."""


class KvCacheDtype(StrEnum):
    """How keys and values are stored. Each engine knows only some of these."""

    AUTO = "auto"
    """The model's own dtype in vLLM, f16 in llama.cpp."""
    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    Q8_0 = "q8_0"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"


class PrefixCaching(StrEnum):
    """Whether vLLM keeps the KV of prompts that begin alike."""

    AUTO = "Auto"
    ON = "On"
    OFF = "Off"


class KvOffloadSpec(Record):
    """KV blocks of prompts kept in host memory; vLLM only."""

    host_memory: Bytes
    """Of one worker, over all its cards, e.g. 64Gi; 0 for none."""
    blocks_per_chunk: Annotated[Count, Field(ge=1, le=1024)] | None = None
    """KV blocks moved together; 1 when left out."""
    chunk_tokens: Tokens | None = None
    """The same in tokens, where all KV groups have one block."""

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        if self.blocks_per_chunk is not None and self.chunk_tokens is not None:
            raise ManifestError(f"{self.chunk_tokens} {ONE_CHUNK}", field=".chunkTokens")
        return self

    @property
    def host_bytes(self) -> int:
        """The host memory in bytes."""
        return parse_bytes(self.host_memory)


ONE_CHUNK: Final = "says the chunk a second time; keep blocksPerChunk or chunkTokens"


class TriedDtype(StrEnum):
    """KV cache dtypes of 8 bit that a probe may let in."""

    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    Q8_0 = "q8_0"


class KvCacheSpec(Record):
    """How keys and values are stored."""

    dtype: KvCacheDtype | None = None
    """KV cache dtype of all pools: auto (when left out), fp8, fp8_e4m3 or fp8_e5m2 in vLLM; q8_0, q5_1,
    q5_0, q4_1 or q4_0 in llama.cpp. Fewer bits may cost long-range retrieval."""
    try_dtype: TriedDtype | None = None
    """What auto becomes once a probe of retrieval has passed and it gains something: fp8, fp8_e4m3 or
    fp8_e5m2 in vLLM, q8_0 in llama.cpp. The probe takes a free card for some minutes."""
    offload: KvOffloadSpec | None = None
    """KV blocks kept in host memory, in all vLLM pools."""
    prefix_caching: PrefixCaching | None = None
    """On (when left out, with advice), Off, or Auto: off once it is seen to gain nothing; vLLM only."""


class Affinity(StrEnum):
    """What keeps the requests of one conversation on one worker."""

    NONE = "None"
    SESSION = "Session"
    CONVERSATION = "Conversation"


class GatewaySpec(Record):
    """The gateway in front of the workers."""

    enabled: Flagged = False
    """Whether there is one; false when left out."""
    queue: Queue | None = None
    """Where requests wait when every slot is taken."""
    replicas: Annotated[Count, Field(ge=1, le=2)] | None = None
    """Gates; 1 when left out. Two share the slots."""
    keys_secret: ObjectName | None = None
    """Secret with API keys by name; none is needed when left out."""
    affinity: Affinity | None = None
    """What keeps a conversation on one worker: None (when left out), Session (X-Session-Id) or Conversation."""
    image: Image | None = None
    """HAProxy's image, 2.6 or newer."""
    inter_token_milliseconds: Annotated[Count, Field(ge=10, le=10_000)] | None = None
    """Longest time between two tokens of an answer while prompts are read; sets vLLM's step."""


class RecyclingMode(StrEnum):
    """Whether a growing worker is replaced."""

    AUTO = "Auto"
    OBSERVE = "Observe"
    OFF = "Off"


class Surge(StrEnum):
    """Whether the successor may start before the worker leaves."""

    WHEN_SPARE = "WhenSpare"
    NEVER = "Never"


class Weekday(StrEnum):
    """Days, as in RFC 5545's long spelling, shortened."""

    MON = "Mon"
    TUE = "Tue"
    WED = "Wed"
    THU = "Thu"
    FRI = "Fri"
    SAT = "Sat"
    SUN = "Sun"


class RecycleWindow(Record):
    """A time of the week in which workers may be recycled."""

    days: Annotated[tuple[Weekday, ...], Field(max_length=7)] = ()
    """Days on which the window opens; every day when left out."""
    start: TimeOfDay
    """When it opens, UTC, e.g. 22:00."""
    end: TimeOfDay
    """When it closes, UTC; at or before start means the next day."""


class RecyclingSpec(Record):
    """When a worker whose resident memory grows is replaced."""

    mode: RecyclingMode | None = None
    """Auto (when left out) recycles, Observe only tells, Off does not look."""
    slope: Bytes | None = None
    """Growth of resident memory per hour above which a worker counts as growing, e.g. 200Mi."""
    time_to_limit: Duration | None = None
    """Recycle when the memory limit would be reached within this time, e.g. 24h."""
    cooldown: Duration | None = None
    """Least time between two recycles of one worker, e.g. 6h."""
    max_per_day: Annotated[Count, Field(ge=0, le=1000)] | None = None
    """Most recycles in 24 hours, over all workers."""
    windows: Annotated[tuple[RecycleWindow, ...], Field(max_length=14)] = ()
    """Times of the week in which workers may be recycled; any time when left out."""
    surge: Surge | None = None
    """WhenSpare starts the successor first where a fitting card is free; Never does not."""
    drain_timeout: Duration | None = None
    """How long a worker that is to leave may finish its requests, e.g. 5m; 10m when left out."""
    recycle_hung: Flagged | None = None
    """Whether a worker that makes no tokens while requests wait is replaced too; true when left out."""

    @property
    def slope_bytes_per_hour(self) -> int | None:
        """The slope in bytes per hour, None when left out."""
        return None if self.slope is None else parse_bytes(self.slope)
