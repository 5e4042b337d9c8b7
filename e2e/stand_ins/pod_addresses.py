"""A page on the address of every fake pod: no pod runs there, so a story says what it says.

The network namespace of the stories has no pods' addresses; here they all lead to one server, which looks up
whose address was asked.
"""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from controlplane import netns
from controlplane.cluster import ControlPlane
from stand_ins.background import Background

POD_ADDRESSES: Final = "10.245.0.0/16"
"""kwok's --cidr in controlplane/cluster.py."""
KNOWN_SECONDS: Final = 1.0


class PodPages(Background):
    """One path at one port of all fake pods of one control plane."""

    def __init__(self, name: str, cluster: ControlPlane, *, port: int, path: str) -> None:
        super().__init__(name)
        self._cluster = cluster
        self._port, self._path = port, path
        self._pods: tuple[float, dict[str, Mapping[str, Any]]] = (0.0, {})

    def said(self, pod: Mapping[str, Any]) -> str | None:
        """The page of that pod; None where it does not answer. Runs in the stand-in's own loop."""
        raise NotImplementedError

    @staticmethod
    def why_not() -> str | None:
        """Why there can be none here; None when there can."""
        return None if netns.inside() else "addresses of fake pods need a network namespace of ours"

    async def _start(self) -> None:
        route("replace")
        self._server = web.Server(self._answer, handler_cancellation=True)
        self._door = await self._loop.create_server(self._server, "0.0.0.0", self._port)

    async def _stop(self) -> None:
        self._door.close()
        await self._server.shutdown(timeout=0.1)  # 0 would be without end
        route("delete")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is None or request.path != self._path:
            return web.Response(status=http.client.NOT_FOUND)
        address = request.transport.get_extra_info("sockname")[0]
        pod = await self._loop.run_in_executor(None, self._pod_at, address)
        text = None if pod is None else self.said(pod)
        if text is None:
            return web.Response(status=http.client.SERVICE_UNAVAILABLE)
        return web.Response(text=text)

    def _pod_at(self, address: str) -> Mapping[str, Any] | None:
        seen_seconds, pods = self._pods
        if time.monotonic() - seen_seconds > KNOWN_SECONDS or address not in pods:
            found = self._cluster.get("/api/v1/pods")["items"]
            pods = {pod["status"]["podIP"]: pod for pod in found if "podIP" in pod["status"]}
            self._pods = (time.monotonic(), pods)
        return pods.get(address)


def route(how: str) -> None:
    """Lead all addresses of pods here, or no longer."""
    subprocess.run(["ip", "route", how, "local", POD_ADDRESSES, "dev", "lo"], check=True)
