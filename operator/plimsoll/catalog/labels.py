"""What do a node's labels say about its cards?

NVIDIA's forms are in nvidia_labels; AMD's are those of ROCm/k8s-device-plugin (cmd/k8s-node-labeller),
Intel's of intel/intel-device-plugins-for-kubernetes. What labels cannot tell is refused with what was
seen and a way out; a card is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from plimsoll.catalog.gpus import find_gpu, reserved_bytes
from plimsoll.catalog.nvidia_labels import (
    WAY_OUT,
    Found,
    Labels,
    entry,
    memory_unknown,
    nvidia_cards,
    with_provenance,
)
from plimsoll.catalog.nvidia_labels_refused import count
from plimsoll.facts.gpu import GpuFacts, GpuProblem, GpuVendor, Sighting, UnplannableNode
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import GIB, gib

AMD_PRODUCT: Final = "amd.com/gpu.product-name"
AMD_CARD: Final = "amd.com/gpu"
INTEL_PRODUCT: Final = "gpu.intel.com/product"
INTEL_CARDS: Final = ("gpu.intel.com/xe", "gpu.intel.com/i915")
"""The newer and the older kernel driver's; gpu.intel.com/monitoring is no card (cmd/gpu_plugin/README.md)."""

_AMD_KEY: Final = re.compile(r"^(?:beta\.)?amd\.com/gpu\.")


def node_gpus(
    node: str,
    labels: Labels,
    allocatable: Mapping[str, str],
    capacity: Mapping[str, str] | None = None,
) -> Found:
    """The cards of a node by kind, or why one cannot be planned for; empty for a node without cards.

    `allocatable` and `capacity` are the node's, by resource name. `free` is the whole count: who uses the cards is not
    in the labels. A node whose MIG strategy is mixed gives one entry per profile.
    """
    return (
        nvidia_cards(node, labels, allocatable, capacity or {})
        or _amd(node, labels, allocatable)
        or _intel(node, labels, allocatable)
    )


def _amd(node: str, labels: Labels, allocatable: Mapping[str, str]) -> Found:
    resources = sorted(name for name in allocatable if name.startswith("amd.com/"))
    keys = [key for key in sorted(labels) if _AMD_KEY.match(key)]
    if not resources and not keys:
        return ()
    kinds = {name: sorted(_amd_values(labels, name)) for name in ("product-name", "vram")}
    several = [", ".join(values) for values in kinds.values() if len(values) > 1]
    if several:
        return (
            UnplannableNode(
                node=node,
                product=several[0],
                problem=GpuProblem.AMBIGUOUS,
                message=f"its labels describe several kinds of card ({'; '.join(several)}) behind "
                f"{AMD_CARD}. Keep one kind per node. {WAY_OUT}",
            ),
        )
    product = next(iter(kinds["product-name"]), None)
    vram = next(iter(kinds["vram"]), None)
    offered = count(allocatable, AMD_CARD)
    if product is None:
        return (
            UnplannableNode(
                node=node,
                product="unknown",
                problem=GpuProblem.TYPE_UNKNOWN,
                message=f"it has AMD cards and no label {AMD_PRODUCT} (seen: "
                f"{', '.join(resources + keys)}). Start the node labeller with -product-name and -vram. "
                f"{WAY_OUT}",
                resource=AMD_CARD,
                count=offered,
            ),
        )
    match = (Named(name=AMD_PRODUCT, value=product),) if AMD_PRODUCT in labels else ()
    partition = next(iter(sorted(_amd_values(labels, "compute-memory-partition"))), "spx_nps1")
    others = [name for name in resources if name != AMD_CARD and count(allocatable, name)]
    seen = f"vram {vram or 'absent'}"
    if partition != "spx_nps1" or others:
        return (
            memory_unknown(
                node,
                f"{product}/{partition}",
                f"partition {partition}, {', '.join(resources)}",
                resource=others[0] if others else AMD_CARD,
                offered=count(allocatable, others[0]) if others else offered,
                match=match,
            ),
        )
    facts = _amd_facts(product, vram)
    if facts is None:
        return (
            memory_unknown(node, product, seen, resource=AMD_CARD, offered=offered, match=match),
        )
    return (entry(node, facts[0], offered, match, facts[1]),)


def _amd_values(labels: Labels, name: str) -> set[str]:
    """The values of one of AMD's labels: plain, or in the key beside a count, as the older and the
    ambiguous form have it (cmd/k8s-node-labeller, createLabels)."""
    found = {
        labels[key] for key in (f"amd.com/gpu.{name}", f"beta.amd.com/gpu.{name}") if key in labels
    }
    if found - {""}:
        return found - {""}
    prefixes = (f"amd.com/gpu.{name}.", f"beta.amd.com/gpu.{name}.")
    return {
        key.removeprefix(prefix)
        for key in labels
        for prefix in prefixes
        if key.startswith(prefix) and key != prefix and labels[key].isdecimal()
    }


def _amd_facts(product: str, vram: str | None) -> tuple[GpuFacts, Sighting] | None:
    """The vram label is GiB rounded to a whole number, so a card may be up to one unit smaller. What the
    labels alone say is not told apart from the catalogue: they are too coarse to contradict it."""
    listed = find_gpu(product)
    told = Sighting(
        source=FactSource.LABELS,
        detail=f"amd.com/gpu.vram={vram or 'absent'}",
        confidence=Confidence.BOUND,
        product=product,
    )
    match = re.fullmatch(r"(\d+)G", vram or "")
    labelled = int(match[1]) * GIB if match else 0
    if listed is not None and (not labelled or abs(listed.total_bytes - labelled) <= GIB):
        said = f"vram {vram or 'absent'}; {gib(listed.total_bytes)} from the catalogue"
        gpu = listed.model_copy(update={"product": product})
        return with_provenance(gpu, Confidence.BOUND, f"{said} ({gpu.provenance.detail})"), told
    if labelled <= GIB:
        return None
    total_bytes = labelled - GIB
    reserved, _, why = reserved_bytes(product, total_bytes)
    gpu = GpuFacts(
        product=product,
        vendor=GpuVendor.AMD,
        total_bytes=total_bytes,
        reserved_bytes=reserved,
        resource=AMD_CARD,
        provenance=Provenance(
            source=FactSource.LABELS,
            confidence=Confidence.BOUND,
            detail=f"amd.com/gpu.vram={vram}, less one unit of rounding; driver {why}",
        ),
    )
    return gpu, told._replace(total_bytes=total_bytes)


def _intel(node: str, labels: Labels, allocatable: Mapping[str, str]) -> Found:
    """Product and count are there; memory never is (cmd/gpu_plugin/labels.md), so a row of the user's
    table has to tell it."""
    resources = [name for name in INTEL_CARDS if name in allocatable]
    keys = [key for key in labels if key.startswith("gpu.intel.com/")]
    if not resources and not keys:
        return ()
    product = labels.get(INTEL_PRODUCT)
    resource = next((name for name in resources if count(allocatable, name)), INTEL_CARDS[0])
    return (
        memory_unknown(
            node,
            product or "Intel GPU",
            "Intel's labels have no memory at all",
            resource=resource,
            offered=count(allocatable, resource),
            match=(Named(name=INTEL_PRODUCT, value=product),) if product else (),
        ),
    )
