"""Given everything observed, what should the cluster look like?

The whole thought in one function; the shell carries it out.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from plimsoll.facts.gpu import Inventory
from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts

Manifest = dict[str, Any]
"""One Kubernetes object as plain data."""


class Key(Record):
    """Which InferenceDeployment."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class ChildRef(Record):
    """A child to remove."""

    api_version: str
    """For example apps/v1."""
    kind: str
    """For example Deployment."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class Announcement(Record):
    """An Event for the person at kubectl."""

    type: str
    """Normal or Warning."""
    reason: str
    """PascalCase fact."""
    message: str
    """One sentence."""


class Observed(Record):
    """The world as one reconcile sees it. Raw objects stay raw: `decide` opens what it needs."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    deployment: Manifest
    """The InferenceDeployment as the API server gave it, status included."""
    inventory: Inventory
    """Every card in reach."""
    children: tuple[Manifest, ...] = ()
    """Live objects of ours that belong to it: Deployments, PodDisruptionBudgets, Service."""
    workers: tuple[WorkerFacts, ...] = ()
    """Its pods."""
    facts_text: str | None = None
    """Content of the ConfigMap that model.facts names; None when none is named or it is missing."""


class Desired(Record):
    """What the shell makes so."""

    apply: tuple[Manifest, ...] = ()
    """Children by server-side apply, whole intent each; the shell skips those already so."""
    delete: tuple[ChildRef, ...] = ()
    """Children that are no longer wanted."""
    status: dict[str, Any] | None = None
    """The whole status by server-side apply to /status; None leaves it alone."""
    events: tuple[Announcement, ...] = ()
    """What to tell."""
    look_again_seconds: float | None = None
    """Visit again after this long, events or not."""


def decide(observed: Observed, *, now_seconds: float) -> Desired:
    """One reconcile, from records to records."""
    raise NotImplementedError
