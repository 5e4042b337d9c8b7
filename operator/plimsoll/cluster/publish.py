"""How does an agent's word reach its own node's GPUNode, and nothing else?

The object is made where there is none and belongs to its Node, so that it goes with it. Only the status is
ever written after that.
"""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import suppress
from typing import Any, Final, NamedTuple

from plimsoll.api.gpunode import GPUNodeStatus, read_gpunode_status
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Conflict, NotFound
from plimsoll.cluster.kinds import GPU_NODE, NODE

AGENT_MANAGER: Final = "plimsoll-agent"


class OwnNode(NamedTuple):
    """The node that a service account's token was bound to."""

    name: str
    """The node's name."""
    uid: str
    """Its UID; empty where the token does not say."""


def own_node(token: str | None) -> OwnNode | None:
    """The node in a pod's token; None where there is no token, or it names none.

    Kubernetes writes node name and UID into the tokens of pods from 1.30 on (KEP-4193), and hands both to
    admission. The token is ours and is only read, never trusted: the API server checks it.
    """
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        node = claims["kubernetes.io"]["node"]
        return OwnNode(str(node["name"]), str(node.get("uid") or ""))
    except (ValueError, binascii.Error, LookupError, TypeError, AttributeError):
        return None


async def read_own(client: Client, node: OwnNode) -> GPUNodeStatus:
    """What was last published of this node; empty where there is nothing. Raises ApiError."""
    try:
        found = await client.get(GPU_NODE, None, node.name)
    except NotFound:
        return GPUNodeStatus()
    return read_gpunode_status(found.get("status"))


async def publish(client: Client, node: OwnNode, status: GPUNodeStatus) -> None:
    """Write the whole status of the node's GPUNode, and make it first where there is none. Raises ApiError:
    NotFound where the kind is not installed, Forbidden where it is not our node."""
    body = _manifest(node.name) | {"status": status.to_json()}
    try:
        await client.apply_status(GPU_NODE, body, manager=AGENT_MANAGER)
        return
    except NotFound:
        pass
    with suppress(Conflict):  # somebody was faster; the name is ours all the same
        await client.create(GPU_NODE, None, _new(node))
    await client.apply_status(GPU_NODE, body, manager=AGENT_MANAGER)


def _manifest(name: str) -> dict[str, Any]:
    return {
        "apiVersion": GPU_NODE.api_version,
        "kind": GPU_NODE.kind,
        "metadata": {"name": name},
    }


def _new(node: OwnNode) -> dict[str, Any]:
    manifest = _manifest(node.name)
    if node.uid:
        owner = {"apiVersion": NODE.api_version, "kind": NODE.kind}
        manifest["metadata"]["ownerReferences"] = [owner | {"name": node.name, "uid": node.uid}]
    return manifest
