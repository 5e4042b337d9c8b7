"""Pages of keepers, on the addresses of fake pods of gates.

    with FakeKeepers(cluster) as keepers:
        keepers.drained.add("worker-0")

A page is silent until the story lets it speak. Then it tells as drained those of the story's workers that the gate
was told to drain, as a keeper would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from controlplane.cluster import ControlPlane
from plimsoll.render.gateway_objects import PAGE_PORT, WORKERS_ANNOTATION
from stand_ins.pod_addresses import PodPages


class FakeKeepers(PodPages):
    """The keepers of all fake gates of one control plane."""

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__("keepers", cluster, port=PAGE_PORT, path="/state")
        self.speaks = False
        self.drained: set[str] = set()
        """Workers that have nothing in flight."""
        self.asked = 0

    def said(self, pod: Mapping[str, Any]) -> str | None:
        """What a keeper tells of itself."""
        self.asked += 1
        if not self.speaks:
            return None
        metadata = pod["metadata"]
        told = json.loads(metadata["annotations"].get(WORKERS_ANNOTATION) or "[]")
        leaving = {each["name"] for each in told if each["isLeaving"]}
        said = {"name": metadata["name"], "lanes": [], "standing": None, "since": 0}
        rest = {
            "isLeaving": False,
            "held": {},
            "may": {},
            "drained": sorted(leaving & self.drained),
        }
        return json.dumps(said | rest)
