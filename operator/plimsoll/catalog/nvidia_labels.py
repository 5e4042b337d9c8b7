"""What do the labels of GPU feature discovery say about NVIDIA cards?

The forms are those of NVIDIA/k8s-device-plugin: internal/lm and docs/gpu-feature-discovery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from plimsoll.catalog.gpus import (
    GpuType,
    find_gpu,
    find_type,
    fp8_of,
    reserved_bytes,
    split_slice,
)
from plimsoll.catalog.nvidia_labels_refused import PRODUCT, count, mig_trouble, shared_cards
from plimsoll.facts.gpu import (
    Fp8,
    GpuFacts,
    GpuProblem,
    NodeGpus,
    Sighting,
    UnplannableNode,
)
from plimsoll.facts.record import Named
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import MIB, parse_bytes

Labels = Mapping[str, str]
Found = tuple[NodeGpus | UnplannableNode, ...]
"""The kinds of card on a node, each with its facts or with why there are none."""

WHOLE_CARD: Final = "nvidia.com/gpu"
WAY_OUT: Final = "A GPUNode object for this node would say, or a row of the chart's gpuTypes."

_MIG_LABEL: Final = re.compile(r"^nvidia\.com/mig-(?P<profile>\d+g\.\d+gb[\w.-]*)\.count$")
_UNIFIED_CAPABILITIES: Final = {(7, 2), (8, 7), (11, 0), (12, 1)}
"""Jetson Xavier, Orin and Thor, and GB10 with its kin: NVIDIA's list of CUDA GPUs has no others there."""
_NOMINAL_SLACK: Final = 1.1
"""A label up to this much above every total that the type was seen with is a marketing size written by
hand (288000 for 275040 on a B300, 32768 for 32607 on a 5090); far above, it is another memory size."""
_PROVIDER_KEYS: Final = (
    "gpu.nvidia.com/model",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)


def nvidia_cards(
    node: str, labels: Labels, allocatable: Mapping[str, str], capacity: Mapping[str, str]
) -> Found:
    """The NVIDIA cards of a node by kind; empty without any."""
    profiles = [match["profile"] for key in sorted(labels) if (match := _MIG_LABEL.match(key))]
    names = (name for name in allocatable if name.startswith(("nvidia.com/gpu", "nvidia.com/mig-")))
    resources = [name for name in names if count(allocatable, name)]
    signs = labels.keys() & {PRODUCT, "nvidia.com/gpu.memory", "nvidia.com/gpu.count"}
    provider = next((key for key in _PROVIDER_KEYS if key in labels), None)
    is_present = labels.get("nvidia.com/gpu.present") == "true"
    if not (profiles or resources or signs or provider or is_present):
        return ()
    product = labels.get(PRODUCT) or None
    trouble = shared_cards(node, labels, allocatable) or mig_trouble(node, labels)
    if trouble is not None:
        return (trouble,)
    if product is None:
        return (_by_provider(node, labels, allocatable, provider),)
    slices = tuple(_mixed_slice(node, labels, allocatable, profile) for profile in profiles)
    offered = count(allocatable, WHOLE_CARD)
    if slices and not offered:
        return slices
    there = max(offered, count(capacity, WHOLE_CARD))
    return (*slices, _one_product(node, labels, product, offered, there))


def _by_provider(
    node: str, labels: Labels, allocatable: Mapping[str, str], key: str | None
) -> NodeGpus | UnplannableNode:
    """No GFD product: a cloud provider's own label may name a type that we know."""
    offered = count(allocatable, WHOLE_CARD)
    named = labels[key] if key else None
    if named is not None and "cloud.google.com/gke-gpu-partition-size" not in labels:
        plain = named.lower().removeprefix("nvidia-").removeprefix("tesla-")
        gpu = find_gpu(plain)
        if gpu is not None and not gpu.unified_memory and key is not None:
            gpu = with_provenance(gpu, Confidence.BOUND, f"{key}={named}; {gpu.provenance.detail}")
            return entry(node, gpu, offered, (Named(name=key, value=named),))
    seen = f"{key}={named}" if key else f"{offered} of {WHOLE_CARD} and no label {PRODUCT}"
    return UnplannableNode(
        node=node,
        product=named or "unknown",
        problem=GpuProblem.TYPE_UNKNOWN,
        message=f"it has cards and nothing says exactly which (seen: {seen}). Run GPU feature discovery "
        f"beside the device plugin so that {PRODUCT} appears. {WAY_OUT}",
        resource=WHOLE_CARD,
        count=offered,
    )


def _mixed_slice(
    node: str, labels: Labels, allocatable: Mapping[str, str], profile: str
) -> NodeGpus | UnplannableNode:
    """One profile of the strategy mixed, with labels and a resource of its own."""
    prefix = f"nvidia.com/mig-{profile}"
    card = labels.get(PRODUCT, "unknown")
    product = labels.get(f"{prefix}.product", f"{card}-MIG-{profile}")
    name = f"{prefix}.product" if f"{prefix}.product" in labels else PRODUCT
    match = (Named(name=name, value=labels[name]),)
    offered = count(allocatable, prefix)
    gpu, told = _nvidia_facts(labels, product, f"{prefix}.memory", prefix)
    if gpu is None:
        seen = f"{prefix}.memory {labels.get(f'{prefix}.memory', 'absent')}"
        return memory_unknown(
            node, product, seen, resource=prefix, offered=offered, match=match, told=told
        )
    return entry(node, gpu, offered, match, told)


def _one_product(
    node: str, labels: Labels, product: str, offered: int, there: int
) -> NodeGpus | UnplannableNode:
    """Whole cards, or the slices of the strategy single, all behind nvidia.com/gpu. `there` are those that
    are sick, too: only all together tell that some are of another type."""
    counted = count(labels, "nvidia.com/gpu.count")
    if "nvidia.com/gpu.count" in labels and there > counted:
        return UnplannableNode(
            node=node,
            product=product,
            problem=GpuProblem.AMBIGUOUS,
            message=f"it offers {there} of {WHOLE_CARD} but its labels describe {counted} {product}: "
            "there are cards of another type beside them (or they are shared without saying so), and a "
            f"pod cannot ask for one type. Keep one type per node. {WAY_OUT}",
        )
    match = (Named(name=PRODUCT, value=product),)
    gpu, told = _nvidia_facts(labels, product, "nvidia.com/gpu.memory", WHOLE_CARD)
    if gpu is None:
        seen = f"memory {labels.get('nvidia.com/gpu.memory', 'absent')}"
        return memory_unknown(
            node, product, seen, resource=WHOLE_CARD, offered=offered, match=match, told=told
        )
    return entry(node, gpu, offered, match, told)


def _nvidia_facts(
    labels: Labels, product: str, memory_key: str, resource: str
) -> tuple[GpuFacts | None, Sighting]:
    """Facts from labels with what the catalogue adds (None when nobody tells the memory), and the labels'
    own words alone."""
    known = find_type(product)
    capability = _capability(labels) or (known.compute_capability if known else None)
    numbers = _numbers(capability)
    is_unified = (known is not None and known.unified_memory) or numbers in _UNIFIED_CAPABILITIES
    total_bytes, confidence, said = _memory(labels.get(memory_key), memory_key, product, known)
    told = Sighting(
        source=FactSource.LABELS,
        detail=said or f"{memory_key} {labels.get(memory_key, 'absent')}",
        confidence=confidence,
        product=product,
        total_bytes=total_bytes if memory_key in labels else None,
        compute_capability=_capability(labels),
        unified_memory=is_unified or None,
    )
    if total_bytes is None:
        return None, told
    reserved, reserved_confidence, why = reserved_bytes(product, total_bytes)
    if reserved >= total_bytes:
        return None, told._replace(total_bytes=None)
    fp8 = known.fp8 if known else fp8_of(numbers) if numbers else Fp8.UNKNOWN
    bf16 = known.bf16 if known else numbers >= (8, 0) if numbers else None
    worst = max(confidence, reserved_confidence, key=list(Confidence).index)
    gpu = GpuFacts(
        product=product,
        total_bytes=total_bytes,
        reserved_bytes=reserved,
        compute_capability=capability,
        fp8=fp8,
        bf16=bf16,
        unified_memory=is_unified,
        resource=resource,
        provenance=Provenance(
            source=FactSource.LABELS,
            confidence=worst,
            detail=f"{said}; driver {reserved // MIB} MiB ({why})",
        ),
    )
    return gpu, told


def _memory(
    label: str | None, key: str, product: str, known: GpuType | None
) -> tuple[int | None, Confidence, str]:
    """Bytes of the card, how sure, and who said so. Zero and nonsense are unknown, too."""
    mib = _label_mib(label)
    if label is not None and mib is None:
        return None, Confidence.BOUND, ""
    is_slice = split_slice(product) is not None
    totals = known.label_mib if known is not None and not is_slice else ()
    if mib is not None:
        largest = max(totals, default=0)
        if largest < mib <= largest * _NOMINAL_SLACK:
            said = f"{key}={label} is above any {product}, so {largest} MiB from the catalogue"
            return largest * MIB, Confidence.BOUND, said
        if known is None and not is_slice and not str(label).strip().isdecimal():
            said = f"{key}={label} is written by hand, so less the sixteenth that ECC may take"
            return mib * 15 // 16 * MIB, Confidence.BOUND, said
        return mib * MIB, Confidence.TABLE, f"{key}={label}"
    listed = find_gpu(product)
    if listed is None or listed.unified_memory or (known is not None and known.sizes_share_name):
        return None, Confidence.BOUND, ""
    said = f"no {key}; {listed.total_bytes // MIB} MiB from the catalogue"
    return listed.total_bytes, Confidence.BOUND, said


def _label_mib(label: str | None) -> int | None:
    """GFD writes a bare number of MiB; people also write 80Gi. None when it says nothing."""
    if label is None:
        return None
    if label.strip().isdecimal():
        return int(label) or None
    try:
        return parse_bytes(label) // MIB or None
    except ValueError:
        return None


def memory_unknown(
    node: str,
    product: str,
    seen: str,
    *,
    resource: str,
    offered: int,
    match: tuple[Named, ...] = (),
    told: Sighting | None = None,
) -> UnplannableNode:
    """Refuse a card whose memory nobody tells, with what was seen."""
    known = find_type(product)
    if known is not None and known.unified_memory:
        why = f"{product} shares its memory with the host, and labels do not say how much of it is free"
    elif known is not None and known.sizes_share_name:
        why = f"cards of several sizes are called {product}"
    else:
        why = f"nothing says how much memory {product} has"
    return UnplannableNode(
        node=node,
        product=product,
        problem=GpuProblem.MEMORY_UNKNOWN,
        message=f"{why} (seen: {seen}); unknown is not zero, so nothing is planned there. {WAY_OUT}",
        resource=resource,
        count=offered,
        match_labels=match,
        seen=() if told is None else (told,),
    )


def entry(
    node: str,
    gpu: GpuFacts,
    offered: int,
    match: tuple[Named, ...],
    told: Sighting | None = None,
) -> NodeGpus:
    """One kind of card on a node; labels do not tell who uses them, so all count as free."""
    return NodeGpus(
        node=node,
        gpu=gpu,
        count=offered,
        free=offered,
        match_labels=match,
        seen=() if told is None else (told,),
    )


def with_provenance(gpu: GpuFacts, confidence: Confidence, detail: str) -> GpuFacts:
    """The same facts, said by labels."""
    source = Provenance(source=FactSource.LABELS, confidence=confidence, detail=detail)
    return gpu.model_copy(update={"provenance": source})


def _capability(labels: Labels) -> str | None:
    major = labels.get("nvidia.com/gpu.compute.major", "")
    minor = labels.get("nvidia.com/gpu.compute.minor", "0")
    return f"{major}.{minor}" if major.isdecimal() and minor.isdecimal() else None


def _numbers(capability: str | None) -> tuple[int, int] | None:
    if capability is None:
        return None
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)
