"""What does the agent tell about the cards of one node?

A GPUNode is cluster-scoped, has the node's name, and nothing but a status: only the agent writes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError

from plimsoll.api.conditions import Condition
from plimsoll.api.metadata import Metadata
from plimsoll.facts.gpu import Fp8
from plimsoll.facts.record import Record

KIND: Final = "GPUNode"
PLURAL: Final = "gpunodes"
SHORT_NAME: Final = "gpun"


class GPUNodeCondition(StrEnum):
    """What the agent could and could not see; good when True."""

    DRIVER_ANSWERS = "DriverAnswers"
    """NVML could be asked."""
    CARDS_READ = "CardsRead"
    """Every card answered."""
    MEMORY_KNOWN = "MemoryKnown"
    """Each card's total and the driver's part of it are known."""
    OTHERS_KNOWN = "OthersKnown"
    """Of each card it is known what others than workers hold."""


class Sharing(StrEnum):
    """Whether several pods get the same card."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


class AddressingMode(StrEnum):
    """How the card sees the host's memory."""

    NONE = "None"
    HMM = "HMM"
    """By the kernel's page faults."""
    ATS = "ATS"
    """By the host's own page tables: GH200, GB200, GB10."""


class MigProfile(Record):
    """Slices of one size on a card."""

    profile: str
    """Size of the slice, e.g. 1g.10gb."""
    total_bytes: int | None = None
    """What the driver reports for one slice; left out where it does not say."""
    reserved_bytes: int | None = None
    """The driver's own part of one slice; left out where it does not say."""
    count: int
    """Slices of this size."""
    resource: str
    """The extended resource that a pod asks for, e.g. nvidia.com/mig-1g.10gb."""


class Card(Record):
    """One card, as NVML describes it."""

    uuid: str
    """The card's own name, e.g. GPU-5c89f1a3-..."""
    product: str
    """Name in the node label's spelling, e.g. NVIDIA-RTX-A6000."""
    total_bytes: int | None = None
    """The whole card, as the driver reports it; left out where the driver does not say."""
    reserved_bytes: int | None = None
    """The driver's own part; left out where it does not say."""
    usable_bytes: int | None = None
    """What CUDA calls total and all processes share: total minus reserved."""
    used_bytes: int | None = None
    """What anybody holds now, our workers among them; left out where the driver does not say."""
    held_by_others_bytes: int | None = None
    """What is certainly not a worker's, as last known; left out where that could never be told."""
    compute_capability: str | None = None
    """For example 8.6 for an A6000."""
    fp8: Fp8 = Fp8.UNKNOWN
    """How the card takes fp8: Native, WeightOnly, None or Unknown."""
    bf16: bool | None = None
    """Whether the card computes in bfloat16."""
    unified_memory: bool = False
    """Whether card and host share one memory (GB10, Jetson)."""
    addressing_mode: AddressingMode | None = None
    """How the card sees the host's memory; left out where the driver does not say."""
    ecc: bool | None = None
    """Whether ECC is on; left out where the card has none or the driver does not say."""
    lost: bool = False
    """Whether the card has fallen off the bus; its facts are those of before."""
    mig_enabled: bool = False
    """Whether the card is cut into slices."""
    mig_profiles: Annotated[tuple[MigProfile, ...], Field(max_length=16)] = ()
    """The slices, by size."""
    sharing: Sharing = Sharing.NONE
    """Whether several pods get the same card: none, time-slicing or mps."""


class GPUNodeStatus(Record):
    """What the agent saw."""

    observed_at: str | None = None
    """When these facts were first seen as they are, RFC 3339 in UTC."""
    heartbeat: str | None = None
    """When the agent last looked and the driver answered, RFC 3339 in UTC."""
    driver: str | None = None
    """Version of the driver, e.g. 580.95.05."""
    cards: Annotated[tuple[Card, ...], Field(max_length=64)] = ()
    """The node's cards."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """Whether the agent could see everything."""


def read_gpunode_status(raw: object) -> GPUNodeStatus:
    """As the agent wrote it, unknown fields passed over. What cannot be read is as good as nothing:
    labels and catalogue take over. Never raises."""
    if not isinstance(raw, dict):
        return GPUNodeStatus()
    try:
        return GPUNodeStatus.model_validate(raw, extra="ignore")
    except ValidationError:
        return GPUNodeStatus()


class GPUNode(Record):
    """The cards of one node, as Plimsoll's agent sees them."""

    api_version: Literal["plimsoll.dev/v1alpha1"] = "plimsoll.dev/v1alpha1"
    """plimsoll.dev/v1alpha1."""
    kind: Literal["GPUNode"] = KIND
    """GPUNode."""
    metadata: Metadata
    """The name is the node's."""
    status: Annotated[GPUNodeStatus, BeforeValidator(read_gpunode_status)] = GPUNodeStatus()
    """What the agent saw."""
