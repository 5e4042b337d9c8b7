"""What is an InferenceDeployment, `plimsoll.dev/v1alpha1`?

    deployment = InferenceDeployment.model_validate(raw)

takes a whole object as it stands in a file or comes from the API server. The spec is read strictly, a typo
has an address; metadata and status are read leniently.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator

from plimsoll.api.explain import explain_errors
from plimsoll.api.manifest import API_VERSION, KIND, NAME_FORM, DeploymentManifest, read
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
    WorkerStatus,
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

GROUP: Final = "plimsoll.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "inferencedeployments"
SHORT_NAME: Final = "infd"
CATEGORY: Final = "inference"


class InferenceDeployment(DeploymentManifest):
    """One model, the GPU types it may run on, and the traffic it must carry: Plimsoll plans the memory of
    every card, pins the engines' flags that follow, and keeps as many workers as asked for."""

    status: Annotated[InferenceDeploymentStatus, BeforeValidator(read_status)] = (
        InferenceDeploymentStatus()
    )
    """What Plimsoll made of it."""


__all__ = [
    "API_VERSION",
    "CATEGORY",
    "DTYPES",
    "GROUP",
    "KIND",
    "NAME_FORM",
    "PLURAL",
    "SHORT_NAME",
    "VERSION",
    "DeploymentManifest",
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
    "WorkerStatus",
    "explain_errors",
    "read",
    "read_status",
    "written",
]
