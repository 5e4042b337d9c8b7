"""How does the status reach the object, and nothing but the status?"""

from __future__ import annotations

from typing import Any

from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import NotFound
from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT
from plimsoll.cluster.settled import Settled
from plimsoll.decide import Manifest


async def write_status(
    client: Client, deployment: Manifest, status: dict[str, Any], settled: Settled
) -> str | None:
    """Write the whole status where it differs from the live one.

    Gives the object's new resourceVersion, or None when nothing was written (nothing differs, or the
    object is gone). The uid goes with it, so that a namesake made meanwhile is left alone.
    """
    metadata = deployment["metadata"]
    live = deployment.get("status") or {}
    if status == live:
        return None
    key = f"{metadata['uid']}/status"
    if settled.is_as_good_as_it_gets(key, status, live):
        return None
    body = {
        "apiVersion": INFERENCE_DEPLOYMENT.api_version,
        "kind": INFERENCE_DEPLOYMENT.kind,
        "metadata": {name: metadata[name] for name in ("namespace", "name", "uid")},
        "status": status,
    }
    try:
        written = await client.apply_status(INFERENCE_DEPLOYMENT, body)
    except NotFound:
        return None
    if (outcome := written.get("status") or {}) != status:
        settled.remember(key, status, outcome)
    return str(written["metadata"]["resourceVersion"])
