"""Where does a namespace's calibration stay?

In one ConfigMap in that namespace: there the operator may write already, a namespace learns nothing from
another's models, and it goes with the namespace. It belongs to no InferenceDeployment, since it outlives them.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Conflict, NotFound
from plimsoll.cluster.kinds import CONFIG_MAP
from plimsoll.decide import Manifest
from plimsoll.plan.calibration import Measurement, merged
from plimsoll.plan.calibration_text import Calibration, calibration_of, text_of
from plimsoll.render.calibration import CALIBRATION_NAME, DATA_KEY, calibration_manifest, is_ours


async def read_calibration(client: Client, namespace: str) -> Calibration:
    """What was learnt there; nothing where there is no such ConfigMap. Raises ApiError."""
    found = await _get(client, namespace)
    return Calibration() if found is None else _calibration(found)


async def keep_measured(
    client: Client, namespace: str, measured: Sequence[Measurement]
) -> Calibration:
    """Add what was measured, and give the whole. Raises ApiError; Conflict when the name is somebody
    else's, or somebody wrote to it just now."""
    found = await _get(client, namespace)
    had = Calibration() if found is None else _calibration(found)
    if had.is_foreign:
        raise Conflict(
            f"ConfigMap {CALIBRATION_NAME} holds no calibration that this Plimsoll can add to",
            status=409,
            reason="NotOurs",
        )
    whole = merged(had.measured, measured)
    await _write(client, namespace, found, whole)
    return had._replace(measured=whole)


async def put_calibration(client: Client, namespace: str, measured: Sequence[Measurement]) -> None:
    """Write exactly this, whatever was there. Raises ApiError; Conflict as above."""
    await _write(client, namespace, await _get(client, namespace), measured)


async def _write(
    client: Client, namespace: str, found: Manifest | None, measured: Sequence[Measurement]
) -> None:
    manifest = calibration_manifest(namespace, text_of(measured))
    if found is not None:
        if not is_ours(found):
            raise Conflict(
                f"ConfigMap {CALIBRATION_NAME} exists and was not made by Plimsoll; rename or delete it",
                status=409,
                reason="NotOurs",
            )
        manifest["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
    await client.apply(CONFIG_MAP, manifest, force=True)


def _calibration(found: Manifest) -> Calibration:
    text = (found.get("data") or {}).get(DATA_KEY)
    if not isinstance(text, str):
        return Calibration()
    return calibration_of(text)


async def _get(client: Client, namespace: str) -> Manifest | None:
    try:
        return await client.get(CONFIG_MAP, namespace, CALIBRATION_NAME)
    except NotFound:
        return None
