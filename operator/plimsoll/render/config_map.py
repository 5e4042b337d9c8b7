"""What does a ConfigMap look like in which something is kept?"""

from collections.abc import Mapping

from plimsoll.render.labels import COMPONENT_LABEL, deployment_labels
from plimsoll.render.records import Manifest, OwnerRef
from plimsoll.render.workload import owned_metadata


def config_map(metadata: Manifest, data: Mapping[str, str], *, in_base64: bool = False) -> Manifest:
    """One with these texts, or with bytes written in base64."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData" if in_base64 else "data": dict(data),
    }


def owned_config_map(
    owner: OwnerRef, name: str, component: str, data: Mapping[str, str], *, in_base64: bool = False
) -> Manifest:
    """One that goes with its InferenceDeployment; `component` says on it what is kept."""
    labels = deployment_labels(owner.name) | {COMPONENT_LABEL: component}
    return config_map(owned_metadata(owner, name, labels), data, in_base64=in_base64)
