"""What do Flux and `helm --wait` make of a custom resource? kstatus's rules, in its own order.

Source: fluxcd/cli-utils v1.2.2 (the one in Helm 4) and kubernetes-sigs/cli-utils, pkg/kstatus/README.md and
pkg/kstatus/status/{generic,status}.go. Kinds that Kubernetes brings have rules of their own there, which
are not asked for here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Status(StrEnum):
    """What kstatus says."""

    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    CURRENT = "Current"
    TERMINATING = "Terminating"


class Result(NamedTuple):
    """A status and why."""

    status: Status
    message: str


ABNORMAL = {"Reconciling": Status.IN_PROGRESS, "Stalled": Status.FAILED}
"""Conditions that decide alone while they are True; the first in the object's order wins."""


def compute(manifest: Mapping[str, Any]) -> Result:
    """The status of one custom resource as the API server hands it out."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return Result(Status.TERMINATING, "Resource scheduled for deletion")
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    # a resource that never tells its observedGeneration is not held to it
    if generation is not None and observed is not None and generation != observed:
        return Result(Status.IN_PROGRESS, f"generation {generation} after {observed} was observed")
    conditions = status.get("conditions") or ()
    for condition in conditions:
        if condition["type"] in ABNORMAL and condition["status"] == "True":
            return Result(ABNORMAL[condition["type"]], condition.get("message", ""))
    for condition in conditions:
        if condition["type"] == "Ready":
            is_ready = condition["status"] == "True"
            return Result(
                Status.CURRENT if is_ready else Status.IN_PROGRESS, condition.get("message", "")
            )
    return Result(Status.CURRENT, "no condition speaks against it")
