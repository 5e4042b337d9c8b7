"""Which options of a worker's pod may a person set?

A small typed part of a pod, never a whole PodSpec: what Plimsoll pins stays pinned, and the CRD stays small.
"""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from plimsoll.api.forms import (
    Count,
    Cpus,
    LabelKey,
    ManifestError,
    ObjectName,
    SecretKey,
    Sentence,
)
from plimsoll.api.names import repeated
from plimsoll.facts.record import Record

SmallText = Annotated[str, Field(max_length=63)]

OUR_PREFIXES: Final = ("plimsoll.dev/", "app.kubernetes.io/")
"""Labels and annotations that Plimsoll sets itself."""


class TolerationOperator(StrEnum):
    """How a taint's value is compared."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Record):
    """A taint that the workers' pods tolerate, as in a pod."""

    key: LabelKey | None = None
    """Key of the taint; every taint when left out, with operator Exists."""
    operator: TolerationOperator | None = None
    """Exists or Equal; Equal when left out."""
    value: SmallText | None = None
    """Value of the taint, for Equal."""
    effect: TaintEffect | None = None
    """Effect of the taint; every effect when left out."""
    toleration_seconds: Annotated[Count, Field(ge=0, le=2**53)] | None = None
    """For NoExecute: how long the pod stays, in seconds; for ever when left out."""


class PullSecret(Record):
    """A Secret with credentials for a registry."""

    name: ObjectName
    """Name of the Secret."""


class TokenSecret(Record):
    """A Secret with a token for the model hub. The kubelet reads it, Plimsoll never does."""

    name: ObjectName
    """Name of the Secret."""
    key: SecretKey = "token"
    """Key inside it; token when left out."""


class WorkerOptions(Record):
    """Options of the workers' pods."""

    node_selector: Annotated[dict[LabelKey, SmallText], Field(max_length=16, default_factory=dict)]
    """Labels that a node must have, besides its GPU type."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints that the pods tolerate, besides nvidia.com/gpu."""
    cpu: Cpus | None = None
    """CPU request of a worker, e.g. 8; the plan decides when left out."""
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Field(max_length=8)] = ()
    """Secrets with credentials for the image's registry."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, e.g. nvidia."""
    scheduler_name: ObjectName | None = None
    """Scheduler of the pods."""
    hf_token_secret: TokenSecret | None = None
    """Token for the model hub, for hf:// addresses."""
    run_as_user: Annotated[Count, Field(ge=1, le=2**31 - 1)] | None = None
    """User id of the engine's process; 0 is root and is not taken."""
    labels: Annotated[dict[LabelKey, SmallText], Field(max_length=16, default_factory=dict)]
    """More labels for the pods."""
    annotations: Annotated[dict[LabelKey, Sentence], Field(max_length=16, default_factory=dict)]
    """More annotations for the pods."""

    @model_validator(mode="after")
    def _ours_stay_ours(self) -> Self:
        for field, given in (("labels", self.labels), ("annotations", self.annotations)):
            for key in given:
                if key.startswith(OUR_PREFIXES):
                    raise ManifestError(
                        f"{key!r} is Plimsoll's own; use a prefix other than {' and '.join(OUR_PREFIXES)}",
                        field=f".{field}",
                    )
        if twice := repeated(secret.name for secret in self.image_pull_secrets):
            index, name = twice
            raise ManifestError(
                f"{name!r} is there twice; keep one", field=f".imagePullSecrets[{index}]"
            )
        return self
