"""What does it take to write down a pool of workers as Kubernetes objects?"""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic import model_validator

from plimsoll.engines.base import Release
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.record import Named, Record
from plimsoll.plan.records import Plan
from plimsoll.render.source import ModelSource

Manifest = dict[str, Any]
"""One Kubernetes object as plain data."""

NONROOT_USER: Final = 65532
"""The UID called "nonroot" in distroless images; a user in none of the engines' images."""


class OwnerRef(Record):
    """The InferenceDeployment that owns what we make."""

    api_version: str
    """For example plimsoll.dev/v1alpha1."""
    kind: str
    """For example InferenceDeployment."""
    name: str
    """Its name."""
    namespace: str
    """Its namespace; children live in the same one."""
    uid: str | None = None
    """Its UID, by which the garbage collector goes; None offline, where the object does not exist."""


class SecretKey(Record):
    """One value inside a Secret of the same namespace. The kubelet reads it; we never do."""

    name: str
    """Name of the Secret."""
    key: str
    """Key in it."""


class EnvVar(Record):
    """One environment variable: its value, or where the kubelet finds it."""

    name: str
    """Its name."""
    value: str | None = None
    """Its value."""
    secret: SecretKey | None = None
    """Where its value is kept, if it is a secret."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.value is None) == (self.secret is None):
            raise ValueError(f"env {self.name!r} needs either a value or a secret, and not both")
        return self

    def to_manifest(self) -> Manifest:
        """As a container's env entry."""
        if self.secret is None:
            return {"name": self.name, "value": self.value}
        reference = {"name": self.secret.name, "key": self.secret.key}
        return {"name": self.name, "valueFrom": {"secretKeyRef": reference}}


class PoolWorkload(Record):
    """One pool: a plan, and everything else its workers need."""

    owner: OwnerRef
    """The InferenceDeployment."""
    pool: str
    """Name of the pool."""
    plan: Plan
    """What the workers are pinned to."""
    replicas: int
    """Workers of this pool."""
    image: str
    """The engine's image."""
    image_pull_policy: str | None = None
    """None leaves it to Kubernetes: Always for :latest, else IfNotPresent."""
    release: Release | None = None
    """The engine's release as the image or the spec names it, for a label; None when nobody said."""
    model_name: str
    """The name by which clients ask for the model."""
    source: ModelSource
    """The files that this pool's engine loads: the model's folder, or the GGUF file."""
    gpu: GpuFacts
    """The card's type."""
    match_labels: tuple[Named, ...] = ()
    """Node labels that pick nodes of this type; several values of one label are alternatives."""
    spare_card: bool = False
    """Whether cards for one more worker are free, so that a rollout may start the new one first."""
    is_paused: bool = False
    """Whether a rollout waits with the workers that still run the template before."""
    extra_args: tuple[str, ...] = ()
    """The user's own arguments; they stand before the pinned ones, and the last one counts."""
    env: tuple[EnvVar, ...] = ()
    """The user's own environment."""
    hf_token_secret: SecretKey | None = None
    """Where the hub's token is, if one is needed."""
    cpu_request: str | None = None
    """Cores as a Kubernetes quantity; None for the engine's default."""
    run_as_user: int = NONROOT_USER
    """UID of the engine's process."""
    node_selector: tuple[Named, ...] = ()
    """The user's further demands on nodes."""
    tolerations: tuple[Manifest, ...] = ()
    """The user's tolerations, beside the one for the card's own taint."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets."""
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    scheduler_name: str | None = None
    pod_labels: tuple[Named, ...] = ()
    """Labels that the spec asks for on pods; ours win."""
    pod_annotations: tuple[Named, ...] = ()
    """Annotations that the spec asks for on pods; ours win."""
    template_revision: int = 1
    """Which of our pod templates: the newest for a new pool, the one it has for an old pool."""
