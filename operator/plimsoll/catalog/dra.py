"""What do the ResourceSlices of NVIDIA's DRA driver say about the cards of a node?

Read is resource.k8s.io/v1 with the names of NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin
(deviceinfo.go, allocatable.go): types gpu and mig. Slices tell facts, never how many cards are free:
pods of ours ask for the device plugin's resources, and the two are not added up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.catalog.gpus import find_type, label_form
from plimsoll.facts.gpu import Sighting
from plimsoll.facts.source import Confidence, FactSource
from plimsoll.units import parse_bytes

DRIVER: Final = "gpu.nvidia.com"
HARMFUL_TAINTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""resource.k8s.io/v1 DeviceTaint: with these effects no new claim gets the device."""

_Manifest = Mapping[str, Any]


class Device(NamedTuple):
    """One card or slice of a node, as its driver publishes it."""

    name: str
    """Its name in the pool: gpu-0, gpu-0-mig-1g10gb-19-2."""
    product: str
    """In the node label's spelling; a slice as NVIDIA-A30-MIG-1g.6gb."""
    profile: str | None = None
    """Of a slice: 1g.6gb."""
    uuid: str | None = None
    """The card's own name."""
    memory_bytes: int | None = None
    """NVML's total; None where the driver was not told any."""
    compute_capability: str | None = None
    """For example 9.0."""
    unified_memory: bool | None = None
    """Whether card and host share one memory; None where that does not show."""

    def sighting(self) -> Sighting:
        """The device as one voice among others."""
        return Sighting(
            source=FactSource.DRA,
            detail=f"ResourceSlice, {self.name}",
            confidence=Confidence.EXACT,
            product=self.product,
            total_bytes=self.memory_bytes,
            compute_capability=self.compute_capability,
            unified_memory=self.unified_memory,
        )


def devices_by_node(slices: Iterable[_Manifest]) -> dict[str, tuple[Device, ...]]:
    """Healthy devices by node, each once.

    Of each pool the newest generation counts, and only when all its slices are there: a pool that is
    being rewritten says nothing (resource.k8s.io/v1, ResourcePool). Never raises: what cannot be read
    is passed over.
    """
    pools: dict[str, list[_Manifest]] = defaultdict(list)
    for each in slices:
        spec = each.get("spec") or {}
        pool = spec.get("pool") or {}
        if spec.get("driver") == DRIVER and isinstance(pool.get("name"), str):
            pools[pool["name"]].append(spec)
    found: dict[str, dict[tuple[str, str], Device]] = defaultdict(dict)
    for name, specs in sorted(pools.items()):
        for spec in _newest(specs):
            for raw in spec.get("devices") or ():
                node = raw.get("nodeName") or spec.get("nodeName")
                device = _device(raw)
                if isinstance(node, str) and device is not None:
                    found[node].setdefault((name, device.name), device)
    return {
        node: tuple(devices[key] for key in sorted(devices))
        for node, devices in sorted(found.items())
    }


def _newest(specs: Sequence[_Manifest]) -> tuple[_Manifest, ...]:
    """The slices of the newest generation, or none while some of them are missing."""

    def number(spec: _Manifest, field: str) -> int:
        value = spec["pool"].get(field)
        return value if isinstance(value, int) else 0

    newest = max(number(spec, "generation") for spec in specs)
    current = [spec for spec in specs if number(spec, "generation") == newest]
    wanted = {number(spec, "resourceSliceCount") for spec in current}
    return tuple(current) if wanted == {len(current)} else ()


def _device(raw: _Manifest) -> Device | None:
    """None for what no worker can be given: other kinds, sick devices, and slices that could be cut but
    are not (dynamic MIG publishes every layout; what exists has a uuid)."""
    kind, name = _text(raw, "type"), raw.get("name")
    product = label_form(_text(raw, "productName") or "")
    if kind not in ("gpu", "mig") or not product or not isinstance(name, str):
        return None
    if any(taint.get("effect") in HARMFUL_TAINTS for taint in raw.get("taints") or ()):
        return None
    profile = _text(raw, "profile") if kind == "mig" else None
    uuid = _text(raw, "uuid")
    if kind == "mig" and (profile is None or uuid is None):
        return None
    memory_bytes = _memory(raw)
    return Device(
        name=name,
        product=f"{product}-MIG-{profile.lower().replace('+', '.')}" if profile else product,
        profile=profile.lower().replace("+", ".") if profile else None,
        uuid=uuid,
        memory_bytes=memory_bytes,
        compute_capability=_capability(raw),
        unified_memory=_is_unified(product, memory_bytes, _text(raw, "addressingMode")),
    )


def _is_unified(product: str, memory_bytes: int | None, addressing_mode: str | None) -> bool | None:
    """A card without memory of its own that reads the host's page tables (ATS) shares the host's. A
    Grace Hopper says ATS too, and has memory of its own."""
    known = find_type(product)
    if known is not None:
        return known.unified_memory
    return True if memory_bytes is None and addressing_mode == "ATS" else None


def _value(fields: object, name: str) -> _Manifest:
    """A field by its name, with or without its domain."""
    if not isinstance(fields, Mapping):
        return {}
    value = fields.get(name, fields.get(f"{DRIVER}/{name}"))
    return value if isinstance(value, Mapping) else {}


def _text(raw: _Manifest, name: str) -> str | None:
    value = _value(raw.get("attributes"), name).get("string")
    return value if isinstance(value, str) and value else None


def _memory(raw: _Manifest) -> int | None:
    """Zero is what nobody told, as everywhere."""
    value = _value(raw.get("capacity"), "memory").get("value")
    if not isinstance(value, str | int):
        return None
    try:
        return parse_bytes(value) or None
    except ValueError:
        return None


def _capability(raw: _Manifest) -> str | None:
    """Versions are semantic there: 9.0.0 is 9.0."""
    version = _value(raw.get("attributes"), "cudaComputeCapability").get("version")
    parts = version.split(".") if isinstance(version, str) else []
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return None
    return f"{int(parts[0])}.{int(parts[1])}"
