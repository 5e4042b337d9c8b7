"""Under which one address do the workers of all pools answer?"""

from __future__ import annotations

from plimsoll.render.labels import deployment_labels, service_name, worker_selector_labels
from plimsoll.render.pod import PORT, PORT_NAME
from plimsoll.render.records import Manifest, OwnerRef
from plimsoll.render.workload import owned_metadata


def service_manifest(owner: OwnerRef, name: str | None = None) -> Manifest:
    """A Service over every ready worker of the owner, whatever its pool and engine.

    Both engines speak the OpenAI protocol on the same port. `name` stands in for the one derived
    from the owner's.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(
            owner, name or service_name(owner.name), deployment_labels(owner.name)
        ),
        "spec": {
            "type": "ClusterIP",
            "selector": worker_selector_labels(owner.name),
            "ports": [
                {"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT_NAME}
            ],
        },
    }
