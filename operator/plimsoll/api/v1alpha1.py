"""What is an InferenceDeployment, `plimsoll.dev/v1alpha1`?

    deployment = InferenceDeployment.model_validate(raw)

takes a whole object as it stands in a file or comes from the API server. The spec is read strictly, a typo
has an address; metadata and status are read leniently.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from plimsoll.api.explain import explain_errors
from plimsoll.api.forms import Form
from plimsoll.api.metadata import Metadata
from plimsoll.api.model_spec import FactsConfigMap, FactsSpec, GgufSpec, InlineFacts, ModelSpec
from plimsoll.api.pool import (
    DTYPES,
    Engines,
    EngineSpec,
    EnvSource,
    EnvVar,
    Pool,
    PoolGpu,
    SecretKeyRef,
)
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.api.status_types import (
    InferenceDeploymentStatus,
    PoolStatus,
    RecycleEntry,
    RecyclingStatus,
    UnplannableStatus,
    read_status,
    written,
)
from plimsoll.api.traffic import (
    GatewaySpec,
    KvCacheDtype,
    KvCacheSpec,
    LaneSpec,
    Lengths,
    Limits,
    Queue,
    RecycleWindow,
    RecyclingMode,
    RecyclingSpec,
    Surge,
    Traffic,
)
from plimsoll.api.worker import PullSecret, TokenSecret, Toleration, WorkerOptions
from plimsoll.facts.record import Record

GROUP: Final = "plimsoll.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "plimsoll.dev/v1alpha1"
KIND: Final = "InferenceDeployment"
PLURAL: Final = "inferencedeployments"
SHORT_NAME: Final = "infd"
CATEGORY: Final = "inference"

NAME_FORM: Final = Form(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    "write at most 52 lower-case letters, digits and -, beginning with a letter: the Service and the pools' "
    "objects are named after it",
    52,
)
"""Names of an InferenceDeployment: a Service's name, with room for a suffix as in a CronJob's 52."""


class InferenceDeployment(Record):
    """One model, the GPU types it may run on, and the traffic it must carry: Plimsoll plans the memory of
    every card, pins the engines' flags that follow, and keeps as many workers as asked for."""

    api_version: Literal["plimsoll.dev/v1alpha1"] = API_VERSION
    """plimsoll.dev/v1alpha1."""
    kind: Literal["InferenceDeployment"] = KIND
    """InferenceDeployment."""
    metadata: Metadata
    """Name, namespace and what the API server adds."""
    spec: InferenceDeploymentSpec
    """What is wanted."""
    status: Annotated[InferenceDeploymentStatus, BeforeValidator(read_status)] = (
        InferenceDeploymentStatus()
    )
    """What Plimsoll made of it."""

    @model_validator(mode="after")
    def _can_be_named_after(self) -> Self:
        NAME_FORM.check(self.metadata.name, field=".metadata.name")
        return self


def read(raw: Any) -> InferenceDeployment:
    """A whole object from plain data. Raises ValueError whose text is one line per problem."""

    try:
        return InferenceDeployment.model_validate(raw)
    except ValidationError as error:
        raise ValueError("\n".join(explain_errors(error))) from error


__all__ = [
    "API_VERSION",
    "CATEGORY",
    "DTYPES",
    "GROUP",
    "KIND",
    "PLURAL",
    "SHORT_NAME",
    "VERSION",
    "EngineSpec",
    "Engines",
    "EnvSource",
    "EnvVar",
    "FactsConfigMap",
    "FactsSpec",
    "GatewaySpec",
    "GgufSpec",
    "InferenceDeployment",
    "InferenceDeploymentSpec",
    "InferenceDeploymentStatus",
    "InlineFacts",
    "KvCacheDtype",
    "KvCacheSpec",
    "LaneSpec",
    "Lengths",
    "Limits",
    "Metadata",
    "ModelSpec",
    "Pool",
    "PoolGpu",
    "PoolStatus",
    "PullSecret",
    "Queue",
    "RecycleEntry",
    "RecycleWindow",
    "RecyclingMode",
    "RecyclingSpec",
    "RecyclingStatus",
    "SecretKeyRef",
    "Surge",
    "TokenSecret",
    "Toleration",
    "Traffic",
    "UnplannableStatus",
    "WorkerOptions",
    "explain_errors",
    "read",
    "read_status",
    "written",
]
