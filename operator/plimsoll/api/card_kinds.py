"""Which kinds of card does one node hold, what does a pod ask for, and who says what of each?

Labels tell what a pod asks for and how nodes are picked; the agent or the ResourceSlices tell which
cards there are; the user's table may name what nobody names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plimsoll.api.agent_cards import (
    WHOLE_CARD,
    SeenKind,
    kinds_of_agent,
    kinds_of_devices,
    several_products,
    sharing_seen,
)
from plimsoll.api.gpunode import GPUNodeStatus
from plimsoll.catalog.dra import Device
from plimsoll.catalog.gpus import same_product, split_slice
from plimsoll.catalog.labels import node_gpus
from plimsoll.catalog.nvidia_labels_refused import PRODUCT, count
from plimsoll.catalog.profiles import GpuProfile, find_profile_of
from plimsoll.facts.gpu import (
    GpuFacts,
    GpuProblem,
    GpuVendor,
    NodeGpus,
    Sighting,
    UnplannableNode,
)
from plimsoll.facts.record import Named
from plimsoll.facts.source import FactSource

Labels = Mapping[str, str]


class CardKind(NamedTuple):
    """One kind of card on a node, before it is decided whom to believe."""

    product: str
    """In the label's spelling, by which nodes are picked."""
    resource: str
    """What a pod asks for."""
    offered: int
    """How many the node offers."""
    match_labels: tuple[Named, ...] = ()
    """Labels that pick such nodes."""
    by_labels: GpuFacts | None = None
    """The facts as labels and catalogue have them."""
    seen: tuple[Sighting, ...] = ()
    """Who said what."""
    problem: UnplannableNode | None = None
    """Why labels alone give no facts."""
    notes: tuple[str, ...] = ()
    """What a person should know."""


def card_kinds(
    node: str,
    labels: Labels,
    allocatable: Mapping[str, str],
    *,
    capacity: Mapping[str, str],
    agent: GPUNodeStatus,
    devices: Sequence[Device],
    profiles: Sequence[GpuProfile],
) -> tuple[CardKind | UnplannableNode, ...]:
    """Every kind of card on the node, with all that was said of it."""
    labelled = node_gpus(node, labels, allocatable, capacity)
    by_agent, by_slices = kinds_of_agent(agent), kinds_of_devices(devices)
    counted = by_agent or by_slices
    refused = (
        _first(labelled, GpuProblem.TIME_SLICED)
        or sharing_seen(node, agent)
        or several_products(node, counted)
        or _shared_in_silence(node, labels, allocatable, counted)
    )
    if refused is not None:
        return (refused,)
    kinds: list[CardKind | UnplannableNode] = [_of_labels(each, labels) for each in labelled]
    for seen in (by_agent, by_slices):
        kinds = _with_counted(node, labels, allocatable, kinds, seen)
    if by_agent:
        kinds = _without_unseen(kinds) or [_not_offered(node, by_agent)]
    return tuple(_with_profile(each, labels, profiles) for each in kinds)


def _first(
    found: Sequence[NodeGpus | UnplannableNode], problem: GpuProblem
) -> UnplannableNode | None:
    refused = (each for each in found if isinstance(each, UnplannableNode))
    return next((each for each in refused if each.problem is problem), None)


def _of_labels(found: NodeGpus | UnplannableNode, labels: Labels) -> CardKind | UnplannableNode:
    if isinstance(found, NodeGpus):
        return CardKind(
            product=found.gpu.product,
            resource=found.gpu.resource,
            offered=found.count,
            match_labels=found.match_labels,
            by_labels=found.gpu,
            seen=found.seen,
            notes=_unpicked(labels, found.gpu.product)
            if found.gpu.vendor is GpuVendor.NVIDIA
            else (),
        )
    if found.problem is not GpuProblem.MEMORY_UNKNOWN:
        return found
    return CardKind(
        product=found.product,
        resource=found.resource,
        offered=found.count,
        match_labels=found.match_labels,
        seen=found.seen,
        problem=found,
    )


def _with_counted(
    node: str,
    labels: Labels,
    allocatable: Mapping[str, str],
    kinds: Sequence[CardKind | UnplannableNode],
    counted: Sequence[SeenKind],
) -> list[CardKind | UnplannableNode]:
    """The kinds with what somebody counted: a voice for those that labels know, others added. What labels
    could not tell is settled by that; what is offered under no resource, no pod can have."""
    if not counted:
        return list(kinds)
    known = [each for each in kinds if isinstance(each, CardKind)]
    for seen in counted:
        at = next((i for i, kind in enumerate(known) if _is_meant(kind, seen)), None)
        if at is not None:
            known[at] = _with_voice(known[at], seen)
        elif seen.resource in allocatable:
            known.append(
                CardKind(
                    product=seen.product,
                    resource=seen.resource,
                    offered=min(seen.cards, count(allocatable, seen.resource)),
                    match_labels=_match(labels),
                    seen=(seen.voice,),
                    notes=_unpicked(labels, seen.product),
                )
            )
    return [*known] if known else [_not_offered(node, counted)]


def _is_meant(kind: CardKind, seen: SeenKind) -> bool:
    """The same product; or, behind the same resource, whole cards under another name, of which a node
    that is planned for has one kind only."""
    if same_product(kind.product, seen.product):
        return True
    are_whole = split_slice(kind.product) is None and split_slice(seen.product) is None
    return are_whole and kind.resource == seen.resource


def _with_voice(kind: CardKind, seen: SeenKind) -> CardKind:
    notes = kind.notes
    if not same_product(kind.product, seen.product):
        notes += (
            f"its labels say {kind.product}, {seen.voice.detail} says {seen.product}; nodes are picked by "
            "the label",
        )
    return kind._replace(
        seen=(*kind.seen, seen.voice), offered=min(kind.offered, seen.cards), notes=notes
    )


def _without_unseen(
    kinds: Sequence[CardKind | UnplannableNode],
) -> list[CardKind | UnplannableNode]:
    """Kinds that only labels know are gone where an agent looked at every card, and the others say so."""
    gone = [each.product for each in kinds if isinstance(each, CardKind) and not _by_agent(each)]
    notes = (f"its labels tell of {', '.join(gone)}, which the agent does not see",) if gone else ()
    return [
        each._replace(notes=(*each.notes, *notes)) if isinstance(each, CardKind) else each
        for each in kinds
        if isinstance(each, UnplannableNode) or _by_agent(each)
    ]


def _by_agent(kind: CardKind) -> bool:
    return any(voice.source is FactSource.AGENT for voice in kind.seen)


def _not_offered(node: str, counted: Sequence[SeenKind]) -> UnplannableNode:
    products = " and ".join(sorted({seen.product for seen in counted}))
    resources = " or ".join(sorted({seen.resource for seen in counted}))
    return UnplannableNode(
        node=node,
        product=products,
        problem=GpuProblem.NOT_OFFERED,
        message=f"it has {products} and offers no {resources}, which workers ask for. Run the NVIDIA device "
        "plugin on this node, with a MIG strategy where there are slices; devices of a DRA driver alone are "
        "given to claims, and workers make none.",
    )


def _shared_in_silence(
    node: str, labels: Labels, allocatable: Mapping[str, str], counted: Sequence[SeenKind]
) -> UnplannableNode | None:
    """Older plugins share and leave replicas at 1 (NVIDIA/gpu-feature-discovery#76): then more is offered
    than labels and eyes count."""
    there = sum(seen.cards for seen in counted if seen.resource == WHOLE_CARD)
    offered, labelled = count(allocatable, WHOLE_CARD), count(labels, "nvidia.com/gpu.count")
    if not there or there != labelled or offered <= there:
        return None
    products = ", ".join(seen.product for seen in counted if seen.resource == WHOLE_CARD)
    return UnplannableNode(
        node=node,
        product=products,
        problem=GpuProblem.TIME_SLICED,
        message=f"it offers {offered} of {WHOLE_CARD} for {there} x {products}, so they are shared without "
        "saying so, and no worker can count on their memory. Switch sharing off for this node in the device "
        "plugin's configuration.",
    )


def _with_profile(
    kind: CardKind | UnplannableNode, labels: Labels, profiles: Sequence[GpuProfile]
) -> CardKind | UnplannableNode:
    """The kind with the row of the user's table that speaks of it; a card that nobody names gets the name
    of a row whose selector picks the node."""
    if isinstance(kind, CardKind):
        profile = find_profile_of(profiles, labels, kind.product)
        return kind if profile is None else kind._replace(seen=(profile.sighting(), *kind.seen))
    if kind.problem is not GpuProblem.TYPE_UNKNOWN:
        return kind
    profile = find_profile_of(profiles, labels, None)
    if profile is None:
        return kind
    return CardKind(
        product=profile.product,
        resource=kind.resource,
        offered=kind.count,
        match_labels=_match(labels),
        seen=(profile.sighting(),),
        problem=kind,
        notes=_unpicked(labels, profile.product) if kind.resource == WHOLE_CARD else (),
    )


def _match(labels: Labels) -> tuple[Named, ...]:
    value = labels.get(PRODUCT)
    return (Named(name=PRODUCT, value=value),) if value else ()


def _unpicked(labels: Labels, product: str) -> tuple[str, ...]:
    """Workers find their nodes by the product's label, so a node without it gets none."""
    card = product if (parts := split_slice(product)) is None else parts[0]
    if labels.get(PRODUCT):
        return ()
    return (
        f"workers are sent to nodes by the label {PRODUCT}, which is missing: run GPU feature discovery, or "
        f"label the node {PRODUCT}={card}",
    )
