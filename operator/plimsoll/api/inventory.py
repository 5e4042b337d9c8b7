"""Which cards are in reach, and who says so?

Who is believed is `trust`'s to say; which kinds of card a node holds is `card_kinds`'. Never the sum of
two sources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.api.agent_cards import MIG_RESOURCE, WHOLE_CARD, too_old
from plimsoll.api.card_kinds import CardKind, card_kinds
from plimsoll.api.gpunode import GPUNodeStatus, read_gpunode_status
from plimsoll.api.trust import Agreed, HostMemory, agree
from plimsoll.catalog.dra import Device, devices_by_node
from plimsoll.catalog.gpus import find_gpu, split_slice
from plimsoll.catalog.nvidia_labels import memory_unknown
from plimsoll.catalog.profiles import GpuProfile
from plimsoll.facts.gpu import GpuFacts, Inventory, NodeGpus, Sighting, UnplannableNode
from plimsoll.facts.source import FactSource
from plimsoll.units import parse_bytes

Manifest = Mapping[str, Any]

STALE_SECONDS: Final = 900.0
"""What an agent said is too old to start anything from after so long."""


def inventory(
    nodes: Sequence[Manifest],
    gpu_nodes: Sequence[Manifest],
    requested: Mapping[tuple[str, str], int],
    *,
    resource_slices: Sequence[Manifest] = (),
    profiles: Sequence[GpuProfile] = (),
    now_seconds: float | None = None,
    stale_seconds: float = STALE_SECONDS,
    known: NodeReader | None = None,
) -> Inventory:
    """Every card in reach.

    `nodes`, `gpu_nodes` and `resource_slices` are objects as the API server gives them,
    `requested[(node, resource)]` the cards that pods on the node ask for, `profiles` the user's own
    table. Nodes that are being deleted are passed over; a node that is not Ready or is cordoned keeps
    its plan, for it may come back. Without `now_seconds` (Unix time), as for a dump, nothing is stale.
    `known` remembers what nodes said before, under the same profiles and age.
    """
    reader = NodeReader(profiles, stale_seconds=stale_seconds) if known is None else known
    statuses = {each["metadata"]["name"]: each.get("status") for each in gpu_nodes}
    devices = devices_by_node(resource_slices)
    seen: list[NodeGpus] = []
    passed_over: list[UnplannableNode] = []
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        if node["metadata"].get("deletionTimestamp"):
            continue
        name = node["metadata"]["name"]
        for found in reader.cards(node, statuses.get(name), devices.get(name, ()), now_seconds):
            if isinstance(found, UnplannableNode):
                passed_over.append(found)
            else:
                seen.append(_with_use(found, node, requested))
    return Inventory(nodes=tuple(seen), unplannable=tuple(passed_over), told=told_types(profiles))


class _Read(NamedTuple):
    """One node as it was read last."""

    node: Manifest
    status: Manifest | None
    devices: Sequence[Device]
    agent: GPUNodeStatus
    stale: str | None
    found: tuple[NodeGpus | UnplannableNode, ...]


class NodeReader:
    """What each node's cards are, thought about anew only where something it is read from has changed: of a
    thousand nodes hardly any changes between two looks."""

    def __init__(self, profiles: Sequence[GpuProfile], *, stale_seconds: float) -> None:
        self._profiles = profiles
        self._stale_seconds = stale_seconds
        self._read: dict[tuple[str, bool], _Read] = {}

    def cards(
        self,
        node: Manifest,
        status: Manifest | None,
        devices: Sequence[Device],
        now_seconds: float | None,
    ) -> tuple[NodeGpus | UnplannableNode, ...]:
        """The kinds of card on a node, all of them free. `status` is its GPUNode's."""
        name = node["metadata"]["name"]
        key = name, bool(devices)
        was = self._read.get(key)
        is_told_same = was is not None and was.status == status
        agent = was.agent if was is not None and is_told_same else read_gpunode_status(status)
        stale = None
        if now_seconds is not None:
            stale = too_old(name, agent, now_seconds=now_seconds, stale_seconds=self._stale_seconds)
        if (
            was is not None
            and is_told_same
            and (was.node, was.devices, was.stale) == (node, devices, stale)
        ):
            return was.found
        found = tuple(_of_node(node, agent, devices, self._profiles, stale))
        self._read[key] = _Read(node, status, devices, agent, stale, found)
        return found

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the other nodes: they are gone."""
        self._read = {key: read for key, read in self._read.items() if key[0] in names}


def told_types(profiles: Sequence[GpuProfile]) -> tuple[GpuFacts, ...]:
    """Types whose memory the user's table tells for any node: planned for also where no node has them."""
    found = (
        agree(each.product, _resource(each.product), (each.sighting(),))
        for each in profiles
        if each.total is not None and not each.node_selector
    )
    return tuple(each.gpu for each in found if each is not None)


def _resource(product: str) -> str:
    """What a pod asks for where no node says it."""
    listed = find_gpu(product)
    if listed is not None:
        return listed.resource
    parts = split_slice(product)
    return WHOLE_CARD if parts is None else f"{MIG_RESOURCE}{parts[1]}"


def _with_use(
    found: NodeGpus, node: Manifest, requested: Mapping[tuple[str, str], int]
) -> NodeGpus:
    used = requested.get((found.node, found.gpu.resource), 0)
    memory = node.get("status", {}).get("allocatable", {}).get("memory")
    return found.model_copy(
        update={
            "free": max(0, found.count - used) if found.stale is None else 0,
            "node_memory_bytes": parse_bytes(memory) if memory else None,
        }
    )


def _of_node(
    node: Manifest,
    agent: GPUNodeStatus,
    devices: Sequence[Device],
    profiles: Sequence[GpuProfile],
    stale: str | None,
) -> Iterator[NodeGpus | UnplannableNode]:
    name = node["metadata"]["name"]
    kinds = card_kinds(
        name,
        node["metadata"].get("labels", {}),
        node.get("status", {}).get("allocatable", {}),
        capacity=node.get("status", {}).get("capacity", {}),
        agent=agent,
        devices=devices,
        profiles=profiles,
    )
    host = _host_memory(node)
    for kind in kinds:
        yield kind if isinstance(kind, UnplannableNode) else _settled(name, kind, host, stale)


def _settled(
    node: str, kind: CardKind, host: HostMemory | None, stale: str | None
) -> NodeGpus | UnplannableNode:
    agreed = _agreed(kind, host)
    if agreed is None:
        return kind.problem or _memory_unknown(node, kind)
    old = stale if agreed.total_from is FactSource.AGENT else None
    notes = (*kind.notes, *agreed.notes)
    return NodeGpus(
        node=node,
        gpu=agreed.gpu,
        count=kind.offered,
        free=0,
        match_labels=kind.match_labels,
        seen=agreed.seen,
        notes=notes if old is None else (*notes, old),
        stale=old,
    )


def _agreed(kind: CardKind, host: HostMemory | None) -> Agreed | None:
    """What is believed of a kind. Where labels alone speak, their own reading stands: it knows what a
    label that is missing, rounded or written by hand is worth, and when not even the catalogue helps."""
    agreed = agree(kind.product, kind.resource, kind.seen, host)
    told_here = None if agreed is None else agreed.total_from
    if told_here is FactSource.NODE:
        return agreed
    by_labels_alone = all(voice.source is FactSource.LABELS for voice in kind.seen)
    if kind.problem is not None and told_here in (FactSource.LABELS, FactSource.CATALOGUE):
        return None
    if kind.by_labels is None or not (by_labels_alone or agreed is None):
        return agreed
    notes = () if agreed is None else agreed.notes
    return Agreed(kind.by_labels, FactSource.LABELS, kind.seen, notes)


def _memory_unknown(node: str, kind: CardKind) -> UnplannableNode:
    told: tuple[Sighting, ...] = kind.seen
    seen = ", ".join(voice.detail for voice in told) or "nothing"
    return memory_unknown(
        node, kind.product, f"{seen}, none of which tells it", resource=kind.resource, offered=0
    )


def _host_memory(node: Manifest) -> HostMemory | None:
    """Memory of the node; what its kubelet leaves out is taken to be all of it."""
    status = node.get("status", {})
    given = [(status.get(part) or {}).get("memory") for part in ("capacity", "allocatable")]
    try:
        capacity, allocatable = (None if each is None else parse_bytes(each) for each in given)
    except ValueError:
        return None
    if capacity is None and allocatable is None:
        return None
    whole = capacity or allocatable or 0
    return HostMemory(whole, allocatable or whole)
