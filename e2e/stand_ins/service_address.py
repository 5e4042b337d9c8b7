"""What kube-proxy does, for the few Service addresses that a story needs.

    with ServiceAddress(cluster): ...           the API server's, for pods
    with ServiceOf(world, "chat") as service: service.url

Only inside `netns.py`: the address is put on loopback, and what comes to its port goes on, byte for byte, to
where the Service leads at that moment.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from contextlib import suppress
from typing import Final

from controlplane.cluster import ControlPlane
from stand_ins.background import Background
from world import World

ADDRESS: Final = "10.96.0.1"  # of the Service kubernetes, the first of the API server's range
PORT: Final = 443
PIECE: Final = 1 << 16

Target = tuple[str, int]


class Forwarder(Background):
    """One address and port; what inherits says where each connection goes."""

    def __init__(self, name: str, address: str, port: int) -> None:
        super().__init__(name)
        self._address, self._port = address, port
        self._server: asyncio.Server | None = None

    def _target(self) -> Target:
        """Where the next connection goes. Raises OSError or LookupError where it can go nowhere."""
        raise NotImplementedError

    async def _start(self) -> None:
        place = f"{self._address}/32"
        subprocess.run(["ip", "address", "replace", place, "dev", "lo"], check=True)
        self._server = await asyncio.start_server(self._serve, self._address, self._port)

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, LookupError, asyncio.CancelledError):
                target = await self._loop.run_in_executor(None, self._target)
                there, answers = await asyncio.open_connection(*target)
                await asyncio.gather(_pass_on(reader, answers), _pass_on(there, writer))
        finally:
            writer.close()


class ServiceAddress(Forwarder):
    """10.96.0.1:443 leads to the API server."""

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__("service-address", ADDRESS, PORT)
        self._api = "127.0.0.1", cluster.ports["api"]

    def _target(self) -> Target:
        return self._api


class ServiceOf(Forwarder):
    """The cluster address of one Service leads to one of its ready endpoints."""

    def __init__(self, world: World, name: str) -> None:
        spec = world.get(f":services/{name}")["spec"]
        (port,) = spec["ports"]
        super().__init__(f"service-{name}", spec["clusterIP"], port["port"])
        self._world, self._name = world, name
        self.url = f"http://{spec['clusterIP']}:{port['port']}"

    def _target(self) -> Target:
        slices = self._world.items(
            "discovery.k8s.io/v1:endpointslices", f"kubernetes.io/service-name={self._name}"
        )
        ready = [
            (str(endpoint["addresses"][0]), int(each["ports"][0]["port"]))
            for each in slices
            for endpoint in each.get("endpoints") or ()
            if endpoint["conditions"].get("ready")
        ]
        if not ready:
            raise LookupError(f"Service {self._name} has no ready endpoint")
        return random.choice(ready)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
