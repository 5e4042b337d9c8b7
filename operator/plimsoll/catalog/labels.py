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
    count,
    entry,
    memory_unknown,
    nvidia_cards,
    with_provenance,
)
from plimsoll.facts.gpu import GpuFacts, GpuProblem, GpuVendor, UnplannableNode
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import GIB, gib

AMD_PRODUCT: Final = "amd.com/gpu.product-name"
AMD_CARD: Final = "amd.com/gpu"

_AMD_PLURAL: Final = re.compile(r"^amd\.com/gpu\.(?:vram|product-name)\.(?P<value>.+)$")


def node_gpus(node: str, labels: Labels, allocatable: Mapping[str, str]) -> Found:
    """The cards of a node by kind, why they cannot be planned for, or None for a node without cards.

    `allocatable` is the node's, by resource name. `free` is the whole count: who uses the cards is not
    in the labels. A node whose MIG strategy is mixed gives one entry per profile.
    """
    for vendor in (nvidia_cards, _amd, _intel):
        if (found := vendor(node, labels, allocatable)) is not None:
            return found
    return None


def _amd(node: str, labels: Labels, allocatable: Mapping[str, str]) -> Found:
    resources = sorted(name for name in allocatable if name.startswith("amd.com/"))
    keys = [key for key in sorted(labels) if key.startswith("amd.com/gpu.")]
    if not resources and not keys:
        return None
    product, vram = labels.get(AMD_PRODUCT), labels.get("amd.com/gpu.vram")
    plural = sorted({match["value"] for key in keys if (match := _AMD_PLURAL.match(key))})
    if plural and product is None:
        return UnplannableNode(
            node=node,
            product=" and ".join(plural),
            problem=GpuProblem.AMBIGUOUS,
            message=f"its labels describe several kinds of card ({', '.join(plural)}) behind {AMD_CARD}. "
            f"Keep one kind per node. {WAY_OUT}",
        )
    if product is None:
        return UnplannableNode(
            node=node,
            product="unknown",
            problem=GpuProblem.TYPE_UNKNOWN,
            message=f"it has AMD cards and no label {AMD_PRODUCT} (seen: {', '.join(resources + keys)}). "
            f"Start the node labeller with -product-name and -vram. {WAY_OUT}",
        )
    partition = labels.get("amd.com/gpu.compute-memory-partition", "spx_nps1")
    others = [name for name in resources if name != AMD_CARD]
    if partition != "spx_nps1" or others:
        return memory_unknown(node, product, f"partition {partition}, {', '.join(resources)}")
    gpu = _amd_facts(product, vram)
    if gpu is None:
        return memory_unknown(node, product, f"vram {vram or 'absent'}")
    label = (Named(name=AMD_PRODUCT, value=product),)
    return (entry(node, gpu, count(allocatable, AMD_CARD), label),)


def _amd_facts(product: str, vram: str | None) -> GpuFacts | None:
    """The vram label is GiB rounded to a whole number, so a card may be up to one unit smaller."""
    listed = find_gpu(product)
    match = re.fullmatch(r"(\d+)G", vram or "")
    labelled = int(match[1]) * GIB if match else 0
    if listed is not None and (not labelled or abs(listed.total_bytes - labelled) <= GIB):
        said = f"vram {vram or 'absent'}; {gib(listed.total_bytes)} from the catalogue"
        gpu = listed.model_copy(update={"product": product})
        return with_provenance(gpu, Confidence.BOUND, f"{said} ({gpu.provenance.detail})")
    if labelled <= GIB:
        return None
    total_bytes = labelled - GIB
    reserved, _, why = reserved_bytes(product, total_bytes)
    return GpuFacts(
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


def _intel(node: str, labels: Labels, allocatable: Mapping[str, str]) -> Found:
    resources = {"gpu.intel.com/i915", "gpu.intel.com/xe"} & allocatable.keys()
    keys = [key for key in labels if key.startswith("gpu.intel.com/")]
    if not resources and not keys:
        return None
    product = labels.get("gpu.intel.com/product", "Intel GPU")
    return memory_unknown(node, product, "Intel's labels have no memory at all")
