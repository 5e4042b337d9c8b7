"""What is an InferenceDeployment before any cluster has seen it?

A file has metadata and spec. What Plimsoll made of an object is its status: whoever plans offline has no
use for it, and need not load the types it is told in.
"""

from typing import Any, Final, Literal, Self

from pydantic import ValidationError, model_validator

from plimsoll.api.explain import explain_errors
from plimsoll.api.forms import Form
from plimsoll.api.metadata import Metadata
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.facts.record import Record

API_VERSION: Final = "plimsoll.dev/v1alpha1"
KIND: Final = "InferenceDeployment"

NAME_FORM: Final = Form(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    "write at most 52 lower-case letters, digits and -, beginning with a letter: the Service and the pools' "
    "objects are named after it",
    52,
)
"""Names of an InferenceDeployment: a Service's name, with room for a suffix as in a CronJob's 52."""


class DeploymentManifest(Record):
    """An InferenceDeployment as a file holds it. The spec is read strictly, a status is passed over."""

    api_version: Literal["plimsoll.dev/v1alpha1"] = API_VERSION
    """plimsoll.dev/v1alpha1."""
    kind: Literal["InferenceDeployment"] = KIND
    """InferenceDeployment."""
    metadata: Metadata
    """Name, namespace and what the API server adds."""
    spec: InferenceDeploymentSpec
    """What is wanted."""
    status: Any = None
    """What Plimsoll made of it."""

    @model_validator(mode="after")
    def _can_be_named_after(self) -> Self:
        NAME_FORM.check(self.metadata.name, field=".metadata.name")
        return self


def read(raw: Any) -> DeploymentManifest:
    """A whole object from plain data. Raises ValueError whose text is one line per problem."""
    try:
        return DeploymentManifest.model_validate(raw)
    except ValidationError as error:
        raise ValueError("\n".join(explain_errors(error))) from error
