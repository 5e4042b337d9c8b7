"""Which cards are in reach, and who says so?

Sources in order of trust: the agent's GPUNode, then the node's labels (which fall back to the
catalogue for what they leave out). Never the sum of two sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from plimsoll.api.gpunode import Card, GPUNodeStatus, MigProfile, Sharing, read_gpunode_status
from plimsoll.catalog.gpus import find_gpu, reserved_bytes
from plimsoll.catalog.labels import node_gpus
from plimsoll.facts.gpu import (
    Fp8,
    GpuFacts,
    GpuProblem,
    Inventory,
    NodeGpus,
    UnplannableNode,
)
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import parse_bytes

Manifest = Mapping[str, Any]

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
WHOLE_CARD: Final = "nvidia.com/gpu"


def inventory(
    nodes: Sequence[Manifest],
    gpu_nodes: Sequence[Manifest],
    requested: Mapping[tuple[str, str], int],
) -> Inventory:
    """Every card in reach.

    `nodes` and `gpu_nodes` are objects as the API server gives them, `requested[(node, resource)]`
    the cards that pods on the node ask for. Nodes that are being deleted are passed over; a node that
    is not Ready or is cordoned keeps its plan, for it may come back.
    """
    agents = {
        each["metadata"]["name"]: read_gpunode_status(each.get("status")) for each in gpu_nodes
    }
    seen: list[NodeGpus] = []
    passed_over: list[UnplannableNode] = []
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        if node["metadata"].get("deletionTimestamp"):
            continue
        for found in _of_node(node, agents.get(node["metadata"]["name"])):
            if isinstance(found, UnplannableNode):
                passed_over.append(found)
            else:
                seen.append(_with_use(found, node, requested))
    return Inventory(nodes=tuple(seen), unplannable=tuple(passed_over))


def _with_use(
    found: NodeGpus, node: Manifest, requested: Mapping[tuple[str, str], int]
) -> NodeGpus:
    used = requested.get((found.node, found.gpu.resource), 0)
    memory = node.get("status", {}).get("allocatable", {}).get("memory")
    return found.model_copy(
        update={
            "free": max(0, found.count - used),
            "node_memory_bytes": parse_bytes(memory) if memory else None,
        }
    )


def _of_node(node: Manifest, agent: GPUNodeStatus | None) -> Iterator[NodeGpus | UnplannableNode]:
    name = node["metadata"]["name"]
    labels = node["metadata"].get("labels", {})
    allocatable = node.get("status", {}).get("allocatable", {})
    if agent is not None and agent.cards:
        yield from _of_agent(name, labels, allocatable, agent)
        return
    found = node_gpus(name, labels, allocatable)
    if isinstance(found, UnplannableNode):
        yield found
    elif found is not None:
        yield from found


def _of_agent(
    name: str, labels: Mapping[str, str], allocatable: Mapping[str, str], agent: GPUNodeStatus
) -> Iterator[NodeGpus | UnplannableNode]:
    """What the agent saw, as one kind of card or as slices; several products cannot be asked for."""
    shared = next((card for card in agent.cards if card.sharing is not Sharing.NONE), None)
    if shared is not None:
        yield UnplannableNode(
            node=name,
            product=shared.product,
            problem=GpuProblem.TIME_SLICED,
            message=f"its {shared.product} is shared by {shared.sharing.value}, so no worker can count "
            "on its memory; turn sharing off on this node.",
        )
        return
    whole = [card for card in agent.cards if not card.mig_enabled]
    products = sorted({card.product for card in whole})
    if len(products) > 1:
        yield UnplannableNode(
            node=name,
            product=", ".join(products),
            problem=GpuProblem.AMBIGUOUS,
            message=f"it holds {' and '.join(products)} behind the one resource {WHOLE_CARD}, and a pod "
            "cannot ask for one of them; keep one product per node, or use DRA.",
        )
        return
    if products:
        yield _whole_cards(name, labels, allocatable, whole)
    yield from _slices(name, labels, allocatable, agent)


def _whole_cards(
    name: str, labels: Mapping[str, str], allocatable: Mapping[str, str], cards: Sequence[Card]
) -> NodeGpus | UnplannableNode:
    # the tightest card decides, so that a plan holds on each
    known = [card for card in cards if card.total_bytes is not None]
    if len(known) < len(cards):
        return UnplannableNode(
            node=name,
            product=cards[0].product,
            problem=GpuProblem.MEMORY_UNKNOWN,
            message=f"the driver does not tell the memory of {cards[0].product}; unknown is not zero, so "
            "nothing is planned here until it is known.",
        )
    tightest = min(known, key=lambda card: (card.total_bytes or 0) - card.held_by_others_bytes)
    offered = int(allocatable.get(WHOLE_CARD, "0"))
    return NodeGpus(
        node=name,
        gpu=_facts_of_card(tightest),
        count=min(len(cards), offered) if offered else 0,
        free=0,
        match_labels=_match(labels, tightest.product),
    )


def _slices(
    name: str, labels: Mapping[str, str], allocatable: Mapping[str, str], agent: GPUNodeStatus
) -> Iterator[NodeGpus]:
    for card in agent.cards:
        if not card.mig_enabled:
            continue
        for profile in card.mig_profiles:
            yield NodeGpus(
                node=name,
                gpu=_facts_of_slice(card, profile),
                count=int(allocatable.get(profile.resource, "0")),
                free=0,
                match_labels=_match(labels, card.product),
            )


def _facts_of_card(card: Card) -> GpuFacts:
    total = card.total_bytes or 0
    reserved = card.reserved_bytes
    detail = f"GPUNode, {card.uuid}"
    confidence = Confidence.EXACT
    if reserved is None:
        reserved, confidence, said = reserved_bytes(card.product, total)
        detail = f"{detail}; driver's part: {said}"
    listed = find_gpu(card.product)
    return GpuFacts(
        product=card.product,
        total_bytes=total,
        reserved_bytes=reserved,
        held_by_others_bytes=card.held_by_others_bytes,
        compute_capability=card.compute_capability
        or (listed.compute_capability if listed else None),
        fp8=card.fp8 if card.fp8 is not Fp8.UNKNOWN else (listed.fp8 if listed else Fp8.UNKNOWN),
        bf16=card.bf16 if card.bf16 is not None else (listed.bf16 if listed else None),
        unified_memory=card.unified_memory,
        provenance=Provenance(source=FactSource.AGENT, confidence=confidence, detail=detail),
    )


def _facts_of_slice(card: Card, profile: MigProfile) -> GpuFacts:
    whole = _facts_of_card(card)
    return whole.model_copy(
        update={
            "product": f"{card.product}-MIG-{profile.profile}",
            "total_bytes": profile.total_bytes,
            "reserved_bytes": profile.reserved_bytes,
            "held_by_others_bytes": 0,
            "resource": profile.resource,
        }
    )


def _match(labels: Mapping[str, str], product: str) -> tuple[Named, ...]:
    value = labels.get(PRODUCT_LABEL)
    if value is None:
        return ()
    return (Named(name=PRODUCT_LABEL, value=value or product),)
