"""Pages of keepers, on the addresses of fake pods of gates: no pod runs there, so the story says what they say.

    with FakeKeepers(cluster) as keepers:
        keepers.drained.add("worker-0")

A page is silent until the story lets it speak. Then it tells as drained those of the story's workers that the gate
was told to drain, as a keeper would.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from controlplane import netns
from controlplane.cluster import ControlPlane
from plimsoll.render.gateway_objects import PAGE_PORT, WORKERS_ANNOTATION
from stand_ins.background import Background
from stand_ins.engines import route


class FakeKeepers(Background):
    """The keepers of all fake gates of one control plane."""

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__("keepers")
        self._cluster = cluster
        self.speaks = False
        self.drained: set[str] = set()
        """Workers that have nothing in flight."""
        self.asked = 0

    @staticmethod
    def why_not() -> str | None:
        """Why there can be none here; None when there can."""
        return None if netns.inside() else "addresses of fake pods need a network namespace of ours"

    async def _start(self) -> None:
        route("replace")
        self._server = web.Server(self._answer, handler_cancellation=True)
        self._door = await self._loop.create_server(self._server, "0.0.0.0", PAGE_PORT)

    async def _stop(self) -> None:
        self._door.close()
        await self._server.shutdown(timeout=0.1)  # 0 would be without end
        route("delete")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is None or request.path != "/state":
            return web.Response(status=http.client.NOT_FOUND)
        self.asked += 1
        address = request.transport.get_extra_info("sockname")[0]
        pod = await self._loop.run_in_executor(None, self._pod_at, address)
        if pod is None or not self.speaks:
            return web.Response(status=http.client.SERVICE_UNAVAILABLE)
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
        return web.json_response(said | rest)

    def _pod_at(self, address: str) -> Mapping[str, Any] | None:
        pods = self._cluster.get("/api/v1/pods")["items"]
        return next((pod for pod in pods if pod["status"].get("podIP") == address), None)
