"""Which ConfigMap is a namespace's calibration?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.render.config_map import config_map
from plimsoll.render.labels import COMPONENT_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE
from plimsoll.render.records import Manifest

CALIBRATION_NAME: Final = "plimsoll-calibration"
DATA_KEY: Final = "calibration.json"
COMPONENT: Final = "calibration"


def calibration_manifest(namespace: str | None, text: str) -> Manifest:
    """The ConfigMap with this text; without a namespace kubectl's own counts."""
    metadata: Manifest = {"name": CALIBRATION_NAME}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = {COMPONENT_LABEL: COMPONENT, MANAGED_BY_LABEL: MANAGED_BY_VALUE}
    return config_map(metadata, {DATA_KEY: text})


def is_ours(config_map: Mapping[str, Any]) -> bool:
    """Whether a ConfigMap of that name was made by Plimsoll."""
    labels = (config_map.get("metadata") or {}).get("labels") or {}
    return bool(
        labels.get(MANAGED_BY_LABEL) == MANAGED_BY_VALUE
        and labels.get(COMPONENT_LABEL) == COMPONENT
    )
