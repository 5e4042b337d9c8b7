"""What does Plimsoll tell in an InferenceDeployment's status?

Reading is lenient: a status written by an older or newer operator never stops us. What we do not know is
left out, and a plan that cannot be read any more is as good as none.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from plimsoll.api.conditions import Condition
from plimsoll.api.deaths_status import TaughtStatus
from plimsoll.api.retrieval_status import RetrievalStatus
from plimsoll.api.verified_status import VerifiedStatus
from plimsoll.facts.record import Record
from plimsoll.plan.records import Plan, Refusal

LONGEST_LIST: Final = 64
"""Entries of a list in the CRD whose type sets no bound."""
LONGEST_TEXT: Final = 4096
"""Characters of a text in the CRD whose type sets no bound."""


class PrefixCachingStatus(Record):
    """A prefix cache that finds little, and what follows."""

    state: str
    """Watching, NothingToGain, Advised or Off."""
    since: str
    """Since when, RFC 3339 in UTC."""
    message: str = ""
    """What was found."""
    digest: str = ""
    """Digest of what the user said."""


class PoolStatus(Record):
    """One pool: its plan, and how far its workers are."""

    name: str
    """Name of the pool."""
    gpu_product: str = ""
    """GPU type."""
    engine: str = ""
    """vllm or llamaCpp."""
    replicas: int = 0
    """Workers that are there."""
    ready_replicas: int = 0
    """Workers that serve."""
    updated_replicas: int = 0
    """Workers that run the newest template."""
    plan: Plan | None = None
    """The plan that was accepted and is held."""
    plan_digest: str = ""
    """Digest of the question that the plan answers."""
    template_revision: int = 0
    """Counts the changes of the workers' template."""
    refusal: Refusal | None = None
    """Why the newest question has no plan that fits; the held plan goes on meanwhile."""
    message: str = ""
    """The sentence that explains the binding limit, or the refusal."""
    verified: VerifiedStatus | None = None
    """The plan beside the engine's own figures."""
    taught: TaughtStatus | None = None
    """Deaths of workers, and what was changed after them."""
    prefix_caching: PrefixCachingStatus | None = None
    """Where prefix caching finds little."""


class UnplannableStatus(Record):
    """A node whose cards are not planned for."""

    node: str
    """Name of the node."""
    product: str = ""
    """The product as far as it is known."""
    reason: str
    """The fact, in PascalCase."""
    message: str = ""
    """What was seen, and the way out."""


class WorkerStatus(Record):
    """What is known of one worker's memory, and what follows from it."""

    pod: str
    """Name of the pod."""
    uid: str = ""
    """UID of the pod."""
    pool: str = ""
    """Name of its pool."""
    verdict: str
    """Growth, QuietGrowth, Pressure, Steady, WarmingUp, Hung or Unknown."""
    message: str = ""
    """What was seen, and what would help."""
    hold: str = ""
    """Why it is left alone, in PascalCase."""
    hold_message: str = ""
    """The same as a sentence."""
    resident_bytes: int | None = None
    """Floor of its resident memory."""
    limit_bytes: int | None = None
    """Its memory limit, or what its node can give."""
    bytes_per_hour: int | None = None
    """How fast resident memory grows."""
    lower_bytes_per_hour: int | None = None
    """Lower bound of that."""
    upper_bytes_per_hour: int | None = None
    """Upper bound of that."""
    hours_to_limit: float | None = None
    """Hours until the limit at that pace."""
    ttft_p95_seconds: float | None = None
    """95th percentile of the time to first token."""
    kv_used: float | None = None
    """Part of the KV cache in use, 0 to 1."""


class RecycleEntry(Record):
    """One recycle, intended or done."""

    pod: str
    """Name of the pod."""
    uid: str = ""
    """UID of the pod."""
    pool: str = ""
    """Name of its pool."""
    at: str
    """When it was decided, RFC 3339 in UTC."""
    reason: str
    """The fact behind it, in PascalCase."""
    message: str = ""
    """What was seen then."""
    phase: str = ""
    """Surging, Draining, Evicting, Replacing, Done or GivenUp."""
    phase_at: str | None = None
    """Since when, RFC 3339 in UTC."""
    surge: bool = False
    """Whether its successor started first."""
    resident_bytes: int | None = None
    """Resident memory when it was decided."""
    successor_uid: str = ""
    """UID of the pod in its place."""
    ended_at: str | None = None
    """When the successor was warm, or was no longer waited for."""
    helped: bool | None = None
    """Whether the successor did better; left out while that is not known."""


class HoldStatus(Record):
    """Why the worker that needs it most is not recycled."""

    pod: str
    """Name of the pod."""
    reason: str
    """The fact, in PascalCase."""
    message: str = ""
    """The sentence for the person at kubectl."""
    until: str | None = None
    """When it is looked at again, RFC 3339 in UTC."""


class BlockedStatus(Record):
    """An eviction that was not allowed."""

    pool: str
    """Pool of the worker."""
    message: str = ""
    """What stands in the way."""
    until: str
    """When it is tried again, RFC 3339 in UTC."""
    tries: int = 1
    """How often in a row; the wait doubles with each."""


class RecyclingStatus(Record):
    """What was recycled, and what may still be."""

    history: Annotated[tuple[RecycleEntry, ...], Field(max_length=32)] = ()
    """Recycles, newest first; the first may be under way."""
    hold: HoldStatus | None = None
    """Why the worker that needs it most is not recycled."""
    blocked: BlockedStatus | None = None
    """An eviction that was not allowed, until one is."""
    budget_left: int | None = None
    """Recycles that may still happen today."""
    total: int = 0
    """Recycles since the object was made."""


class GatewayStatus(Record):
    """The gate in front of the workers."""

    gates: int = 0
    """Gates that are asked for."""
    ready_gates: int = 0
    """Gates that are ready and know their workers."""
    is_door: bool = False
    """Whether the Service leads to the gates."""
    name: str = ""
    """Name of the gate's Deployment."""
    message: Annotated[str, Field(max_length=512)] = ""
    """Why there is none, or what it cannot serve."""


class InferenceDeploymentStatus(Record):
    """What Plimsoll made of it."""

    observed_generation: int | None = None
    """Generation of the object that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """Planned, PlanVerified, Available, MemoryStable and Ready; Reconciling and Stalled while they hold."""
    replicas: int = 0
    """Workers that are there, over all pools."""
    ready_replicas: int = 0
    """Workers that serve, over all pools."""
    selector: str = ""
    """Label selector of the workers' pods, for the scale subresource."""
    model: str = ""
    """Name of the served model."""
    pool_count: int = 0
    """Number of pools."""
    pools_summary: str = ""
    """The pools' names, or their number when there are many; for `kubectl get`."""
    engine_summary: str = ""
    """The engines in use; for `kubectl get -o wide`."""
    trend: str = ""
    """What resident memory does; for `kubectl get -o wide`."""
    kv_tokens: int = 0
    """Tokens that the KV caches of all ready workers hold together."""
    concurrency: int = 0
    """Sequences that all ready workers take at once."""
    pools: Annotated[tuple[PoolStatus, ...], Field(max_length=64)] = ()
    """One entry per pool."""
    unplannable: Annotated[tuple[UnplannableStatus, ...], Field(max_length=64)] = ()
    """Nodes with cards that are not planned for."""
    workers: Annotated[tuple[WorkerStatus, ...], Field(max_length=64)] = ()
    """Workers and their memory, those in trouble first."""
    diagnosed_at: str | None = None
    """When their figures were written, RFC 3339 in UTC; they stay while the verdicts do, for ten minutes."""
    recycling: RecyclingStatus | None = None
    """What was recycled, and what may still be."""
    retrieval: Annotated[tuple[RetrievalStatus, ...], Field(max_length=16)] = ()
    """Gates before a KV cache of fewer bits, by pool."""
    gateway: GatewayStatus | None = None
    """The gate in front of the workers, where one is asked for."""

    def pool(self, name: str) -> PoolStatus | None:
        """The entry of one pool."""
        return next((pool for pool in self.pools if pool.name == name), None)


GIVEN_UP: Final = (
    ("pools", int, "plan"),
    ("pools", int, "refusal"),
    ("pools", int, "verified"),
    ("pools", int, "taught"),
    ("pools", int, "prefixCaching"),
    ("recycling", "history", int),
    (str, int),
    (str, str),
    (str,),
)
"""What is left out when something in it cannot be read, smallest part first."""


def written(status: InferenceDeploymentStatus) -> dict[str, Any]:
    """As plain data for the API server, every text and list cut to the CRD's bound: one word too many
    would lose the whole status."""
    cut: dict[str, Any] = _cut(status.to_json())
    return cut


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner) for inner in value[:LONGEST_LIST]]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[: LONGEST_TEXT - 3] + "..."
    return value


def read_status(raw: object) -> InferenceDeploymentStatus:
    """As much of a status as can be understood; never raises.

    Unknown fields are passed over. Where a known field has a value that cannot be read, the plan, the
    entry or the field it belongs to is left out.
    """
    if not isinstance(raw, dict):
        return InferenceDeploymentStatus()
    readable: dict[str, Any] = raw
    for _ in range(len(GIVEN_UP)):
        try:
            return InferenceDeploymentStatus.model_validate(readable, extra="ignore")
        except ValidationError as error:
            readable = _without(readable, (each["loc"] for each in error.errors()))
    return InferenceDeploymentStatus()


def _without(raw: dict[str, Any], places: Iterable[tuple[int | str, ...]]) -> dict[str, Any]:
    """A copy without the smallest parts that hold the places."""
    kept = deepcopy(raw)
    parts = {_part(place) for place in places}
    for part in sorted(parts, key=lambda each: [str(step).zfill(9) for step in each], reverse=True):
        holder: Any = kept
        for step in part[:-1]:
            holder = holder[step]
        del holder[part[-1]]
    return kept


def _part(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    for shape in GIVEN_UP:
        steps = zip(shape, place, strict=False)
        if len(place) > len(shape) - 1 and all(
            isinstance(step, wanted) if isinstance(wanted, type) else step == wanted
            for wanted, step in steps
        ):
            return place[: len(shape)]
    return place[:1]
