"""Which signs among NVIDIA's labels mean that a card is not one worker's alone, or that its slices are in disorder?

The forms are those of NVIDIA/k8s-device-plugin: README.md (time-slicing, MPS), internal/lm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from plimsoll.facts.gpu import GpuProblem, UnplannableNode

Labels = Mapping[str, str]

PRODUCT: Final = "nvidia.com/gpu.product"
GKE_SHARING: Final = "cloud.google.com/gke-gpu-sharing-strategy"

_SHARED_RESOURCE: Final = re.compile(r"^nvidia\.com/(?:gpu|mig-.+)\.shared$")
_STRATEGY_LABEL: Final = re.compile(r"^nvidia\.com/(?:gpu|mig-.+)\.sharing-strategy$")
_REPLICAS_LABEL: Final = re.compile(r"^nvidia\.com/(?:gpu|mig-.+)\.replicas$")


def count(values: Mapping[str, str], key: str) -> int:
    """A whole number among labels or resources; 0 where there is none."""
    text = values.get(key, "")
    return int(text) if text.isdecimal() else 0


def shared_cards(
    node: str, labels: Labels, allocatable: Mapping[str, str]
) -> UnplannableNode | None:
    """Time-slicing and MPS, by any of their signs; None for cards that are whole.

    The rule is to refuse, never to divide. Time-slicing keeps tenants' memory apart by nothing, and NVML
    does not show it: only these labels and resources do. MPS gives each client the card divided by the
    replicas (README.md, "With CUDA MPS"), but what an engine then reads as its total is not documented,
    and the labels go on showing the whole card.
    """
    product = labels.get(PRODUCT, "")
    strategies = {labels[key] for key in labels if _STRATEGY_LABEL.match(key)} - {"none", ""}
    replicas = max((count(labels, key) for key in labels if _REPLICAS_LABEL.match(key)), default=0)
    offered = (name for name in sorted(allocatable) if count(allocatable, name))
    resource = next((name for name in offered if _SHARED_RESOURCE.match(name)), None)
    gke = labels.get(GKE_SHARING)
    if gke is not None:
        strategies.add(gke)
    suffixed = next((labels[key] for key in sorted(labels) if _is_suffixed(key, labels[key])), "")
    if not (strategies or replicas > 1 or resource or suffixed):
        return None
    seen = (
        f"sharing-strategy {', '.join(sorted(strategies))}" if strategies else "",
        f"replicas {replicas}" if replicas > 1 else "",
        f"the resource {resource}" if resource else "",
        f"product {suffixed}" if suffixed else "",
    )
    if "mps" in strategies:
        why = (
            "under MPS a client gets the card's memory divided by the replicas, while the label shows "
            "the whole card"
        )
    else:
        why = "its cards are shared in time, so the other tenants' memory is not ours to count on"
    return UnplannableNode(
        node=node,
        product=product.removesuffix("-SHARED") or "unknown",
        problem=GpuProblem.TIME_SLICED,
        message=f"{why} (seen: {', '.join(sign for sign in seen if sign)}). Switch sharing off for this "
        "node in the device plugin's configuration.",
    )


def _is_suffixed(key: str, value: str) -> bool:
    return key.startswith("nvidia.com/") and key.endswith(".product") and value.endswith("-SHARED")


def mig_trouble(node: str, labels: Labels) -> UnplannableNode | None:
    """A MIG layout that is invalid or in the middle of being changed."""
    product = labels.get(PRODUCT, "")
    state = labels.get("nvidia.com/mig.config.state", "success")
    if product.endswith("-MIG-INVALID"):
        seen = f"product {product}"
        why = (
            "its MIG layout does not fit the strategy single: cards with and without slices, a card "
            "enabled without any, or more than one profile"
        )
        way_out = "Give every card of the node the same profile, or use the strategy mixed."
    elif state != "success":
        seen = f"nvidia.com/mig.config.state {state}"
        why = "its MIG layout is being changed or could not be applied, so the other labels may be old"
        way_out = "Wait for the MIG manager, or look into its log."
    else:
        return None
    return UnplannableNode(
        node=node,
        product=product.removesuffix("-MIG-INVALID") or "unknown",
        problem=GpuProblem.MIG_INVALID,
        message=f"{why} (seen: {seen}). {way_out}",
    )
