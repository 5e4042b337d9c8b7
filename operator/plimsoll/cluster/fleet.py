"""What cards are in reach, without asking for every node at every reconcile?

Nodes, GPUNodes, ResourceSlices and the cards that pods ask for are read at most every `max_age_seconds`, shared by
all reconciles, and read anew after a node changed in a way that matters to a plan. A heartbeat does not.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from plimsoll.api.inventory import STALE_SECONDS, NodeReader, inventory
from plimsoll.catalog.dra import DRIVER, devices_by_node
from plimsoll.catalog.profiles import GpuProfile
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Forbidden, NotFound
from plimsoll.cluster.kinds import GPU_NODE, NODE, POD, RESOURCE_SLICE
from plimsoll.cluster.others import Others
from plimsoll.decide import Manifest
from plimsoll.facts.gpu import Inventory
from plimsoll.units import parse_bytes

KUBELET_PORT: Final = 10250
"""The kubelet's default, for nodes that publish none."""
LIVING_PODS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

Requested = Mapping[tuple[str, str], int]
"""Cards asked for by pods, by (node, resource)."""


class Fleet:
    """The Inventory, kept for a while."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float],
        max_age_seconds: float = 30.0,
        namespaces: tuple[str, ...] = (),
        profiles: tuple[GpuProfile, ...] = (),
        wall_clock: Callable[[], float] | None = None,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        """`namespaces` are where pods may be listed; empty means everywhere. With some, cards that pods
        elsewhere hold count as free. `profiles` are the user's own table. `wall_clock` gives Unix time, by
        which an agent's word ages; without it, it does not."""
        self._client = client
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._namespaces = namespaces
        self._lock = asyncio.Lock()
        self._held: tuple[float, Inventory] | None = None
        self._nodes: dict[str, Manifest] = {}
        self._gpu_nodes: dict[str, Manifest] = {}
        self._alone: dict[str, object] = {}
        self._changes = 0
        self._profiles = profiles
        self._wall_clock = wall_clock
        self._stale_seconds = stale_seconds
        self._slices: dict[str, Manifest] = {}
        self._others = Others()
        self._known = NodeReader(profiles, stale_seconds=stale_seconds)
        self.has_slices = False
        """Whether the API server serves ResourceSlices; known after the first look."""

    async def inventory(self) -> Inventory:
        """Every card in reach. Concurrent callers share one refresh."""
        async with self._lock:
            if self._held is not None and self._clock() - self._held[0] < self._max_age_seconds:
                return self._held[1]
            changes, started_seconds = self._changes, self._clock()
            seen = await self._look()
            # Changed while we looked: good for this caller, not for the next one.
            self._held = (started_seconds, seen) if changes == self._changes else None
            return seen

    def forget(self) -> None:
        """The next caller looks anew."""
        self._held = None
        self._changes += 1

    def kubelet(self, node: str) -> str:
        """Host and port of the node's kubelet; empty where the node is not known or has no address."""
        status = self._nodes.get(node, {}).get("status") or {}
        return str(status.get("kubelet") or "")

    def allocatable_bytes(self, node: str) -> int | None:
        """Memory that the node gives to pods; None where the node is not known or does not say."""
        allocatable = (self._nodes.get(node, {}).get("status") or {}).get("allocatable") or {}
        try:
            return parse_bytes(allocatable["memory"])
        except (KeyError, ValueError, AttributeError):
            return None

    def leaving(self) -> frozenset[str]:
        """Nodes that are cordoned, as they are before they are emptied."""
        return frozenset(
            name for name, node in self._nodes.items() if node["spec"]["unschedulable"]
        )

    def node_seen(self, node: Manifest, *, is_gone: bool = False) -> bool:
        """A watch told of a node. True when it matters to plans; then what was known is forgotten."""
        return self._seen(self._nodes, essence(node), is_gone)

    def gpu_node_seen(self, gpu_node: Manifest, *, is_gone: bool = False) -> bool:
        """The same for a GPUNode."""
        return self._seen(self._gpu_nodes, gpu_node, is_gone)

    def slice_seen(self, resource_slice: Manifest, *, is_gone: bool = False) -> bool:
        """The same for a ResourceSlice, of which a pool of devices may have several."""
        if _of_our_driver(resource_slice) is None:
            return False
        name, before = resource_slice["metadata"]["name"], self._devices()
        if is_gone:
            self._slices.pop(name, None)
        else:
            self._slices[name] = resource_slice
        if self._devices() == before:
            return False
        self.forget()
        return True

    def _devices(self) -> Mapping[str, object]:
        return devices_by_node(self._slices.values())

    def _seen(self, things: dict[str, Manifest], thing: Manifest, is_gone: bool) -> bool:
        """What a node matters is asked of those who read it for plans: nothing that they overlook is news."""
        name = thing["metadata"]["name"]
        if is_gone:
            things.pop(name, None)
        else:
            things[name] = thing
        before = self._alone.get(name)
        now = self._alone[name] = self._of_node_alone(name)
        if now == before:
            return False
        self.forget()
        return True

    def _of_node_alone(self, name: str) -> object:
        """All of one node that a plan may rest on, to be compared; None for a node without cards."""
        node = self._nodes.get(name)
        if node is None or "deletionTimestamp" in node["metadata"]:
            return None
        now_seconds = self._wall_clock() if self._wall_clock else None
        status = self._gpu_nodes.get(name, {}).get("status")
        cards = self._known.cards(node, status, (), now_seconds)
        return (cards, node["status"]["allocatable"].get("memory")) if cards else None

    def _inventory(
        self,
        nodes: Sequence[Manifest],
        gpu_nodes: Sequence[Manifest],
        requested: Requested,
        slices: Sequence[Manifest],
    ) -> Inventory:
        return inventory(
            nodes,
            gpu_nodes,
            requested,
            resource_slices=slices,
            profiles=self._profiles,
            now_seconds=self._wall_clock() if self._wall_clock else None,
            stale_seconds=self._stale_seconds,
            known=self._known,
        )

    async def _look(self) -> Inventory:
        nodes = (await self._client.list_all(NODE, reduce=essence)).items
        gpu_nodes = await self._list_gpu_nodes()
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._gpu_nodes = {each["metadata"]["name"]: each for each in gpu_nodes}
        slices = await self._list_slices()
        self._slices = {each["metadata"]["name"]: each for each in slices}
        self._known.keep_only(self._nodes)
        self._alone = {name: self._of_node_alone(name) for name in self._nodes}
        pods: list[Manifest] = []
        for namespace in self._namespaces or (None,):
            listing = await self._client.list_all(
                POD, namespace, fields=LIVING_PODS, reduce=_if_it_holds_cards
            )
            pods += listing.items
        requested = cards_requested(pods)
        if not self._namespaces:  # else cards may be held by pods that we do not see
            gpu_nodes = self._others.look(gpu_nodes, requested)
        return self._inventory(nodes, gpu_nodes, requested, slices)

    async def _list_gpu_nodes(self) -> tuple[Manifest, ...]:
        """None where the kind is not installed: labels and catalogue take over."""
        try:
            return (await self._client.list_all(GPU_NODE)).items
        except NotFound:
            return ()

    async def _list_slices(self) -> tuple[Manifest, ...]:
        """None where the API server does not serve them (before 1.34, or switched off) or our role is an
        older one: the next source takes over."""
        try:
            found = (await self._client.list_all(RESOURCE_SLICE, reduce=_of_our_driver)).items
        except (NotFound, Forbidden):
            return ()
        self.has_slices = True
        return found


def _of_our_driver(resource_slice: Manifest) -> Manifest | None:
    """A slice of the driver that we read, or nothing."""
    spec = resource_slice.get("spec") or {}
    return resource_slice if spec.get("driver") == DRIVER else None


def essence(node: Manifest) -> Manifest:
    """A node without its images, annotations and managers: a tenth of the size."""
    metadata, status = node["metadata"], node.get("status") or {}
    kept = {key: metadata[key] for key in ("name", "uid", "deletionTimestamp") if key in metadata}
    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "metadata": kept | {"labels": metadata.get("labels") or {}},
        "spec": {"unschedulable": (node.get("spec") or {}).get("unschedulable") is True},
        "status": {key: status.get(key) or {} for key in ("allocatable", "capacity")}
        | {"kubelet": kubelet_address(status)},
    }


def kubelet_address(status: Mapping[str, Any]) -> str:
    """Host and port of a node's kubelet, by its InternalIP; empty where it has none."""
    address = next(
        (
            str(each.get("address") or "")
            for each in status.get("addresses") or ()
            if each.get("type") == "InternalIP"
        ),
        "",
    )
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = endpoint.get("Port") or KUBELET_PORT
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}" if address else ""


def cards_requested(pods: Iterable[Manifest]) -> Requested:
    """Cards that pods ask for, by (node, resource)."""
    requested: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        node = pod.get("spec", {}).get("nodeName")
        phase = pod.get("status", {}).get("phase")
        if not node or phase in ("Succeeded", "Failed"):
            continue
        for resource, count in cards_of_pod(pod).items():
            requested[node, resource] += count
    return dict(requested)


def cards_of_pod(pod: Manifest) -> dict[str, int]:
    """Cards that one pod holds: the sum over its containers, or its greediest init container if that is
    more. An init container that restarts always (a sidecar) counts with the containers.

    Source: Kubernetes documentation, "Sidecar containers", resource sharing within containers.
    """
    spec = pod.get("spec", {})
    running: dict[str, int] = defaultdict(int)
    at_start: dict[str, int] = defaultdict(int)
    for container in spec.get("initContainers") or ():
        is_sidecar = container.get("restartPolicy") == "Always"
        for resource, count in _cards_of_container(container):
            if is_sidecar:
                running[resource] += count
            alone = 0 if is_sidecar else count
            at_start[resource] = max(at_start[resource], running[resource] + alone)
    for container in spec.get("containers") or ():
        for resource, count in _cards_of_container(container):
            running[resource] += count
    most = {r: max(running[r], at_start[r]) for r in sorted({*running, *at_start})}
    return {resource: count for resource, count in most.items() if count}


def _cards_of_container(container: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    for resource, amount in asked.items():
        if _is_extended(resource) and str(amount).isdigit():
            yield resource, int(amount)


def _if_it_holds_cards(pod: Manifest) -> Manifest | None:
    """The little of a pod that counts, or nothing."""
    if not cards_of_pod(pod):
        return None
    spec = pod["spec"]
    kept = {k: spec[k] for k in ("nodeName", "containers", "initContainers") if k in spec}
    phase = (pod.get("status") or {}).get("phase")
    return {"metadata": {"name": pod["metadata"]["name"]}, "spec": kept, "status": {"phase": phase}}


def _is_extended(resource: str) -> bool:
    """Device plugins name theirs with their domain; the kubelet's own (cpu, memory) have none."""
    return "/" in resource
