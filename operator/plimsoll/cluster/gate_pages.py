"""How does a person at a desk see the pages of a deployment's keepers?

By the API server's proxy, with that person's own rights (list `pods`, get `pods/proxy`, both in Kubernetes' role
`edit`). The operator has no such right and never comes here.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError
from plimsoll.cluster.kinds import POD
from plimsoll.render.gateway_objects import PAGE_PORT, gate_selector


class PodPage(NamedTuple):
    """What one gate's keeper says, or why nothing came."""

    pod: str
    text: str = ""
    problem: str = ""


async def gate_pages(client: Client, namespace: str, deployment: str) -> tuple[PodPage, ...]:
    """The pages of all gates of one InferenceDeployment, by name of the pod. Raises ApiError where the pods cannot be
    listed."""
    labels = ",".join(f"{name}={value}" for name, value in gate_selector(deployment).items())
    listing = await client.list_all(POD, namespace, labels=labels)
    names = sorted(pod["metadata"]["name"] for pod in listing.items)
    return tuple([await _page(client, namespace, name) for name in names])


async def _page(client: Client, namespace: str, pod: str) -> PodPage:
    try:
        body = await client.ask_pod(namespace, pod, PAGE_PORT, "/metrics")
    except ApiError as error:
        return PodPage(pod, problem=error.message)
    return PodPage(pod, text=body.decode("utf-8", "replace"))
