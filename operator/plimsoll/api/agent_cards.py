"""Which kinds of card does an agent tell of, and is what it tells still fresh?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from plimsoll.api.gpunode import Card, GPUNodeStatus, Sharing
from plimsoll.catalog.dra import Device
from plimsoll.facts.gpu import GpuProblem, Sighting, UnplannableNode
from plimsoll.facts.source import Confidence, FactSource

WHOLE_CARD: Final = "nvidia.com/gpu"
MIG_RESOURCE: Final = "nvidia.com/mig-"


class SeenKind(NamedTuple):
    """Cards or slices of one product that somebody counted one by one."""

    product: str
    """In the node label's spelling."""
    resource: str
    """What a pod asks for, as far as the source knows."""
    cards: int
    """How many there are."""
    voice: Sighting
    """The tightest of them: a plan must hold on each."""


def kinds_of_agent(agent: GPUNodeStatus) -> tuple[SeenKind, ...]:
    """Cards that the agent saw, by kind; those that fell off the bus are no cards."""
    living = [card for card in agent.cards if card.product and not card.lost]
    whole: dict[str, list[Card]] = {}
    for card in living:
        if not card.mig_enabled:
            whole.setdefault(card.product, []).append(card)
    found = [
        SeenKind(product, WHOLE_CARD, len(cards), _tightest([_voice(card) for card in cards]))
        for product, cards in sorted(whole.items())
    ]
    slices: dict[tuple[str, str], list[tuple[int, Sighting]]] = {}
    for card in living:
        for profile in card.mig_profiles if card.mig_enabled else ():
            product = f"{card.product}-MIG-{profile.profile}"
            voice = _voice(card)._replace(
                product=product,
                total_bytes=profile.total_bytes,
                reserved_bytes=profile.reserved_bytes,
                held_by_others_bytes=0,
            )
            slices.setdefault((product, profile.resource), []).append((profile.count, voice))
    found += [
        SeenKind(product, resource, sum(n for n, _ in told), _tightest([v for _, v in told]))
        for (product, resource), told in sorted(slices.items())
    ]
    return tuple(found)


def kinds_of_devices(devices: Sequence[Device]) -> tuple[SeenKind, ...]:
    """The same from a node's ResourceSlices."""
    by_product: dict[str, list[Device]] = {}
    for device in devices:
        by_product.setdefault(device.product, []).append(device)
    return tuple(
        SeenKind(
            product,
            f"{MIG_RESOURCE}{told[0].profile}" if told[0].profile else WHOLE_CARD,
            len(told),
            _tightest([device.sighting() for device in told]),
        )
        for product, told in sorted(by_product.items())
    )


def sharing_seen(node: str, agent: GPUNodeStatus) -> UnplannableNode | None:
    """Why no worker can count on a card's memory, where the agent knows that it is shared."""
    shared = next((card for card in agent.cards if card.sharing is not Sharing.NONE), None)
    if shared is None:
        return None
    return UnplannableNode(
        node=node,
        product=shared.product,
        problem=GpuProblem.TIME_SLICED,
        message=f"its {shared.product} is shared by {shared.sharing.value}, so no worker can count "
        "on its memory; turn sharing off on this node.",
    )


def several_products(node: str, kinds: Sequence[SeenKind]) -> UnplannableNode | None:
    """Why nothing is planned where several products stand behind one resource."""
    for resource in sorted({kind.resource for kind in kinds}):
        products = sorted({kind.product for kind in kinds if kind.resource == resource})
        if len(products) > 1:
            return UnplannableNode(
                node=node,
                product=", ".join(products),
                problem=GpuProblem.AMBIGUOUS,
                message=f"it holds {' and '.join(products)} behind the one resource {resource}, and a "
                "pod cannot ask for one of them; keep one product per node.",
            )
    return None


def age_of(agent: GPUNodeStatus, now_seconds: float) -> float | None:
    """Seconds since the agent last looked; None where it never said, as when a person wrote the
    GPUNode: such facts do not age."""
    try:
        return now_seconds - datetime.fromisoformat(agent.heartbeat or "").timestamp()
    except (ValueError, OverflowError):
        return None


def too_old(
    node: str, agent: GPUNodeStatus, *, now_seconds: float, stale_seconds: float
) -> str | None:
    """Why nothing is started from these facts; None while they are fresh."""
    age_seconds = age_of(agent, now_seconds)
    if age_seconds is None or age_seconds <= stale_seconds:
        return None
    return (
        f"the agent was last heard of at {agent.heartbeat}, more than {stale_seconds / 60:g} minutes ago: "
        "plans that are held stay as they are, and none is made or started from its facts. Look after the "
        f"agent there, or delete GPUNode {node} to go by what other sources say"
    )


def _voice(card: Card) -> Sighting:
    return Sighting(
        source=FactSource.AGENT,
        detail=f"GPUNode, {card.uuid}",
        confidence=Confidence.EXACT,
        product=card.product,
        total_bytes=card.total_bytes,
        reserved_bytes=card.reserved_bytes,
        held_by_others_bytes=card.held_by_others_bytes,
        compute_capability=card.compute_capability,
        fp8=card.fp8,
        bf16=card.bf16,
        unified_memory=card.unified_memory or None,
    )


def _tightest(voices: Sequence[Sighting]) -> Sighting:
    """The one with the least room; one whose memory is not told makes that of all unknown."""

    def room(voice: Sighting) -> tuple[bool, int]:
        total = voice.total_bytes
        return total is not None, (total or 0) - (voice.held_by_others_bytes or 0)

    return min(voices, key=room)
