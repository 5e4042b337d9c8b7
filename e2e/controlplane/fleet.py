"""What do the nodes of real fleets look like to a scheduler? Fake nodes for kwok, labels as seen.

Label forms are those of NVIDIA's GPU feature discovery and AMD's node labeller: the product is
NVML's name with dashes for blanks, memory is NVML's total in MiB. Each function gives one Node
manifest; `ControlPlane.add_nodes` creates it and gives it an address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Manifest = dict[str, Any]

NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
GPU_TAINT: Final = {"key": NVIDIA_GPU, "value": "present", "effect": "NoSchedule"}
CPU: Final = "64"
MEMORY: Final = "512Gi"


@dataclass(frozen=True)
class Card:
    """One GPU type as its labels tell it."""

    product: str
    memory_mib: int | None  # NVML total; None where NVML has none
    family: str
    compute: str
    is_mig_capable: bool = False


@dataclass(frozen=True)
class Slice:
    """One MIG profile on one card type, with the memory that the label carries."""

    profile: str
    memory_mib: int
    per_card: int
    multiprocessors: int
    gi_slices: int


A6000: Final = Card("NVIDIA-RTX-A6000", 49140, "ampere", "8.6")  # ECC off
A6000_ECC: Final = Card("NVIDIA-RTX-A6000", 46068, "ampere", "8.6")
RTX_4090: Final = Card("NVIDIA-GeForce-RTX-4090", 24564, "ada-lovelace", "8.9")
L40S: Final = Card("NVIDIA-L40S", 46068, "ada-lovelace", "8.9")
A100_40GB: Final = Card("NVIDIA-A100-SXM4-40GB", 40960, "ampere", "8.0", is_mig_capable=True)
H100: Final = Card("NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", is_mig_capable=True)
H200: Final = Card("NVIDIA-H200", 143771, "hopper", "9.0", is_mig_capable=True)
GB10: Final = Card("NVIDIA-GB10", None, "blackwell", "12.1")

H100_1G: Final = Slice("1g.10gb", 9984, per_card=7, multiprocessors=16, gi_slices=1)
H100_3G: Final = Slice("3g.40gb", 40192, per_card=2, multiprocessors=60, gi_slices=3)
H200_1G: Final = Slice("1g.18gb", 16384, per_card=7, multiprocessors=16, gi_slices=1)


# ---- the fleet ----------------------------------------------------------------------------------


def a6000_x4(name: str, *, tainted: bool = False) -> Manifest:
    """Four 48 GB workstation cards."""
    return whole_cards(name, A6000, 4, tainted=tainted)


def a6000_x1(name: str, *, tainted: bool = False) -> Manifest:
    return whole_cards(name, A6000, 1, tainted=tainted)


def rtx4090_x1(name: str, *, tainted: bool = False) -> Manifest:
    return whole_cards(name, RTX_4090, 1, tainted=tainted)


def l40s_x4(name: str, *, tainted: bool = False) -> Manifest:
    return whole_cards(name, L40S, 4, tainted=tainted)


def h100_x8(name: str, *, tainted: bool = False) -> Manifest:
    return whole_cards(name, H100, 8, tainted=tainted, cpu="192", memory="2048Gi")


def h100_mig_mixed(name: str, *, tainted: bool = False) -> Manifest:
    """Mixed strategy: card labels say the whole card, each profile has labels and a resource."""
    layout = {H100_1G: 4, H100_3G: 1}
    labels = card_labels(H100, count=1, replicas=0) | {"nvidia.com/mig.strategy": "mixed"}
    labels["nvidia.com/mig.config.state"] = "success"
    resources = {NVIDIA_GPU: 0}
    for part, count in layout.items():
        prefix = f"nvidia.com/mig-{part.profile}"
        resources[prefix] = count
        labels |= {
            f"{prefix}.count": str(count),
            f"{prefix}.memory": str(part.memory_mib),
            f"{prefix}.multiprocessors": str(part.multiprocessors),
            f"{prefix}.product": f"{H100.product}-MIG-{part.profile}",
            f"{prefix}.replicas": "1",
            f"{prefix}.sharing-strategy": "none",
            f"{prefix}.slices.ci": str(part.gi_slices),
            f"{prefix}.slices.gi": str(part.gi_slices),
        }
    return node(name, labels, resources, tainted=tainted)


def h200_mig_single(name: str, *, tainted: bool = False) -> Manifest:
    """Single strategy: every label speaks of one slice, and slices are `nvidia.com/gpu`."""
    labels = card_labels(H200, count=H200_1G.per_card) | {
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": f"{H200.product}-MIG-{H200_1G.profile}",
        "nvidia.com/gpu.memory": str(H200_1G.memory_mib),
        "nvidia.com/gpu.multiprocessors": str(H200_1G.multiprocessors),
        "nvidia.com/gpu.slices.gi": str(H200_1G.gi_slices),
        "nvidia.com/gpu.slices.ci": str(H200_1G.gi_slices),
        "nvidia.com/gpu.engines.copy": "1",
    }
    return node(name, labels, {NVIDIA_GPU: H200_1G.per_card}, tainted=tainted)


def mig_invalid(name: str, *, tainted: bool = False) -> Manifest:
    """Single strategy with a layout that is none: memory 0 is a real value here."""
    labels = card_labels(H100, count=0, replicas=0) | {
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": f"{H100.product}-MIG-INVALID",
        "nvidia.com/gpu.memory": "0",
        "nvidia.com/gpu.sharing-strategy": "",
    }
    return node(name, labels, {NVIDIA_GPU: 0}, tainted=tainted)


def time_sliced(name: str, *, tainted: bool = False) -> Manifest:
    """Four cards offered twice each; memory stays that of the whole card."""
    cards, replicas = 4, 2
    labels = card_labels(A6000, count=cards, replicas=replicas) | {
        "nvidia.com/gpu.product": f"{A6000.product}-SHARED",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    return node(name, labels, {NVIDIA_GPU: cards * replicas}, tainted=tainted)


def mixed_products(name: str, *, tainted: bool = False) -> Manifest:
    """Two A6000 and one 4090: the labels know one type, the capacity counts three cards."""
    return node(name, card_labels(A6000, count=2), {NVIDIA_GPU: 3}, tainted=tainted)


def no_memory_label(name: str, *, tainted: bool = False) -> Manifest:
    """GB10: unified memory, NVML gives no total, so there is no memory label."""
    return whole_cards(name, GB10, 1, tainted=tainted, cpu="20", memory="119Gi")


def mi300x_x8(name: str, *, tainted: bool = False) -> Manifest:
    """AMD's labels: product with underscores, VRAM in whole GiB with a G."""
    labels = {
        "amd.com/gpu.product-name": "Instinct_MI300X",
        "amd.com/gpu.vram": "192G",
        "amd.com/gpu.device-id": "74a1",
        "amd.com/gpu.family": "AI",
        "amd.com/gpu.cu-count": "304",
        "amd.com/gpu.simd-count": "1216",
        "beta.amd.com/gpu.vram.192G": "8",
        "beta.amd.com/gpu.device-id.74a1": "8",
    }
    return node(name, labels, {AMD_GPU: 8}, tainted=tainted, cpu="192", memory="2048Gi")


def plugin_only(name: str, *, tainted: bool = False) -> Manifest:
    """A device plugin without feature discovery: capacity and not one label."""
    return node(name, {}, {NVIDIA_GPU: 2}, tainted=tainted)


def no_gpu(name: str) -> Manifest:
    return node(name, {}, {})


# ---- how they are made --------------------------------------------------------------------------


def whole_cards(
    name: str,
    card: Card,
    count: int,
    *,
    tainted: bool = False,
    cpu: str = CPU,
    memory: str = MEMORY,
) -> Manifest:
    """Cards of one type, neither split nor shared."""
    labels = card_labels(card, count=count)
    return node(name, labels, {NVIDIA_GPU: count}, tainted=tainted, cpu=cpu, memory=memory)


def card_labels(card: Card, *, count: int, replicas: int = 1) -> dict[str, str]:
    """The labels of feature discovery for whole cards."""
    major, minor = card.compute.split(".")
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": card.product,
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.family": card.family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mig.capable": str(card.is_mig_capable).lower(),
    }
    if card.is_mig_capable:
        labels["nvidia.com/mig.strategy"] = "single"
    if card.memory_mib is not None:
        labels["nvidia.com/gpu.memory"] = str(card.memory_mib)
    return labels


def node(
    name: str,
    labels: Mapping[str, str],
    resources: Mapping[str, int],
    *,
    tainted: bool = False,
    taints: Sequence[Mapping[str, str]] = (),
    cpu: str = CPU,
    memory: str = MEMORY,
) -> Manifest:
    """A Node that kwok plays; what is said here of capacity stays."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "1Ti"}
    amounts |= {resource: str(amount) for resource, amount in resources.items()}
    hostname = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": hostname | dict(labels),
        },
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }
    every_taint = [*taints, *([GPU_TAINT] if tainted else [])]
    if every_taint:
        manifest["spec"] = {"taints": [dict(taint) for taint in every_taint]}
    return manifest
