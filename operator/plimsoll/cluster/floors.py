"""Where do a deployment's memory floors stay while no operator runs?

In one ConfigMap beside it, which goes with it. A ConfigMap of that name that is somebody else's is
neither read nor written.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Conflict, NotFound
from plimsoll.cluster.kinds import CONFIG_MAP, INFERENCE_DEPLOYMENT
from plimsoll.decide import Key, Manifest
from plimsoll.render.config_map import owned_config_map
from plimsoll.render.labels import FLOORS_COMPONENT, floors_name
from plimsoll.render.records import OwnerRef

DATA_KEY: Final = "floors"


async def read_floors(client: Client, key: Key, uid: str) -> bytes | None:
    """What was kept of this very object's workers; None when nothing was. Raises ApiError."""
    found = await _get(client, key)
    if found is None or not _is_of(found, uid):
        return None
    text = (found.get("binaryData") or {}).get(DATA_KEY)
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except binascii.Error:
        return b""


async def keep_floors(client: Client, key: Key, uid: str, kept: bytes) -> None:
    """Write the ConfigMap. Raises ApiError; Conflict when the name is somebody else's."""
    found = await _get(client, key)
    if found is not None and not _is_of(found, uid):
        raise Conflict(
            f"ConfigMap {floors_name(key.name)} exists and does not belong to this "
            f"InferenceDeployment; rename or delete one of the two",
            status=409,
            reason="NotOurs",
        )
    owner = OwnerRef(
        api_version=INFERENCE_DEPLOYMENT.api_version,
        kind=INFERENCE_DEPLOYMENT.kind,
        name=key.name,
        namespace=key.namespace,
        uid=uid,
    )
    data = {DATA_KEY: base64.b64encode(kept).decode()}
    manifest = owned_config_map(
        owner, floors_name(key.name), FLOORS_COMPONENT, data, in_base64=True
    )
    await client.apply(CONFIG_MAP, manifest, force=True)


async def _get(client: Client, key: Key) -> Manifest | None:
    try:
        return await client.get(CONFIG_MAP, key.namespace, floors_name(key.name))
    except NotFound:
        return None


def _is_of(found: Manifest, uid: str) -> bool:
    return any(ref.get("uid") == uid for ref in found["metadata"].get("ownerReferences") or ())
