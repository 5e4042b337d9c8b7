"""What does the planner take, and what does it give?"""

from enum import StrEnum
from typing import NamedTuple

from plimsoll.engines.base import ByteOwner, EngineName, Flag, LedgerLine
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.lengths import LengthHistogram
from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.facts.record import Named, Record
from plimsoll.facts.source import Provenance
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.lanes import AtTheGate
from plimsoll.plan.reported import Ceiling
from plimsoll.plan.steps import Steps


class Guarantee(StrEnum):
    """What an admitted request may count on."""

    WORST_CASE = "WorstCase"
    """Every admitted request may use its whole length."""
    EXPECTED = "Expected"
    """The chance that live tokens exceed the pool stays below `preemption_risk`."""


class TokenQuantiles(NamedTuple):
    """Lengths of prompts or outputs, as two quantiles of a log-normal."""

    p50: int
    """Half of the requests are no longer than this, in tokens."""
    p99: int
    """All but one in a hundred are no longer than this, in tokens."""


class Lane(NamedTuple):
    """One class of traffic."""

    name: str
    """Name of the lane."""
    prompt_tokens: TokenQuantiles | LengthHistogram
    """Lengths of prompts."""
    output_tokens: TokenQuantiles | LengthHistogram
    """Lengths of answers."""
    share: float = 1.0
    """Its part of the pool's live tokens, 0 to 1."""


class Overrides(NamedTuple):
    """Values that the user pins: honoured, shown as overrides, refused when they cannot work."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    gpu_layers: int | None = None
    ubatch_size: int | None = None
    cache_ram_bytes: int | None = None


class KvOffloadAsk(NamedTuple):
    """KV blocks that are kept in host memory beside the card, as the user asked for it."""

    host_bytes: int
    """Host memory of one worker, over all its cards."""
    chunk_tokens: int | None = None
    """Tokens moved together; one block when neither is said."""
    blocks_per_chunk: int | None = None
    """The same in blocks, which is one unit for every KV group."""


class PlanRequest(NamedTuple):
    """One model, engine, GPU type and traffic."""

    engine: EngineName
    """Which engine."""
    release: str | None
    """Its release as the image's tag or the spec says; None when nobody said."""
    gpu: GpuFacts
    """The card's type."""
    cards: int
    """Cards of one worker: tensor-parallel size in vLLM, devices in llama.cpp."""
    model: ModelFacts | None = None
    """What vLLM loads; None for a llama.cpp pool without it."""
    gguf: GgufFacts | None = None
    """What llama.cpp loads."""
    lanes: tuple[Lane, ...] = ()
    """The traffic; one lane named "all" when it is not split."""
    max_model_len: int | None = None
    """Asked length; None lets the traffic decide."""
    concurrency: int | None = None
    """Sequences that one worker must hold at once; None lets the plan decide."""
    guarantee: Guarantee = Guarantee.WORST_CASE
    """What an admitted request may count on."""
    preemption_risk: float = 0.001
    """For Expected: the chance that live tokens exceed the pool."""
    kv_dtype: str = "auto"
    """KV cache dtype: auto, fp8, fp8_e4m3, fp8_e5m2; for llama.cpp also q8_0, q4_0."""
    overrides: Overrides = Overrides()
    """What the user pins."""
    notes: tuple[str, ...] = ()
    """What is known already and belongs beside the plan, e.g. a contradiction between sources."""
    calibration: tuple[Measurement, ...] = ()
    """What engines took on such cards before; a plan that is held is not made anew for it."""
    ceiling: Ceiling | None = None
    """What the engine held where an earlier plan of this question had promised more."""
    kv_offload: KvOffloadAsk | None = None
    """KV blocks kept in host memory; vLLM only."""
    prefix_caching: bool | None = None
    """Whether prefixes are cached; None leaves it on, as nobody spoke of it."""
    steps: Steps = Steps()
    """What deaths of workers taught."""
    gate: AtTheGate | None = None
    """Lanes at a gate in front of the workers; None without. vLLM only."""


class Reason(StrEnum):
    """Why there is no plan. PascalCase facts, shown as the condition's reason."""

    WEIGHTS_DO_NOT_FIT = "WeightsDoNotFit"
    KV_BUDGET_EXCEEDED = "KvBudgetExceeded"
    LAYERS_DO_NOT_FIT = "LayersDoNotFit"
    LAYOUT_UNKNOWN = "LayoutUnknown"
    MODEL_UNKNOWN = "ModelUnknown"
    GPU_TYPE_UNKNOWN = "GpuTypeUnknown"
    NO_GPU_IN_REACH = "NoGpuInReach"
    HEADS_NOT_DIVISIBLE = "HeadsNotDivisible"
    KV_DTYPE_UNSUPPORTED = "KvDtypeUnsupported"
    KV_OFFLOAD_CANNOT_WORK = "KvOffloadCannotWork"
    LENGTH_BEYOND_MODEL = "LengthBeyondModel"
    OVERRIDE_CANNOT_WORK = "OverrideCannotWork"
    FLAG_IS_PINNED = "FlagIsPinned"
    NOT_ALLOWED_HERE = "NotAllowedHere"
    ENGINE_IMAGE_MISSING = "EngineImageMissing"
    GPU_AMBIGUOUS = "GpuAmbiguous"
    MIG_INVALID = "MigInvalid"
    GPU_TIME_SLICED = "GpuTimeSliced"
    GPU_MEMORY_UNKNOWN = "GpuMemoryUnknown"
    GPU_FACTS_STALE = "GpuFactsStale"
    MODEL_SOURCE_MISSING = "ModelSourceMissing"
    MODEL_SOURCE_UNUSABLE = "ModelSourceUnusable"


class Offer(Record):
    """The nearest thing that would fit."""

    change: str
    """What to change, in the spec's words: limits.concurrency, kvCache.dtype, gpu.perWorker."""
    value: str
    """To which value."""
    sentence: str
    """What that gives."""


class Refusal(Record):
    """It does not fit, and why."""

    reason: Reason
    """The fact."""
    message: str
    """The numbers, one sentence."""
    offers: tuple[Offer, ...] = ()
    """What would fit, nearest first."""

    def sentence(self) -> str:
        """Message and offers as one line for a condition."""
        if not self.offers:
            return self.message
        return (
            f"{self.message} Would fit: " + "; ".join(offer.sentence for offer in self.offers) + "."
        )


class KvBudget(Record):
    """The KV cache of one worker."""

    bytes_per_token_per_card: int
    """Summed over KV groups as if the sequence were long, on one card."""
    bytes_per_token_per_replica: int
    """The same over all cards of the worker."""
    pool_bytes_per_card: int
    """What the pool holds on one card."""
    pool_tokens: int
    """Tokens the pool holds for sequences of max_model_len, whole blocks counted."""
    block_tokens: int | None = None
    """Tokens in one block; None where the engine has cells."""
    dtype: str
    """As pinned."""


class Concurrency(Record):
    """How many sequences at once, and what each number promises."""

    max_num_seqs: int
    """What is pinned."""
    worst_case: int
    """Sequences that may all use max_model_len."""
    expected: int | None = None
    """Sequences whose live tokens exceed the pool with less than the accepted risk, if known."""
    guarantee: Guarantee
    """Which of the two was asked for."""
    safe_mean_tokens: int | None = None
    """With max_num_seqs sequences at once, the mean length up to which they all fit, in tokens."""
    mean_occupied_tokens: int | None = None
    """What max_num_seqs sequences of this traffic take of poolTokens on average, if known."""
    p999_occupied_tokens: int | None = None
    """What they take in all but one of a thousand moments; above poolTokens some would be preempted."""


class KvOffloadPlan(Record):
    """KV blocks of one worker in host memory."""

    host_bytes: int
    """What the engine is told."""
    tokens: int
    """Tokens that it holds at least."""
    shared_memory_bytes: int = 0
    """Its part of /dev/shm; 0 where processes pin memory instead."""


class Plan(Record):
    """What fits, with which settings, and where every byte of the card went."""

    engine: EngineName
    """Which engine."""
    release: str
    """The release whose row of the table was used."""
    gpu_product: str
    """The GPU type."""
    cards: int
    """Cards of one worker."""
    card_bytes: int
    """The whole card, as the driver reports it."""
    ledger: tuple[LedgerLine, ...]
    """Every byte of one card (the fullest) with its owner; sums to card_bytes."""
    kv: KvBudget
    """The KV cache."""
    concurrency: Concurrency
    """Sequences at once."""
    max_model_len: int
    """Prompt and answer together, in tokens."""
    gpu_memory_utilization: float | None = None
    """vLLM only."""
    gpu_layers: int | None = None
    """llama.cpp only: the value of -ngl."""
    layers: int | None = None
    """llama.cpp only: blocks of the model plus one for the output."""
    host_memory_bytes: int
    """What the worker's container needs of host memory (request and limit)."""
    flags: tuple[Flag, ...]
    """All pinned arguments, in order."""
    env: tuple[Named, ...] = ()
    """Environment that belongs to the flags."""
    explanation: str
    """The sentence that explains the binding limit."""
    notes: tuple[str, ...] = ()
    """What else a person should know: an older table row, an override, fp8 quality."""
    provenance: tuple[Provenance, ...] = ()
    """Where the facts are from."""
    kv_offload: KvOffloadPlan | None = None
    """KV blocks in host memory, where asked for."""

    def line(self, owner: ByteOwner) -> int:
        """Bytes of one owner on one card."""
        return sum(entry.bytes for entry in self.ledger if entry.owner is owner)

    def args(self) -> tuple[str, ...]:
        """All pinned flags as one args list."""
        return tuple(word for flag in self.flags for word in flag.as_args())


Outcome = Plan | Refusal
