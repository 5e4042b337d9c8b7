"""How does the world look to one InferenceDeployment, right now?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from plimsoll.api.v1alpha1 import FactsConfigMap
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import NotFound
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.gate import gate_of, is_gate, kept_annotations
from plimsoll.cluster.inspection import NO_INSPECTOR, Inspector, is_inspection, look_at_inspection
from plimsoll.cluster.kinds import CHILDREN, CONFIG_MAP, INFERENCE_DEPLOYMENT, POD
from plimsoll.cluster.probe import is_probe, look_at_probe
from plimsoll.cluster.worker import engine_facts, essence_of_containers, seconds_of
from plimsoll.decide import Key, Manifest, Observed
from plimsoll.facts.worker import WorkerFacts
from plimsoll.render.labels import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    DRAINING_COMPONENT,
    POOL_LABEL,
    label_value,
)

TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
ANY: Final = "0"


Versions = Mapping[str, str]
"""By kind, the resourceVersion that our own last write led to."""


async def look(
    client: Client,
    key: Key,
    fleet: Fleet,
    *,
    written: Versions = MappingProxyType({}),
    inspector: Inspector = NO_INSPECTOR,
) -> Observed | None:
    """Read all that `decide` needs. None when the object is gone or on its way out.

    The object itself is read live. Children and pods come from the API server's cache, which is never
    behind the event that woke us nor, with `written`, behind our own writes. Raises ApiError.
    """
    try:
        deployment = await client.get(INFERENCE_DEPLOYMENT, key.namespace, key.name)
    except NotFound:
        return None
    if "deletionTimestamp" in deployment["metadata"]:
        return None
    labels = f"{DEPLOYMENT_LABEL}={label_value(key.name)}"
    facts_text, seen, inspection, probe, pods, children = await asyncio.gather(
        _facts_text(client, key, deployment),
        fleet.inventory(),
        look_at_inspection(client, deployment, inspector),
        look_at_probe(client, deployment, inspector),
        client.list_all(
            POD,
            key.namespace,
            labels=labels,
            # never behind what we told a gate: else its place could be given again
            not_older_than=written.get(POD.kind, ANY),
            reduce=_worker_manifest,
        ),
        _children(client, key, labels, written),
    )
    readers = tuple(pod for pod in pods.items if is_inspection(pod))
    probes = tuple(pod for pod in pods.items if is_probe(pod))
    workers = (
        worker_of(pod)
        for pod in pods.items
        if not (is_inspection(pod) or is_probe(pod) or is_gate(pod))
    )
    return Observed(
        deployment=deployment,
        inventory=seen,
        children=children,
        workers=tuple(sorted(workers, key=lambda worker: worker.name)),
        facts_text=facts_text,
        inspection=inspection.model_copy(update={"pods": readers}),
        probe=probe.model_copy(update={"pods": probes}),
        leaving_nodes=fleet.leaving(),
        gates=tuple(gate_of(pod) for pod in pods.items if is_gate(pod)),
    )


async def _children(
    client: Client, key: Key, labels: str, written: Versions
) -> tuple[Manifest, ...]:
    listings = await asyncio.gather(
        *(
            client.list_all(
                kind, key.namespace, labels=labels, not_older_than=written.get(kind.kind, ANY)
            )
            for kind in CHILDREN
        )
    )
    return tuple(child for listing in listings for child in listing.items)


def worker_of(pod: Manifest) -> WorkerFacts:
    """A pod of ours as facts."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    return WorkerFacts(
        name=metadata["name"],
        uid=metadata["uid"],
        pool=labels.get(POOL_LABEL, ""),
        node=(pod.get("spec") or {}).get("nodeName") or None,
        phase=status.get("phase", "Unknown"),
        is_ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        ),
        template_hash=labels.get(TEMPLATE_HASH_LABEL, ""),
        is_terminating="deletionTimestamp" in metadata,
        created_seconds=seconds_of(metadata.get("creationTimestamp")),
        is_in_service=labels.get(COMPONENT_LABEL) != DRAINING_COMPONENT,
        message=why_not_running(status),
        **engine_facts(pod),
    )


def why_not_running(status: dict[str, Any]) -> str:
    """What the scheduler, the kubelet or the container says; empty when all is well."""
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        state = container.get("state") or {}
        told = state.get("waiting") or state.get("terminated")
        if told and (container.get("ready") is not True) and told.get("reason") not in _NO_NEWS:
            before = (container.get("lastState") or {}).get("terminated") or {}
            parts = (told.get("reason"), told.get("message"), before.get("message"))
            return f"{container['name']}: " + ": ".join(part.strip() for part in parts if part)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return str(status.get("message") or status.get("reason") or "")


_NO_NEWS: Final = frozenset({"ContainerCreating", "PodInitializing", "Completed"})


_KEPT_METADATA: Final = ("name", "uid", "labels", "creationTimestamp", "deletionTimestamp")


def _worker_manifest(pod: Manifest) -> Manifest | None:
    """Only what `worker_of` reads."""
    metadata = pod["metadata"]
    kept = {key: metadata[key] for key in _KEPT_METADATA if key in metadata}
    if annotations := kept_annotations(pod):
        kept["annotations"] = annotations
    return {
        "metadata": kept,
        "spec": {
            "nodeName": pod.get("spec", {}).get("nodeName"),
            "containers": essence_of_containers(pod),
        },
        "status": pod.get("status") or {},
    }


async def _facts_text(client: Client, key: Key, deployment: Manifest) -> str | None:
    """The named ConfigMap's content; None where none is named, or it or its key is missing.

    The object's spec is not checked yet here, so anything that is not a name is left to `decide`.
    """
    named: Any = deployment
    for part in ("spec", "model", "facts", "configMap"):
        named = named.get(part) if isinstance(named, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str) or not name:
        return None
    try:
        config_map = await client.get(CONFIG_MAP, key.namespace, name)
    except NotFound:
        return None
    default = FactsConfigMap.model_fields["key"].default
    text = (config_map.get("data") or {}).get(named.get("key") or default)
    return text if isinstance(text, str) else None
