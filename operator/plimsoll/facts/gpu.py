"""What is a card, and what does a node hold?"""

from enum import StrEnum

from plimsoll.facts.record import Named, Record
from plimsoll.facts.source import Provenance


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


class GpuProblem(StrEnum):
    """Why a node's cards are not planned for."""

    AMBIGUOUS = "GpuAmbiguous"
    """Several products on one node, known only by labels."""
    MIG_INVALID = "MigInvalid"
    TIME_SLICED = "GpuTimeSliced"
    TYPE_UNKNOWN = "GpuTypeUnknown"
    MEMORY_UNKNOWN = "GpuMemoryUnknown"


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


class Inventory(Record):
    """Every card in reach."""

    nodes: tuple[NodeGpus, ...] = ()
    """Cards that can be planned for."""
    unplannable: tuple[UnplannableNode, ...] = ()
    """Nodes with cards that cannot."""

    def types(self) -> tuple[GpuFacts, ...]:
        """One GpuFacts per product: of several nodes the least usable one, so a plan holds on all."""
        smallest: dict[str, GpuFacts] = {}
        for node in self.nodes:
            seen = smallest.get(node.gpu.product)
            if seen is None or node.gpu.usable_bytes < seen.usable_bytes:
                smallest[node.gpu.product] = node.gpu
        return tuple(smallest[product] for product in sorted(smallest))
