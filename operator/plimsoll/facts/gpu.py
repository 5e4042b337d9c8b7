"""What is a card, and what does a node hold?"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

from pydantic import SkipValidation

from plimsoll.facts.record import Named, Record
from plimsoll.facts.source import Confidence, FactSource, Provenance

MOST_NOTES: Final = 8
"""Of nodes' cards in one condition."""


class GpuVendor(StrEnum):
    """Maker of the card."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"


class Fp8(StrEnum):
    """How the card takes fp8, as vLLM 0.32 treats it (vllm/platforms/cuda.py)."""

    NATIVE = "Native"
    WEIGHT_ONLY = "WeightOnly"
    NONE = "None"
    UNKNOWN = "Unknown"


class GpuFacts(Record):
    """One type of card, as a worker will meet it."""

    product: str
    """The name in the node label's spelling, e.g. NVIDIA-RTX-A6000, NVIDIA-A30-MIG-1g.6gb."""
    vendor: GpuVendor = GpuVendor.NVIDIA
    """Maker of the card."""
    total_bytes: int
    """What the driver reports for the whole card (NVML total)."""
    reserved_bytes: int
    """The driver's own part; total minus reserved is what CUDA and torch call total."""
    held_by_others_bytes: int = 0
    """Bytes that other processes hold on this card."""
    compute_capability: str | None = None
    """"8.6" for an A6000; None where nobody said."""
    fp8: Fp8 = Fp8.UNKNOWN
    """How the card takes fp8."""
    bf16: bool | None = None
    """Whether the card computes in bfloat16; None where nobody said."""
    unified_memory: bool = False
    """Whether card and host share one memory (GB10, Jetson)."""
    resource: str = "nvidia.com/gpu"
    """The extended resource that a pod asks for, e.g. nvidia.com/gpu or nvidia.com/mig-1g.10gb."""
    provenance: Provenance
    """Where these facts are from."""

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability as numbers that compare."""
        if self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    @property
    def usable_bytes(self) -> int:
        """What CUDA can give to all processes together: total minus the driver's part."""
        return self.total_bytes - self.reserved_bytes


class Sighting(NamedTuple):
    """What one source says of one kind of card on a node. None is what it does not say."""

    source: FactSource
    """Who says it."""
    detail: str
    """The object, label or line that says it."""
    confidence: Confidence = Confidence.EXACT
    """How its memory was come by."""
    product: str | None = None
    """The name in the node label's spelling."""
    total_bytes: int | None = None
    """The whole card."""
    reserved_bytes: int | None = None
    """The driver's own part."""
    held_by_others_bytes: int | None = None
    """Bytes that processes outside pods hold."""
    compute_capability: str | None = None
    """For example 8.6."""
    fp8: Fp8 | None = None
    """How the card takes fp8."""
    bf16: bool | None = None
    """Whether the card computes in bfloat16."""
    unified_memory: bool | None = None
    """Whether card and host share one memory."""


class GpuProblem(StrEnum):
    """Why a node's cards are not planned for."""

    AMBIGUOUS = "GpuAmbiguous"
    """Several products on one node, known only by labels."""
    MIG_INVALID = "MigInvalid"
    TIME_SLICED = "GpuTimeSliced"
    TYPE_UNKNOWN = "GpuTypeUnknown"
    MEMORY_UNKNOWN = "GpuMemoryUnknown"
    NOT_OFFERED = "NoGpuInReach"
    """There are cards, but no resource that a pod could ask for."""


class NodeGpus(Record):
    """The cards of one type on one node. A MIG-mixed node gives one of these per profile."""

    node: str
    """Name of the node."""
    gpu: GpuFacts
    """The type."""
    count: int
    """Cards (or slices) of this type that the node offers to pods (allocatable)."""
    free: int
    """Of these, the ones that no pod asks for."""
    node_memory_bytes: int | None = None
    """The node's allocatable host memory."""
    match_labels: tuple[Named, ...] = ()
    """Node labels that pick nodes of this type, for node affinity."""
    seen: SkipValidation[tuple[Sighting, ...]] = ()
    """Who said what of it, most trusted first."""
    notes: tuple[str, ...] = ()
    """Where the sources differ, and what else a person should know of these cards."""
    stale: str | None = None
    """Why no plan is made from these facts and none of the cards counts as free: the agent that told
    them has not been heard of. Plans that are held stay."""


class UnplannableNode(Record):
    """A node whose cards cannot be planned for, and why."""

    node: str
    """Name of the node."""
    product: str
    """The product as far as it is known."""
    problem: GpuProblem
    """The reason, a fact."""
    message: str
    """The sentence for the person at kubectl: what was seen, and the way out."""
    resource: str = ""
    """What a pod would ask for, where memory is all that is missing."""
    count: int = 0
    """How many of it the node offers."""
    match_labels: tuple[Named, ...] = ()
    """Node labels that pick such nodes."""
    seen: SkipValidation[tuple[Sighting, ...]] = ()
    """What was said of it all the same."""


class Inventory(Record):
    """Every card in reach."""

    nodes: tuple[NodeGpus, ...] = ()
    """Cards that can be planned for."""
    unplannable: tuple[UnplannableNode, ...] = ()
    """Nodes with cards that cannot."""
    told: tuple[GpuFacts, ...] = ()
    """Types that the user's table describes, whether or not a node in reach has them."""

    @cached_property
    def _kept_index(self) -> "_Index":
        return _index_of(self.nodes)

    @property
    def _index(self) -> "_Index":
        """Made once: hundreds of objects ask about the same thousand nodes. A copy with other nodes takes what
        was kept along, and makes its own."""
        if self._kept_index.nodes is not self.nodes:
            del self.__dict__["_kept_index"]
        return self._kept_index

    def of_type(self, product: str) -> tuple[NodeGpus, ...]:
        """The nodes of one type."""
        return self._index.by_product.get(product, ())

    def types(self) -> tuple[GpuFacts, ...]:
        """One GpuFacts per product: of several nodes the least usable one, so a plan holds on all."""
        return self._index.types

    def stale(self, product: str) -> str | None:
        """Why the facts of this type are too old to start anything from; None while one node's are fresh."""
        of_type = self.of_type(product)
        reasons = [node.stale for node in of_type if node.stale is not None]
        return reasons[0] if reasons and len(reasons) == len(of_type) else None

    def notes(self, products: Collection[str] | None = None) -> tuple[str, ...]:
        """What a person should know of the nodes of these types (None: of all), each with its node; of
        many the first few and their number."""
        found = tuple(
            f"node {node.node}: {note}"
            for node in self._index.noted
            if products is None or node.gpu.product in products
            for note in node.notes
        )
        more = len(found) - MOST_NOTES
        return found if more <= 0 else (*found[:MOST_NOTES], f"{more} more such notes on nodes")


class _Index(NamedTuple):
    """The same nodes by what is asked about them."""

    nodes: tuple[NodeGpus, ...]
    by_product: Mapping[str, tuple[NodeGpus, ...]]
    types: tuple[GpuFacts, ...]
    noted: tuple[NodeGpus, ...]


def _index_of(nodes: tuple[NodeGpus, ...]) -> _Index:
    found: dict[str, list[NodeGpus]] = {}
    for node in nodes:
        found.setdefault(node.gpu.product, []).append(node)
    by_product = {product: tuple(found[product]) for product in sorted(found)}
    types = (
        min((node.gpu for node in of_type), key=lambda gpu: gpu.usable_bytes)
        for of_type in by_product.values()
    )
    return _Index(nodes, by_product, tuple(types), tuple(node for node in nodes if node.notes))
