"""What does the user's own table say of their cards?

It is the chart's value `gpuTypes`, and what stands in it is believed before anything else. A row is
for a product, on the nodes that its selector picks; the first row that fits a card counts.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from plimsoll.catalog.gpus import same_product
from plimsoll.facts.gpu import Fp8, Sighting
from plimsoll.facts.record import Record
from plimsoll.facts.source import Confidence, FactSource
from plimsoll.units import parse_bytes


def _bytes(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("write bytes, or a quantity such as 47Gi")
    return parse_bytes(value)


Size = Annotated[int, BeforeValidator(_bytes)]
"""Bytes, or a Kubernetes quantity of them."""


class GpuProfile(Record):
    """One row: what is left out is taken from the next source."""

    product: Annotated[str, Field(min_length=1, max_length=253)]
    """As in the node's label (or the driver's name), slices too: NVIDIA-A30-MIG-1g.6gb."""
    node_selector: Mapping[str, str] = Field(default_factory=dict, max_length=16)
    """Labels that a node must have; without any the row is for every node with this product. With some
    it also names the cards of nodes whose own labels name none."""
    total: Annotated[Size, Field(gt=0)] | None = None
    """The memory of one card, or what a pod sees of it: bytes or a quantity, e.g. 47Gi."""
    reserved: Annotated[Size, Field(ge=0)] | None = None
    """The driver's own part of it, which CUDA does not count."""
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")] | None = None
    """For example "8.6"."""
    fp8: Fp8 | None = None
    """Native, WeightOnly or None."""
    bf16: bool | None = None
    """Whether the card computes in bfloat16."""
    unified_memory: bool | None = None
    """Whether card and host share one memory."""

    @model_validator(mode="after")
    def _has_room(self) -> "GpuProfile":
        if self.total is not None and self.reserved is not None and self.reserved >= self.total:
            raise ValueError(f"reserved {self.reserved} leaves nothing of total {self.total}")
        return self

    def is_for_node(self, labels: Mapping[str, str]) -> bool:
        """Whether the row speaks of this node."""
        return all(labels.get(name) == value for name, value in self.node_selector.items())

    def sighting(self) -> Sighting:
        """The row as one voice among others."""
        return Sighting(
            source=FactSource.PROFILE,
            detail=f"gpuTypes, {self.product}",
            confidence=Confidence.TABLE,
            product=self.product,
            total_bytes=self.total,
            reserved_bytes=self.reserved,
            compute_capability=self.compute_capability,
            fp8=self.fp8,
            bf16=self.bf16,
            unified_memory=self.unified_memory,
        )


MOST_PROFILES: Final = 256
_TABLE: Final = TypeAdapter(Annotated[tuple[GpuProfile, ...], Field(max_length=MOST_PROFILES)])


def read_profiles(raw: object) -> tuple[GpuProfile, ...]:
    """The table as the chart writes it: a list of rows, or an object with such a list as `gpuTypes`, as the
    chart's values are.

    Raises ValueError that names each row, field and value that cannot be read.
    """
    if isinstance(raw, Mapping) and "gpuTypes" in raw:
        raw = raw["gpuTypes"]
    try:
        return _TABLE.validate_python(raw or ())
    except ValidationError as error:
        problems = "; ".join(_told(each) for each in error.errors(include_url=False))
        raise ValueError(problems) from error


def find_profile_of(
    profiles: Sequence[GpuProfile], labels: Mapping[str, str], product: str | None
) -> GpuProfile | None:
    """The first row for this node and product; with None, for a node whose labels name no product,
    the first whose selector is not empty and picks the node."""
    for profile in profiles:
        if not profile.is_for_node(labels):
            continue
        is_meant = same_product(profile.product, product) if product else profile.node_selector
        if is_meant:
            return profile
    return None


def _told(error: Any) -> str:
    row, *path = error["loc"] or ("",)
    where = ".".join(str(part) for part in path)
    return f"gpuTypes[{row}]{'.' if where else ''}{where}: {error['msg']} (got {error['input']!r})"
