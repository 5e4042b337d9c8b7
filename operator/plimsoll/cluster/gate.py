"""How do we see gates, and how is one told what it has to know?

By annotations of its pod: the right to patch pods is there anyway, and the kubelet shows them as files at once.
The gate itself needs no right at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from plimsoll.api.gateway_words import GateSeen, GateWord
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Conflict, Invalid, NotFound
from plimsoll.cluster.kinds import POD
from plimsoll.cluster.worker import seconds_of
from plimsoll.decide import Manifest
from plimsoll.render.gateway_objects import (
    GATE_ANNOTATION,
    GATE_COMPONENT,
    ROOMS_ANNOTATION,
    STANDING_ANNOTATION,
    TOLD,
    WORKERS_ANNOTATION,
)
from plimsoll.render.labels import COMPONENT_LABEL, PLAN_ANNOTATION

log = logging.getLogger(__name__)

_KEPT: Final = (PLAN_ANNOTATION, GATE_ANNOTATION, *TOLD)


def is_gate(pod: Manifest) -> bool:
    """Whether the pod is a gate, and no worker."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(COMPONENT_LABEL) == GATE_COMPONENT)


def kept_annotations(pod: Manifest) -> dict[str, str]:
    """The annotations that we read again."""
    annotations = pod["metadata"].get("annotations") or {}
    return {name: annotations[name] for name in _KEPT if annotations.get(name)}


def gate_of(pod: Manifest) -> GateSeen:
    """A gate's pod as facts."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return GateSeen(
        name=metadata["name"],
        uid=metadata["uid"],
        is_ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        ),
        ends_seconds=seconds_of(metadata.get("deletionTimestamp")),
        question=annotations.get(GATE_ANNOTATION, ""),
        rooms=annotations.get(ROOMS_ANNOTATION, ""),
        workers=annotations.get(WORKERS_ANNOTATION, ""),
        standing=annotations.get(STANDING_ANNOTATION, ""),
        address=status.get("podIP") or None,
    )


async def tell_gates(client: Client, words: Iterable[GateWord], namespace: str) -> dict[str, str]:
    """Tell each that very pod; by name of those that were told, the version that it led to, the newest last.
    One that is gone is left alone. Raises ApiError where the API server did not answer."""
    told: dict[str, str] = {}
    for word in words:
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": word.uid},
            *(
                {
                    "op": "add",
                    "path": "/metadata/annotations/" + name.replace("/", "~1"),
                    "value": text,
                }
                for name, text in sorted(word.annotations.items())
            ),
        ]
        try:
            after = await client.patch_json(POD, namespace, word.pod, operations)
        except (NotFound, Invalid, Conflict) as error:
            log.info(
                "gate not told",
                extra={"namespace": namespace, "pod": word.pod, "error": error.message},
            )
        else:
            told[word.pod] = after["metadata"]["resourceVersion"]
    return told
